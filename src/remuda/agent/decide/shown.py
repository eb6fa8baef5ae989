"""
A Pod's status as a kubelet would write it, from the record of its VM. Pure.

The same record gives the same status, so it may be written again after a restart. An end is never left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.agent.decide.recorded import State
from remuda.control.conditions import set_condition
from remuda.kube.core import (
    ContainerState,
    ContainerStatus,
    PodStatus,
    Running,
    Terminated,
    Waiting,
)
from remuda.kube.meta import Condition
from remuda.kube.names import JOB_DELIVERED
from remuda.kube.times import whole_seconds

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.agent.decide.recorded import Verdict, VmRecord
    from remuda.kube.core import Pod

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_RUNS: Final = frozenset({State.STARTED, State.DELIVERING, State.DELIVERED})


@dataclass(frozen=True, slots=True)
class Waits:
    """What a Pod waits for before its VM starts."""

    reason: str = "CreatingVM"
    message: str = ""


def shown(
    pod: Pod, record: VmRecord | None, waits: Waits, host_ip: str, now: datetime
) -> PodStatus:
    """Return the status of a Pod whose VM is as far as its record says."""
    if pod.status.phase in _TERMINAL:
        return pod.status
    if record is not None and record.verdict is not None:
        over = ended(pod, record.verdict, record.started_at, host_ip, now)
        # Nobody may have told before: the agent was away, or the server was.
        return _delivered(over, record.delivered_at) if record.delivered_at else over
    begun = _begun(pod, host_ip, now)
    if record is None or record.state not in _RUNS:
        state = ContainerState(waiting=Waiting(reason=waits.reason, message=waits.message))
        status = _phase(pod, begun, "Pending", state)
        return _ready(status, "False", "ContainersNotReady", now)
    began = whole_seconds(record.started_at or record.accepted_at)
    state = ContainerState(running=Running(started_at=began))
    if record.ready_at is None:
        return _ready(_phase(pod, begun, "Running", state), "False", "GuestNotReady", now)
    status = _ready(_phase(pod, begun, "Running", state, ready=True), "True", "", now)
    if record.state is State.DELIVERED:
        return _delivered(status, record.delivered_at or now)
    return status


def ended(
    pod: Pod, verdict: Verdict, started_at: datetime | None, host_ip: str, now: datetime
) -> PodStatus:
    """Return the status of a Pod that is over. One that says so already keeps what it says."""
    if pod.status.phase in _TERMINAL:
        return pod.status
    state = ContainerState(
        terminated=Terminated(
            exit_code=verdict.exit_code,
            reason=verdict.reason,
            message=verdict.message,
            started_at=whole_seconds(started_at) if started_at else None,
            finished_at=whole_seconds(verdict.finished_at),
        )
    )
    phase, why = ("Succeeded", "PodCompleted") if verdict.succeeded else ("Failed", "PodFailed")
    return _ready(_phase(pod, _begun(pod, host_ip, now), phase, state), "False", why, now)


def _begun(pod: Pod, host_ip: str, now: datetime) -> PodStatus:
    return msgspec.structs.replace(
        pod.status,
        start_time=pod.status.start_time or whole_seconds(now),
        host_ip=pod.status.host_ip or host_ip,
    )


def _phase(
    pod: Pod, status: PodStatus, phase: str, state: ContainerState, *, ready: bool = False
) -> PodStatus:
    containers = tuple(
        ContainerStatus(name=c.name, image=c.image, state=state, ready=ready)
        for c in pod.spec.containers
    )
    return msgspec.structs.replace(status, phase=phase, container_statuses=containers)


def _ready(status: PodStatus, ready: str, why: str, now: datetime) -> PodStatus:
    for condition in (
        Condition(type="Initialized", status="True"),
        Condition(type="ContainersReady", status=ready, reason=why),
        Condition(type="Ready", status=ready, reason=why),
    ):
        status = _condition(status, condition, now)
    return status


def _delivered(status: PodStatus, at: datetime) -> PodStatus:
    return _condition(status, Condition(type=JOB_DELIVERED, status="True"), at)


def _condition(status: PodStatus, wanted: Condition, now: datetime) -> PodStatus:
    conditions = set_condition(status.conditions, wanted, now)
    return msgspec.structs.replace(status, conditions=conditions)
