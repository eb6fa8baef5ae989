"""The jobs of the burst: posted whatever the server does, counted by what they wrote down, and read at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from remuda.cli.demo.decide.account import JobRecord, Times
from remuda.cli.demo.decide.plan import output, script
from remuda.cli.demo.fleet import POOL
from remuda.model.output import Output
from remuda.ports.api import ApiError, ApiUnavailable, NewJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from remuda.cli.demo.decide.plan import PlannedJob
    from remuda.ports.api import Api, Event, Outcome
    from remuda.ports.clock import Clock

_T = TypeVar("_T")
_PATIENCE_S: Final = 120.0
"""How long the server may be away: more than a restart takes on a busy machine."""
_AGAIN_S: Final = 0.25
_TOLD_WITHIN_S: Final = 150.0
"""How long to wait for what a job printed last: the server gives that up sooner."""


@dataclass(slots=True)
class Burst:
    """All jobs that were posted so far."""

    api: Api
    clock: Clock
    ledger: Path
    key: str
    """What makes the keys of this burst its own: a post that is repeated is one job."""
    posted: dict[str, tuple[PlannedJob, str]] = field(default_factory=dict)
    """By name: the job, and its ID."""

    async def post(self, wave: Iterable[PlannedJob]) -> None:
        """Post jobs, each until it is taken."""
        for job in wave:
            new = NewJob(pool=POOL, script=script(job, str(self.ledger)), name=job.name)
            key = f"{self.key}-{job.name}"
            taken = await self.answered(lambda n=new, k=key: self.api.submit(n, key=k))  # type: ignore[misc] # mypy cannot infer a lambda's defaults
            self.posted[job.name] = (job, taken.id)

    # --- how far they are ---

    @property
    def began(self) -> frozenset[str]:
        return self._wrote("began")

    @property
    def finished(self) -> frozenset[str]:
        return self._wrote("ended")

    @property
    def running(self) -> frozenset[str]:
        return self.began - self.finished

    async def over(self) -> int:
        """Return how many are over, as the fleet knows it."""
        rows = await self.answered(lambda: self.api.jobs(limit=len(self.posted)))
        return sum(row.state.over for row in rows)

    async def states(self) -> str:
        """Say what the fleet knows of each job, for whoever has to find out what is wrong."""
        try:
            rows = await self.api.jobs(limit=max(1, len(self.posted)))
        except ApiError as error:
            return f"{error.what}: {error.why}"
        each = (f"{row.name} {row.conclusion or row.state}" for row in reversed(rows))
        return f"Jobs: {', '.join(each) or 'none'}"

    def _wrote(self, what: str) -> frozenset[str]:
        return frozenset(path.stem for path in self.ledger.glob(f"*.{what}"))

    def _times(self, name: str, what: str) -> int:
        try:
            return len((self.ledger / f"{name}.{what}").read_text().splitlines())
        except FileNotFoundError:
            return 0

    # --- what became of them ---

    async def records(self, images: Mapping[str, str]) -> tuple[JobRecord, ...]:
        """Return what became of each job. ``images`` are those of all runners that were seen, by name."""
        return tuple([await self._record(*each, images) for each in self.posted.values()])

    async def _record(self, job: PlannedJob, job_id: str, images: Mapping[str, str]) -> JobRecord:
        outcome = await self._outcome(job_id)
        events = await self.answered(lambda: self.api.audit(job_id=job_id))
        image = images.get(outcome.pod, "")
        return JobRecord(
            name=job.name,
            began=self._times(job.name, "began"),
            finished=self._times(job.name, "ended"),
            conclusion=outcome.conclusion,
            exit_code=outcome.exit_code,
            output_ok=await self.answered(lambda: self._said(job_id)) == output(job, image),
            image=image,
            runner=outcome.pod,
            times=_timeline(outcome, events),
        )

    async def _outcome(self, job_id: str) -> Outcome:
        """
        Return how a job ended, once what it printed is all there.

        That a job is over may be known from its Pod before its agent has told what it printed last.
        """
        deadline = self.clock.monotonic() + _TOLD_WITHIN_S
        while True:
            outcome = await self.answered(lambda: self.api.outcome(job_id))
            if outcome.output is not Output.AWAITED or self.clock.monotonic() > deadline:
                return outcome
            await self.clock.sleep(_AGAIN_S)

    async def _said(self, job_id: str) -> str:
        pieces = [piece async for piece in self.api.log(job_id)]
        return b"".join(pieces).decode(errors="replace")

    async def answered(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until there is an answer: the server may be away for a while."""
        deadline = self.clock.monotonic() + _PATIENCE_S
        while True:
            try:
                return await call()
            except ApiUnavailable:
                if self.clock.monotonic() > deadline:
                    raise
                await self.clock.sleep(_AGAIN_S)


def _timeline(outcome: Outcome, events: tuple[Event, ...]) -> Times:
    """Return when a job got how far. It may have been claimed before, by a runner that it never reached."""
    at = {event.what: event.at for event in events}
    return Times(
        queued=outcome.submitted_at,
        claimed=at.get("claimed"),
        delivered=at.get("running"),
        started=outcome.started_at,
        ended=outcome.ended_at,
    )
