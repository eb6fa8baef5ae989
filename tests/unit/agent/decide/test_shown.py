"""A Pod's status from its VM's record, as a kubelet would write it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from remuda.agent.decide.recorded import State
from remuda.agent.decide.shown import Waits, shown
from remuda.kube.core import Container, Pod, PodSpec, PodStatus
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import JOB_DELIVERED
from tests.unit.agent.builders import DONE, NOON, UID, a_record, ago

if TYPE_CHECKING:
    from datetime import datetime

SCHEDULED = Condition(type="PodScheduled", status="True", last_transition_time=ago(hours=1))
POD = Pod(
    metadata=ObjectMeta(name="mac-1", namespace="ci", uid=UID),
    spec=PodSpec(containers=(Container(name="runner", image="i"), Container(name="beside"))),
    status=PodStatus(phase="Pending", conditions=(SCHEDULED,)),
)


def after(pod: Pod, status: PodStatus) -> Pod:
    return msgspec.structs.replace(pod, status=status)


def conditions(status: PodStatus) -> dict[str, str]:
    return {c.type: c.status for c in status.conditions}


def test_before_its_vm_starts_a_pod_waits_and_says_for_what() -> None:
    status = shown(POD, a_record(State.CLONING), Waits("PullingImage", "5 %"), "10.0.0.7", NOON)
    assert status.phase == "Pending"
    assert [s.name for s in status.container_statuses] == ["runner", "beside"]
    waiting = status.container_statuses[0].state.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.message) == ("PullingImage", "5 %")
    assert status.host_ip == "10.0.0.7"
    assert status.start_time == NOON
    assert conditions(status) == {
        "PodScheduled": "True",
        "Initialized": "True",
        "ContainersReady": "False",
        "Ready": "False",
    }
    assert status.conditions[0] == SCHEDULED


def test_a_pod_is_ready_when_its_guest_is_and_not_before() -> None:
    booting = a_record(State.STARTED, started_at=ago(minutes=1))
    status = shown(POD, booting, Waits(), "", NOON)
    assert status.phase == "Running"
    assert conditions(status)["Ready"] == "False"
    assert not status.container_statuses[0].ready
    warm = replace(booting, ready_at=NOON)
    status = shown(after(POD, status), warm, Waits(), "", NOON)
    assert conditions(status)["Ready"] == conditions(status)["ContainersReady"] == "True"
    assert status.container_statuses[0].ready
    running = status.container_statuses[0].state.running
    assert running is not None
    assert running.started_at == ago(minutes=1)
    assert JOB_DELIVERED not in conditions(status)
    job = replace(warm, state=State.DELIVERED)
    status = shown(after(POD, status), job, Waits(), "", NOON)
    assert conditions(status)[JOB_DELIVERED] == "True"


@pytest.mark.parametrize("succeeded", [True, False])
def test_an_end_is_told_with_its_code_and_times(succeeded: bool) -> None:  # noqa: FBT001 - a case
    verdict = replace(DONE, succeeded=succeeded, exit_code=0 if succeeded else 3)
    record = replace(a_record(State.EXITED, started_at=ago(minutes=5)), verdict=verdict)
    status = shown(POD, record, Waits(), "", NOON)
    assert status.phase == ("Succeeded" if succeeded else "Failed")
    end = status.container_statuses[1].state.terminated
    assert end is not None
    assert end.exit_code == verdict.exit_code
    assert (end.started_at, end.finished_at) == (ago(minutes=5), NOON)
    assert conditions(status)["Ready"] == "False"


@pytest.mark.parametrize(
    ("delivered_at", "told"),
    [
        pytest.param(ago(minutes=3), {JOB_DELIVERED: ago(minutes=3)}, id="it had its job"),
        pytest.param(None, {}, id="it had none"),
    ],
)
def test_an_end_tells_whether_there_was_a_job_also_if_nobody_told_before(
    delivered_at: datetime | None, told: dict[str, datetime]
) -> None:
    record = replace(a_record(State.EXITED, delivered_at=delivered_at), verdict=DONE)
    status = shown(POD, record, Waits(), "", NOON)
    found = {c.type: c.last_transition_time for c in status.conditions if c.status == "True"}
    assert {kind: at for kind, at in found.items() if kind == JOB_DELIVERED} == told


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("state", State)
def test_an_end_is_never_left_whoever_wrote_it(phase: str, state: State) -> None:
    status = PodStatus(phase=phase, conditions=(SCHEDULED,))
    assert shown(after(POD, status), a_record(state), Waits(), "", NOON) is status


@pytest.mark.parametrize("state", State)
def test_to_write_the_same_again_is_to_write_nothing(state: State) -> None:
    record = a_record(state, started_at=ago(minutes=5))
    once = shown(POD, record, Waits(), "10.0.0.7", NOON)
    again = shown(after(POD, once), record, Waits(), "10.0.0.7", NOON + timedelta(minutes=1))
    assert again == once
