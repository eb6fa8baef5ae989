"""The operator at work on the control plane in memory, on virtual time, with hollow hosts and a wire to be hurt."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.control.health import Health
from remuda.kube.core import EVENT, NODE, POD, SERVICE_ACCOUNT
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pod import PodSettings
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.kube.runner_view import runner_of
from remuda.pools.metrics import PoolMetrics
from remuda.pools.operator import COMPONENT, PoolOperator
from remuda.pools.settings import PoolSettings
from remuda.ports.dispatch import DispatchError, Signals
from remuda.ports.kube import Query, TimedOut, Unavailable
from remuda.ports.wire import Response
from remuda.sim.clock import SimClock
from remuda.sim.fleet.disk import HostDisk
from remuda.sim.fleet.furnish import a_pool, furnish
from remuda.sim.fleet.host import HollowHost, HostSettings
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from remuda.kube.core import Event, Pod, ServiceAccount
    from remuda.kube.patches import JsonValue
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.runner import Runner
    from remuda.ports.dispatch import Stopped
    from remuda.ports.wire import Request, Wire, WireStream

SPACE = "runners"
SETTINGS = PoolSettings(
    namespace=SPACE, identity="op-1", pod=PodSettings(dispatch_url="http://dispatch.test")
)
ROOMY = {"cpu": "10000", "memory": "100Ti"}
THROTTLED = b'{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429}'
REFUSED = b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"quota"}'


@dataclass
class Hurt:
    """What happens to writes that match, as often as ``times`` says."""

    pattern: str
    how: str
    """
    ``lost``: applied, but the answer never comes. ``dropped``: never sent. ``hangs``: never sent, and noticed at the
    deadline. ``refused``: 403. ``throttled``: 429.
    """
    times: int = 1
    body: bytes = b""
    """Only requests with this in their body."""


class Tap:
    """The operator's wire: it remembers writes, and can be hurt or frozen."""

    def __init__(self, inner: Wire, clock: SimClock) -> None:
        self._inner, self.clock = inner, clock
        self.writes: list[str] = []
        self.hurts: list[Hurt] = []
        self.frozen = ""
        """Watches whose path matches get no news while this is set."""
        self.before: Callable[[str], Coroutine[Any, Any, None]] | None = None
        """Awaited right before each write: what others do at that very moment."""

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        said = f"{request.method} {request.path}"
        if request.method != "GET" and "/leases" not in request.path:
            self.writes.append(said)
            if self.before is not None:
                await self.before(said)
        how = self._hurt(said, request.body or b"")
        if how == "dropped":
            raise Unavailable("The call was lost", why="the wire is cut", fix="Mend it")
        if how == "hangs":
            await self.clock.sleep(timeout_s)
            raise TimedOut("No answer came", why="the server hangs", fix="Mend it")
        if how == "refused":
            return Response(403, REFUSED)
        if how == "throttled":
            return Response(429, THROTTLED, retry_after_s=1.0)
        answer = await self._inner.send(request, timeout_s=timeout_s)
        if how == "lost":
            raise TimedOut("The answer was lost", why="the wire is cut", fix="Mend it")
        return answer

    def _hurt(self, said: str, body: bytes) -> str:
        for hurt in self.hurts:
            if hurt.times > 0 and re.search(hurt.pattern, said) and hurt.body in body:
                hurt.times -= 1
                return hurt.how
        return ""

    @asynccontextmanager
    async def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AsyncIterator[WireStream]:
        async with self._inner.stream(
            request, connect_timeout_s=connect_timeout_s, idle_timeout_s=idle_timeout_s
        ) as inner:
            yield _Held(inner, self, request.path)

    async def close(self) -> None:
        await self._inner.close()

    def of(self, pattern: str) -> list[str]:
        return [said for said in self.writes if re.search(pattern, said)]


class _Held:
    def __init__(self, inner: WireStream, tap: Tap, path: str) -> None:
        self._inner, self._tap, self._path = inner, tap, path

    @property
    def status(self) -> int:
        return self._inner.status

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            while self._tap.frozen and re.search(self._tap.frozen, self._path):
                await self._tap.clock.sleep(0.1)
            yield chunk


class Desk:
    """A dispatch that takes reports. ``fails`` and ``hangs`` say how it does not."""

    def __init__(self) -> None:
        self.reports: dict[str, Stopped] = {}
        self.calls = 0
        self.fails = False
        self.hangs = False

    async def signals(self, pool: str) -> Signals:
        raise DispatchError(f"No signals of {pool}", why="there are none here", fix="Ask another")

    async def stopped(self, pod: str, report: Stopped) -> None:
        self.calls += 1
        if self.hangs:
            await asyncio.sleep(3600)
        if self.fails:
            raise DispatchError("Not reported", why="dispatch is down", fix="Start it")
        self.reports[pod] = report


