"""
What a piece of news about a job changes, whatever order it comes in and however often. For messages and sweeps alike.

News are hints: the store refuses what does not fit, and what is lost here is found by the next sweep. What the forge
must be asked before a job is taken in (does it come from a fork?) is asked here, and never twice for one run.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import structlog

from remuda.dispatch.decide.labels import NoPool, Unmatched, choose, concerns
from remuda.kube.runner_pool import Forks
from remuda.model.job import JobSpec
from remuda.ports.forge import Action, ForgeError, ForgeRefused, ForgeThrottled, ForgeUnavailable
from remuda.ports.jobs import Attribution, Enqueued, Execution, JobEnd, Known, Over

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.dispatch.decide.labels import Chosen
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.settings import DispatchSettings
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.job import Job, Os
    from remuda.ports.clock import Clock
    from remuda.ports.forge import Announcement, Announcer
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.registrations import Registrations

log = structlog.get_logger(__name__)

TEXT_MAX: Final = 512
RUNS_MAX: Final = 10_000

ENQUEUED: Final = "enqueued"
OUTCOMES: Final = (
    *(ENQUEUED, "known", "over", "waiting", "wrong_tenant", "not_ours"),
    *("executing", "moved", "contradicted", "elsewhere", "no_runner", "completed"),
    *(reason.value for reason in Unmatched),
)
"""How a piece of news can end. Words in metrics."""

_Run = tuple[str, str, int]


class SeenPools(Protocol):
    """The part of ``DispatchView`` that news need."""

    async def wait_synced(self) -> None: ...

    def pools(self) -> tuple[RunnerPool, ...]: ...


@dataclass(slots=True, kw_only=True)
class Announcements:
    """Applies news. Errors are a DatabaseError or a ForgeError: then try the same news again, later."""

    store: JobStore
    views: JobViews
    view: SeenPools
    announcer: Announcer
    registrations: Registrations
    settings: DispatchSettings
    metrics: DispatchMetrics
    clock: Clock
    _limited: set[tuple[str, Os]] = field(default_factory=set, init=False)
    _forks: OrderedDict[_Run, tuple[bool, float]] = field(default_factory=OrderedDict, init=False)
    """What each run counts as and until when, by what the forge said of it; the oldest are forgotten."""
    _asking: dict[_Run, asyncio.Lock] = field(default_factory=dict, init=False)
    _paused_until: dict[str, float] = field(default_factory=dict, init=False)
    """Tenants whose forge is not asked for a while."""

    async def apply(self, announcement: Announcement, *, by: str) -> str:
        """Apply one piece of news and return how that ended, in a word of ``OUTCOMES``."""
        await self.view.wait_synced()  # before that, no pool means nothing
        news = _plain(announcement)
        match news.action:
            case Action.QUEUED:
                outcome = await self._queued(news, by)
            case Action.WAITING:
                outcome = "waiting"  # for a person: ``queued`` follows when it needs a runner
            case Action.IN_PROGRESS:
                outcome = await self._in_progress(news, by)
            case Action.COMPLETED:
                outcome = await self._completed(news, by)
            case _:
                assert_never(news.action)
        log.debug("news", job=news.job_id, action=news.action.value, outcome=outcome, by=by)
        return outcome

    # --- Queued ------------------------------------------------------------------------------------------------------

    async def _queued(self, news: Announcement, by: str) -> str:
        chosen = choose(news.labels, self.view.pools())
        if isinstance(chosen, NoPool):
            return chosen.reason.value
        if chosen.pool.spec.forks is Forks.DENY:
            # A sweep tells of the same jobs every few seconds: the forge is asked about new ones only.
            if known := await self._known(news):
                return known
            if await self._is_fork(news):
                return Unmatched.FORK_DENIED.value
        return await self._enqueue(news, chosen, by)

    async def _enqueue(self, news: Announcement, chosen: Chosen, by: str) -> str:
        await self._ensure_limits(news.tenant, chosen.os, by)
        done = await self.store.enqueue(self._spec(news, chosen), by=by)
        match done:
            case Enqueued():
                return ENQUEUED
            case Known(job):
                return _of_known(job, news)
            case Over():
                return "over"
            case _:
                assert_never(done)

    async def _known(self, news: Announcement) -> str:
        job = await self.views.job(news.job_id)
        if job is not None:
            return _of_known(job, news)
        return "over" if await self.views.completions((news.job_id,)) else ""

    async def _ensure_limits(self, tenant: str, os: Os, by: str) -> None:
        if (tenant, os) in self._limited:
            return
        await self.store.ensure_limits(tenant, os, self.settings.limits[os], by=by)
        self._limited.add((tenant, os))

    def _spec(self, news: Announcement, chosen: Chosen) -> JobSpec:
        return JobSpec(
            id=news.job_id,
            tenant=news.tenant,
            repository=news.repository,
            pool=chosen.pool.name,
            os=chosen.os,
            size=chosen.size,
            queued_at=self._place(news.queued_at),
            label=chosen.label,
            labels=news.labels,
            name=news.name,
            workflow=news.workflow,
            run_id=news.run_id,
            run_attempt=news.run_attempt,
            branch=news.branch,
            commit=news.commit,
            url=news.url,
        )

    def _place(self, queued_at: datetime | None) -> datetime:
        """Return a place that neither a clock ahead of ours nor a long approval makes unfair."""
        now = self.clock.now()
        oldest = now - self.settings.intake.place_age_max
        return now if queued_at is None else min(now, max(oldest, queued_at))

    # --- Forks -------------------------------------------------------------------------------------------------------

    async def _is_fork(self, news: Announcement) -> bool:
        if news.run_id is None:
            return await self._ask(news) is not False
        run = (news.tenant, news.repository, news.run_id)
        asking = self._asking.setdefault(run, asyncio.Lock())
        try:
            async with asking:  # the jobs of one run come together
                counts, until = self._forks.get(run, (True, 0.0))
                if self.clock.monotonic() >= until:
                    said = await self._ask(news)
                    counts, until = said is not False, self._remembered_until(said)
                    self._forks[run] = (counts, until)
        finally:
            self._asking.pop(run, None)
        while len(self._forks) > RUNS_MAX:
            self._forks.popitem(last=False)
        return counts

    def _remembered_until(self, said: bool | None) -> float:  # noqa: FBT001 - an answer, not a switch
        # A run never changes its origin; but one that the forge says nothing of may be known to it in a moment.
        return inf if said is not None else self.clock.monotonic() + self.settings.intake.unsaid_s

    async def _ask(self, news: Announcement) -> bool | None:
        """Return what the forge says of a run's origin. What it does not say counts as a fork."""
        tenant, how = news.tenant, self.settings.intake
        if self.clock.monotonic() < self._paused_until.get(tenant, 0.0):
            raise _not_asked(tenant)
        if tenant in self._paused_until:
            self._pause(tenant, how.forge_s)  # after a failure one asks; the others come again
        try:
            async with asyncio.timeout(how.forge_s):
                said = await self.announcer.is_fork(news.repository, news.run_id, tenant)
        except ForgeRefused as error:
            log.info("a run's origin is refused, so it counts as a fork's", error=str(error))
            said = None
        except ForgeThrottled as error:
            self._pause(tenant, error.retry_after_s)
            raise
        except (ForgeError, TimeoutError) as error:
            self._pause(tenant, how.forge_pause_s)
            raise error if isinstance(error, ForgeError) else _no_answer(how.forge_s) from error
        self._paused_until.pop(tenant, None)
        return said

    def _pause(self, tenant: str, seconds: float) -> None:
        self._paused_until[tenant] = self.clock.monotonic() + seconds

    # --- In progress -------------------------------------------------------------------------------------------------

    async def _in_progress(self, news: Announcement, by: str) -> str:
        if not news.runner_name:
            return "no_runner"
        job = await self.views.job(news.job_id)
        if job is not None and job.spec.tenant != news.tenant:
            return "wrong_tenant"
        execution = Execution(
            tenant=news.tenant,
            job_id=news.job_id,
            runner_name=news.runner_name,
            started_at=self._past(news.started_at),
            by=by,
        )
        attributed = await self.store.attribute(execution)
        if attributed is Attribution.OVER:
            return "over"
        if attributed is Attribution.UNKNOWN_RUNNER:
            return "elsewhere"
        await self.registrations.settle(
            (news.runner_name,)
        )  # it was used: the forge removes it by itself
        if job is None and attributed is not Attribution.CONTRADICTED:
            await self._take_in(news, by)
        return _EXECUTIONS[attributed]

    async def _take_in(self, news: Announcement, by: str) -> None:
        """
        Take in a job that runs on a runner of ours before we heard that it was queued.

        After its runner: then it is never in the queue, where another Pod could be given it. It runs, so it is too late
        to ask for forks. A job of somebody else's labels (``self-hosted`` alone) stays unknown but for its runner.
        """
        chosen = choose(news.labels, self.view.pools())
        if not isinstance(chosen, NoPool):
            await self._enqueue(news, chosen, by)

    # --- Completed ---------------------------------------------------------------------------------------------------

    async def _completed(self, news: Announcement, by: str) -> str:
        job = await self.views.job(news.job_id)
        if job is not None and job.spec.tenant != news.tenant:
            return "wrong_tenant"
        if job is None and not concerns(news.labels, news.runner_name, self.view.pools()):
            return "not_ours"
        end = JobEnd(
            job_id=news.job_id,
            tenant=news.tenant,
            conclusion=news.conclusion or "unknown",
            ended_at=self._past(news.ended_at),
            by=by,
            runner_name=news.runner_name,
            started_at=news.started_at,
        )
        done = await self.store.complete(end)
        # A name proves nothing by itself: another tenant may have given its own runner the same.
        if done.freed or (job is not None and job.runner_name == news.runner_name != ""):
            await self.registrations.settle((news.runner_name,))
        return "completed" if done.news else "over"

    def _past(self, at: datetime | None) -> datetime:
        now = self.clock.now()
        return now if at is None else min(now, at)


