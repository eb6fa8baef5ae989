"""The intake on the store in memory and on virtual time, with a forge that says what the test wants."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.dispatch.announcements import Announcements
from remuda.dispatch.intake import IntakeWorkers
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import DispatchSettings
from remuda.dispatch.sweep import Sweeps
from remuda.kube.meta import ObjectMeta
from remuda.kube.runner_pool import Forks, RunnerPool, RunnerPoolSpec
from remuda.model.job import JobState, Kind
from remuda.ports.database import DatabaseUnavailable
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import Action, Announcement, ForgeJob, ForgeState, Ignored, Swept
from remuda.ports.jobs import Claimed, WarmRunner
from remuda.ports.registrations import Registration
from remuda.sim.clock import EPOCH, SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.jobs.deliveries import MemoryDeliveries
from remuda.sim.jobs.locks import MemoryLocks
from remuda.sim.jobs.registrations import MemoryRegistrations
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from remuda.sim.loop import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine

    from remuda.dispatch.settings import IntakeSettings
    from remuda.model.job import Job, JobSpec
    from remuda.ports.forge import Spent

SETTINGS = DispatchSettings(namespace="runners")
RUNNER = "linux-x7k2p-0a1b2c3d"


def a_pool(
    name: str = "linux",
    *labels: str,
    forks: Forks = Forks.ALLOW,
    **spec: Any,  # noqa: ANN401 - a pool's spec
) -> RunnerPool:
    made = RunnerPoolSpec(image="i", fleet="f", labels=labels or ("fast",), forks=forks, **spec)
    return RunnerPool(metadata=ObjectMeta(name=name), spec=made)


def news(action: Action = Action.QUEUED, number: int = 1, **changes: Any) -> Announcement:  # noqa: ANN401 - fields
    """Build news about a job of acme."""
    made = Announcement(
        action=action,
        job_id=f"forge/{number}",
        tenant="acme",
        repository="acme/app",
        labels=("self-hosted", "fast"),
        queued_at=EPOCH,
        run_id=9000 + number,
    )
    if action in {Action.IN_PROGRESS, Action.COMPLETED}:
        made = replace(made, started_at=EPOCH + timedelta(seconds=5), runner_name=RUNNER)
    if action is Action.COMPLETED:
        made = replace(made, ended_at=EPOCH + timedelta(seconds=9), conclusion="success")
    return replace(made, **changes)


class FixedPools:
    """The pools that the test wants. Implements ``SeenPools``."""

    def __init__(self, *pools: RunnerPool) -> None:
        self.seen = list(pools)
        self.synced = asyncio.Event()
        self.synced.set()

    async def wait_synced(self) -> None:
        await self.synced.wait()

    def pools(self) -> tuple[RunnerPool, ...]:
        return tuple(self.seen)


@dataclass
class Hub:
    """A forge that says what the test wants. Implements ``Announcer``."""

    forks: dict[int | None, bool | Exception | None] = field(default_factory=dict)
    """By run. What is not in it is no fork; of None it says nothing."""
    hangs: set[int | None] = field(default_factory=set)
    """Runs about which it never answers."""
    asked: list[int | None] = field(default_factory=list)
    written: dict[bytes, Announcement | Ignored | Exception] = field(default_factory=dict)
    """What each message says, by its body."""
    queued: list[Announcement] = field(default_factory=list)
    sweep_fails: Exception | None = None
    sweeps: list[tuple[str, ...]] = field(default_factory=list)
    rooms: list[int] = field(default_factory=list)
    """How many repositories each sweep was to look at."""
    spent: tuple[Spent, ...] = ()
    """What each sweep says that it cost."""
    jobs: dict[str, ForgeJob] = field(default_factory=dict)
    looked_up: list[str] = field(default_factory=list)
    redelivers: int = 0
    redeliveries: int = 0

    async def read(self, delivery: Delivery) -> Announcement | Ignored:
        said = self.written[delivery.body]
        if isinstance(said, Exception):
            raise said
        return said

    async def is_fork(self, repository: str, run_id: int | None, tenant: str) -> bool | None:  # noqa: ARG002 - the port
        self.asked.append(run_id)
        if run_id in self.hangs:
            await asyncio.Event().wait()
        said = self.forks.get(run_id, False)
        if isinstance(said, Exception):
            raise said
        return said

    async def sweep(self, first: Collection[str], *, at_most: int) -> Swept:
        self.sweeps.append(tuple(first))
        self.rooms.append(at_most)
        if self.sweep_fails is not None:
            raise self.sweep_fails
        over = Action.COMPLETED
        return Swept(
            found=tuple(self.queued),
            repositories=1,
            spent=self.spent,
            looked_at=frozenset({"acme/app"}),
            alive=frozenset(news.job_id for news in self.queued if news.action is not over),
        )

    async def look_up(self, job: JobSpec) -> ForgeJob:
        """Say what became of a job; what is not written down here waits."""
        self.looked_up.append(job.id)
        return self.jobs.get(job.id, ForgeJob(state=ForgeState.QUEUED))

    async def redeliver(self, *, within: timedelta) -> int:  # noqa: ARG002 - the port
        self.redeliveries += 1
        return self.redelivers


class ShakyInbox(MemoryDeliveries):
    """An inbox whose database can be down."""

    down = False

    def _look(self) -> None:
        if self.down:
            raise DatabaseUnavailable("No database", why="the test says so", fix="Wait")

    async def record(self, delivery: Delivery) -> bool:
        self._look()
        return await super().record(delivery)

    async def take(self, *, limit: int, lease: timedelta) -> tuple[Delivery, ...]:
        self._look()
        return await super().take(limit=limit, lease=lease)

    async def processed(self, guid: str, outcome: str) -> bool:
        self._look()
        return await super().processed(guid, outcome)


@dataclass
class Mailroom:
    """All of it."""

    clock: SimClock
    tables: Tables
    pools: FixedPools
    hub: Hub
    settings: DispatchSettings = SETTINGS

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = DispatchMetrics(self.registry)
        self.store, self.views = MemoryJobs(self.tables), MemoryJobViews(self.tables)
        self.registrations = MemoryRegistrations(self.tables)
        self.inbox = ShakyInbox(self.clock)
        self.ids = SeededIds(7, "intake")
        self.announcements = self.new_announcements()

    def new_announcements(self) -> Announcements:
        return Announcements(
            store=self.store,
            views=self.views,
            view=self.pools,
            announcer=self.hub,
            registrations=self.registrations,
            settings=self.settings,
            metrics=self.metrics,
            clock=self.clock,
        )

    def new_workers(self, settings: IntakeSettings | None = None) -> IntakeWorkers:
        return IntakeWorkers(
            deliveries=self.inbox,
            announcer=self.hub,
            announcements=self.announcements,
            settings=settings or self.settings.intake,
            metrics=self.metrics,
            clock=self.clock,
            ids=self.ids,
        )

    def new_sweeps(self, locks: MemoryLocks | None = None) -> Sweeps:
        return Sweeps(
            announcer=self.hub,
            look_up=self.hub.look_up,
            announcements=self.announcements,
            views=self.views,
            locks=locks or MemoryLocks(self.tables),
            settings=self.settings.intake,
            metrics=self.metrics,
            clock=self.clock,
            ids=self.ids,
        )

    async def apply(self, announcement: Announcement) -> str:
        return await self.announcements.apply(announcement, by="test")

    async def post(self, guid: str, said: Announcement | Ignored | Exception) -> bool:
        """Put a message into the inbox."""
        body = guid.encode()
        self.hub.written[body] = said
        subject = said.job_id if isinstance(said, Announcement) else ""
        return await self.inbox.record(
            Delivery(guid=guid, event="workflow_job", body=body, subject=subject)
        )

    async def hand_over(self, pod: str = "p1", runner: str = RUNNER) -> Claimed:
        """Claim the job whose turn it is, and hand it to a runner."""
        claimed = await self.store.claim(WarmRunner(pod, f"uid-{pod}", "linux"))
        assert isinstance(claimed, Claimed), claimed
        await self.store.mark_running(claimed.claim, runner)
        await self.registrations.note(
            Registration(
                runner_name=runner,
                kind=Kind.GITHUB,
                tenant="acme",
                repository="acme/app",
                job_id=claimed.job.spec.id,
                pod=pod,
                noted_at=self.clock.now(),
            )
        )
        return claimed

    def noted(self) -> list[str]:
        """Return the runners whose registration may have to be removed."""
        return sorted(self.tables.registrations)

    async def job(self, number: int = 1) -> Job | None:
        return await self.views.job(f"forge/{number}")

    async def state(self, number: int = 1) -> JobState | None:
        job = await self.job(number)
        return None if job is None else job.state

    async def jobs(self) -> list[str]:
        found = await self.views.jobs(states=frozenset(JobState), limit=1000)
        return sorted(job.spec.id for job in found)

    def counted(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"remuda_{name}", labels) or 0.0

    def at(self, seconds: float) -> datetime:
        return EPOCH + timedelta(seconds=seconds)


def a_mailroom(*pools: RunnerPool) -> Mailroom:
    clock = SimClock(asyncio.get_running_loop())
    return Mailroom(clock, Tables(clock), FixedPools(*(pools or (a_pool(),))), Hub())


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run something for as long as the block lasts."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work, name="under test")
        yield task
        task.cancel()


def story(
    *pools: RunnerPool,
) -> Callable[[Callable[[Mailroom], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Make a test of a story that plays on virtual time."""

    def decorate(play: Callable[[Mailroom], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            await play(a_mailroom(*pools))

        def test() -> None:
            run(main)

        test.__name__, test.__doc__ = play.__name__, play.__doc__
        return test

    return decorate