@dataclass
class Ranch:
    """Everything a test needs: the world as an administrator sees it, and the operator's own wire."""

    plane: ControlPlane
    kube: KubeClient
    tap: Tap
    desk: Desk
    clock: SimClock
    metrics: PoolMetrics
    health: Health
    group: asyncio.TaskGroup
    settings: PoolSettings
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _listed: tuple[int, tuple[Pod, ...]] = (-1, ())
    """The Pods, and the revision before they were listed."""

    # --- People ------------------------------------------------------------------------------------------------------

    async def add_pool(self, name: str = "mac", **spec: Any) -> RunnerPool:  # noqa: ANN401 - a pool's spec
        given: dict[str, Any] = {"os": "darwin", "replicas": 2, **spec}
        return await self.kube.create(RUNNER_POOL, a_pool(name, SPACE, **given))

    async def edit(self, pool: str, **spec: Any) -> None:  # noqa: ANN401 - a pool's spec
        patch = MergePatch({"spec": spec})
        await self.kube.patch(RUNNER_POOL, pool, patch, namespace=SPACE)

    async def pool(self, name: str = "mac") -> RunnerPool:
        return await self.kube.get(RUNNER_POOL, name, namespace=SPACE)

    async def pods(self) -> tuple[Pod, ...]:
        """List the Pods. Waiting is asking again and again: what nothing was written to since is not read anew."""
        if self._listed[0] != self.plane.store.revision:
            before = self.plane.store.revision
            self._listed = before, (await self.kube.list(POD, Query(namespace=SPACE))).items
        return self._listed[1]

    async def runners(self) -> tuple[Runner, ...]:
        return tuple(runner_of(pod) for pod in await self.pods())

    async def accounts(self) -> tuple[ServiceAccount, ...]:
        found = await self.kube.list(SERVICE_ACCOUNT, Query(namespace=SPACE))
        return tuple(account for account in found.items if account.name != "default")

    async def events(self) -> tuple[Event, ...]:
        return (await self.kube.list(EVENT)).items

    async def reasons(self) -> list[str]:
        """Return the reasons of all that the operator said."""
        ours = (e for e in await self.events() if e.source.component == COMPONENT)
        return sorted(event.reason for event in ours)

    async def label(self, pod: str, **labels: str | None) -> None:
        ours: dict[str, JsonValue] = {f"remuda.dev/{key}": v for key, v in labels.items()}
        patch = MergePatch({"metadata": {"labels": ours}})
        await self.kube.patch(POD, pod, patch, namespace=SPACE)

    async def end(self, pod: str) -> None:
        """Have a runner end, as its host would say it."""
        await self.kube.patch(
            POD,
            pod,
            MergePatch({"status": {"phase": "Succeeded"}}),
            namespace=SPACE,
            subresource="status",
        )

    async def hold(self, pod: str, *finalizers: str) -> None:
        """Hold a Pod by these finalizers, or let it go."""
        held: list[JsonValue] = [*finalizers]
        patch = MergePatch({"metadata": {"finalizers": held}})
        await self.kube.patch(POD, pod, patch, namespace=SPACE)

    async def cordon(self, node: str) -> None:
        await self.kube.patch(NODE, node, MergePatch({"spec": {"unschedulable": True}}))

    def condition(self, pool: RunnerPool, kind: str) -> tuple[str, str]:
        found = next(c for c in pool.status.conditions if c.type == kind)
        return found.status, found.reason

    # --- Time --------------------------------------------------------------------------------------------------------

    async def later(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def until(
        self, what: Callable[[], Coroutine[Any, Any, bool]], within_s: float = 60.0
    ) -> None:
        ends_at = self.clock.monotonic() + within_s
        while not await what():
            assert self.clock.monotonic() < ends_at, f"not within {within_s} s"
            await self.clock.sleep(0.1)

    async def warm(self, number: int, within_s: float = 120.0) -> None:
        """Wait until so many runners are warm and nothing else is there."""

        async def enough() -> bool:
            runners = await self.runners()
            return len(runners) == number and all(r.phase == "warm" for r in runners)

        await self.until(enough, within_s)

    # --- Machines ----------------------------------------------------------------------------------------------------

    def host(
        self,
        name: str = "mini-1",
        bad_images: tuple[str, ...] = (),
        **how: Any,  # noqa: ANN401 - a host's settings
    ) -> None:
        given: dict[str, Any] = {"fleet": "barn", "boot_s": 5.0, "boot_spread": 0.0, "vms": 8}
        settings = HostSettings(name=name, **given | ROOMY | how)
        host = HollowHost(
            KubeClient(self.plane.wire()),
            settings,
            clock=self.clock,
            ids=SeededIds(1, name),
            disk=HostDisk(bad_images=set(bad_images)),
        )
        self.start(host.run(), name)

    def operator(self, identity: str = "op-1", tap: Tap | None = None) -> asyncio.Task[None]:
        wire = tap or self.tap
        self.health = Health(self.clock)  # each replica is a process of its own
        operator = PoolOperator(
            KubeClient(wire),
            KubeClient(self.plane.wire()),
            self.desk,
            replace(self.settings, identity=identity),
            clock=self.clock,
            ids=SeededIds(1, identity),
            metrics=self.metrics,
            health=self.health,
        )
        return self.start(operator.run(), identity)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self.group.create_task(work, name=name)
        self.tasks.append(task)
        return task

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@asynccontextmanager
async def a_ranch(settings: PoolSettings = SETTINGS) -> AsyncIterator[Ranch]:
    clock = SimClock(asyncio.get_running_loop())
    plane = ControlPlane.in_memory(clock, SeededIds(1, "plane"))
    kube = KubeClient(plane.wire())
    async with asyncio.TaskGroup() as group:
        ranch = Ranch(
            plane=plane,
            kube=kube,
            tap=Tap(plane.wire(), clock),
            desk=Desk(),
            clock=clock,
            metrics=PoolMetrics(CollectorRegistry()),
            health=Health(clock),
            group=group,
            settings=settings,
        )
        ranch.start(plane.run(), "plane")
        await furnish(plane.wire(), kube, SPACE)
        yield ranch
        for task in ranch.tasks:
            task.cancel()


def scenario(
    settings: PoolSettings = SETTINGS,
) -> Callable[[Callable[[Ranch], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Turn a play on a ranch into a test on virtual time."""

    def decorate(play: Callable[[Ranch], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            async with a_ranch(settings) as ranch:
                await play(ranch)

        def test() -> None:
            run(main)

        test.__name__, test.__doc__ = play.__name__, play.__doc__
        return test

    return decorate
