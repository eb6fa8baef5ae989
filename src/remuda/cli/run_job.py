"""
One job from its posting to its end: its output as it comes, and its exit code.

The server may go and come back at any moment. Each call is repeated until it is answered, and the output is read on
from the byte where it broke, so nothing is lost and nothing comes twice.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from remuda.cli.exits import BROKEN_PIPE
from remuda.cli.run_words import Verdict, progress, stop_words, verdict, who_cancelled
from remuda.model.errors import RemudaError
from remuda.model.job import JobState
from remuda.model.output import Output
from remuda.ports.api import ApiError, ApiUnavailable, Subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.cli.progress import Screen
    from remuda.ports.api import Api, Explanation, NewJob, Outcome
    from remuda.ports.clock import Clock

_T = TypeVar("_T")
_LOOKS_S: Final = (0.2, 0.3, 0.5, 1.0)
"""How long to wait before the next look at a job that has not begun."""
_AGAIN_S: Final = (0.3, 0.5, 1.0, 2.0)
"""How long to wait before a call that was not answered is made again."""
_EXPLAINED_EVERY: Final = 3
"""Why it waits is asked for at each such look: it changes seldom, and costs the server more."""


class OutputFailed(RemudaError):
    """What the job printed cannot be written here."""


class LostSight(RemudaError):
    """A job was taken, and how it goes can no longer be asked."""


class Out(Protocol):
    """Where a job's output goes."""

    async def write(self, data: bytes) -> None:
        """Write all of it. Raises BrokenPipeError if nobody reads it any more, OutputFailed if it cannot be."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a server may be silent."""

    submit_s: float = 10.0
    """While nothing was taken: it may be another address."""
    follow_s: float = 600.0
    """While a job waits or runs: a restart takes less."""
    broken_s: float = 10.0
    """To be told that a job is to end, after whoever read its output has gone."""
    rest_s: float = 150.0
    """For the last of the output of a job that is over: longer than a server ever lets anybody wait for it."""


