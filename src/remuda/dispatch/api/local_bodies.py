"""What is said over HTTP about local jobs: bounded, and nothing that a database, a shell or a log chokes on."""

import base64
import binascii
import re
import shlex
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from remuda.dispatch.api.inputs import Moment, Text
from remuda.dispatch.decide.local_jobs import output_of
from remuda.dispatch.submissions import Submission, Submitted
from remuda.dispatch.telemetry import Exit, LogPiece, Reply, Report
from remuda.model.job import JobState
from remuda.model.job_files import PATHS_MAX, path_fault
from remuda.model.output import Output
from remuda.ports.local_files import StoredFile
from remuda.ports.local_jobs import LocalJob

SCRIPT_MAX_BYTES: Final = 256 * 1024
ENV_MAX_BYTES: Final = 64 * 1024
ENV_MAX: Final = 256
TIMEOUT_MAX_S: Final = 86_400
PIECE_MAX_BYTES: Final = 1024 * 1024
"""The largest piece of a log at once. In base64 it is well below what a body may have."""
_OFFSET_MAX: Final = 2**40
_CODE_MAX: Final = 2**31 - 1
FILE_ID: Final = r"^[a-z0-9-]{8,64}$"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _storable(text: str) -> str:
    """Refuse what PostgreSQL, a file or an environment cannot hold."""
    if "\x00" in text:
        raise ValueError("it holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None
    return text


def _shown(text: str) -> str:
    """Return a reason on one line, without what a terminal or a database would choke on."""
    return "".join(c if c.isprintable() else " " for c in text)[:300].strip()


_Storable = Annotated[str, AfterValidator(_storable)]


def _path(text: str) -> str:
    if fault := path_fault(text):
        raise ValueError(f"a path cannot be asked for: {fault}")
    return text


class UploadBody(BaseModel):
    """An archive (tar, gzip) that was sent before, whole."""

    model_config = ConfigDict(extra="forbid")

    file: str = Field(pattern=FILE_ID, description="Its name in PUT /api/v1/files/{file_id}")
    sha256: str = Field(
        pattern=r"^[0-9a-f]{64}$", description="Of its bytes: compared where they arrive"
    )


class NewJob(BaseModel):
    """A script to run once, on a fresh runner."""

    model_config = ConfigDict(extra="forbid")

    pool: Text | None = Field(None, description="Where to run it. Either this or `labels`")
    labels: list[Text] | None = Field(
        None, min_length=1, max_length=20, description="Labels that the pool must have"
    )
    script: Annotated[_Storable, Field(min_length=1)] | None = Field(
        None,
        repr=False,
        description="What to run: with its own `#!` line, or by `sh`. Either this or `command`. It is kept in the"
        " database until the job is over: no place for secrets",
    )
    command: list[_Storable] | None = Field(
        None,
        repr=False,
        min_length=1,
        max_length=1000,
        description="A program and its arguments, run as they are",
    )
    env: dict[str, _Storable] = Field(
        default_factory=dict,
        repr=False,
        max_length=ENV_MAX,
        description="Variables of its environment. Kept like the script: no place for secrets",
    )
    timeout_s: int = Field(
        3600, ge=1, le=TIMEOUT_MAX_S, description="How long it may take, from its hand-over on"
    )
    name: Annotated[str, Field(max_length=100)] = Field("", description="What to call it")
    upload: UploadBody | None = Field(
        None, description="Files that must be in the folder that the script begins in"
    )
    download: list[Annotated[_Storable, AfterValidator(_path)]] = Field(
        default_factory=list,
        max_length=PATHS_MAX,
        description="What is to come back of that folder, however the script ends: paths from there",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.pool is None) == (self.labels is None):
            raise ValueError("say where to run it: either pool or labels")
        if (self.script is None) == (self.command is None):
            raise ValueError("say what to run: either script or command")
        if not (self.name.isprintable() or self.name == ""):
            raise ValueError("name: it holds characters that cannot be shown")
        for name in self.env:
            if _VARIABLE.fullmatch(name) is None:
                raise ValueError("env: a variable's name is not letters, digits and underscores")
        if sum(len(f"{key}{value}".encode()) for key, value in self.env.items()) > ENV_MAX_BYTES:
            raise ValueError(f"env: it has more than {ENV_MAX_BYTES} bytes in all")
        if len(self._script().encode()) > SCRIPT_MAX_BYTES:
            raise ValueError(f"the script has more than {SCRIPT_MAX_BYTES} bytes")
        return self

    def _script(self) -> str:
        if self.script is not None:
            return self.script
        assert self.command is not None
        return f"exec {shlex.join(self.command)}\n"

    def submission(self) -> Submission:
        return Submission(
            pool=self.pool or "",
            labels=tuple(self.labels or ()),
            script=self._script(),
            env=self.env,
            timeout_s=self.timeout_s,
            name=self.name,
            upload_id="" if self.upload is None else self.upload.file,
            upload_sha256="" if self.upload is None else self.upload.sha256,
            download=tuple(dict.fromkeys(self.download)),
        )


class SubmittedBody(BaseModel):
    """A job that was taken."""

    id: str = Field(description="What to ask for it by", examples=["local-4b9c2f7wz8xk5d6qm2tv"])
    pool: str
    state: JobState
    conclusion: str = Field(description="How it ended; empty while it has not")
    submitted_at: datetime

    @classmethod
    def of(cls, submitted: Submitted) -> Self:
        return cls(
            id=submitted.job_id,
            pool=submitted.pool,
            state=submitted.state,
            conclusion=submitted.conclusion,
            submitted_at=submitted.submitted_at,
        )


class CancelledBody(BaseModel):
    """What a cancellation did."""

    id: str
    outcome: str = Field(
        description="`cancelled`: it is over, nobody had begun it. `stopping`: its runner is told to stop, and the job"
        " is over when that has done so. `over`: it was over before",
        examples=["stopping"],
    )


class OutcomeBody(BaseModel):
    """How far a local job is, as its own forge knows it, and how it ended."""

    id: str
    over: bool
    conclusion: str = Field(
        description="`success`, `failure`, `cancelled`, `timed_out`, or `lost`: it began, and its runner is gone. Empty"
        " while it is not over",
        examples=["failure"],
    )
    exit_code: int | None = Field(
        description="Null: it is not over, it never ran, or nobody can say", examples=[7]
    )
    reason: str = Field(description="Why it ended so, if more is known")
    pod: str = Field(description="The runner that began it; empty if none did")
    submitted_at: datetime
    started_at: datetime | None = Field(description="When its runner was let begin")
    cancelled_at: datetime | None = Field(description="When somebody asked for its end")
    ended_at: datetime | None
    files_bytes: int | None = Field(
        description="How large the archive is that came back; null: none did, or not all of it yet"
    )
    files_note: str = Field(description="Why files that were asked for did not come back")
    output: Output = Field(
        description="Whether all is here that it printed. `growing`: it is not over. `final`: nothing more comes."
        " `awaited`: its end was read off its Pod, and its runner may still tell the last of the output and why files"
        " are missing: ask again, for a while. `unconfirmed`: that never came"
    )

    @classmethod
    def of(cls, job: LocalJob, back: StoredFile | None, *, now: datetime) -> Self:
        end = job.end
        return cls(
            id=job.job_id,
            over=end is not None,
            conclusion="" if end is None else end.conclusion,
            exit_code=None if end is None else end.exit_code,
            reason="" if end is None else end.reason,
            pod=job.pod,
            submitted_at=job.submitted_at,
            started_at=job.started_at,
            cancelled_at=job.cancelled_at,
            ended_at=None if end is None else end.at,
            files_bytes=back.size_bytes if back is not None and back.is_whole else None,
            files_note="" if end is None else end.files_note,
            output=output_of(job, now),
        )


def _decoded(text: str) -> str:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is not base64") from None
    if len(data) > PIECE_MAX_BYTES:
        raise ValueError(f"a piece of a log has at most {PIECE_MAX_BYTES} bytes")
    return text


class LogBody(BaseModel):
    """Some of what a job printed."""

    offset: int = Field(ge=0, le=_OFFSET_MAX, description="Where it begins in all of the output")
    data: Annotated[str, AfterValidator(_decoded)] = Field(description="The output, in base64")


class ExitBody(BaseModel):
    """How a job's script ended."""

    code: int = Field(ge=-_CODE_MAX, le=_CODE_MAX)
    reason: str = Field("", max_length=2000)
    reported: bool = Field(
        True,  # noqa: FBT003 - a field has no position
        description="Whether the code is the script's own. Else its runner ended, and the script's own is not known",
    )
    finished_at: Moment | None = None
    files: str = Field(
        "",
        max_length=2000,
        description="Why files that were to come back did not; empty: all is well",
    )


class TelemetryBody(BaseModel):
    """What a runner says of itself and its job. What a newer runner says more is passed over."""

    started_at: Moment | None = Field(
        None,
        description="It asks to begin its job, and must not before the answer is there. An answer with `stop` means no",
    )
    tells_end: bool = Field(
        False,  # noqa: FBT003 - a field has no position
        description="With `started_at`: it will tell the output and the end of its job, so both may be waited for",
    )
    log: LogBody | None = None
    exit: ExitBody | None = None
    vitals: dict[str, Any] = Field(
        default_factory=dict, max_length=64, description="Taken and not kept, so far"
    )

    def report(self) -> Report:
        log = exit_ = None
        if self.log is not None:
            log = LogPiece(self.log.offset, base64.b64decode(self.log.data))
        if self.exit is not None:
            exit_ = Exit(
                code=self.exit.code,
                reason=_shown(self.exit.reason),
                reported=self.exit.reported,
                finished_at=self.exit.finished_at,
                files_note=_shown(self.exit.files),
            )
        return Report(started_at=self.started_at, tells_end=self.tells_end, log=log, exit=exit_)


class ReplyBody(BaseModel):
    """What a runner must know."""

    stop: str | None = Field(None, description="Why its job must stop, or must not begin")
    overdue: bool | None = Field(
        None, description="It must stop because its time is over: nobody cancelled it"
    )
    log_offset: int | None = Field(
        None, description="Output is missing: neither `log` nor `exit` was taken. Send it from here"
    )

    @classmethod
    def of(cls, reply: Reply) -> Self | None:
        """Return None if there is nothing to say."""
        if not reply.stop and reply.log_offset is None:
            return None
        return cls(
            stop=reply.stop or None,
            overdue=reply.overdue or None,
            log_offset=reply.log_offset,
        )
