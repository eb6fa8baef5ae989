"""
Jobs without a forge: a script, what it printed and how it ended. Kept in the database, so any replica can serve them.

The script and its environment are kept until the job is over. They are no place for secrets, and the API says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

LOG_MAX_BYTES: Final = 8 * 1024 * 1024
"""How much of a job's output is kept."""


def cut_notice(log_max_bytes: int) -> bytes:
    """Return what stands at the end of a log that was cut."""
    return f"\n[remuda: the output is longer than {log_max_bytes} bytes; the rest is not kept]\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The archive that is unpacked on the runner before the script begins. A job never runs without it."""

    file_id: str
    size_bytes: int
    sha256: str
    """As whoever packed it says, in hex: compared where it arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """What to run and what became of it."""

    job_id: str
    request: str
    """SHA-256 of what was asked for: tells a repeated request from another one under the same key."""
    script: str = field(repr=False)
    """Empty once it is over."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: int = 3600
    upload: Upload | None = None
    download: tuple[str, ...] = ()
    """The paths that are to come back, from the folder that the script begins in."""
    needs: frozenset[str] = frozenset()
    """What a server must know of to hand it out, see ``remuda.model.needs``. Empty once it is over."""
    submitted_by: str = ""
    submitted_at: datetime
    started_at: datetime | None = None
    """When its Pod asked to begin: after that the script is never given to anybody else."""
    begun_by: str = ""
    """The UID of that Pod."""
    pod: str = ""
    """Its name."""
    tells_end: bool = False
    """Whether who began it tells its output and its end too: an agent does, a Pod without one cannot."""
    cancelled_at: datetime | None = None
    """When somebody asked for its end. It is over once its runner says so."""
    end: LocalEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEnd:
    """How a job ended."""

    conclusion: str
    at: datetime
    exit_code: int | None = None
    """None: it never ran, or nobody can say."""
    reason: str = ""
    files_note: str = ""
    """Why files that were to come back did not."""
    more_until: datetime | None = None
    """
    It was read off its Pod: its runner may tell the last of the output until then. None: nothing more comes, or the
    runner has told all.
    """


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some of what a job printed."""

    data: bytes = field(repr=False)
    next_offset: int
    complete: bool
    """The job is over and this is all that is kept."""


class LocalJobs(Protocol):
    """The local forge's own memory."""

    async def add(self, job: LocalJob) -> LocalJob:
        """Keep a job before it is enqueued. Returns what is kept: that of an earlier call if it was here already."""
        ...

    async def get(self, job_id: str) -> LocalJob | None: ...

    async def begun_by(self, pod_uid: str) -> str:
        """Return the id of the job that a Pod began; empty if it began none."""
        ...

    async def begin(
        self, job_id: str, *, pod: str, pod_uid: str, at: datetime, tells_end: bool = False
    ) -> bool:
        """
        Let one Pod begin a job, for good; idempotent.

        False: the job is unknown, over, cancelled or another Pod's, or the Pod began another job.
        """
        ...

    async def end(self, job_id: str, end: LocalEnd) -> LocalEnd | None:
        """Note how it ended and forget its script. Returns how: the first word counts. None: unknown."""
        ...

    async def told(self, job_id: str, *, files_note: str) -> None:
        """
        Note that its runner has told all of a job whose end was read off its Pod, and what became of its files.

        Changes nothing about how it ended, and nothing at all where no word was waited for.
        """
        ...

    async def cancel(self, job_id: str, at: datetime) -> bool:
        """Ask for its end; idempotent. False: unknown or over."""
        ...

    async def append_log(self, job_id: str, offset: int, data: bytes) -> int | None:
        """
        Keep output that begins at ``offset``; return where to go on. None: no such job.

        What is there already is not written twice. A gap is refused: the answer is then less than ``offset``. Past the
        bound of a log nothing is kept, the log ends by saying so, and the answer is as if all had been kept.
        """
        ...

    async def read_log(self, job_id: str, offset: int, *, limit: int) -> LogPart | None: ...

    async def unsettled(self, *, submitted_before: datetime, limit: int) -> tuple[str, ...]:
        """
        Return the jobs about which this and the store of jobs do not agree, oldest first.

        One of them says that it is over and the other does not; or it waits there although it began or was cancelled;
        or it is not known there at all, and was submitted before then.
        """
        ...

    async def forget(self, *, ended_before: datetime, limit: int) -> int:
        """Forget jobs that ended before then, with their logs. Returns how many."""
        ...
