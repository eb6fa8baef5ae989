"""
How a local job goes, told to dispatch: what it prints while it runs, and how it ended.

Dispatch may be gone for a while, or forget what it took last: it says from where to go on. Everything may be told
twice. A GitHub job tells GitHub itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.decide.verdict import is_reported
from remuda.agent.following import Piece, Stream
from remuda.agent.mailbox import HostMailboxError
from remuda.agent.parts import ToldToStop
from remuda.control.pace import Pace
from remuda.ports.desk import JobReport, NotYou
from remuda.ports.dispatch import DispatchError
from remuda.ports.kube import KubeError, NotFound

if TYPE_CHECKING:
    from remuda.agent.decide.recorded import Verdict, VmRecord
    from remuda.agent.mailbox import HostMailbox
    from remuda.agent.pod_desk import PodDesk, Standing
    from remuda.ports.clock import Clock
    from remuda.ports.desk import ReportReply
    from remuda.ports.ids import Ids

log = structlog.get_logger(__name__)

_GAPS_MAX: Final = 5
"""How often in a row the end may be asked for again with more output. Then it is told without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingTimes:
    """In seconds."""

    look_s: float = 1.0
    """How often to look for output."""
    beat_s: float = 5.0
    """How often to ask whether the job must stop, where there is no output."""
    finish_s: float = 20.0
    """How long one try to tell the end may take."""


@dataclass(slots=True, kw_only=True)
class Telling:
    """One runner's. It remembers how much dispatch has heard."""

    pod: str
    desk: PodDesk
    standing: Standing
    clock: Clock
    ids: Ids
    times: TellingTimes
    stream: Stream = field(default_factory=Stream)
    _is_nobody: bool = False
    """Whether the runner's ServiceAccount is gone: then no token can be had any more."""

    async def follow(self, record: VmRecord, mailbox: HostMailbox) -> ToldToStop:
        """Tell the output. Returns only if the job must stop."""
        pace = Pace(self.clock, self.ids)
        beat_at = self.clock.monotonic()
        while True:
            piece = self._piece(mailbox)
            if not piece.data and self.clock.monotonic() < beat_at:
                await self.clock.sleep(self.times.look_s)
                continue
            reply = await self._tell(_going_on(record, piece, self.clock))
            if reply is None:
                await pace.after_failure()
                continue
            if reply.stop:
                return ToldToStop(reply.stop, overdue=reply.overdue)
            beat_at = self.clock.monotonic() + self.times.beat_s
            if reply.log_offset is None:
                self.stream.took(piece)
                pace.worked()
            else:
                self.stream.go_back(reply.log_offset)
                await pace.after_failure()

    async def finish(self, verdict: Verdict, mailbox: HostMailbox) -> bool:
        """Tell the rest of the output and the end, within bounds. Whether nobody needs to be told any more."""
        try:
            async with asyncio.timeout(self.times.finish_s):
                return await self._finish(verdict, mailbox)
        except TimeoutError:
            return False

    async def _finish(self, verdict: Verdict, mailbox: HostMailbox) -> bool:
        pace = Pace(self.clock, self.ids)
        gaps = 0
        while True:
            piece = self._piece(mailbox) if gaps < _GAPS_MAX else Piece(0, b"")
            is_last = len(piece.data) < self.stream.piece_bytes
            reply = await self._tell(_ended(verdict, piece) if is_last else _printed(piece))
            if reply is None:
                if self._is_nobody or self.standing.is_hopeless:
                    # Its Pod's end tells dispatch what we cannot.
                    log.error("end of job not told: dispatch does not know us", pod=self.pod)
                    return True
                await pace.after_failure()
                continue
            if reply.log_offset is not None:
                gaps += 1
                self.stream.go_back(reply.log_offset)
                await pace.after_failure()
                continue
            if is_last:
                return True
            self.stream.took(piece)
            gaps = 0
            pace.worked()

    async def _tell(self, report: JobReport) -> ReportReply | None:
        """Say it once; None: it was not heard, or nobody can say."""
        try:
            reply = await self.desk.report(report)
        except (DispatchError, KubeError) as error:
            self.standing.failed(error)
            self._is_nobody = isinstance(error, NotFound)
            log.warning("job not reported yet", pod=self.pod, error=str(error))
            return None
        if isinstance(reply, NotYou):
            self.standing.not_us(reply)
            log.warning(
                "job not reported: token refused", pod=self.pod, status=reply.status, why=reply.why
            )
            return None
        self.standing.answered()
        return reply

    def _piece(self, mailbox: HostMailbox) -> Piece:
        try:
            return self.stream.next(mailbox.log_part)
        except HostMailboxError as error:
            log.debug("no output", pod=self.pod, error=str(error))
            return self.stream.nothing()


def _going_on(record: VmRecord, piece: Piece, clock: Clock) -> JobReport:
    """Without output, ask to begin again: that changes nothing, and its answer says whether to stop."""
    if piece.data:
        return _printed(piece)
    return JobReport(started_at=record.delivered_at or clock.now())


def _printed(piece: Piece) -> JobReport:
    return JobReport(log_offset=piece.offset, log=piece.data)


def _ended(verdict: Verdict, piece: Piece) -> JobReport:
    reason = "" if verdict.succeeded else verdict.message or verdict.reason
    return JobReport(
        log_offset=piece.offset,
        log=piece.data,
        exit_code=verdict.exit_code,
        exit_reason=reason,
        exit_reported=is_reported(verdict),
        finished_at=verdict.finished_at,
        files_note=verdict.files_note,
    )
