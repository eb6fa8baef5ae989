"""The desk on the store and the control plane in memory, on virtual time, with a world to be hurt."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.dispatch.desk import Desk
from remuda.dispatch.hub import Gone
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import DispatchSettings
from remuda.dispatch.stamps import Stamps
from remuda.dispatch.view import DispatchView
from remuda.dispatch.who import RunnerIdentity
from remuda.kube.core import POD, SERVICE_ACCOUNT, Container, Pod, PodSpec, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import CLAIM, OWNER, POOL, RUNNER, TEMPLATE
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.job import JobState, Kind, Os, Size
from remuda.ports.database import DatabaseTimeout
from remuda.ports.jobs import Execution, JobEnd
from remuda.sim.clock import SimClock
from remuda.sim.fleet.furnish import a_pool, furnish
from remuda.sim.ids import SeededIds
from remuda.sim.jobs.registrations import MemoryRegistrations
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from remuda.sim.jobs.wakeups import MemoryWakeups
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane
from tests.support.forges import SmallForge
from tests.support.jobs import a_job, check_books
from tests.unit.pools.ranch import Tap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from datetime import datetime

    from remuda.dispatch.answers import Answer
    from remuda.dispatch.attempt import Step
    from remuda.kube.patches import JsonValue
    from remuda.model.job import Job

SPACE = "runners"
SETTINGS = DispatchSettings(namespace=SPACE)


class Wounds:
    """What goes wrong with calls, by their names: how often, and whether they are carried out before they fail."""

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.done_first = False
        self.calls: list[str] = []

    def hit(self, name: str) -> bool:
        self.calls.append(name)
        left = self.fails.get(name, 0)
        if left:
            self.fails[name] = left - 1
        return left > 0


def hurt(name: str) -> DatabaseTimeout:
    return DatabaseTimeout(f"{name} was not answered", why="the wire is cut", fix="Mend it")


class Hurtable:
    """Stands before a part of the store: each call takes a moment, is noted, and may fail."""

    def __init__(self, inner: Any, wounds: Wounds, clock: SimClock) -> None:  # noqa: ANN401 - any part
        self._inner, self._wounds, self._clock = inner, wounds, clock

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method
        real = getattr(self._inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any method
            fails = self._wounds.hit(name)
            await self._clock.sleep(0.001)
            if fails and not self._wounds.done_first:
                raise hurt(name)
            answer = await real(*args, **kwargs)
            if fails:
                raise hurt(name)
            await self._clock.sleep(0.001)
            return answer

        return call


@dataclass
class Asking:
    """One poll under way."""

    task: asyncio.Task[Answer]
    gone: Gone

    async def answer(self) -> Answer:
        return await self.task


@dataclass
class Hall:
    """Everything a test needs."""

    desk: Desk
    tables: Tables
    store: MemoryJobs
    kube: KubeClient
    tap: Tap
    forge: SmallForge
    wounds: Wounds
    wakeups: MemoryWakeups
    clock: SimClock
    group: asyncio.TaskGroup
    running: asyncio.Task[None] | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    at: Callable[[Step], Awaitable[None]] | None = None
    """Awaited at each step of each attempt."""
    queued_at: datetime | None = None

    # --- Polls -------------------------------------------------------------------------------------------------------

    def ask(self, pod: str = "a", wait_s: float = 20.0) -> Asking:
        gone = Gone()
        who = RunnerIdentity(pod, self.pods[pod].uid)
        task = self.group.create_task(
            self.desk.poll(who, wait_s=wait_s, gone=gone), name=f"poll {pod}"
        )
        return Asking(task, gone)

    async def poll(self, pod: str = "a", wait_s: float = 20.0) -> Answer:
        return await self.ask(pod, wait_s).task

    # --- Jobs --------------------------------------------------------------------------------------------------------

    async def queue(self, *numbers: int, **changes: Any) -> None:  # noqa: ANN401 - fields of a job
        for number in numbers:
            spec = replace(a_job(number), queued_at=self.clock.now(), **changes)
            await self.store.enqueue(spec, by="test")

    async def queue_gone(self) -> None:
        """Have everything that waits be over: nobody is handed it."""
        for job in self.tables.waiting():
            end = JobEnd(
                job_id=job.spec.id,
                tenant=job.spec.tenant,
                conclusion="cancelled",
                ended_at=self.clock.now(),
                by="test",
            )
            await self.store.complete(end)

    def job(self, number: int = 1) -> Job:
        return self.tables.jobs[f"forge/{number}"]

    def state(self, number: int = 1) -> JobState:
        return self.job(number).state

    async def executes(self, number: int, runner: str, tenant: str = "acme") -> None:
        await self.store.attribute(
            Execution(
                tenant=tenant,
                job_id=f"forge/{number}",
                runner_name=runner,
                started_at=self.clock.now(),
                by="test",
            )
        )

    async def check(self) -> None:
        await check_books(MemoryJobViews(self.tables))

    # --- Pods --------------------------------------------------------------------------------------------------------

    async def add_pod(self, name: str = "a", pool: str = "linux", **labels: str) -> Pod:
        ours = {f"remuda.dev/{key.replace('_', '-')}": v for key, v in labels.items()}
        meta = ObjectMeta(
            name=name,
            namespace=SPACE,
            labels={RUNNER: "true", POOL: pool, TEMPLATE: "h1", **ours},
        )
        spec = PodSpec(
            containers=(Container(name="runner", image="runner"),), service_account_name=name
        )
        await self.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
        self.pods[name] = await self.kube.create(POD, Pod(metadata=meta, spec=spec))
        while self.desk.view.pod(name) is None:
            await self.clock.sleep(0.01)
        return self.pods[name]

    async def pod(self, name: str = "a") -> Pod:
        return await self.kube.get(POD, name, namespace=SPACE)

    async def is_stamped(self, name: str = "a") -> bool:
        pod = await self.pod(name)
        assert (OWNER in pod.labels) == (CLAIM in pod.metadata.annotations), "both or none"
        return OWNER in pod.labels

    async def label(self, name: str, **labels: str | None) -> None:
        ours: dict[str, JsonValue] = {
            f"remuda.dev/{key.replace('_', '-')}": v for key, v in labels.items()
        }
        patch = MergePatch({"metadata": {"labels": ours}})
        await self.kube.patch(POD, name, patch, namespace=SPACE)

    async def delete(self, name: str, grace_s: int = 0) -> None:
        await self.kube.delete(POD, name, namespace=SPACE, grace_s=grace_s)

    async def pool_status(self, pool: str = "linux", **status: JsonValue) -> None:
        patch = MergePatch({"status": status})
        await self.kube.patch(RUNNER_POOL, pool, patch, namespace=SPACE, subresource="status")

    # --- Time and numbers --------------------------------------------------------------------------------------------

    async def later(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def reach(self, step: Step) -> None:
        if self.at is not None:
            await self.at(step)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self.group.create_task(work, name=name)
        self.tasks.append(task)
        return task

    def metric(self, name: str, **labels: str) -> float | None:
        return self.desk.metrics.registry.get_sample_value(name, labels)

    def polled(self, outcome: str) -> float | None:
        return self.metric("remuda_dispatch_polls_total", outcome=outcome)

    async def nothing_is_left(self, number: int = 1, pod: str = "a") -> None:
        """Check that an attempt was undone: job, Pod, registration and room are as if it had never been."""
        assert self.state(number) is JobState.QUEUED
        assert not await self.is_stamped(pod)
        assert self.forge.runners == {}
        assert self.tables.registrations == {}
        assert self.tables.claims == {}
        assert self.tables.sessions == {}
        assert all(standing.used == Size(0, 0) for standing in self.tables.limits.values())
        await self.check()


@asynccontextmanager
async def a_hall(
    settings: DispatchSettings = SETTINGS, replica: str = "one"
) -> AsyncIterator[Hall]:
    clock = SimClock(asyncio.get_running_loop())
    plane = ControlPlane.in_memory(clock, SeededIds(1, "plane"))
    kube, tap = KubeClient(plane.wire()), Tap(plane.wire(), clock)
    tables, forge, wounds = Tables(clock), SmallForge(), Wounds()
    async with asyncio.TaskGroup() as group:
        hall = _hall(settings, replica, (clock, kube, tap, tables, forge, wounds, group))
        hall.start(plane.run(), "plane")
        await furnish(plane.wire(), kube, SPACE)
        await hall.store.set_limits("acme", Os.LINUX, Size(64, 128 * 1024), by="test")
        labels = ("self-hosted", "fast")
        await kube.create(RUNNER_POOL, a_pool("linux", SPACE, labels=labels, os="linux"))
        await hall.pool_status(templateHash="h1")
        hall.start(hall.desk.view.run(), "view")
        await hall.desk.view.wait_synced()
        hall.running = hall.start(hall.desk.run(), "desk")
        await clock.sleep(0.5)
        yield hall
        for task in reversed(hall.tasks):
            task.cancel()


def _hall(settings: DispatchSettings, replica: str, world: tuple[Any, ...]) -> Hall:
    clock, kube, tap, tables, forge, wounds, group = world
    ours, ids = KubeClient(tap), SeededIds(1, replica)
    store, wakeups = MemoryJobs(tables), MemoryWakeups(tables)
    hall: Hall

    async def reached(step: Step) -> None:
        await hall.reach(step)

    desk = Desk(
        kube=ours,
        store=Hurtable(store, wounds, clock),
        views=Hurtable(MemoryJobViews(tables), wounds, clock),
        view=DispatchView(ours, settings, clock=clock, ids=ids),
        stamps=Stamps(ours, settings),
        registrations=Hurtable(MemoryRegistrations(tables), wounds, clock),
        wakeups=wakeups,
        forges={Kind.GITHUB: forge},
        settings=settings,
        metrics=DispatchMetrics(CollectorRegistry()),
        clock=clock,
        ids=ids,
        reached=reached,
    )
    hall = Hall(desk, tables, store, kube, tap, forge, wounds, wakeups, clock, group)
    return hall


def in_hall(
    play: Callable[[Hall], Coroutine[Any, Any, None]], settings: DispatchSettings = SETTINGS
) -> None:
    """Play in a hall, on virtual time."""

    async def main() -> None:
        async with a_hall(settings) as hall:
            await play(hall)

    run(main)


def story(
    settings: DispatchSettings = SETTINGS,
) -> Callable[[Callable[[Hall], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Turn a play in the hall into a test on virtual time."""

    def decorate(play: Callable[[Hall], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def test() -> None:
            in_hall(play, settings)

        test.__name__, test.__doc__ = play.__name__, play.__doc__
        return test

    return decorate
