"""The workers of recovery on the store and the control plane in memory, on virtual time, with a forge that is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.control.health import Health
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import DispatchSettings
from remuda.dispatch.stamps import Stamps, claim_text
from remuda.dispatch.view import DispatchView
from remuda.dispatch.workers import RecoveryParts
from remuda.kube.core import (
    POD,
    SERVICE_ACCOUNT,
    Container,
    Pod,
    PodSpec,
    ServiceAccount,
)
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import CLAIM, OWNER, POLLER, POOL, RUNNER
from remuda.kube.patches import MergePatch
from remuda.model.job import Kind, Os, Size
from remuda.ports.database import DatabaseTimeout
from remuda.ports.forge import ForgeJob, ForgeState, ForgeUnavailable, Minted, Removal
from remuda.ports.jobs import Claimed, Execution, Running, WarmRunner
from remuda.ports.kube import NotFound, Query
from remuda.ports.registrations import Registration
from remuda.sim.clock import SimClock
from remuda.sim.fleet.furnish import furnish
from remuda.sim.ids import SeededIds
from remuda.sim.jobs.deliveries import MemoryDeliveries
from remuda.sim.jobs.locks import MemoryLocks
from remuda.sim.jobs.registrations import MemoryRegistrations
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane
from tests.support.jobs import a_job
from tests.unit.pools.ranch import Tap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from remuda.kube.patches import JsonValue
    from remuda.model.job import Claim, Job, JobSpec, JobState, LiveClaim, Session
    from remuda.ports.forge import NewRunner

SPACE = "runners"
SETTINGS = DispatchSettings(namespace=SPACE)

QUEUED = ForgeJob(state=ForgeState.QUEUED)
GONE = ForgeJob(state=ForgeState.GONE)


def runs_on(runner: str) -> ForgeJob:
    return ForgeJob(state=ForgeState.IN_PROGRESS, runner_name=runner)


def ended(conclusion: str = "success", runner: str = "") -> ForgeJob:
    return ForgeJob(state=ForgeState.COMPLETED, conclusion=conclusion, runner_name=runner)


class ToldForge:
    """A forge that says what it is told. Implements ``remuda.ports.forge.Forge``."""

    kind = Kind.GITHUB

    def __init__(self) -> None:
        self.says: dict[str, ForgeJob | Exception] = {}
        self.removals: dict[str, Removal | Exception] = {}
        self.asked: list[str] = []
        self.removed: list[str] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """Awaited before each answer: what happens while the forge thinks."""

    def say(self, number: int, answer: ForgeJob | Exception) -> None:
        self.says[f"forge/{number}"] = answer

    async def look_up(self, job: JobSpec) -> ForgeJob:
        self.asked.append(job.id)
        answer = self.says.get(job.id, QUEUED)
        if self.meanwhile is not None:
            await self.meanwhile()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def mint(self, job: JobSpec, runner: NewRunner) -> Minted:
        raise NotImplementedError((job, runner))

    async def remove(self, registration: Registration) -> Removal:
        self.removed.append(registration.runner_name)
        answer = self.removals.get(registration.runner_name, Removal.REMOVED)
        if isinstance(answer, Exception):
            raise answer
        return answer


def down() -> ForgeUnavailable:
    return ForgeUnavailable("The forge did not answer", why="it is down", fix="Wait")


class HurtViews(MemoryJobViews):
    """Reads that fail when the test says so."""

    fails: str = ""

    async def claims(self, **how: Any) -> tuple[LiveClaim, ...]:  # noqa: ANN401 - as the method has them
        self._perhaps("claims")
        return await super().claims(**how)

    async def sessions(self, **how: Any) -> tuple[Session, ...]:  # noqa: ANN401 - as the method has them
        self._perhaps("sessions")
        return await super().sessions(**how)

    async def occupied_pods(self) -> frozenset[str]:
        self._perhaps("occupied_pods")
        return await super().occupied_pods()

    async def jobs(self, **how: Any) -> tuple[Job, ...]:  # noqa: ANN401 - as the method has them
        self._perhaps("jobs")
        return await super().jobs(**how)

    def _perhaps(self, what: str) -> None:
        if self.fails == what:
            raise DatabaseTimeout(f"Reading {what}", why="the database hangs", fix="Wait")


@dataclass
class Yard:
    """Everything a test needs."""

    parts: RecoveryParts
    tables: Tables
    kube: KubeClient
    tap: Tap
    forge: ToldForge
    views: HurtViews
    clock: SimClock
    group: asyncio.TaskGroup
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def jobs(self) -> MemoryJobs:
        assert isinstance(self.parts.store, MemoryJobs)
        return self.parts.store

    # --- Jobs --------------------------------------------------------------------------------------------------------

    async def queue(self, *numbers: int, **changes: Any) -> None:  # noqa: ANN401 - fields of a job
        for number in numbers:
            spec = replace(a_job(number), queued_at=self.clock.now(), **changes)
            await self.jobs.enqueue(spec, by="test")

    async def take(self, pod: str) -> Claim:
        uid = await self.uid(pod)
        answer = await self.jobs.claim(WarmRunner(pod, uid, "linux"))
        assert isinstance(answer, Claimed), answer
        return answer.claim

    async def deliver(self, pod: str, runner: str = "") -> Claim:
        """Claim and hand over, with the runner name ``r-<pod>``."""
        claim = await self.take(pod)
        answer = await self.jobs.mark_running(claim, runner or f"r-{pod}")
        assert isinstance(answer, Running), answer
        return claim

    async def executes(self, number: int, runner: str) -> None:
        await self.jobs.attribute(
            Execution(
                tenant="acme",
                job_id=f"forge/{number}",
                runner_name=runner,
                started_at=self.clock.now(),
                by="test",
            )
        )

    async def note(self, name: str = "r-p", tenant: str = "acme") -> None:
        """Write a registration down."""
        registration = Registration(
            runner_name=name,
            kind=Kind.GITHUB,
            tenant=tenant,
            repository="acme/app",
            job_id="forge/1",
            pod="p",
        )
        await self.parts.registrations.note(registration)

    def state(self, number: int) -> JobState:
        return self.tables.jobs[f"forge/{number}"].state

    def session(self, pod: str) -> Session:
        return next(s for s in self.tables.sessions.values() if s.pod == pod)

    # --- Pods --------------------------------------------------------------------------------------------------------

    async def add_pod(self, name: str, *, poller: bool = False, pool: str = "linux") -> Pod:
        labels = {RUNNER: "true", POOL: pool}
        meta = ObjectMeta(name=name, namespace=SPACE, labels=labels)
        await self.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
        first = (Container(name=POLLER, image="poller"),) if poller else ()
        spec = PodSpec(
            containers=(Container(name="runner", image="runner"),),
            init_containers=first,
            service_account_name=name,
        )
        return await self.kube.create(POD, Pod(metadata=meta, spec=spec))

    async def warm_pod(self, name: str, **how: Any) -> Pod:  # noqa: ANN401 - as add_pod has them
        pod = await self.add_pod(name, **how)
        await self.status(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])
        return pod

    async def status(self, name: str, **status: JsonValue) -> None:
        patch = MergePatch({"status": status})
        await self.kube.patch(POD, name, patch, namespace=SPACE, subresource="status")

    async def stamp(self, name: str, claim: Claim | None = None, tenant: str = "acme") -> None:
        text = (
            claim_text(claim) if claim is not None else "forge/0@2026-01-01T00:00:00.000000+00:00"
        )
        meta: dict[str, JsonValue] = {"labels": {OWNER: tenant}, "annotations": {CLAIM: text}}
        await self.kube.patch(POD, name, MergePatch({"metadata": meta}), namespace=SPACE)

    async def kube_label(self, name: str, **labels: str | None) -> None:
        ours: dict[str, JsonValue] = {f"remuda.dev/{key}": v for key, v in labels.items()}
        patch = MergePatch({"metadata": {"labels": ours}})
        await self.kube.patch(POD, name, patch, namespace=SPACE)

    async def uid(self, name: str) -> str:
        return (await self.kube.get(POD, name, namespace=SPACE)).uid

    async def remove(self, name: str) -> None:
        for kind in (POD, SERVICE_ACCOUNT):
            await self.kube.delete(kind, name, namespace=SPACE, grace_s=0)

    async def is_there(self, name: str) -> bool:
        try:
            pod = await self.kube.get(POD, name, namespace=SPACE)
        except NotFound:
            return False
        return pod.metadata.deletion_timestamp is None

    async def is_stamped(self, name: str) -> bool:
        return OWNER in (await self.kube.get(POD, name, namespace=SPACE)).labels

    async def accounts(self) -> list[str]:
        found = await self.kube.list(SERVICE_ACCOUNT, Query(namespace=SPACE))
        return [account.name for account in found.items if account.name != "default"]

    # --- Time and numbers --------------------------------------------------------------------------------------------

    async def later(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def turns(self, worker: Any, seconds: float) -> None:  # noqa: ANN401 - any worker
        """Let a worker turn as its loop would, for so long."""
        ends_at = self.clock.monotonic() + seconds
        while self.clock.monotonic() <= ends_at:
            await self.clock.sleep(await worker.tick())

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self.group.create_task(work, name=name)
        self.tasks.append(task)
        return task

    def mended(self, kind: str) -> float | None:
        registry = self.parts.metrics.registry
        return registry.get_sample_value("remuda_recoveries_total", {"kind": kind})

    def metric(self, name: str, **labels: str) -> float | None:
        return self.parts.metrics.registry.get_sample_value(name, labels)


@asynccontextmanager
async def a_yard(settings: DispatchSettings = SETTINGS) -> AsyncIterator[Yard]:
    clock = SimClock(asyncio.get_running_loop())
    plane = ControlPlane.in_memory(clock, SeededIds(1, "plane"))
    kube, tap = KubeClient(plane.wire()), Tap(plane.wire(), clock)
    tables, forge, ours = Tables(clock), ToldForge(), KubeClient(tap)
    views, ids = HurtViews(tables), SeededIds(1, "dispatch")
    parts = RecoveryParts(
        store=MemoryJobs(tables),
        views=views,
        deliveries=MemoryDeliveries(clock),
        registrations=MemoryRegistrations(tables),
        forges={Kind.GITHUB: forge},
        view=DispatchView(ours, settings, clock=clock, ids=ids),
        kube=ours,
        stamps=Stamps(ours, settings),
        locks=MemoryLocks(tables),
        metrics=DispatchMetrics(CollectorRegistry()),
        health=Health(clock),
        clock=clock,
        ids=ids,
        settings=settings,
    )
    async with asyncio.TaskGroup() as group:
        yard = Yard(parts, tables, kube, tap, forge, views, clock, group)
        yard.start(plane.run(), "plane")
        await furnish(plane.wire(), kube, SPACE)
        await parts.store.set_limits("acme", Os.LINUX, Size(64, 128 * 1024), by="test")
        yard.start(parts.view.run(), "view")
        await parts.view.wait_synced()
        yield yard
        for task in yard.tasks:
            task.cancel()


def story(
    settings: DispatchSettings = SETTINGS,
) -> Callable[[Callable[[Yard], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Turn a play in the yard into a test on virtual time."""

    def decorate(play: Callable[[Yard], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            async with a_yard(settings) as yard:
                await play(yard)

        def test() -> None:
            run(main)

        test.__name__, test.__doc__ = play.__name__, play.__doc__
        return test

    return decorate
