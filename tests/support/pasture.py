"""
Macs that share one ranch: each a stand-in of its own in a fleet of its own, with an agent that a test may torment.

The ranch is a session's, for it takes longer to build than most scenarios to play. What a test makes it takes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from remuda.kube.core import LEASE, POD
from remuda.kube.names import POOL
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import NotFound
from remuda.ports.vms import vm_name
from tests.support.agents import kill_all_below
from tests.support.docker_registry import docker_registry
from tests.support.eventually import eventually
from tests.support.history import is_alive, is_warm
from tests.support.macs import SIZE, Mac, push_runner_image
from tests.support.postgres import TEMPLATE, Server
from tests.support.ranch import Ranch, a_ranch
from tests.support.tart.installed import StandIn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from remuda.kube.core import Pod
    from tests.support.control_plane import RealControlPlane
    from tests.support.docker_registry import DockerRegistry
    from tests.support.tart.faults import Fault

WAIT_S = 90.0
KEPT = "tests.remuda.dev/kept"
"""A finalizer of the test's own: what it is on can be looked at for as long as the test likes."""
PATIENT = ("--look-interval=1", "--gc-interval=5", "--orphan-grace=1")
_numbers = count(1)


@dataclass(slots=True)
class Paddock:
    """One Mac, its agent, and the pools of its fleet."""

    pasture: Pasture
    mac: Mac
    host: str
    fleet: str
    pools: list[str] = field(default_factory=list)

    @property
    def ranch(self) -> Ranch:
        return self.pasture.ranch

    @property
    def tart(self) -> StandIn:
        return self.mac.tart

    # --- pools, runners, jobs ---

    async def pool(self, name: str, image: str, replicas: int = 1) -> str:
        """Make a pool for this host alone, and return its name."""
        full = f"{self.fleet}-{name}"
        self.pools.append(full)
        await self.ranch.create_pool(full, replicas, fleet=self.fleet, image=image, resources=SIZE)
        return full

    async def scale(self, pool: str, replicas: int) -> None:
        patch = MergePatch({"spec": {"replicas": replicas}})
        await self.ranch.kube.patch(RUNNER_POOL, pool, patch, namespace=self.ranch.namespace)

    async def drop(self, pool: str) -> None:
        self.pools.remove(pool)
        await self.ranch.delete_pool(pool)

    async def runners(self, pool: str) -> list[Pod]:
        return [p for p in await self.ranch.pods() if p.labels.get(POOL) == pool]

    async def warm(
        self, pool: str, number: int = 1, *others: Pod, within_s: float = WAIT_S
    ) -> list[Pod]:
        """Wait until so many runners wait for a job, these others not counted."""
        known = {pod.uid for pod in others}

        async def waiting() -> list[Pod]:
            assert self.ranch.agents.crashed() == []
            alive = [p for p in await self.runners(pool) if is_alive(p) and is_warm(p)]
            return [p for p in alive if p.uid not in known]

        return await eventually(waiting, lambda pods: len(pods) >= number, within_s=within_s)

    async def appeared(self, pool: str, *others: Pod) -> Pod:
        """Wait for a runner that is bound to this host, warm or not."""
        known = {pod.uid for pod in others}

        async def bound() -> list[Pod]:
            found = await self.runners(pool)
            return [p for p in found if p.spec.node_name and is_alive(p) and p.uid not in known]

        return (await eventually(bound, within_s=WAIT_S))[0]

    async def gone(self, pod: Pod) -> None:
        """Wait until neither the Pod nor anything of its VM is left."""

        async def left() -> tuple[bool, bool, bool]:
            live = await self.ranch.pod(pod.name)
            vms = await asyncio.to_thread(self.mac.ours)
            return live is not None and live.uid == pod.uid, vm_name(pod.uid) in vms, self.has(pod)

        await eventually(left, lambda now: not any(now), within_s=WAIT_S)

    def has(self, pod: Pod) -> bool:
        """Say whether the agent has a record of it."""
        return self._record(pod).exists()

    def state(self, pod: Pod) -> str:
        """Return how far the agent has written that a Pod's VM is; empty: it has no record."""
        with contextlib.suppress(FileNotFoundError):
            return str(json.loads(self._record(pod).read_bytes())["record"]["state"])
        return ""

    def _record(self, pod: Pod) -> Path:
        return self.ranch.agents.host(self.host).data / "records/vms" / f"{pod.uid}.json"

    async def until_event(self, pod: Pod | str, reason: str, words: str = "") -> str:
        """Wait for an Event about a Pod, there or gone, and return what it says."""
        name = pod if isinstance(pod, str) else pod.name

        async def said() -> list[str]:
            events = await self.ranch.events(name)
            return [message for why, message in events if why == reason and words in message]

        return (await eventually(said, within_s=WAIT_S))[0]

    @contextlib.asynccontextmanager
    async def kept(self, pod: Pod) -> AsyncIterator[Callable[[], Any]]:
        """Have a Pod stay, whoever deletes it. Gives what waits for its end and returns how it ended."""
        await self.ranch.kube.patch(
            POD,
            pod.name,
            MergePatch({"metadata": {"finalizers": [*pod.metadata.finalizers, KEPT]}}),
            namespace=self.ranch.namespace,
        )

        async def ended() -> Pod:
            return await eventually(
                lambda: self.ranch.kube.get(POD, pod.name, namespace=self.ranch.namespace),
                lambda live: live.status.phase in {"Succeeded", "Failed"},
                within_s=WAIT_S,
            )

        try:
            yield ended
        finally:
            await self._let_go(pod)

    async def _let_go(self, pod: Pod) -> None:
        live = await self.ranch.pod(pod.name)
        if live is not None and live.uid == pod.uid:
            left: list[Any] = [f for f in live.metadata.finalizers if f != KEPT]
            patch = MergePatch({"metadata": {"finalizers": left}})
            with contextlib.suppress(NotFound):
                await self.ranch.kube.patch(POD, pod.name, patch, namespace=self.ranch.namespace)

    # --- the host ---

    async def metric(self, series: str) -> float:
        """Return a value of the agent, once it answers."""

        async def read() -> float | None:
            return await self.ranch.agents.metric(self.host, series)

        found = await eventually(read, lambda value: value is not None, within_s=WAIT_S)
        assert found is not None
        return found

    async def until_metric(self, series: str, at_least: float) -> float:
        return await eventually(
            lambda: self.metric(series), lambda now: now >= at_least, within_s=WAIT_S
        )

    async def timeouts(self, op: str) -> float:
        return await self.metric(f'remuda_agent_op_timeouts_total{{op="{op}"}}')

    async def lease_renewed(self) -> None:
        """Wait for the next renewal of the Node's Lease."""

        async def read() -> object:
            with contextlib.suppress(NotFound):  # it goes with its Node, and comes back with it
                lease = await self.ranch.kube.get(LEASE, self.host, namespace="kube-node-lease")
                return lease.spec.renew_time
            return None

        before = await read()
        await eventually(read, lambda now: now not in {None, before}, within_s=WAIT_S)

    def begun(self, verb: str, vm: str = "") -> list[dict[str, Any]]:
        """Return the calls of a verb that the stand-in has seen so far."""
        return [
            note
            for note in self.tart.desk.journal()
            if note["event"] == "begin" and note["verb"] == verb and vm in {"", note["vm"]}
        ]

    async def until_taken(self, *, times: int = 0) -> None:
        """Wait until every fault that was ordered has happened."""

        async def waiting() -> int:
            return sum(max(0, fault.times) for fault in self.tart.desk.waiting())

        await eventually(waiting, lambda left: left <= times, within_s=WAIT_S)

    def order(self, *faults: Fault) -> None:
        self.tart.order(*faults)

    async def tidy(self) -> None:
        """End what a test began, and wait until the host is empty."""
        self.order()
        for pool in tuple(self.pools):
            await self.drop(pool)

        async def left() -> list[str]:
            vms = await asyncio.to_thread(self.mac.ours)
            return [*vms, *self._records()]

        await eventually(left, lambda found: found == [], within_s=WAIT_S)

    def _records(self) -> list[str]:
        folder = self.ranch.agents.host(self.host).data / "records/vms"
        return [path.name for path in folder.glob("*.json")]

    async def close(self) -> None:
        """Take the host away."""
        if self.ranch.agents.is_started(self.host):
            await asyncio.to_thread(self.ranch.agents.stop, self.host)
        self.tart.close()
        kill_all_below(self.tart.folder)