_EXECUTIONS: Final = {
    Attribution.MATCHED: "executing",
    Attribution.MOVED: "moved",
    Attribution.CONTRADICTED: "contradicted",
}


def _of_known(job: Job, news: Announcement) -> str:
    if job.spec.tenant != news.tenant:
        return "wrong_tenant"
    return "over" if job.state.over else "known"


def _plain(news: Announcement) -> Announcement:
    """Return news whose texts a database takes: a stranger writes branch names."""
    return replace(
        news,
        repository=_text(news.repository),
        labels=tuple(_text(label) for label in news.labels),
        conclusion=_text(news.conclusion),
        runner_name=_text(news.runner_name),
        name=_text(news.name),
        workflow=_text(news.workflow),
        branch=_text(news.branch),
        commit=_text(news.commit),
        url=_text(news.url),
    )


def _text(text: str) -> str:
    """Cut what is too long; drop what is no character (half a surrogate pair) and the one that PostgreSQL refuses."""
    return text[:TEXT_MAX].encode("utf-8", "ignore").decode().replace("\0", "")


def _not_asked(tenant: str) -> ForgeUnavailable:
    return ForgeUnavailable(
        "The forge was not asked whether a run comes from a fork",
        why=f"it did not answer for tenant {tenant} a moment ago",
        fix="Wait: the message is tried again",
    )


def _no_answer(seconds: float) -> ForgeUnavailable:
    return ForgeUnavailable(
        "The forge does not say whether a run comes from a fork",
        why=f"it did not answer within {seconds:.0f} s",
        fix="Wait: the message is tried again",
    )
