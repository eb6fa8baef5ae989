"""The status of a runner Pod at each step of its life, as the agent writes it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

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

    from remuda.kube.core import Pod

TERMINAL = frozenset({"Succeeded", "Failed"})


def creating(pod: Pod, now: datetime) -> PodStatus:
    """Show that the host has taken it on; there is no VM yet."""
    waiting = ContainerState(waiting=Waiting(reason="CreatingVM"))
    return _with(pod, now, "Pending", waiting, {"Ready": "False"})


def warm(pod: Pod, now: datetime) -> PodStatus:
    """Show that its guest said that it is ready."""
    running = ContainerState(running=Running(started_at=whole_seconds(now)))
    ready = {"Ready": "True", "ContainersReady": "True", "Initialized": "True"}
    return _with(pod, now, "Running", running, ready)


def delivered(pod: Pod, now: datetime) -> PodStatus:
    """Show that the guest has its job."""
    return _conditions(warm(pod, now), now, {JOB_DELIVERED: "True"})


def ended(pod: Pod, now: datetime) -> PodStatus:
    """Show that the guest powered off: its job is over, or it was told to go."""
    return _over(pod, now, "Succeeded", 0, "Completed")


def failed(pod: Pod, now: datetime) -> PodStatus:
    """Show that the VM could not be started, or is lost."""
    return _over(pod, now, "Failed", 1, "StartFailed")


def _over(pod: Pod, now: datetime, phase: str, code: int, reason: str) -> PodStatus:
    if pod.status.phase in TERMINAL:
        return pod.status  # an end is final
    state = ContainerState(
        terminated=Terminated(exit_code=code, reason=reason, finished_at=whole_seconds(now))
    )
    return _with(pod, now, phase, state, {"Ready": "False", "ContainersReady": "False"})


def _with(
    pod: Pod, now: datetime, phase: str, state: ContainerState, conditions: dict[str, str]
) -> PodStatus:
    container = pod.spec.containers[0]
    old = next((s for s in pod.status.container_statuses if s.name == container.name), None)
    if old is not None and old.state.running is not None and state.running is not None:
        state = old.state  # it started when it started
    shown = ContainerStatus(
        name=container.name, image=container.image, state=state, ready=state.running is not None
    )
    start_time = pod.status.start_time or whole_seconds(now)
    status = msgspec.structs.replace(
        pod.status, phase=phase, container_statuses=(shown,), start_time=start_time
    )
    return _conditions(status, now, conditions)


def _conditions(status: PodStatus, now: datetime, wanted: dict[str, str]) -> PodStatus:
    """Set conditions; one that has its value already keeps its time."""
    held = {condition.type: condition for condition in status.conditions}
    for kind, value in wanted.items():
        if kind not in held or held[kind].status != value:
            held[kind] = Condition(type=kind, status=value, last_transition_time=whole_seconds(now))
    return msgspec.structs.replace(status, conditions=tuple(held.values()))
