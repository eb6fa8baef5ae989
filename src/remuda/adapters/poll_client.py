"""
Dispatch as a runner's own side asks it: an agent for its VM, the poller for its Pod.

It asks for a job and says how the job goes. A job config is a secret: no error, no log line and no ``repr`` shows it.
Nothing is tried again here; how long to wait after which answer is said by ``control.pace``.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
from msgspec import Meta

from remuda.adapters.dispatch_wire import (
    LOOK,
    Answer,
    Call,
    DispatchWire,
    WireSettings,
    part,
    refusal,
)
from remuda.model.job_files import FILES_MAX_BYTES, PIECE_MAX_BYTES
from remuda.ports.desk import (
    AskLater,
    FilePiece,
    FilesRefused,
    GoHome,
    HandedBefore,
    HandedJob,
    JobKind,
    JobReport,
    NoJobYet,
    NotYou,
    PollAnswer,
    ReportReply,
    UploadRef,
)
from remuda.ports.dispatch import DispatchError

if TYPE_CHECKING:
    from collections.abc import Callable

_JOB_MAX_BYTES = 4 * 1024 * 1024
"""More than the largest script has, with each of its characters escaped."""
_RETRY_MAX_S = 60.0
_POLL = "No job could be asked for"
_OLD = "Check that agents, pollers and dispatch are of one version"


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSettings(WireSettings):
    """How a runner asks."""

    wait_s: float = 25.0
    """How long dispatch may hold a poll open."""

    answer_s: float = 30.0
    """How much longer an answer may take: a hand-over that begins at the last moment has its own time."""

    report_timeout_s: float = 10.0

    files_timeout_s: float = 30.0
    """For one piece of an archive."""

    connections_max: int = 1024
    """Each runner of a host holds a poll open, and reports beside that."""


class _JobBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job as it goes into the mailbox: what is not known here is left out."""

    job_id: Annotated[str, Meta(min_length=1, max_length=300)]
    kind: JobKind
    runner_name: Annotated[str, Meta(max_length=300)] = ""
    owner: Annotated[str, Meta(max_length=300)] = ""
    encoded_jit_config: str = ""
    script: str = ""
    env: dict[str, str] = {}
    upload_bytes: Annotated[int, Meta(ge=0, le=FILES_MAX_BYTES)] = 0
    upload_sha256: Annotated[str, Meta(max_length=64)] = ""
    download: str = ""
    """Paths, each on a line."""
    deadline: datetime | None = None

    @property
    def is_whole(self) -> bool:
        github = self.kind is JobKind.GITHUB
        return bool(self.encoded_jit_config) is github and bool(self.script) is not github


class _Next(msgspec.Struct, frozen=True):
    next_offset: Annotated[int, Meta(ge=0, le=FILES_MAX_BYTES)]


