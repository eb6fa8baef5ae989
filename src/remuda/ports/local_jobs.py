"""
Jobs without a forge: a script, what it printed and how it ended. Kept in the database, so any replica can serve them.

The script and its environment are kept until the job is over. They are no place for secrets, and the API says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """What to run and what became of it."""

    job_id: str
    script: str = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: int = 3600
    submitted_by: str = ""
    submitted_at: datetime
    started_at: datetime | None = None
    """When its runner said that the script began: after that it is never run again."""
    ended_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    cancelled_at: datetime | None = None
    """When somebody asked for its end. It is over once its runner says so."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some of what a job printed."""

    data: bytes
    next_offset: int
    complete: bool
    """The job is over and nothing comes after this."""


class LocalJobs(Protocol):
    """The local forge's own memory."""

    async def add(self, job: LocalJob) -> bool:
        """Keep a job before it is enqueued. False: it was here already."""
        ...

    async def get(self, job_id: str) -> LocalJob | None: ...

    async def begin(self, job_id: str, at: datetime) -> bool:
        """Note that the script began; idempotent. False: unknown or over."""
        ...

    async def end(self, job_id: str, *, exit_code: int | None, reason: str, at: datetime) -> bool:
        """Note how it ended; the first word counts. The script and environment are forgotten. False: it was over."""
        ...

    async def cancel(self, job_id: str, at: datetime) -> bool:
        """Ask for its end; idempotent. False: unknown or over."""
        ...

    async def append_log(self, job_id: str, offset: int, data: bytes) -> int:
        """
        Keep output that begins at ``offset``; return up to where it is kept now.

        What is there already is not written twice; a gap is refused (the answer says where to go on). Past the bound of
        a log nothing is kept, and the log says so.
        """
        ...

    async def read_log(self, job_id: str, offset: int, *, limit: int) -> LogPart | None: ...