@dataclass(slots=True)
class Pasture:
    """The ranch, a registry, and images in it."""

    ranch: Ranch
    registry: DockerRegistry
    folder: Path
    images: dict[str, str] = field(default_factory=dict)

    async def image(self, name: str, program: str = "") -> str:
        """Return an image by its digest; pushed when it is first asked for. Without a program it has our runner."""
        if name not in self.images:
            self.images[name] = await asyncio.to_thread(
                push_runner_image, self.registry, self.folder, name, program=program
            )
        return self.images[name]

    @contextlib.asynccontextmanager
    async def a_mac(
        self, *options: str, tart: StandIn | None = None, starts: bool = True
    ) -> AsyncIterator[Paddock]:
        """Put up a host in a fleet of its own, and wait until its agent is ready."""
        fleet = f"fleet-{next(_numbers)}"
        mac = Mac(tart or StandIn(self.folder / fleet / "tart"))
        given = (*mac.options, f"--fleet={fleet}", *PATIENT, *options)
        host = self.ranch.add_host(*given, name=fleet, env=mac.env, starts=starts)
        paddock = Paddock(self, mac, host, fleet)
        try:
            if starts:
                await self.ranch.agents.ready(host)
            yield paddock
        finally:
            await paddock.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pasture(
    real_control_plane: RealControlPlane,
    postgres_server: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Pasture]:
    """Build the ranch of the session."""
    folder = tmp_path_factory.mktemp("pasture")
    (folder / "ranch").mkdir()
    database = await postgres_server.new_database(TEMPLATE)
    url = postgres_server.postgres.dsn_of(database)
    with docker_registry(folder / "registry") as registry:
        async with a_ranch(real_control_plane, url, folder / "ranch") as ranch:
            yield Pasture(ranch, registry, folder)
    await postgres_server.drop(database)
