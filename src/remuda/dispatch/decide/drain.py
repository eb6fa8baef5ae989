"""Whether a runner that asks for a job may have one, has to wait, or goes home. Pure; in doubt it is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.kube.names import DRAIN, MARK, TEMPLATE

if TYPE_CHECKING:
    from remuda.kube.core import Pod
    from remuda.kube.runner_pool import RunnerPool

BEING_DELETED = "its Pod is being deleted"
ENDED = "its Pod has ended"
ASKED_TO_DRAIN = "a person asked it to drain"
STALE = "a newer template replaces it"
SAME_LABELS = "an older pool has the same labels, so this pool gets no jobs"

_CONFLICT = "LabelsConflict"
_TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Serve:
    """It may be given a job."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It gets no job for now, and is not sent home either: that would only make another one like it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """It is to end, and be replaced or not."""

    reason: str


Verdict = Serve | Wait | Leave


def drain(pod: Pod | None, pool: RunnerPool | None) -> Verdict:
    """
    Say what becomes of a runner that holds no job.

    What is not known drains nobody: a Pod or a pool that cannot be read is served as if all were well.
    """
    if pod is None:
        return Serve()
    if (reason := unfit(pod)) is not None:
        return Leave(reason)
    if pool is None:
        return Serve()
    if _is_marked(pod, pool.status.template_hash):
        return Leave(STALE)
    return Wait(SAME_LABELS) if has_label_conflict(pool) else Serve()


def unfit(pod: Pod) -> str | None:
    """Return why a Pod takes no job whatever its pool says; None if it does."""
    if pod.metadata.deletion_timestamp is not None:
        return BEING_DELETED
    if pod.status.phase in _TERMINAL:
        return ENDED
    return ASKED_TO_DRAIN if pod.labels.get(DRAIN) == "true" else None


def has_label_conflict(pool: RunnerPool) -> bool:
    """Say whether the operator found that an older pool has the same labels."""
    return any(c.type == _CONFLICT and c.status == "True" for c in pool.status.conditions)


def _is_marked(pod: Pod, current: str) -> bool:
    """
    Say whether a roll to the current template asks this runner to make room.

    A mark is for one template: after a roll back, or on to another, it is void, and so is one on a current runner.
    """
    labels = pod.labels
    return bool(current) and labels.get(MARK) == current and labels.get(TEMPLATE) != current
