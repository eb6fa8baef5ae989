"""
The files that a local job left in its mailbox, sent to dispatch before the job's end is told.

The guest is hostile: what it left is bounded, and passed on unread. Whatever goes wrong costs the files and never the
job: it becomes a note beside the job's own exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.mailbox import HostMailboxError
from remuda.control.pace import Pace
from remuda.model.job_files import FILES_MAX_BYTES, PIECE_MAX_BYTES
from remuda.ports.desk import FilePiece, FilesRefused, NotYou
from remuda.ports.dispatch import DispatchError
from remuda.ports.kube import KubeError

if TYPE_CHECKING:
    from remuda.agent.mailbox import HostMailbox
    from remuda.agent.pod_desk import PodDesk
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

log = structlog.get_logger(__name__)

CUT_SHORT: Final = "the job was ended before its files could be packed"
TOO_LATE: Final = "its guest took too long to pack them"
VM_ENDED: Final = "its runner ended while it packed them"
CANCELLED: Final = "it was told to stop while it packed them"
OVERFULL: Final = "its guest filled its mailbox while it packed them"
UNFINISHED: Final = frozenset({TOO_LATE, VM_ENDED, CANCELLED, OVERFULL})
"""Our own words for a guest that did not say how its packing went. An archive may be there nevertheless."""
TOO_OLD: Final = "the guest of its image is too old to pack any: build it anew"
_NONE: Final = "its guest left none"
_CHANGED: Final = "they changed while they were read"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectingTimes:
    """In seconds."""

    patience_s: float = 60.0
    """For how long nothing may be taken before the files are given up."""
    all_s: float = 600.0
    """How long all of it may take: a slow line must not hold a VM's place for ever."""


@dataclass(slots=True, kw_only=True)
class Collecting:
    """One runner's. It may be cancelled and begun again: what was taken is not sent twice."""

    pod: str
    desk: PodDesk
    clock: Clock
    ids: Ids
    times: CollectingTimes

    async def run(self, mailbox: HostMailbox) -> str:
        """Send them. Returns why not all of them were taken; empty: they were."""
        try:
            measured = mailbox.files_measured()
            if measured is None:
                return _NONE
            if measured.size_bytes > FILES_MAX_BYTES:
                return f"they have more than {FILES_MAX_BYTES} bytes, packed"
            return await self._send(mailbox, measured.size_bytes)
        except HostMailboxError as error:
            return f"they could not be read: {error.why}"

    async def _send(self, mailbox: HostMailbox, size: int) -> str:
        pace, offset, why = Pace(self.clock, self.ids), 0, "dispatch did not answer"
        ends_at = self.clock.monotonic() + self.times.all_s
        give_up_at = self.clock.monotonic() + self.times.patience_s
        while offset < size:
            data = mailbox.files_part(offset, min(PIECE_MAX_BYTES, size - offset))
            if not data:
                return _CHANGED
            answer = await self._once(FilePiece(size, offset, data))
            if isinstance(answer, FilesRefused):
                return f"dispatch did not take them: {answer.why}"
            now = self.clock.monotonic()
            if isinstance(answer, int) and answer > offset:
                offset, give_up_at = answer, now + self.times.patience_s
                pace.worked()
            elif now < min(give_up_at, ends_at):
                why = answer if isinstance(answer, str) else why
                await pace.after_failure()
            if offset < size and now >= min(give_up_at, ends_at):
                return f"they could not be sent in time: {why}"
        return "" if size else _NONE

    async def _once(self, piece: FilePiece) -> int | FilesRefused | str:
        """Send a piece once; a text says why it may be tried again."""
        try:
            answer = await self.desk.send_files(piece)
        except (DispatchError, KubeError) as error:
            log.warning("files not sent yet", pod=self.pod, error=str(error))
            return error.why
        if isinstance(answer, NotYou):
            return answer.why or f"it answered {answer.status}"
        return answer
