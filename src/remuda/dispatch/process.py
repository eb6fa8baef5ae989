"""
One replica of dispatch, put together: what ships is what is simulated.

It knows the ports and nothing behind them, and no HTTP: ``dispatch.api.assembly`` puts the web application around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.control.health import Health
from remuda.dispatch.announcements import Announcements
from remuda.dispatch.attempt import nothing
from remuda.dispatch.desk import Desk
from remuda.dispatch.identity import Identities
from remuda.dispatch.intake import IntakeWorkers
from remuda.dispatch.job_files import JobFiles
from remuda.dispatch.local import LocalForge
from remuda.dispatch.local_tidying import LocalTidying
from remuda.dispatch.stamps import Stamps
from remuda.dispatch.stops import Stops
from remuda.dispatch.submissions import Submissions
from remuda.dispatch.sweep import Sweeps
from remuda.dispatch.telemetry import Telemetry
from remuda.dispatch.view import DispatchView
from remuda.dispatch.workers import RecoveryParts, recovery_loops
from remuda.model.job import Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from remuda.dispatch.attempt import Step
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.settings import DispatchSettings
    from remuda.model.job import JobSpec
    from remuda.ports.api_tokens import ApiTokens
    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Deliveries
    from remuda.ports.forge import Announcer, Forge, ForgeJob
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.kube import Kube
    from remuda.ports.local_files import LocalFiles
    from remuda.ports.local_jobs import LocalJobs
    from remuda.ports.locks import Locks
    from remuda.ports.registrations import Registrations
    from remuda.ports.wakeups import Wakeups

_LOCK_LOST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything outside that a replica uses."""

    kube: Kube
    store: JobStore
    views: JobViews
    deliveries: Deliveries
    registrations: Registrations
    local_jobs: LocalJobs
    local_files: LocalFiles
    tokens: ApiTokens
    wakeups: Wakeups
    locks: Locks
    clock: Clock
    ids: Ids
    forges: Mapping[Kind, Forge] = field(default_factory=dict)
    """Beside the local one, which is always there."""
    announcer: Announcer | None = None
    """The forge that sends messages, if there is one."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """What takes a forge's news in."""

    workers: IntakeWorkers
    sweeps: Sweeps


class Dispatch:
    """The parts of one replica. ``loops`` run until cancelled; ``close`` before that lets polls end well."""

    def __init__(
        self,
        ports: Ports,
        settings: DispatchSettings,
        metrics: DispatchMetrics,
        *,
        reached: Callable[[Step], Awaitable[None]] = nothing,
    ) -> None:
        p, clock, ids = ports, ports.clock, ports.ids
        self.ports, self.settings = ports, settings
        self.metrics = metrics
        self.health = Health(clock)
        self.view = DispatchView(p.kube, settings, clock=clock, ids=ids)
        self.stamps = Stamps(p.kube, settings)
        self.identities = Identities(p.kube, p.tokens, settings, clock, view=self.view)
        self.local_forge = LocalForge(p.local_jobs, p.store, p.views, clock, files=p.local_files)
        self.forges: Mapping[Kind, Forge] = {**p.forges, Kind.LOCAL: self.local_forge}
        self.desk = Desk(
            kube=p.kube,
            store=p.store,
            views=p.views,
            view=self.view,
            stamps=self.stamps,
            registrations=p.registrations,
            wakeups=p.wakeups,
            forges=self.forges,
            settings=settings,
            metrics=self.metrics,
            clock=clock,
            ids=ids,
            reached=reached,
        )
        self.recovery = self._recovery()
        self.stops = Stops(self.recovery)
        self.submissions = Submissions(
            forge=self.local_forge,
            local=p.local_jobs,
            files=p.local_files,
            store=p.store,
            views=p.views,
            pools=self.view,
            limits=settings.limits,
            clock=clock,
            ids=ids,
        )
        self.telemetry = Telemetry(
            forge=self.local_forge,
            local=p.local_jobs,
            files=p.local_files,
            store=p.store,
            views=p.views,
            clock=clock,
        )
        self.files = JobFiles(
            files=p.local_files,
            local=p.local_jobs,
            telemetry=self.telemetry,
            settings=settings.files,
            clock=clock,
        )
        self.inbox = None if p.announcer is None else self._inbox(p.announcer)
        self.closing = False

    def close(self) -> None:
        """Take no more polls and send the waiting ones elsewhere; what is past its stamp goes on."""
        self.closing = True
        self.desk.close()

    def loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return everything that turns, by name."""
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            "view": self.view.run,
            "desk": self.desk.run,
            "stops": self.stops.run,
            "local jobs": self._tidy,
            **recovery_loops(self.recovery),
        }
        if self.inbox is not None:
            loops["intake"] = self.inbox.workers.run
            loops.update(self.inbox.sweeps.loops())
        return loops

    async def _tidy(self) -> None:
        tidying = LocalTidying(
            forge=self.local_forge,
            local=self.ports.local_jobs,
            files=self.ports.local_files,
            views=self.ports.views,
            settings=self.settings.recovery,
            file_settings=self.settings.files,
            metrics=self.metrics,
            clock=self.ports.clock,
            ids=self.ports.ids,
        )
        while True:
            await self.ports.locks.run_alone("local_jobs", tidying.run)
            await self.ports.clock.sleep(_LOCK_LOST_S)

    def _recovery(self) -> RecoveryParts:
        p = self.ports
        return RecoveryParts(
            store=p.store,
            views=p.views,
            deliveries=p.deliveries,
            registrations=p.registrations,
            forges=self.forges,
            view=self.view,
            kube=p.kube,
            stamps=self.stamps,
            locks=p.locks,
            metrics=self.metrics,
            health=self.health,
            clock=p.clock,
            ids=p.ids,
            settings=self.settings,
        )

    async def _look_up(self, job: JobSpec) -> ForgeJob:
        return await self.forges[job.kind].look_up(job)

    def _inbox(self, announcer: Announcer) -> Inbox:
        p, intake, metrics = self.ports, self.settings.intake, self.metrics
        announcements = Announcements(
            store=p.store,
            views=p.views,
            view=self.view,
            announcer=announcer,
            registrations=p.registrations,
            settings=self.settings,
            metrics=metrics,
            clock=p.clock,
        )
        return Inbox(
            IntakeWorkers(
                deliveries=p.deliveries,
                announcer=announcer,
                announcements=announcements,
                settings=intake,
                metrics=metrics,
                clock=p.clock,
                ids=p.ids,
            ),
            Sweeps(
                announcer=announcer,
                look_up=self._look_up,
                announcements=announcements,
                views=p.views,
                locks=p.locks,
                settings=intake,
                metrics=metrics,
                clock=p.clock,
                ids=p.ids,
            ),
        )
