"""
Dispatch as a runner's own side asks it, an agent for its VM or the poller for its Pod: one job, and how it goes.

A job config is a secret: no error, no log line and no ``repr`` shows it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REASON_MAX_CHARS: Final = 300
"""As much of a reason as is told."""


class JobKind(StrEnum):
    """What a job needs to run."""

    GITHUB = "github"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class UploadRef:
    """The archive that must be in the mailbox before the job is."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedJob:
    """200: the job is ours, and nobody else's."""

    job_id: str
    kind: JobKind
    runner_name: str
    document: bytes = field(repr=False)
    """What goes into the mailbox as ``job.json``. A secret."""
    upload: UploadRef | None = None
    wants_files: bool = False
    """Whether files are to come back."""
    files: Path | None = None
    """Where the upload lies on this host, once it is there whole."""


@dataclass(frozen=True, slots=True)
class NoJobYet:
    """204: ask again."""


@dataclass(frozen=True, slots=True)
class GoHome:
    """410: end, and be replaced."""

    reason: str


@dataclass(frozen=True, slots=True)
class HandedBefore:
    """409: this Pod was given its one job, and that counts as running."""

    why: str


@dataclass(frozen=True, slots=True)
class NotYou:
    """401 or 403: dispatch does not take us for a runner."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class AskLater:
    """429 or 503."""

    retry_after_s: float | None
    why: str


@dataclass(frozen=True, slots=True)
class FilesRefused:
    """404, 409 or 413: files are not given or taken, and asking again does not help."""

    why: str


PollAnswer = HandedJob | NoJobYet | GoHome | HandedBefore | NotYou | AskLater


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What to tell dispatch about a job."""

    started_at: datetime | None = None
    """Asks to begin a local job. It must not be put into the mailbox before the reply is there and says no ``stop``."""
    tells_end: bool = False
    """With ``started_at``: whether the job's output and its end will be told, too."""
    log_offset: int = 0
    log: bytes = field(default=b"", repr=False)
    exit_code: int | None = None
    exit_reason: str = ""
    exit_reported: bool = True
    """Whether the code is the job's own. Else it is only the Pod's: nobody knows how the job itself ended."""
    finished_at: datetime | None = None
    files_note: str = ""
    """Why files that were to come back did not."""

    def body(self) -> bytes:
        said: dict[str, Any] = {}
        if self.started_at is not None:
            said["started_at"] = self.started_at
        if self.tells_end:
            said["tells_end"] = True
        if self.log:
            data = base64.b64encode(self.log).decode()
            said["log"] = {"offset": self.log_offset, "data": data}
        if self.exit_code is not None:
            reason = self.exit_reason[:REASON_MAX_CHARS]
            said["exit"] = {"code": self.exit_code, "reason": reason}
            if not self.exit_reported:
                said["exit"]["reported"] = False
            if self.files_note:
                said["exit"]["files"] = self.files_note[:REASON_MAX_CHARS]
            if self.finished_at is not None:
                said["exit"]["finished_at"] = self.finished_at
        return msgspec.json.encode(said)


class ReportReply(msgspec.Struct, frozen=True):
    """What dispatch answers to a report."""

    stop: Annotated[str, Meta(max_length=2000)] = ""
    """Why the job must stop, or must not begin."""
    log_offset: Annotated[int, Meta(ge=0)] | None = None
    """Output is missing: neither log nor exit was taken. Send them from here."""
    overdue: bool = False
    """It must stop because its time is over, and not because somebody cancelled it."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Some of what comes back from a job."""

    size_bytes: int
    """Of all of it."""
    offset: int
    data: bytes = field(repr=False)


class Desk(Protocol):
    """Dispatch, for one runner. Nothing is tried again here. Every error is a DispatchError."""

    async def poll(self) -> PollAnswer:
        """Ask for a job; held open by dispatch for a while if there is none. To be cancelled at any time."""
        ...

    async def report(self, pod: str, report: JobReport) -> ReportReply | NotYou:
        """Say how the job of a Pod goes."""
        ...

    async def fetch_files(self, pod: str, offset: int) -> bytes | FilesRefused | NotYou:
        """Return some of what the job of a Pod needs, from a place on; nothing past its end."""
        ...

    async def send_files(self, pod: str, piece: FilePiece) -> int | FilesRefused | NotYou:
        """Send some of what the job of a Pod left; return where to go on."""
        ...


class Desks(Protocol):
    """Dispatch, for the many runners of one host, over connections that they share."""

    def acting_as(self, bearer: Callable[[], str]) -> Desk:
        """Return it as one runner asks it. ``bearer`` is asked for the token at each call, and must not block."""
        ...
