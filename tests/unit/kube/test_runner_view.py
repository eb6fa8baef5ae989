from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from remuda.kube.core import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    Running,
    Terminated,
    Waiting,
)
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import DRAIN, JOB_DELIVERED, MARK, MARKED_AT, OWNER, TEMPLATE
from remuda.kube.runner_view import ended_for_nothing, runner_of
from remuda.model.runner import End, Mark, Phase

CREATED = datetime(2026, 11, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return CREATED + timedelta(seconds=seconds)


def a_condition(
    kind: str, status: str, *, at: datetime | None = None, reason: str = ""
) -> Condition:
    return Condition(
        type=kind, status=status, last_transition_time=at, reason=reason, message=reason
    )


READY = a_condition("Ready", "True", at=after(60))
SCHEDULED = a_condition("PodScheduled", "True", at=after(5))
RUNS = ContainerState(running=Running(started_at=after(50)))
EXITED = ContainerState(terminated=Terminated(exit_code=0, finished_at=after(90)))
WAITS = ContainerState(waiting=Waiting(reason="PodInitializing"))


def a_vm(
    *conditions: Condition, phase: str = "Running", labels: dict[str, str] | None = None
) -> Pod:
    """Return the Pod of a runner whose guest an agent runs."""
    meta = ObjectMeta(
        name="mac-1",
        uid="uid-1",
        resource_version="42",
        creation_timestamp=CREATED,
        labels={TEMPLATE: "hash", **(labels or {})},
    )
    return Pod(
        metadata=meta,
        spec=PodSpec(node_name="host-1"),
        status=PodStatus(phase=phase, conditions=conditions),
    )


def a_kata(
    *pollers: ContainerState, labels: dict[str, str] | None = None, ready: bool = False
) -> Pod:
    """Return the Pod of a runner that polls for itself. It is Pending until it has a job."""
    pod = a_vm(*([READY] if ready else []), phase="Pending", labels=labels)
    statuses = tuple(ContainerStatus(name="poller", state=state) for state in pollers)
    return replace(
        pod,
        spec=replace(pod.spec, init_containers=(Container(name="poller"),)),
        status=replace(pod.status, init_container_statuses=statuses),
    )


@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        pytest.param(a_vm(phase="Pending"), Phase.STARTING, id="a VM that does not run starts"),
        pytest.param(a_vm(), Phase.STARTING, id="a VM that runs is not warm by that"),
        pytest.param(a_vm(READY), Phase.WARM, id="a VM is warm when its guest said so"),
        pytest.param(a_vm(READY, phase="Pending"), Phase.STARTING, id="ready and not running is a contradiction"),
        pytest.param(a_vm(READY, phase="Unknown"), Phase.STARTING, id="a host that went away"),
        pytest.param(a_vm(a_condition("Ready", "False")), Phase.STARTING, id="a VM that is not ready starts"),
        pytest.param(a_vm(a_condition("Ready", "Unknown")), Phase.STARTING, id="nobody knows is not warm"),
        pytest.param(a_kata(), Phase.STARTING, id="a poller without a status starts"),
        pytest.param(a_kata(WAITS), Phase.STARTING, id="a poller that waits starts"),
        pytest.param(a_kata(RUNS), Phase.WARM, id="a poller that runs is warm, though its Pod is Pending"),
        pytest.param(a_kata(ready=True), Phase.STARTING, id="with a poller, ready says nothing"),
        pytest.param(a_kata(EXITED), Phase.BUSY, id="a poller that ended was given a job"),
        pytest.param(a_kata(RUNS, labels={OWNER: "acme"}), Phase.BUSY, id="an owner on a poller"),
        pytest.param(a_vm(READY, labels={OWNER: "acme"}), Phase.BUSY, id="an owner on a VM"),
        pytest.param(a_vm(READY, labels={OWNER: ""}), Phase.BUSY, id="an empty owner: somebody began to write"),
        pytest.param(a_vm(labels={OWNER: "acme"}), Phase.BUSY, id="an owner on one that is not warm"),
        pytest.param(a_vm(READY, a_condition(JOB_DELIVERED, "True")), Phase.BUSY, id="the agent delivered a job"),
        pytest.param(a_vm(READY, a_condition(JOB_DELIVERED, "Unknown")), Phase.BUSY, id="the agent is not sure"),
        pytest.param(a_vm(READY, a_condition(JOB_DELIVERED, "False")), Phase.WARM, id="the agent delivered none"),
        pytest.param(a_vm(READY, labels={DRAIN: "true"}), Phase.WARM, id="a drained runner is still warm"),
        pytest.param(a_vm(READY, labels={MARK: "hash"}), Phase.WARM, id="a marked runner is still warm"),
        pytest.param(a_vm(phase="Succeeded"), Phase.ENDED, id="succeeded is over"),
        pytest.param(a_vm(phase="Failed"), Phase.ENDED, id="failed is over"),
        pytest.param(a_vm(phase="Failed", labels={OWNER: "acme"}), Phase.ENDED, id="what it ran is over too"),
        pytest.param(
            a_vm(a_condition(JOB_DELIVERED, "True"), phase="Succeeded"), Phase.ENDED, id="delivered and over"
        ),
    ],
)  # fmt: skip
def test_phase(pod: Pod, phase: Phase) -> None:
    assert runner_of(pod).phase is phase


