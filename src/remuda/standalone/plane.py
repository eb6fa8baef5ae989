"""
The one-machine control plane, put together: store, verbs, API server and controllers.

In memory it is the simulator's world: no threads, no sockets, no real time. Durable, it lives in a data directory and
is served over HTTPS. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Self

import structlog

from remuda.control.durable import usable
from remuda.model.errors import BadInput, RemudaError
from remuda.standalone.api import ApiServer
from remuda.standalone.collector import Collector
from remuda.standalone.event_expiry import EventExpiry
from remuda.standalone.http import HttpFront, HttpSettings
from remuda.standalone.journal import FILE_NAME, LOCK_NAME, Journal
from remuda.standalone.kinds import BUILT_IN, Kinds
from remuda.standalone.local_wire import LocalWire
from remuda.standalone.logs import PodLogs
from remuda.standalone.namespaces import Namespaces
from remuda.standalone.node_lifecycle import NodeLifecycle
from remuda.standalone.pki import Pki, load_or_create, write_kubeconfig
from remuda.standalone.rest import Rest
from remuda.standalone.scheduler import Scheduler
from remuda.standalone.store import HISTORY_MAX, Store
from remuda.standalone.tokens import ISSUER, Tokens, new_key

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Any

    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.standalone.decide.node_health import HealthRules

    Loop = Callable[[], Coroutine[Any, Any, None]]

_log = structlog.get_logger("remuda.standalone.plane")

PKI_FOLDER = "pki"
KUBECONFIG = "kubeconfig"
CERTIFICATE_CHECK_S = 24 * 3600.0
RESTART_FIRST_S, RESTART_MAX_S = 1.0, 60.0


class PortTaken(RemudaError):
    """The address to serve on cannot be had."""


class ControlPlane:
    """A whole control plane. Make it with ``in_memory`` or ``durable``, then ``run`` or ``serve`` it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        token_key: bytes,
        admin_token: str,
        health: HealthRules | None = None,
    ) -> None:
        self.store, self.kinds = store, Kinds(BUILT_IN)
        self.rest = Rest(store, self.kinds, clock, ids)
        self.admin_token = admin_token
        self.tokens = Tokens(token_key, ISSUER, clock, ids)
        self.api = ApiServer(self.rest, self.tokens, admin_token=admin_token)
        self._namespaces = Namespaces(self.rest, store, self.kinds)
        self._loops: dict[str, Loop] = {
            "namespaces": self._namespaces.run,
            "collector": Collector(self.rest, store, self.kinds).run,
            "scheduler": Scheduler(self.rest, store, clock, ids).run,
            "node-lifecycle": NodeLifecycle(self.rest, store, clock, health).run,
            "event-expiry": EventExpiry(self.rest, store, clock).run,
        }

    @classmethod
    def in_memory(cls, clock: Clock, ids: Ids, *, health: HealthRules | None = None) -> Self:
        """Make one that forgets everything. It is furnished at once; ``run`` keeps it going."""
        plane = cls(
            Store(),
            clock,
            ids,
            token_key=new_key(ids.secret(64)),
            admin_token=ids.secret().hex(),
            health=health,
        )
        _finish(plane.bootstrap())
        return plane

    @staticmethod
    def durable(
        data_dir: Path,
        clock: Clock,
        ids: Ids,
        *,
        health: HealthRules | None = None,
        history_max: int = HISTORY_MAX,
    ) -> DurableControlPlane:
        """Make one that keeps everything in ``data_dir``. BadInput if the directory cannot be used."""
        return DurableControlPlane(data_dir, clock, ids, health=health, history_max=history_max)

    def wire(self, bearer: str | None = None) -> LocalWire:
        """Return a way to talk to it without a network: as the administrator, or as whoever holds ``bearer``."""
        return LocalWire(self.api, self.admin_token if bearer is None else bearer)

    async def bootstrap(self) -> None:
        """Make sure that what every cluster has is there."""
        await self._namespaces.bootstrap()

    async def run(self) -> None:
        """Run the controllers until cancelled. In memory, one that fails ends all: a simulation must not hide it."""
        await self.bootstrap()
        async with asyncio.TaskGroup() as group:
            for name, loop in self._loops.items():
                group.create_task(self._tend(name, loop), name=f"control plane: {name}")

    async def _tend(self, name: str, loop: Loop) -> None:
        await loop()
        raise RuntimeError(f"the {name} loop ended by itself; it only ends by being cancelled")


