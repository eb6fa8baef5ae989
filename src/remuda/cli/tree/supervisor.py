"""
Tends the parts of a tree: starts them in order, starts again what ends, furnishes the control plane, ends all in order.

Parts are not its children in any way that matters: when it is killed they go on, and the next one ends them first
(``sweep``) and begins anew. What they need to go on is on disk, and VMs go on meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.cli.finding import Addresses
from remuda.cli.tree import furnish
from remuda.cli.tree.decide.last_words import LastWords, last_words
from remuda.cli.tree.decide.restarts import Life, failures_after, is_hopeless
from remuda.cli.tree.folder import usable
from remuda.cli.tree.github import github_words
from remuda.cli.tree.parts import (
    AGENT,
    CONTROL_PLANE,
    CONTROLLER,
    NAMESPACE,
    SERVER,
    STARTED,
    STOPPED,
)
from remuda.cli.tree.probes import ask
from remuda.cli.tree.retire import retire_idle
from remuda.cli.tree.runs import POLL_S, Run
from remuda.cli.tree.state import PartState, TreeState, write_state
from remuda.control.backoff import Backoff
from remuda.model.errors import RemudaError
from remuda.ports.database import DatabaseError
from remuda.ports.kube import KubeError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from remuda.cli.tree.decide.driver import Size
    from remuda.cli.tree.decide.pool import PoolWish
    from remuda.cli.tree.folder import Folder
    from remuda.cli.tree.parts import Layout
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

GRACE_S: Final = {CONTROLLER: 15.0, AGENT: 20.0, SERVER: 60.0, CONTROL_PLANE: 20.0}
"""How long a part may take to end. The server writes all of its database first."""
_PROBE_S: Final = 0.2
_HOUSEKEEPING_S: Final = 60.0
_RENEW_S: Final = 3600.0
_RESTARTS: Final = Backoff(first_s=0.5, longest_s=30.0)
_FURNISHING: Final = Backoff(first_s=0.2, longest_s=5.0)
_FURNISH_TRIES: Final = 20


class PartFailed(RemudaError):
    """A part does not come up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a start was told and chose."""

    layout: Layout
    offer: Size
    pool: PoolWish
    why_driver: str
    isolated: bool
    env: Mapping[str, str]
    image: str = ""
    """The image that the person named at this start."""


@dataclass(slots=True)
class _Tended:
    """What is known of one part since the start."""

    run: Run
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """It was ready once."""
    failures: int = 0
    restarts: int = 0
    last_error: str = ""
    last_error_at: datetime | None = None


class Supervisor:
    """One tree. ``run`` it while the data folder's lock is held."""

    def __init__(self, plan: Plan, *, clock: Clock, ids: Ids, say: Callable[[str], None]) -> None:
        self._plan, self._clock, self._ids, self._say = plan, clock, ids, say
        self._folder, self._layout = plan.layout.folder, plan.layout
        self._parts = {name: _Tended(Run(self._folder, name)) for name in STARTED}
        self._furnished = asyncio.Event()
        self._started_at = clock.now()
        self._all_ready = False
        self._remark = ""

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
        """Tend the parts until ``stop`` is set, then end them. Raises PartFailed if one does not come up at first."""
        furnish.check_database(self._folder, self._plan.env)
        with usable(self._folder.root):
            furnish.make_identities(self._layout, self._clock, self._ids)
        self._write_down()
        try:
            async with asyncio.TaskGroup() as group:
                work = [self._tend(part) for part in STARTED]
                work += [self._furnish(), self._keep_house(), self._announce(on_ready)]
                tasks = [group.create_task(each) for each in work]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self._say("Stopping …")
            await shut_down(self._folder, self._clock)

    # --- one part -----------------------------------------------------------------------------------------------------

    async def _tend(self, name: str) -> None:
        part = self._parts[name]
        await self._prerequisites(name)
        while True:
            began = self._clock.monotonic()
            try:
                with usable(self._folder.root):
                    await self._start(name)
                was_ready = await self._watched(name)
                with usable(self._folder.root):
                    tail, path = self._folder.tail(name), str(self._folder.log(name))
                words = last_words(name, tail, path=path)
            except RemudaError as error:  # such as a full disk: that may pass
                was_ready, words = False, LastWords(error.what, error.why, error.fix)
            life = Life(self._clock.monotonic() - began, was_ready)
            self._take_note_of_end(name, life, words)
            wait_s = _RESTARTS.wait_s(part.failures, self._ids.fraction())
            await self._clock.sleep(wait_s)
            part.restarts += 1
            self._note()

    async def _start(self, name: str) -> None:
        if name == AGENT:  # its certificate may be near its end
            furnish.give_node_identity(self._layout, self._clock)
        command = self._layout.command(name, self._plan.offer)
        await self._parts[name].run.start(command, self._plan.env)

    async def _prerequisites(self, name: str) -> None:
        """Wait for what a part cannot do without. Dispatch and agent ask the control plane until it answers."""
        if name == CONTROLLER:
            await self._furnished.wait()

    async def _watched(self, name: str) -> bool:
        """Watch a part until it ends; True: it was ready in this life."""
        part, was_ready = self._parts[name], False
        while lives(part.run):
            if not was_ready and (await ask(self._layout, name)).ready:
                was_ready = True
                part.ready.set()
            await self._clock.sleep(POLL_S if was_ready else _PROBE_S)
        return was_ready

    def _take_note_of_end(self, name: str, life: Life, words: LastWords) -> None:
        part = self._parts[name]
        part.failures = failures_after(part.failures, life)
        part.last_error, part.last_error_at = words.line, self._clock.now()
        self._note()
        if is_hopeless(part.failures, was_ever_ready=part.ready.is_set()):
            raise PartFailed(words.what, why=words.why, fix=words.fix)
        self._say(f"The {name} ended and is started again: {words.line}")

    # --- the whole ----------------------------------------------------------------------------------------------------

    async def _furnish(self) -> None:
        await self._parts[CONTROL_PLANE].ready.wait()
        failures = 0
        while True:
            try:
                async with furnish.administrator(self._folder) as kube:
                    await furnish.apply_kinds(kube)
                    await furnish.give_controller_token(kube, self._layout)
                    await self._make_pool(kube)
            except Refused:
                raise
            except KubeError:
                failures += 1
                if failures >= _FURNISH_TRIES:
                    raise
                await self._clock.sleep(_FURNISHING.wait_s(failures, self._ids.fraction()))
            else:
                break
        self._furnished.set()

    async def _make_pool(self, kube: Kube) -> None:
        wish = self._plan.pool
        if not await furnish.make_pool(kube, wish, self._clock):
            self._remark = await furnish.pool_keeps(kube, wish, self._plan.image)
            if self._remark:
                self._say(self._remark)

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        for part in self._parts.values():
            await part.ready.wait()
        failures = 0
        while True:
            try:
                await furnish.ensure_api_token(self._layout, self._clock, self._ids)
            except (DatabaseError, furnish.NoDatabase):
                failures += 1
                if failures >= _FURNISH_TRIES:
                    raise
                await self._clock.sleep(_FURNISHING.wait_s(failures, self._ids.fraction()))
            else:
                break
        addresses = Addresses(
            server=self._layout.url(SERVER),
            kubernetes=self._layout.url(CONTROL_PLANE),
            namespace=NAMESPACE,
            metrics=self._layout.metrics,
        )
        with usable(self._folder.root):
            self._folder.home.write_addresses(addresses)
        self._all_ready = True
        self._write_down()
        on_ready()

    async def _keep_house(self) -> None:
        """Bound the logs, and renew what would expire. What fails is tried again."""
        await self._furnished.wait()
        renewed = self._clock.monotonic()
        while True:
            await self._clock.sleep(_HOUSEKEEPING_S)
            with suppress(OSError):
                for name in (*STARTED, "up"):
                    self._folder.bound_log(name)
            if self._clock.monotonic() - renewed >= _RENEW_S:
                with suppress(OSError, RemudaError):
                    furnish.give_node_identity(self._layout, self._clock)
                    async with furnish.administrator(self._folder) as kube:
                        await furnish.give_controller_token(kube, self._layout)
                    renewed = self._clock.monotonic()

    def _note(self) -> None:
        """Write down how it goes. A disk that is full must not end what runs."""
        with suppress(OSError):
            write_state(self._folder, self._state())

    def _write_down(self) -> None:
        """Likewise, where somebody waits for it. BadInput if that cannot be written."""
        with usable(self._folder.root):
            write_state(self._folder, self._state())

    def _state(self) -> TreeState:
        parts = {
            name: PartState(
                address=self._layout.url(name),
                restarts=part.restarts,
                last_error=part.last_error,
                last_error_at=part.last_error_at,
            )
            for name, part in self._parts.items()
        }
        return TreeState(
            pid=os.getpid(),
            started_at=self._started_at,
            driver=self._layout.kept.driver,
            why_driver=self._plan.why_driver,
            isolated=self._plan.isolated,
            pool=self._layout.kept.pool,
            vms=self._layout.kept.vms,
            parts=parts,
            github=github_words(self._folder, self._plan.env),
            ready=self._all_ready,
            remark=self._remark,
        )


def lives(run: Run) -> bool:
    """Say whether a part lives. If that cannot be seen just now, it is looked at again: a part ends by its own end."""
    try:
        return run.is_alive
    except OSError:
        return True


async def sweep(folder: Folder) -> tuple[str, ...]:
    """End what a killed ``remuda up`` left running, and return the names of it. VMs are not touched."""
    left = tuple(name for name in STOPPED if Run(folder, name).is_alive)
    for name in left:
        await Run(folder, name).stop(grace_s=GRACE_S[name])
    return left


async def shut_down(folder: Folder, clock: Clock) -> None:
    """End the parts in order. Once nobody makes runners any more, those without a job end: only jobs go on."""
    await Run(folder, CONTROLLER).stop(grace_s=GRACE_S[CONTROLLER])
    if all(Run(folder, name).is_alive for name in (CONTROL_PLANE, AGENT)):
        # Whatever is wrong with the folder by now, the parts are ended.
        with suppress(OSError, RemudaError):
            async with furnish.administrator(folder) as kube:
                await retire_idle(kube, clock)
    await sweep(folder)