def test_identity_and_template_are_kept() -> None:
    runner = runner_of(a_vm())

    assert (runner.name, runner.uid, runner.version) == ("mac-1", "uid-1", "42")
    assert (runner.template, runner.node, runner.created_at) == ("hash", "host-1", CREATED)
    assert runner_of(Pod()).created_at == EPOCH


@pytest.mark.parametrize(
    ("pod", "warm_at"),
    [
        pytest.param(a_vm(READY), after(60), id="since the guest said so"),
        pytest.param(a_vm(a_condition("Ready", "True")), CREATED, id="nobody wrote when"),
        pytest.param(a_kata(RUNS), after(50), id="since the poller runs"),
        pytest.param(
            a_kata(ContainerState(running=Running())), CREATED, id="a poller without a time"
        ),
        pytest.param(a_vm(), None, id="not warm"),
    ],
)
def test_warm_at(pod: Pod, warm_at: datetime | None) -> None:
    assert runner_of(pod).warm_at == warm_at


def unbound(*conditions: Condition) -> Pod:
    return replace(a_vm(*conditions, phase="Pending"), spec=PodSpec())


@pytest.mark.parametrize(
    ("pod", "bound_at", "unschedulable_since"),
    [
        pytest.param(a_vm(SCHEDULED), after(5), None, id="bound"),
        pytest.param(a_vm(a_condition("PodScheduled", "True")), CREATED, None, id="bound, nobody wrote when"),
        pytest.param(unbound(), None, None, id="the scheduler has not looked"),
        pytest.param(
            unbound(a_condition("PodScheduled", "False", at=after(7), reason="Unschedulable")), None, after(7),
            id="no host fits",
        ),
        pytest.param(
            unbound(a_condition("PodScheduled", "False", at=after(7), reason="SchedulingGated")), None, None,
            id="a gate is not a refusal",
        ),
        pytest.param(
            a_vm(a_condition("PodScheduled", "False", at=after(7), reason="Unschedulable")), None, None,
            id="it was refused before it got its host",
        ),
    ],
)  # fmt: skip
def test_placing(pod: Pod, bound_at: datetime | None, unschedulable_since: datetime | None) -> None:
    runner = runner_of(pod)

    assert (runner.bound_at, runner.unschedulable_since) == (bound_at, unschedulable_since)


@pytest.mark.parametrize(
    ("pod", "since"),
    [
        pytest.param(a_vm(a_condition("Ready", "False", at=after(99))), after(99), id="it stopped being ready"),
        pytest.param(a_vm(a_condition("Ready", "Unknown", at=after(99))), after(99), id="nobody knows any more"),
        pytest.param(a_vm(READY), None, id="it is ready"),
        pytest.param(a_vm(), None, id="it never said"),
        pytest.param(unbound(a_condition("Ready", "False", at=after(9))), None, id="it has no host to be ready on"),
    ],
)  # fmt: skip
def test_unready_since(pod: Pod, since: datetime | None) -> None:
    assert runner_of(pod).unready_since == since


def annotated(labels: dict[str, str], annotations: dict[str, str]) -> Pod:
    pod = a_vm(READY, labels=labels)
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


@pytest.mark.parametrize(
    ("labels", "annotations", "mark"),
    [
        pytest.param({}, {}, None, id="none"),
        pytest.param({}, {MARKED_AT: "2026-11-01T12:00:09Z"}, None, id="a time alone is no mark"),
        pytest.param({MARK: "t"}, {MARKED_AT: "2026-11-01T12:00:09Z"}, Mark("t", after(9)), id="a mark with its time"),
        pytest.param({MARK: "t"}, {}, Mark("t", EPOCH), id="nobody knows when: it is over"),
        pytest.param({MARK: "t"}, {MARKED_AT: "yesterday"}, Mark("t", EPOCH), id="a time that is none"),
        pytest.param({MARK: ""}, {}, Mark("", EPOCH), id="an empty target is a mark for nothing"),
    ],
)  # fmt: skip
def test_mark(labels: dict[str, str], annotations: dict[str, str], mark: Mark | None) -> None:
    assert runner_of(annotated(labels, annotations)).mark == mark


