"""From a Pod to the Runner that decisions see. Pure. The predicates of CONTRACTS live here and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from remuda.kube.names import (
    DRAIN,
    JOB_DELIVERED,
    MARK,
    MARKED_AT,
    OWNER,
    POLLER,
    RUNNER_CONTAINER,
    TEMPLATE,
)
from remuda.kube.times import parse_time
from remuda.model.runner import End, Mark, Phase, Runner

if TYPE_CHECKING:
    from remuda.kube.core import ContainerStatus, Pod
    from remuda.kube.meta import Condition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def runner_of(pod: Pod) -> Runner:
    """Return what a runner's Pod says about it."""
    meta = pod.metadata
    phase = phase_of(pod)
    unschedulable = _unschedulable(pod)
    scheduled = _condition(pod, "PodScheduled", "True")
    created_at = meta.creation_timestamp or _EPOCH
    return Runner(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        template=meta.labels.get(TEMPLATE, ""),
        created_at=created_at,
        phase=phase,
        node=pod.spec.node_name,
        bound_at=(scheduled.last_transition_time or created_at) if scheduled else None,
        unschedulable_since=unschedulable.last_transition_time if unschedulable else None,
        unschedulable_why=unschedulable.message if unschedulable else "",
        warm_at=_warm_at(pod),
        mark=_mark(pod),
        drain=meta.labels.get(DRAIN) == "true",
        deleting_since=_deleting_since(pod),
        end=_end(pod) if phase is Phase.ENDED else None,
        unready_since=_unready_since(pod),
    )


def phase_of(pod: Pod) -> Phase:
    """Say how far a runner is. In doubt it is busy: a job is worth more than a slot."""
    if pod.status.phase in {"Succeeded", "Failed"}:
        return Phase.ENDED
    if is_busy(pod):
        return Phase.BUSY
    return Phase.STARTING if _warm_at(pod) is None else Phase.WARM


def is_busy(pod: Pod) -> bool:
    """
    Say whether a live runner holds a job, or may hold one: any of three signs is enough.

    The owner label (an empty one too: somebody began to write it), a poller that ended (it was given a job, or goes in
    a moment), and what the agent says it delivered.
    """
    if OWNER in pod.metadata.labels:
        return True
    poller = _poller(pod)
    if poller is not None and poller.state.terminated is not None:
        return True
    delivered = next((c for c in pod.status.conditions if c.type == JOB_DELIVERED), None)
    return delivered is not None and delivered.status != "False"


def ended_for_nothing(pod: Pod) -> bool:
    """Say whether a runner that ended had no job and was not asked to leave: it failed, whatever its exit code."""
    asked = any(key in pod.metadata.labels for key in (OWNER, MARK, DRAIN))
    poller = _poller(pod)
    polled = poller.state.terminated if poller is not None else None
    delivered = _condition(pod, JOB_DELIVERED, "True") is not None
    return not (asked or delivered or (polled is not None and polled.exit_code == 0))


def _warm_at(pod: Pod) -> datetime | None:
    """Return since when the runner has been ready for a job: its poller runs, or its guest said so."""
    if any(container.name == POLLER for container in pod.spec.init_containers):
        poller = _poller(pod)
        running = poller.state.running if poller is not None else None
        return None if running is None else running.started_at or pod.metadata.creation_timestamp
    ready = _condition(pod, "Ready", "True")
    if ready is None or pod.status.phase != "Running":
        return None
    return ready.last_transition_time or pod.metadata.creation_timestamp


def _unready_since(pod: Pod) -> datetime | None:
    unready = next((c for c in pod.status.conditions if c.type == "Ready"), None)
    if unready is None or unready.status == "True":
        return None
    return unready.last_transition_time if pod.spec.node_name else None


def _poller(pod: Pod) -> ContainerStatus | None:
    return next((s for s in pod.status.init_container_statuses if s.name == POLLER), None)


def _condition(pod: Pod, kind: str, status: str) -> Condition | None:
    found = (c for c in pod.status.conditions if c.type == kind and c.status == status)
    return next(found, None)


def _unschedulable(pod: Pod) -> Condition | None:
    if pod.spec.node_name:
        return None
    refused = _condition(pod, "PodScheduled", "False")
    return refused if refused is not None and refused.reason == "Unschedulable" else None


def _mark(pod: Pod) -> Mark | None:
    target = pod.metadata.labels.get(MARK)
    if target is None:
        return None
    try:
        return Mark(target, parse_time(pod.metadata.annotations[MARKED_AT]))
    except (KeyError, ValueError, OverflowError):
        return Mark(target, _EPOCH)  # nobody knows when: it is over


def _deleting_since(pod: Pod) -> datetime | None:
    """Return when the deletion was asked for: its timestamp is when the grace ends."""
    ends_at = pod.metadata.deletion_timestamp
    if ends_at is None:
        return None
    return ends_at - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)


def _end(pod: Pod) -> End:
    ended = [s.state.terminated for s in pod.status.container_statuses if s.state.terminated]
    latest = max((t.finished_at for t in ended if t.finished_at), default=None)
    of_runner = next(
        (
            s.state.terminated
            for s in pod.status.container_statuses
            if s.name == RUNNER_CONTAINER and s.state.terminated
        ),
        None,
    )
    return End(
        at=latest,
        exit_code=of_runner.exit_code if of_runner else None,
        reason=(of_runner.reason if of_runner else "") or pod.status.reason,
    )
