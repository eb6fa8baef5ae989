"""
GitHub's words for jobs, read as ours. Pure.

Only what we cannot do without must be right; anything else that is missing, null or of another type counts as not said.
All of it is somebody else's text: it is cut, and characters that break a line, a log or a database are taken out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from remuda.ports.forge import Action, Announcement, ForgeJob, ForgeState

if TYPE_CHECKING:
    from collections.abc import Iterable

Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_NAME_MAX: Final = 400
_LABEL_MAX: Final = 256
_LABELS_MAX: Final = 100
_YEARS: Final = range(2000, 9000)
_NUMBER_MAX: Final = 2**63 - 1
_ACTIONS: Final = {action.value: action for action in Action}


class GithubJob(msgspec.Struct, frozen=True):
    """A job, as messages and the API spell it alike."""

    id: Number
    run_id: object = None
    run_attempt: object = None
    status: object = None
    conclusion: object = None
    created_at: object = None
    started_at: object = None
    completed_at: object = None
    name: object = None
    workflow_name: object = None
    head_branch: object = None
    head_sha: object = None
    html_url: object = None
    labels: object = None
    runner_name: object = None


class GithubRepository(msgspec.Struct, frozen=True):
    full_name: str
    id: object = None


class GithubInstallation(msgspec.Struct, frozen=True):
    id: Number


class JobMessage(msgspec.Struct, frozen=True):
    """The body of a ``workflow_job`` message."""

    action: str
    workflow_job: GithubJob
    repository: GithubRepository
    installation: GithubInstallation | None = None

    @property
    def known_action(self) -> Action | None:
        return _ACTIONS.get(self.action)


_DECODER: Final = msgspec.json.Decoder(JobMessage)


def job_message(body: bytes) -> JobMessage | None:
    """Read a message; None if it is not one that anybody could act on."""
    try:
        message = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return message if is_repository(message.repository.full_name) else None


def is_repository(name: str) -> bool:
    """Say whether this is an owner and a name, and nothing that would be another path in a URL."""
    return bool(_REPOSITORY.fullmatch(name)) and not {".", ".."} & set(name.split("/"))


def announcement(
    action: Action, job: GithubJob, *, host: str, tenant: str, repository: str
) -> Announcement:
    """Say it in our words. What has not happened yet is left out: GitHub fills it with other times and names."""
    begun = action in {Action.IN_PROGRESS, Action.COMPLETED}
    runner_name = text(job.runner_name, _LABEL_MAX) if begun else ""
    started_at = moment(job.started_at) if begun and runner_name else None
    ended_at = moment(job.completed_at) if action is Action.COMPLETED else None
    if started_at and ended_at and ended_at < started_at:
        started_at = None
    return Announcement(
        action=action,
        job_id=f"{host}/{job.id}",
        tenant=tenant,
        repository=repository,
        labels=labels(job.labels),
        queued_at=moment(job.created_at) or moment(job.started_at),
        started_at=started_at,
        ended_at=ended_at,
        conclusion=text(job.conclusion, 64) if action is Action.COMPLETED else "",
        runner_name=runner_name,
        name=text(job.name),
        workflow=text(job.workflow_name),
        run_id=whole(job.run_id),
        run_attempt=whole(job.run_attempt),
        branch=text(job.head_branch),
        commit=text(job.head_sha, 64),
        url=_url(job.html_url),
    )


_STATES: Final = {
    "queued": ForgeState.QUEUED,
    "in_progress": ForgeState.IN_PROGRESS,
    "completed": ForgeState.COMPLETED,
}


def forge_job(job: GithubJob) -> ForgeJob:
    """Say how far a job is. ``waiting``, ``pending``, ``requested`` and whatever is new are to be left alone."""
    state = _STATES.get(text(job.status), ForgeState.OTHER)
    begun = state in {ForgeState.IN_PROGRESS, ForgeState.COMPLETED}
    over = state is ForgeState.COMPLETED
    runner_name = text(job.runner_name, _LABEL_MAX) if begun else ""
    return ForgeJob(
        state=state,
        conclusion=text(job.conclusion, 64) if over else "",
        runner_name=runner_name,
        started_at=moment(job.started_at) if runner_name else None,
        ended_at=moment(job.completed_at) if over else None,
    )


def text(value: object, most: int = _NAME_MAX) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(c if c.isprintable() else " " for c in value[:most]).strip()


def whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value <= _NUMBER_MAX else None


def moment(value: object) -> datetime | None:
    """Read a time. One without a zone, or of another age, is none."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        at = at.astimezone(UTC) if at is not None and at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    return at if at is not None and at.year in _YEARS else None


def labels(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(_clean(value))


def _clean(values: Iterable[object]) -> Iterable[str]:
    kept = 0
    for value in values:
        label = text(value, _LABEL_MAX)
        if label and kept < _LABELS_MAX:
            kept += 1
            yield label


def _url(value: object) -> str:
    url = text(value, 1000)
    return url if url.startswith(("https://", "http://")) else ""
