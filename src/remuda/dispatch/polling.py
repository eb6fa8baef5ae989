"""
The intake of a forge that cannot reach us: it is asked for its news, every few seconds while its rate limit allows.

One turn looks at some repositories, tells what it found the same way as a message would, and asks about each job of
ours that is on no list any more. What a turn misses the next one finds, or the recovery workers: they trust nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.announcements import ENQUEUED
from remuda.dispatch.decide import polling
from remuda.model.job import JobSpec, JobState, Kind
from remuda.ports.forge import Action, Announcement, ForgeError, ForgeJob, ForgeState

if TYPE_CHECKING:
    from remuda.dispatch.decide.polling import Pace
    from remuda.dispatch.settings import IntakeSettings, PollingSettings
    from remuda.model.job import Job
    from remuda.ports.clock import Clock
    from remuda.ports.forge import Announcer, Swept
    from remuda.ports.job_views import JobViews

log = structlog.get_logger(__name__)

POLL: Final = "poll"
_OPEN: Final = frozenset({JobState.QUEUED, JobState.CLAIMED, JobState.RUNNING})
_OPEN_MAX: Final = 2_000
_TOLD_MAX: Final = 50_000

LookUp = Callable[[JobSpec], Awaitable[ForgeJob]]
Apply = Callable[[Sequence[Announcement]], Awaitable[Mapping[Announcement, str]]]


@dataclass(slots=True, kw_only=True)
class Poller:
    """Takes turns. What it remembers saves requests and is lost with its process."""

    announcer: Announcer
    look_up: LookUp
    apply: Apply
    """Returns how each piece of news ended; what failed is not in it and is told again."""
    views: JobViews
    settings: IntakeSettings
    how: PollingSettings
    clock: Clock
    _pace: Pace | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _left_out: int = field(default=0, init=False)
    _told: OrderedDict[Announcement, None] = field(default_factory=OrderedDict, init=False)
    """What was told of jobs that a runner took: a list repeats it for as long as their run lasts."""
    _asked: dict[str, tuple[int, float]] = field(default_factory=dict, init=False)
    """How often each job that is on no list was asked about, and when it may be again."""

    @property
    def wait_s(self) -> float:
        """How long to wait before the next turn."""
        return self.how.shortest_s if self._pace is None else self._pace.wait_s

    async def turn(self) -> int:
        """Ask once; return how many jobs were new to us."""
        try:
            swept, found = await self._turn()
        except BaseException:
            self._failures += 1
            self._set(polling.after_failures(self._failures, self.how))
            raise
        self._failures = 0
        self._set(polling.pace(swept.spent, self.how))
        if swept.left_out != self._left_out:
            self._left_out = swept.left_out
            log.info("poll left repositories out", left_out=swept.left_out)
        if found:
            log.info("poll found jobs", found=found, repositories=swept.repositories)
        return found

    async def _turn(self) -> tuple[Swept, int]:
        most = self.settings.sweep_repositories_max
        listed = await self.views.jobs(states=_OPEN, limit=_OPEN_MAX)
        known = tuple(job for job in listed if job.spec.kind is not Kind.LOCAL)
        since = self.clock.now() - self.settings.active_for
        recent = await self.views.recent_repositories(since=since, limit=most)
        first = polling.first_of(known, [name for name in recent if "/" in name], most)
        at_most = polling.room(len(first), self.how, most)
        swept = await self.announcer.sweep(first, at_most=at_most)
        outcomes = await self._tell(swept.found)
        await self._ask_about(known, swept)
        return swept, sum(outcome == ENQUEUED for outcome in outcomes.values())

    async def _tell(self, found: Sequence[Announcement]) -> Mapping[Announcement, str]:
        """Tell what is new: what waits is told each time, for it may be refused today and wanted tomorrow."""
        outcomes = await self.apply([news for news in found if news not in self._told])
        for news in outcomes:
            if news.action is not Action.QUEUED:
                self._told[news] = None
        while len(self._told) > _TOLD_MAX:
            self._told.popitem(last=False)
        return outcomes

    # --- Jobs that are on no list -------------------------------------------------------------------------------------

    async def _ask_about(self, known: Sequence[Job], swept: Swept) -> None:
        now = self.clock.monotonic()
        kept_back = {job_id for job_id, (_, until) in self._asked.items() if now < until}
        doubtful = polling.missing(known, swept, kept_back=kept_back, most=self.how.look_ups_max)
        still_open = {job.spec.id for job in known} - swept.alive
        self._asked = {i: asked for i, asked in self._asked.items() if i in still_open}
        news = [found for job in doubtful if (found := await self._ask(job)) is not None]
        await self._tell(news)

    async def _ask(self, job: Job) -> Announcement | None:
        """Ask what became of a job; None: nothing that could be told."""
        times, _ = self._asked.get(job.spec.id, (0, 0.0))
        until = self.clock.monotonic() + polling.look_again_s(times, self.how)
        self._asked[job.spec.id] = (times + 1, until)
        try:
            said = await self.look_up(job.spec)
        except ForgeError as error:
            log.info("a job could not be looked up", job=job.spec.id, error=str(error))
            return None
        return news_of(job.spec, said)

    def _set(self, pace: Pace) -> None:
        """Keep to a pace, and say so when it is another one than before."""
        before = self._pace
        self._pace = pace
        was_slow, is_slow = bool(before and before.why), bool(pace.why)
        if is_slow and not was_slow:
            log.info("polling slows down", every_s=round(pace.wait_s, 1), why=pace.why)
        elif was_slow and not is_slow:
            log.info("polling at full pace again", every_s=pace.wait_s)


_ACTIONS: Final = {
    ForgeState.IN_PROGRESS: Action.IN_PROGRESS,
    ForgeState.COMPLETED: Action.COMPLETED,
}


def news_of(spec: JobSpec, said: ForgeJob) -> Announcement | None:
    """Say what a forge said of a job as a message would; None if a message would change nothing."""
    action = _ACTIONS.get(said.state)
    if action is None:
        return None
    return Announcement(
        action=action,
        job_id=spec.id,
        tenant=spec.tenant,
        repository=spec.repository,
        labels=spec.labels,
        queued_at=spec.queued_at,
        started_at=said.started_at,
        ended_at=said.ended_at,
        conclusion=said.conclusion,
        runner_name=said.runner_name,
        name=spec.name,
        workflow=spec.workflow,
        run_id=spec.run_id,
        run_attempt=spec.run_attempt,
        branch=spec.branch,
        commit=spec.commit,
        url=spec.url,
    )