class Stop:
    """Whether somebody asked us to end, and with which exit code."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.code: int | None = None

    def ask(self, code: int) -> None:
        if self.code is None:
            self.code = code
            self._asked.set()

    async def wait(self) -> None:
        await self._asked.wait()


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of one job."""

    api: Api
    clock: Clock
    out: Out
    screen: Screen
    stop: Stop
    patience: Patience = field(default_factory=Patience)
    offset: int = field(default=0, init=False)
    """How much of the output was written."""
    outcome: Outcome | None = field(default=None, init=False)
    """How the job ended, once that is known."""

    async def run(self, job: NewJob, *, key: str) -> Verdict:
        """Run it. Raises what a person must know if there is no verdict."""
        began_at = self.clock.monotonic()
        try:
            taken = await self.answered(
                lambda: self.api.submit(job, key=key), self.patience.submit_s, stops=True
            )
        except ApiUnavailable:
            if self.stop.code is None:
                raise
            says = "stopped before the server answered; if it took the job, that runs"
            return Verdict(self.stop.code, says)
        try:
            async with asyncio.TaskGroup() as group:
                cancelling = group.create_task(self._cancel_when_asked(taken.id), name="cancel")
                outcome = await self._to_its_end(taken.id, began_at)
                cancelling.cancel()
        except ExceptionGroup as failed:
            return await self._failed(taken.id, failed)
        self.screen.clear()
        self.outcome = outcome
        return await self._verdict(outcome, job.timeout_s)

    async def _failed(self, job_id: str, failed: ExceptionGroup[Exception]) -> Verdict:
        """Say what is left to say if the job's end is not known here."""
        unread, rest = failed.split(BrokenPipeError)
        if unread is not None:
            await self._cancel_in_passing(job_id)
            return Verdict(BROKEN_PIPE)
        assert rest is not None
        faults, bugs = rest.split(RemudaError)
        if bugs is not None or faults is None:
            raise failed
        error = _first(faults)
        if isinstance(error, OutputFailed):
            await self._cancel_in_passing(job_id)
            raise error from None
        raise LostSight(
            f"It is not known how the job {job_id} ended",
            why=f"{error.what}: {error.why}",
            fix=f"{error.fix}. Look for it with: remuda explain job {job_id}",
        ) from None

    # --- following ---

    async def _to_its_end(self, job_id: str, began_at: float) -> Outcome:
        outcome = await self._until_begun(job_id, began_at)
        self.screen.clear()
        while not outcome.over:
            await self._output(job_id, follow=True)
            outcome = await self._patient(lambda: self.api.outcome(job_id))
        outcome = await self._all_told(job_id, outcome)
        await self._output(job_id, follow=False)  # what came between the last look and its end
        return outcome

    async def _all_told(self, job_id: str, outcome: Outcome) -> Outcome:
        """
        Wait until a job's runner has told all of it, if its end was known before: in vain only for a while.

        The job is over, so who wants to stop waits no longer.
        """
        began_at, looks = self.clock.monotonic(), 0
        while outcome.output is Output.AWAITED and self.stop.code is None:
            waited_s = self.clock.monotonic() - began_at
            if waited_s >= self.patience.rest_s:
                break
            self.screen.progress(f"{job_id} is over; waits for the last of its output", waited_s)
            await self._output(job_id, follow=False)
            await self.clock.sleep(_LOOKS_S[min(looks, len(_LOOKS_S) - 1)])
            outcome = await self._patient(lambda: self.api.outcome(job_id))
            looks += 1
        self.screen.clear()
        return outcome

    async def _until_begun(self, job_id: str, began_at: float) -> Outcome:
        looks, explanation = 0, None
        while True:
            outcome = await self._patient(lambda: self.api.outcome(job_id))
            if outcome.over or outcome.started_at is not None:
                return outcome
            row = await self._patient(lambda: self.api.job(job_id))
            if row.state is JobState.QUEUED and looks % _EXPLAINED_EVERY == 1:
                explanation = await self._why(job_id)
            waited_s = self.clock.monotonic() - began_at
            self.screen.progress(f"{job_id} {progress(row, explanation)}", waited_s)
            await self.clock.sleep(_LOOKS_S[min(looks, len(_LOOKS_S) - 1)])
            looks += 1

    async def _why(self, job_id: str) -> Explanation | None:
        try:
            return await self.api.explain(Subject.JOB, job_id)
        except ApiError:
            return None  # a word of comfort: nothing hangs on it

    async def _output(self, job_id: str, *, follow: bool) -> None:
        """Write the output from where we are, to where the server ends it."""

        async def once() -> None:
            log = self.api.log(job_id, offset=self.offset, follow=follow)
            async with aclosing(log) as pieces:
                async for piece in pieces:
                    self.screen.clear()
                    await self.out.write(piece)
                    self.offset += len(piece)

        await self._patient(once)

    # --- cancelling ---

    async def _cancel_when_asked(self, job_id: str) -> None:
        await self.stop.wait()
        assert self.stop.code is not None
        words = stop_words(self.stop.code)
        self.screen.say(f"{words}: cancelling the job {job_id}; once more leaves at once")
        await self._patient(lambda: self.api.cancel(job_id))

    async def _cancel_in_passing(self, job_id: str) -> None:
        """Cancel a job whose end we do not wait for. It has a deadline of its own, if even that cannot be told."""
        with suppress(RemudaError):
            await self.answered(lambda: self.api.cancel(job_id), self.patience.broken_s)

    async def _verdict(self, outcome: Outcome, timeout_s: int) -> Verdict:
        by = ""
        if outcome.conclusion == "cancelled" and self.stop.code is None:
            with suppress(ApiError):
                by = who_cancelled(await self.api.audit(job_id=outcome.id))
        return verdict(outcome, asked=self.stop.code, by=by, timeout_s=timeout_s)

    # --- a server that goes and comes back ---

    async def _patient(self, call: Callable[[], Awaitable[_T]]) -> _T:
        return await self.answered(call, self.patience.follow_s)

    async def answered(
        self, call: Callable[[], Awaitable[_T]], patience_s: float, *, stops: bool = False
    ) -> _T:
        """
        Call until there is an answer. Raises ApiUnavailable after a time, and what asking again cannot help.

        With ``stops`` it is not called again once somebody asked us to end.
        """
        failures, offset, gives_up_at = 0, self.offset, 0.0
        while True:
            try:
                answer = await call()
            except ApiUnavailable as error:
                now = self.clock.monotonic()
                if failures == 0 or self.offset > offset:  # it was there since the last failure
                    failures, offset, gives_up_at = 0, self.offset, now + patience_s
                if now >= gives_up_at or (stops and self.stop.code is not None):
                    raise
                if failures == 1:  # one that is repeated and works is nobody's concern
                    self.screen.say(f"the server does not answer ({error.why}); trying again")
                wait_s = _AGAIN_S[min(failures, len(_AGAIN_S) - 1)]
                await self.clock.sleep(max(wait_s, error.after_s or 0.0))
                failures += 1
            else:
                if failures > 1:
                    self.screen.say("the server answers again")
                return answer


def _first(faults: ExceptionGroup[RemudaError]) -> RemudaError:
    first = faults.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
