"""A store of jobs under test: builders, a clock that stands still, and what must always hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.deliveries import PostgresDeliveries
from remuda.adapters.postgres.job_views import PostgresJobViews
from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.adapters.postgres.registrations import PostgresRegistrations
from remuda.model.job import Claim, Job, JobSpec, JobState, Os, Size
from remuda.ports.jobs import Claimed, Execution, JobEnd, PodEnd, Release, Running, WarmRunner
from remuda.sim.jobs.api_tokens import MemoryApiTokens
from remuda.sim.jobs.deliveries import MemoryDeliveries
from remuda.sim.jobs.registrations import MemoryRegistrations
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database
    from remuda.ports.api_tokens import ApiTokens
    from remuda.ports.deliveries import Deliveries
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import Attribution, Completed, JobStore, PodStopped, Without
    from remuda.ports.registrations import Registrations

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SMALL = Size(2, 4096)


class StillClock:
    """A clock that moves when the test says so. Implements ``remuda.ports.clock.Clock``."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - START).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.forward(seconds)

    def forward(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


def a_job(number: int, **changes: Any) -> JobSpec:  # noqa: ANN401 - fields of what it builds
    """Build a job, queued that many seconds after the start unless the test says otherwise."""
    spec = JobSpec(
        id=f"forge/{number}",
        tenant="acme",
        repository="acme/app",
        pool="linux",
        os=Os.LINUX,
        size=SMALL,
        queued_at=START + timedelta(seconds=number),
        label="fast",
        labels=("self-hosted", "fast"),
        name="build",
        workflow="ci",
        run_id=9000 + number,
        run_attempt=1,
        branch="main",
        commit="abc",
        url="https://forge.example/1",
    )
    return replace(spec, **changes)


@dataclass(frozen=True, slots=True)
class Store:
    """One implementation, with the same clock for all its parts."""

    jobs: JobStore
    views: JobViews
    deliveries: Deliveries
    clock: StillClock
    registrations: Registrations
    tokens: ApiTokens

    async def limit(self, tenant: str = "acme", vcpus: int = 8, os: Os = Os.LINUX) -> None:
        """Set a limit by vCPU, with twice as many GiB."""
        await self.jobs.set_limits(tenant, os, Size(vcpus, vcpus * 2048), by="test")

    async def queue(self, *specs: JobSpec) -> None:
        for spec in specs:
            await self.jobs.enqueue(spec, by="test")

    async def take(
        self, pod: str, pool: str = "linux", *, without: Without | None = None
    ) -> Claimed:
        """Claim, and be sure of it."""
        runner = WarmRunner(pod, f"uid-{pod}", pool)
        asked = {} if without is None else {"without": without}
        answer = await self.jobs.claim(runner, **asked)
        assert isinstance(answer, Claimed), answer
        return answer

    async def run(self, pod: str, pool: str = "linux") -> Running:
        """Claim and hand over, with the runner name ``r-<pod>``."""
        claimed = await self.take(pod, pool)
        answer = await self.jobs.mark_running(claimed.claim, f"r-{pod}")
        assert isinstance(answer, Running), answer
        return answer

    async def end(self, number: int, runner: str = "", **changes: Any) -> Completed:  # noqa: ANN401 - fields of what it builds
        end = JobEnd(
            job_id=f"forge/{number}",
            tenant="acme",
            conclusion="success",
            ended_at=self.clock.now(),
            by="test",
            runner_name=runner,
        )
        return await self.jobs.complete(replace(end, **changes))

    async def executes(self, number: int, runner: str, tenant: str = "acme") -> Attribution:
        return await self.jobs.attribute(
            Execution(
                tenant=tenant,
                job_id=f"forge/{number}",
                runner_name=runner,
                started_at=self.clock.now(),
                by="test",
            )
        )

    async def stop(self, pod: str, **changes: Any) -> PodStopped:  # noqa: ANN401 - fields of what it builds
        end = PodEnd(pod=pod, ended_at=self.clock.now(), by="test", reason="Completed")
        return await self.jobs.stop_pod(replace(end, **changes))

    async def job(self, number: int) -> Job:
        job = await self.views.job(f"forge/{number}")
        assert job is not None
        return job

    async def state(self, number: int) -> JobState:
        return (await self.job(number)).state

    async def audit(self, number: int) -> list[str]:
        entries = await self.views.audit(job_id=f"forge/{number}")
        return [entry.what for entry in entries]


def because(why: str = "the test says so", **changes: Any) -> Release:  # noqa: ANN401 - fields of what it builds
    return replace(Release(by="test", why=why), **changes)


def older(claim: Claim) -> Claim:
    """Return a handle that differs by the smallest time there is."""
    return replace(claim, claimed_at=claim.claimed_at - timedelta(microseconds=1))


def memory_store(clock: StillClock | None = None) -> Store:
    clock = clock or StillClock()
    tables = Tables(clock)
    return Store(
        MemoryJobs(tables),
        MemoryJobViews(tables),
        MemoryDeliveries(clock),
        clock,
        MemoryRegistrations(tables),
        MemoryApiTokens(tables),
    )


def postgres_store(database: Database, clock: StillClock | None = None) -> Store:
    clock = clock or StillClock()
    return Store(
        PostgresJobs(database, clock),
        PostgresJobViews(database, clock),
        PostgresDeliveries(database, clock),
        clock,
        PostgresRegistrations(database, clock),
        PostgresApiTokens(database, clock),
    )


async def check_books(views: JobViews) -> None:
    """Check what must hold after every change, from outside: jobs, claims, limits and sessions agree."""
    jobs = {j.spec.id: j for j in await views.jobs(states=frozenset(JobState), limit=10_000)}
    claims = await views.claims()
    assert max(Counter(c.claim.job_id for c in claims).values(), default=0) <= 1
    assert max(Counter(c.claim.pod for c in claims).values(), default=0) <= 1
    used: Counter[tuple[str, Os, str]] = Counter()
    for live in claims:
        used[live.tenant, live.os, "vcpus"] += live.size.vcpus
        used[live.tenant, live.os, "memory"] += live.size.memory_mib
        job = jobs.get(live.claim.job_id)
        if job is not None and not job.state.over:
            assert job.claim == live.claim, "a live job is bound to the claim on it"
    for standing in await views.standings():
        key = (standing.tenant, standing.os)
        assert standing.used == Size(used[*key, "vcpus"], used[*key, "memory"]), standing
    over = await views.completions(jobs)
    assert {i for i, job in jobs.items() if job.state.over} == set(over)
    held = {live.claim.job_id for live in claims}
    for job in jobs.values():
        assert job.state is not JobState.CLAIMED or job.spec.id in held, job
        assert job.state is not JobState.QUEUED or job.spec.id not in held, job
