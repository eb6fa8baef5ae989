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
from remuda.ports.desk import (
    AskLater,
    GoHome,
    HandedBefore,
    HandedJob,
    JobKind,
    JobReport,
    NoJobYet,
    NotYou,
    PollAnswer,
    ReportReply,
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
    deadline: datetime | None = None

    @property
    def is_whole(self) -> bool:
        github = self.kind is JobKind.GITHUB
        return bool(self.encoded_jit_config) is github and bool(self.script) is not github


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
    document = msgspec.json.encode(job)
    return HandedJob(
        job_id=job.job_id, kind=job.kind, runner_name=job.runner_name, document=document
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