class PollClient:
    """One dispatch server, for one runner or many: each call reads its token afresh. Fills ``ports.desk.Desk``."""

    def __init__(self, settings: PollSettings) -> None:
        self._settings = settings
        self._wire = DispatchWire(settings)
        self._bearer: Callable[[], str] | None = None

    def acting_as(self, bearer: Callable[[], str]) -> Self:
        """Return the same server as another runner asks it: over these connections, with a token of its own."""
        other = copy(self)
        other._bearer = bearer  # noqa: SLF001 - its own kind's
        return other

    async def poll(self) -> PollAnswer:
        """Ask for a job. Raises DispatchError if nothing that makes sense is answered."""
        settings = self._settings
        call = Call(
            what=_POLL,
            method="POST",
            path="/api/v1/dispatch",
            timeout_s=settings.wait_s + settings.answer_s,
            headers={"Prefer": f"wait={settings.wait_s:g}"},
            answer_max_bytes=_JOB_MAX_BYTES,
            bearer=self._bearer,
        )
        return self._read(call, await self._wire.exchange(call))

    async def report(self, pod: str, report: JobReport) -> ReportReply | NotYou:
        """Say how the job of a Pod goes."""
        what = f"Nothing could be told about the job of {pod}"
        call = Call(
            what=what,
            method="POST",
            path=f"/api/v1/runners/{part(what, pod)}/telemetry",
            timeout_s=self._settings.report_timeout_s,
            body=report.body(),
            bearer=self._bearer,
        )
        answer = await self._wire.exchange(call)
        match answer.status:
            case 204:
                return ReportReply()
            case 200:
                return _reply(what, answer.body)
            case 401 | 403:
                return NotYou(answer.status, answer.said)
            case _:
                raise refusal(call, self._wire.base, answer)

    async def fetch_files(self, pod: str, offset: int) -> bytes | FilesRefused | NotYou:
        """Return some of what the job of a Pod needs, from a place on; nothing past its end."""
        what = f"The files for the job of {pod} could not be fetched"
        call = Call(
            what=what,
            method="GET",
            path=f"/api/v1/runners/{part(what, pod)}/files?offset={offset}",
            timeout_s=self._settings.files_timeout_s,
            headers={"Accept": "application/octet-stream"},
            answer_max_bytes=PIECE_MAX_BYTES,
            bearer=self._bearer,
        )
        answer = await self._wire.exchange(call)
        if answer.is_ok:
            return answer.body
        return self._no_files(call, answer)

    async def send_files(self, pod: str, piece: FilePiece) -> int | FilesRefused | NotYou:
        """Send some of what the job of a Pod left; return where to go on."""
        what = f"The files of the job of {pod} could not be sent"
        query = f"?size={piece.size_bytes}&offset={piece.offset}"
        call = Call(
            what=what,
            method="PUT",
            path=f"/api/v1/runners/{part(what, pod)}/files{query}",
            timeout_s=self._settings.files_timeout_s,
            body=piece.data,
            headers={"Content-Type": "application/octet-stream"},
            bearer=self._bearer,
        )
        answer = await self._wire.exchange(call)
        if not answer.is_ok:
            return self._no_files(call, answer)
        try:
            return msgspec.json.decode(answer.body, type=_Next).next_offset
        except (msgspec.MsgspecError, ValueError) as error:
            why = f"the answer makes no sense ({error})"
            raise DispatchError(what, why=why, fix=LOOK) from None

    def _no_files(self, call: Call, answer: Answer) -> FilesRefused | NotYou:
        match answer.status:
            case 404 | 409 | 413:
                return FilesRefused(answer.said or f"dispatch answered {answer.status}")
            case 401 | 403:
                return NotYou(answer.status, answer.said)
            case _:
                raise refusal(call, self._wire.base, answer)

    async def close(self) -> None:
        """Close the connections, also for those that share them."""
        await self._wire.close()

    def _read(self, call: Call, answer: Answer) -> PollAnswer:
        match answer.status:
            case 200:
                return _job(answer.body)
            case 204:
                return NoJobYet()
            case 409:
                return HandedBefore(answer.said)
            case 410:
                return GoHome(answer.said)
            case 401 | 403:
                return NotYou(answer.status, answer.said)
            case 429 | 503:
                return AskLater(_seconds(answer.retry_after), answer.said)
            case _:
                raise refusal(call, self._wire.base, answer)


def _job(body: bytes) -> HandedJob:
    try:
        job = msgspec.json.decode(body, type=_JobBody)
    except (msgspec.MsgspecError, ValueError):
        # The decoder's own words may repeat a part of what it read.
        raise DispatchError(_POLL, why="the answer is no job that makes sense", fix=_OLD) from None
    if not job.is_whole:
        why = f"the job {job.job_id!r} came without what makes it run"
        raise DispatchError(_POLL, why=why, fix=_OLD)
    upload = UploadRef(job.upload_bytes, job.upload_sha256) if job.upload_bytes else None
    return HandedJob(
        job_id=job.job_id,
        kind=job.kind,
        runner_name=job.runner_name,
        document=msgspec.json.encode(job),
        upload=upload,
        wants_files=bool(job.download),
    )


def _reply(what: str, body: bytes) -> ReportReply:
    try:
        return msgspec.json.decode(body, type=ReportReply)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DispatchError(what, why=f"the answer makes no sense ({error})", fix=LOOK) from None


def _seconds(retry_after: str) -> float | None:
    """Read Retry-After, bounded: a server's mistake must not put a runner to sleep for a day."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _RETRY_MAX_S)
    return None
