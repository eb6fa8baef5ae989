"""
Waits for the one job of a Pod and puts it into the mailbox: the agent's part, for Pods on ordinary kubelets.

It ends with one of: a job in the mailbox, a stop in the mailbox, or an error and neither, so that the runner after it
never begins. A local job goes into the mailbox only after dispatch has let this Pod begin it: what may have run is
never given to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, assert_never

import structlog

from remuda.control.pace import Pace
from remuda.model.errors import RemudaError, Retry
from remuda.model.mailbox import Holds
from remuda.ports.desk import (
    AskLater,
    GoHome,
    HandedBefore,
    HandedJob,
    JobKind,
    JobReport,
    NoJobYet,
    NotYou,
)
from remuda.ports.dispatch import DispatchError

if TYPE_CHECKING:
    from remuda.adapters.mailbox_folder import MailboxFolder
    from remuda.adapters.poll_client import PollClient
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

log = structlog.get_logger(__name__)


class NoJobForUs(RemudaError):
    """The Pod gets no job, and its runner must not begin."""

    retry = Retry.NEVER


class Outcome(Enum):
    """How it ended well."""

    JOB = "a job is in the mailbox"
    STOP = "a stop is in the mailbox"


@dataclass(slots=True, kw_only=True)
class Poller:
    """One Pod's."""

    client: PollClient
    mailbox: MailboxFolder
    pod: str
    clock: Clock
    ids: Ids
    begin_s: float = 60.0
    """How long to try to be let begin a job. Then it is left to others: dispatch gives it to the next runner."""
    _asked_to_begin: str = ""
    """The job that dispatch may count as begun by us."""

    async def run(self) -> Outcome:
        """Wait for a job. To be cancelled at any time: then no job was taken, or it is in the mailbox."""
        before = self._before()
        if before is not None:
            return before
        pace = Pace(self.clock, self.ids)
        while True:
            asked_at = self.clock.monotonic()
            try:
                answer = await self.client.poll()
            except DispatchError as error:
                waited_s = await pace.after_failure()
                log.warning("poll failed", error=str(error), waited_s=round(waited_s, 1))
                continue
            if isinstance(answer, NoJobYet):
                await pace.after_nothing(asked_at)
            elif isinstance(answer, AskLater):
                log.info("dispatch asks to come again", why=answer.why)
                await pace.after_failure(answer.retry_after_s)
            else:
                return await self._end(answer)

    def give_up(self) -> Outcome:
        """End after ``run`` was cancelled: tell the runner to end, unless it has a job."""
        if self.mailbox.holds() is Holds.JOB:
            return Outcome.JOB
        if self._asked_to_begin:
            # A stop would make the runner end with 0, and the job that may count as begun would pass for done.
            why = f"it was told to end while it asked to begin the job {self._asked_to_begin}"
            raise NoJobForUs(_NO_JOB, why=why, fix=_REPLACED)
        self.mailbox.put_stop()
        return Outcome.STOP

    def _before(self) -> Outcome | None:
        """Say what an earlier run of this poller left; it may have been killed at any moment."""
        self.mailbox.sweep()
        match self.mailbox.holds():
            case Holds.NOTHING:
                return None
            case Holds.JOB:
                log.info("the mailbox holds a job already")
                return Outcome.JOB
            case Holds.STOP:
                return Outcome.STOP
            case Holds.SPENT:
                why = "its mailbox shows that it had its one job"
                raise NoJobForUs(_NO_JOB, why=why, fix=_REPLACED)

    async def _end(self, answer: HandedJob | GoHome | HandedBefore | NotYou) -> Outcome:
        match answer:
            case HandedJob():
                return await self._take(answer)
            case GoHome(reason):
                log.info("sent home", reason=reason)
                self.mailbox.put_stop()
                return Outcome.STOP
            case HandedBefore(why):
                # The runner begins after we end, so nothing runs that job: an earlier poller died with it.
                said = why or "dispatch counts its job as running"
                raise NoJobForUs(_NO_JOB, why=said, fix=_REPLACED)
            case NotYou(status, why):
                said = f"dispatch answered {status}" + (f" ({why})" if why else "")
                raise NoJobForUs(_NO_JOB, why=said, fix=_TOKEN)
            case _:
                assert_never(answer)

    async def _take(self, job: HandedJob) -> Outcome:
        if job.kind is JobKind.LOCAL:
            await self._begin(job)
        self.mailbox.put_job(job.document)  # nothing awaits before it is durable
        log.info("job taken", job=job.job_id, runner=job.runner_name)
        return Outcome.JOB

    async def _begin(self, job: HandedJob) -> None:
        """Be let begin, or raise. A lost answer is asked for again: to this Pod it is the same one."""
        pace = Pace(self.clock, self.ids)
        give_up_at = self.clock.monotonic() + self.begin_s
        report = JobReport(started_at=self.clock.now())
        self._asked_to_begin = job.job_id
        while True:
            try:
                reply = await self.client.report(self.pod, report)
            except DispatchError as error:
                if self.clock.monotonic() >= give_up_at:
                    raise
                log.warning("not let begin yet", job=job.job_id, error=str(error))
                await pace.after_failure()
                continue
            if isinstance(reply, NotYou):
                raise NoJobForUs(_NO_JOB, why=reply.why or f"{reply.status}", fix=_TOKEN)
            if reply.stop:
                raise NoJobForUs(_NO_JOB, why=reply.stop, fix=_REPLACED)
            return


_NO_JOB = "This Pod gets no job"
_REPLACED = "Nothing needs to be done: the Pod ends and is replaced"
_TOKEN = "Check the Pod's token (its audience, ServiceAccount and Pod), and that the address is that of dispatch"  # noqa: S105 - advice
