"""
One runner asks dispatch for its one job, until it has it or never will.

A local job is kept on disk before dispatch is asked to let it begin, and begun again after a restart: to the same Pod
dispatch gives the same answer. So whoever is killed or cancelled at any point loses none. A GitHub job needs none of
that: until GitHub sees it run, dispatch hands it to the same Pod again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

import structlog

from remuda.agent.fetching import Fetched, Fetching, Spoilt
from remuda.agent.held_jobs import HeldJobFailed, Unreadable
from remuda.agent.parts import Denied
from remuda.control.pace import Pace
from remuda.ports.desk import (
    AskLater,
    FilesRefused,
    GoHome,
    HandedBefore,
    HandedJob,
    JobKind,
    JobReport,
    NoJobYet,
    NotYou,
)
from remuda.ports.dispatch import DispatchError
from remuda.ports.kube import KubeError

if TYPE_CHECKING:
    from remuda.agent.held_jobs import HeldJobs
    from remuda.agent.ledger import Threads
    from remuda.agent.parts import RunnerRef
    from remuda.agent.pod_desk import PodDesk, Standing
    from remuda.ports.clock import Clock
    from remuda.ports.desk import ReportReply
    from remuda.ports.ids import Ids

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Asking:
    """One runner's asking. ``run`` may be cancelled at any time."""

    runner: RunnerRef
    desk: PodDesk
    held: HeldJobs
    threads: Threads
    standing: Standing
    clock: Clock
    ids: Ids
    begin_s: float
    """How long to ask to begin before dispatch is asked for the job again."""
    _pace: Pace = field(init=False)
    _job: HandedJob | None = None
    """The local job that we hold, on disk too, and have not been let begin yet."""
    _trouble: str = ""
    """Why a job that we were given is not at hand, as far as we know."""

    def __post_init__(self) -> None:
        self._pace = Pace(self.clock, self.ids)

    async def run(self) -> HandedJob | GoHome | Denied:
        self._job = await self._kept()
        while True:
            if self._job is not None:
                ended = await self._try(self._job)
                if ended is not None:
                    return ended
            end = await self._take(await self._poll())
            if end is not None:
                return end

    async def _try(self, job: HandedJob) -> HandedJob | Denied | None:
        """Ask to begin what we hold; None: dispatch must be asked for a job."""
        files = await self._files(job)
        if files is None or isinstance(files, Denied):
            return files
        if isinstance(files, FilesRefused):
            await self._not_to_begin(job, files.why)
            return None
        reply = await self._begin(job)
        if reply is None or isinstance(reply, Denied):
            return reply
        if reply.stop:
            await self._not_to_begin(job, reply.stop)
            return None
        if isinstance(files, Spoilt):
            return await self._give_back(job, files)
        return replace(job, files=files.path)

    async def _not_to_begin(self, job: HandedJob, why: str) -> None:
        log.info("job must not begin", **self._who, job=job.job_id, why=why)
        self._trouble = f"it was not to begin: {why}"
        await self._let_go()
        await self._pace.after_failure()  # dispatch might hand the same one over again

    async def _files(self, job: HandedJob) -> Fetched | Spoilt | FilesRefused | Denied | None:
        """Have the files of a job on disk, if it has any: it never begins without them."""
        if job.upload is None:
            return Fetched(None)
        fetching = Fetching(
            runner=self.runner,
            desk=self.desk,
            held=self.held,
            threads=self.threads,
            standing=self.standing,
            clock=self.clock,
            ids=self.ids,
            patience_s=self.begin_s,
        )
        return await fetching.run(job.upload)

    async def _give_back(self, job: HandedJob, spoilt: Spoilt) -> Denied:
        """End a job that was begun and cannot run. If dispatch does not hear of it, it goes by the end of the Pod."""
        denied = Denied("FilesSpoilt", f"Its job cannot be run: {spoilt.why}")
        log.error("job not run", **self._who, job=job.job_id, why=denied.why)
        report = JobReport(exit_code=1, exit_reason=spoilt.why, exit_reported=False)
        try:
            await self.desk.report(report)
        except (DispatchError, KubeError) as error:
            log.warning("end of job not told", **self._who, error=str(error))
        await self._let_go()
        return denied

    async def _take(
        self, answer: HandedJob | GoHome | HandedBefore | Denied
    ) -> HandedJob | GoHome | Denied | None:
        """Take what dispatch says; None: there is something to begin, or to ask for again."""
        match answer:
            case HandedBefore() if self._job is None:
                return self._lost(answer)
            case HandedBefore():
                await self._pace.after_failure()  # it is ours: ask again to begin it
                return None
            case HandedJob(kind=JobKind.LOCAL):
                self._job = await self._keep(answer)
                return None
            case HandedJob() | GoHome():
                await self._let_go()
                return answer
            case Denied():
                return answer
            case _:
                assert_never(answer)

    # --- polls --------------------------------------------------------------------------------------------------------

    async def _poll(self) -> HandedJob | GoHome | HandedBefore | Denied:
        """Ask until something is answered that ends the asking."""
        while True:
            asked_at = self.clock.monotonic()
            try:
                answer = await self.desk.poll()
            except (DispatchError, KubeError) as error:
                denied = self.standing.failed(error)
                if denied is None:
                    log.warning("poll failed", **self._who, error=str(error))
                    await self._pace.after_failure()
            else:
                if isinstance(answer, HandedJob | GoHome | HandedBefore):
                    self.standing.answered()
                    return answer
                denied = await self._wait(answer, asked_at)
            if denied is not None:
                return denied

    async def _wait(self, answer: NoJobYet | AskLater | NotYou, asked_at: float) -> Denied | None:
        """Wait as long as the answer asks for."""
        match answer:
            case NotYou():
                return await self._refused(answer)
            case NoJobYet():
                self.standing.answered()
                await self._pace.after_nothing(asked_at)
            case AskLater(retry_after_s, why):
                log.info("dispatch asks to come again", **self._who, why=why)
                await self._pace.after_failure(retry_after_s)
            case _:
                assert_never(answer)
        return None

    async def _refused(self, answer: NotYou) -> Denied | None:
        denied = self.standing.not_us(answer)
        if denied is not None:
            log.error("no job: token refused", **self._who, why=denied.why)
            return denied
        log.warning("token refused, trying a fresh one", **self._who, why=answer.why)
        await self._pace.after_failure()
        return None

    def _lost(self, answer: HandedBefore) -> Denied:
        """Dispatch counts a job as running here, and we have none."""
        said = answer.why or "dispatch counts its job as running"
        trouble = self._trouble or "it is not at hand here"
        denied = Denied("JobLost", f"Its job cannot be run: {said}; {trouble}")
        log.error("job lost", **self._who, why=denied.why)
        return denied

    # --- beginning ----------------------------------------------------------------------------------------------------

    async def _begin(self, job: HandedJob) -> ReportReply | Denied | None:
        """Ask to begin. A lost answer is asked for again: to this Pod it is the same one. None: nobody answers."""
        pace = Pace(self.clock, self.ids)
        give_up_at = self.clock.monotonic() + self.begin_s
        report = JobReport(started_at=self.clock.now(), tells_end=True)
        while True:
            try:
                reply = await self.desk.report(report)
            except (DispatchError, KubeError) as error:
                if (denied := self.standing.failed(error)) is not None:
                    return denied
                log.warning("not let begin yet", **self._who, job=job.job_id, error=str(error))
                if self.clock.monotonic() >= give_up_at:
                    return None
                await pace.after_failure()
                continue
            if not isinstance(reply, NotYou):
                self.standing.answered()
                return reply
            if (denied := await self._refused(reply)) is not None:
                return denied

    # --- keeping ------------------------------------------------------------------------------------------------------

    async def _kept(self) -> HandedJob | None:
        """Return what was kept before a restart."""
        while True:
            try:
                found = await self.threads(lambda: self.held.get(self.runner.pod_uid))
            except HeldJobFailed as error:
                log.error("held job not read yet", **self._who, error=str(error))  # noqa: TRY400 - a fault of the disk, not ours
                await self._pace.after_failure()
                continue
            if isinstance(found, Unreadable):
                self._trouble = f"the file {found.file}, which held it, cannot be read: {found.why}"
                log.error("held job lost", **self._who, why=self._trouble)
                return None
            if found is not None:
                log.info("job found again", **self._who, job=found.job_id)
            return found

    async def _keep(self, job: HandedJob) -> HandedJob | None:
        """Have it on disk; None: it is not, so it must not begin, and dispatch is asked again."""
        try:
            await self.threads(lambda: self.held.keep(self.runner.pod_uid, job))
        except HeldJobFailed as error:
            log.error("job not begun: it cannot be kept", **self._who, error=str(error))  # noqa: TRY400 - a fault of the disk, not ours
            await self._pace.after_failure()
            return None
        return job

    async def _let_go(self) -> None:
        if self._job is not None:
            self._job = None
            await drop(self.held, self.threads, self.runner)

    @property
    def _who(self) -> dict[str, str]:
        return {"pod": self.runner.pod}


async def drop(held: HeldJobs, threads: Threads, runner: RunnerRef) -> None:
    """Forget a kept job. One that stays is found and removed later: it is begun by its own Pod or not at all."""
    try:
        await threads(lambda: held.drop(runner.pod_uid))
    except HeldJobFailed as error:
        log.warning("held job not removed yet", pod=runner.pod, error=str(error))