@pytest.mark.parametrize(
    ("value", "drain"), [("true", True), ("false", False), ("", False), ("yes", False)]
)
def test_only_true_drains(value: str, drain: bool) -> None:  # noqa: FBT001 - a column of the table
    assert runner_of(a_vm(labels={DRAIN: value})).drain is drain


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
def test_deletion_is_seen_in_every_phase_and_dated_from_the_request(phase: str) -> None:
    pod = a_vm(READY, phase=phase)
    meta = replace(pod.metadata, deletion_timestamp=after(130), deletion_grace_period_seconds=30)

    runner = runner_of(replace(pod, metadata=meta))

    assert runner.deleting_since == after(100)
    assert not runner.is_alive
    assert not runner.is_idle


def test_a_deletion_without_grace_is_dated_by_its_timestamp() -> None:
    pod = a_vm()
    meta = replace(pod.metadata, deletion_timestamp=after(100))

    assert runner_of(replace(pod, metadata=meta)).deleting_since == after(100)


def exits(*statuses: ContainerStatus, reason: str = "") -> Pod:
    return Pod(status=PodStatus(phase="Failed", reason=reason, container_statuses=statuses))


def stopped(name: str, code: int, at: datetime | None, reason: str = "") -> ContainerStatus:
    state = ContainerState(terminated=Terminated(exit_code=code, finished_at=at, reason=reason))
    return ContainerStatus(name=name, state=state)


@pytest.mark.parametrize(
    ("pod", "end"),
    [
        pytest.param(exits(), End(), id="nothing is known"),
        pytest.param(exits(reason="Evicted"), End(reason="Evicted"), id="the Pod says why"),
        pytest.param(
            exits(stopped("runner", 137, after(9), "OOMKilled"), reason="Evicted"),
            End(at=after(9), exit_code=137, reason="OOMKilled"), id="the runner's own reason wins",
        ),
        pytest.param(
            exits(stopped("runner", 0, after(9)), stopped("docker", 1, after(12))),
            End(at=after(12), exit_code=0), id="the last container ends it, the runner's code counts",
        ),
        pytest.param(exits(stopped("docker", 1, None)), End(), id="another container's code is not the runner's"),
        pytest.param(a_vm(READY), None, id="it has not ended"),
    ],
)  # fmt: skip
def test_end(pod: Pod, end: End | None) -> None:
    assert runner_of(pod).end == end


@pytest.mark.parametrize(
    ("pod", "alive", "idle"),
    [
        pytest.param(a_vm(), True, True, id="starting"),
        pytest.param(a_vm(READY), True, True, id="warm"),
        pytest.param(a_vm(READY, labels={OWNER: "acme"}), True, False, id="busy"),
        pytest.param(a_vm(phase="Succeeded"), False, False, id="ended"),
    ],
)
def test_alive_and_idle(pod: Pod, alive: bool, idle: bool) -> None:  # noqa: FBT001 - columns of the table
    runner = runner_of(pod)

    assert (runner.is_alive, runner.is_idle) == (alive, idle)


CRASHED = ContainerState(terminated=Terminated(exit_code=1, finished_at=after(90)))


@pytest.mark.parametrize(
    ("pod", "for_nothing"),
    [
        pytest.param(a_vm(phase="Failed"), True, id="it failed before it had a job"),
        pytest.param(a_vm(phase="Succeeded"), True, id="it ended well, but for nothing"),
        pytest.param(a_vm(phase="Failed", labels={OWNER: "acme"}), False, id="it had a job"),
        pytest.param(a_vm(a_condition(JOB_DELIVERED, "True"), phase="Failed"), False, id="a job was delivered"),
        pytest.param(a_vm(phase="Succeeded", labels={MARK: "hash"}), False, id="a roll asked it to leave"),
        pytest.param(a_vm(phase="Succeeded", labels={DRAIN: "true"}), False, id="a person asked it to leave"),
        pytest.param(a_kata(EXITED), False, id="its poller got a job, or was sent home"),
        pytest.param(a_kata(CRASHED), True, id="its poller gave up"),
    ],
)  # fmt: skip
def test_ended_for_nothing(pod: Pod, for_nothing: bool) -> None:  # noqa: FBT001 - a column of the table
    assert ended_for_nothing(pod) is for_nothing
