"""
Jobs that run here for all we know, but perhaps not at their forge: the runner died, or never registered.

A healthy job costs a request now and then; one whose Pod ended, or that nobody was said to execute, is asked about
until the forge has said what became of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.dispatch.decide.recovery import (
    Doubt,
    Evidence,
    Inquiries,
    PodState,
    doubt_about,
    hold_of,
    soonest,
)
from remuda.dispatch.workers.inquiry import Inquiry
from remuda.dispatch.workers.pods import state_now
from remuda.dispatch.workers.turning import each
from remuda.kube.runner_view import runner_of
from remuda.model.job import JobState
from remuda.model.runner import Phase
from remuda.ports.forge import Removal
from remuda.ports.jobs import Released
from remuda.ports.registrations import Registration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.model.job import Job, LiveClaim

NAME: Final = "orphaned-runners"
_PAGE: Final = 500
_SIBLINGS_MAX: Final = 5
"""How many other jobs to ask about before a runner's claim is ended: it may be executing one of those."""


class OrphanedRunners:
    """Asks about running jobs: bounded in each turn, and ever more seldom about those that the forge says run."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._memory = Inquiries(self._settings)
        self._inquiry = Inquiry(parts, self._memory, NAME)
        self._reads_left = 0
        self._unproven: tuple[Job, ...] = ()
        self._asked: set[str] = set()
        self._busy: set[object] = set()
        """What the forge said is busy, and we do not know with what."""

    async def tick(self) -> float:
        parts, now = self._parts, self._parts.clock.monotonic()
        # Jobs before claims: the other way round, what was handed over in between would look like a job without a
        # claim. A claim that ended in between has another handle than any that stands now, and harms nobody.
        running = await self._running()
        claims = {live.claim.pod: live for live in await parts.views.claims()} if running else {}
        self._reads_left, self._asked = self._settings.actions_max, set()
        doubts = [await self._doubt(job, claims) for job in running]
        self._unproven = tuple(d.job for d in doubts if d.evidence is Evidence.UNPROVEN)
        self._busy &= {doubt.key for doubt in doubts}
        due = self._memory.due(doubts, now, self._settings.actions_max)
        await each(parts, NAME, due, self._ask)
        return soonest([self._memory.look_again(now)], at_most=self._settings.tick_s)

    async def _running(self) -> tuple[Job, ...]:
        """Read all pages: the place of a job in the queue says nothing about how it fares."""
        found: list[Job] = []
        after = None
        while True:
            page = await self._parts.views.jobs(states={JobState.RUNNING}, after=after, limit=_PAGE)
            found += page
            if len(page) < _PAGE:
                return tuple(found)
            after = (page[-1].spec.queued_at, page[-1].spec.id)

    async def _doubt(self, job: Job, claims: Mapping[str, LiveClaim]) -> Doubt:
        live = hold_of(job, claims)
        pod = PodState.UNKNOWN if live is None else await self._pod(live)
        return doubt_about(job, live, pod)

    async def _pod(self, live: LiveClaim) -> PodState:
        """Look at our own view first; what is not there, or ended, is asked of the server."""
        view, claim = self._parts.view, live.claim
        if not view.synced or len(view.pods) == 0:
            return PodState.UNKNOWN
        pod = view.pod(claim.pod)
        if pod is not None and pod.uid == claim.pod_uid:
            return PodState.ENDED if runner_of(pod).phase is Phase.ENDED else PodState.ALIVE
        if self._reads_left == 0:
            return PodState.UNKNOWN
        self._reads_left -= 1
        state = await state_now(self._parts, claim.pod, claim.pod_uid)
        if state is PodState.UNKNOWN:
            self._reads_left = (
                0  # one call that hangs is enough: the forge is asked in the meantime
            )
        return state

    async def _ask(self, doubt: Doubt) -> None:
        self._asked.add(doubt.job.spec.id)
        lives = doubt.evidence is Evidence.UNPROVEN
        await self._inquiry.about(doubt, self._dismiss if lives else None)

    async def _dismiss(self, doubt: Doubt) -> bool:
        """
        Have the forge take the runner away before its job is given to another: its Pod lives, and may yet take a job.

        One that executes a job is not taken away. Which one that is was lost on its way, or the forge's list lags: so
        others are asked about, and the claim moves. If that does not help, the job that waits goes back, but the claim
        stays: the VM works, so its tenant's room is not free.
        """
        job, parts = doubt.job, self._parts
        removal = await parts.forges[job.spec.kind].remove(_registration(job))
        if removal is not Removal.BUSY:
            await parts.registrations.settle((job.runner_name,))
        if removal is not Removal.REMOVED:
            await self._ask_siblings(doubt)
        if removal is not Removal.BUSY:
            return True
        if doubt.key in self._busy:
            await self._disown(doubt)
        self._busy.add(doubt.key)
        return False

    async def _disown(self, doubt: Doubt) -> None:
        job, parts = doubt.job, self._parts
        assert job.claim is not None, "it runs on a Pod"
        why = "its runner is busy, and the forge says that it still waits"
        taken = await parts.store.disown(job.claim, by=NAME, why=why)
        if isinstance(taken, Released):
            parts.metrics.recovered("orphan_requeued")

    async def _ask_siblings(self, doubt: Doubt) -> None:
        """
        Look whether the runner executes another job, or did, and the message about that was lost.

        If so, its claim moves to that job, and the release that comes after this finds nothing to release.
        """
        spec = doubt.job.spec
        queued = await self._parts.views.jobs(states={JobState.QUEUED}, limit=_PAGE)
        others = [
            job
            for job in (*queued, *self._unproven)
            if (job.spec.tenant, job.spec.pool) == (spec.tenant, spec.pool)
            and job.spec.id not in self._asked | {spec.id}
        ]
        for job in others[:_SIBLINGS_MAX]:
            self._asked.add(job.spec.id)
            await self._inquiry.about(Doubt(job, Evidence.WAITING))


def _registration(job: Job) -> Registration:
    """Name a runner by what its job knows of it: the forge finds it by its name."""
    assert job.claim is not None, "it runs on a Pod"
    return Registration(
        runner_name=job.runner_name,
        kind=job.spec.kind,
        tenant=job.spec.tenant,
        repository=job.spec.repository,
        job_id=job.spec.id,
        pod=job.claim.pod,
    )