class DurableControlPlane(ControlPlane):
    """One that lives in a data directory. Close it at the end."""

    def __init__(
        self,
        data: Path,
        clock: Clock,
        ids: Ids,
        *,
        health: HealthRules | None = None,
        history_max: int = HISTORY_MAX,
    ) -> None:
        _refuse_foreign(data)
        self._clock, self._ids = clock, ids
        # First the journal: it takes the lock that keeps others out of the directory.
        with _usable(data):
            journal = Journal(data, history_max=history_max)
        try:
            with _usable(data):
                self.pki: Pki = load_or_create(data / PKI_FOLDER, clock, ids)
            super().__init__(
                Store(journal, history_max=history_max),
                clock,
                ids,
                token_key=self.pki.token_key,
                admin_token=self.pki.admin_token,
                health=health,
            )
        except BaseException:
            journal.close()
            raise
        self.kubeconfig = data / KUBECONFIG

    async def _tend(self, name: str, loop: Loop) -> None:
        """Begin a controller again that failed: what it fell over is still there, and only the API can remove it."""
        pause_s = RESTART_FIRST_S
        while True:
            try:
                await super()._tend(name, loop)
            except Exception as error:  # noqa: BLE001 - the loop's edge
                # The plain trace, never the variables in it: they may hold Secrets.
                trace = "".join(traceback.format_exception(error))
                _log.error("controller failed", controller=name, retry_in_s=pause_s, trace=trace)
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, RESTART_MAX_S)

    async def serve(
        self, settings: HttpSettings, on_ready: Callable[[str], None] = lambda _: None
    ) -> None:
        """Serve it over HTTPS and run the controllers, until cancelled. ``on_ready`` is told the address."""
        await self.bootstrap()
        logs = PodLogs(self.rest, self.store, self.pki)
        front = HttpFront(self.api, self.pki, settings, logs)
        address = await _listen(front, settings)
        try:
            with _usable(self.kubeconfig.parent):
                write_kubeconfig(self.kubeconfig, address, self.pki)
            on_ready(address)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.run(), name="control plane")
                renewing = self._keep_certificates(address, (front, logs))
                group.create_task(renewing, name="control plane: certificates")
        finally:
            await front.stop()
            await logs.close()

    async def _keep_certificates(
        self, address: str, users: tuple[HttpFront | PodLogs, ...]
    ) -> None:
        """Renew certificates while it runs: it may run for longer than they last."""
        while True:
            await self._clock.sleep(CERTIFICATE_CHECK_S)
            try:
                found = load_or_create(self.pki.folder, self._clock, self._ids)
                if found == self.pki:
                    continue
                write_kubeconfig(self.kubeconfig, address, found)
            except OSError as error:  # a full disk: there are days left to try again
                _log.error("certificates not renewed", error=str(error))
                continue
            self.pki = found
            for user in users:
                user.use_certificates(found)

    async def close(self) -> None:
        """Finish what was accepted and let go of the data directory."""
        await self.store.close()


async def _listen(front: HttpFront, settings: HttpSettings) -> str:
    try:
        port = await front.start()
    except OSError as error:
        raise PortTaken(
            f"The control plane cannot listen on {settings.host}:{settings.port}",
            why=error.strerror or str(error),
            fix="Stop what uses that port, or choose another one with --port (0 takes any)",
        ) from None
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"https://{host}:{port}"


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run to its end what never waits: in memory, every write is done when it is accepted."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise RuntimeError("a write in memory waited for something")


def _usable(data: Path) -> AbstractContextManager[None]:
    return usable(
        BadInput,
        f"The data directory {data} cannot be used",
        fix="Free disk space and see that the directory belongs to you, or choose another one with --data",
    )


def _refuse_foreign(data: Path) -> None:
    """Keep out of directories that hold something else: they would be closed to others, and filled with our files."""
    try:
        present = {path.name for path in data.iterdir()} if data.exists() else set()
    except OSError as error:
        raise BadInput(
            f"The data directory {data} cannot be read",
            why=error.strerror or str(error),
            fix="Choose a directory that belongs to you with --data",
        ) from None
    if present and not present & {FILE_NAME, LOCK_NAME}:
        raise BadInput(
            f"{data} is not the data directory of a control plane",
            why=f"it holds something else ({', '.join(sorted(present)[:3])})",
            fix="Choose an empty or a new directory with --data",
        )
