"""What the control plane makes of a Node that falls silent, and of one that speaks again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.core import Node, NodeSpec, NodeStatus, Taint
from remuda.kube.meta import Condition, ObjectMeta
from remuda.standalone.decide.node_health import (
    Decision,
    HealthRules,
    MarkUnknown,
    SetTaints,
    decide,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
MORNING = NOON - timedelta(hours=3)
RULES = HealthRules()
VM_HOST = Taint(key="remuda.dev/vm-host", effect="NoSchedule")


def a_condition(kind: str, status: str) -> Condition:
    return Condition(
        type=kind,
        status=status,
        reason="KubeletSaysSo",
        message="as posted",
        last_heartbeat_time=MORNING,
        last_transition_time=MORNING,
    )


def a_node(*conditions: Condition, taints: tuple[Taint, ...] = (), cordoned: bool = False) -> Node:
    return Node(
        metadata=ObjectMeta(name="mini", creation_timestamp=MORNING),
        spec=NodeSpec(taints=taints, unschedulable=cordoned),
        status=NodeStatus(conditions=conditions),
    )


def silent(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def in_short(decision: Decision) -> list[str]:
    words: list[str] = []
    for action in decision.actions:
        match action:
            case MarkUnknown(conditions=conditions):
                words += [f"{c.type}={c.status} {c.reason}" for c in conditions]
            case SetTaints(taints=taints):
                words.append(
                    "taints "
                    + (
                        ",".join(
                            f"{t.key.removeprefix('node.kubernetes.io/')}:{t.effect}"
                            for t in taints
                        )
                        or "none"
                    )
                )
    return words


READY, NOT_READY, UNKNOWN = (a_condition("Ready", s) for s in ("True", "False", "Unknown"))
UNREACHABLE_TAINTS = (
    Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule", time_added=MORNING),
    Taint(key="node.kubernetes.io/unreachable", effect="NoExecute", time_added=MORNING),
)


@pytest.mark.parametrize(
    ("node", "silent_for", "expected"),
    [
        pytest.param(a_node(READY), silent(0), [], id="a Node that speaks is left alone"),
        pytest.param(a_node(READY), silent(40), [], id="forty seconds of silence are borne"),
        pytest.param(
            a_node(READY),
            silent(40.1),
            [
                "Ready=Unknown NodeStatusUnknown",
                "MemoryPressure=Unknown NodeStatusNeverUpdated",
                "DiskPressure=Unknown NodeStatusNeverUpdated",
                "PIDPressure=Unknown NodeStatusNeverUpdated",
                "taints unreachable:NoExecute,unreachable:NoSchedule",
            ],
            id="longer silence: nobody knows how the Node is, and nothing new goes there",
        ),
        pytest.param(
            a_node(
                a_condition("NetworkUnavailable", "False"),
                READY,
                a_condition("DiskPressure", "False"),
                a_condition("MemoryPressure", "False"),
                a_condition("PIDPressure", "False"),
            ),
            silent(41),
            [
                "NetworkUnavailable=False KubeletSaysSo",
                "Ready=Unknown NodeStatusUnknown",
                "DiskPressure=Unknown NodeStatusUnknown",
                "MemoryPressure=Unknown NodeStatusUnknown",
                "PIDPressure=Unknown NodeStatusUnknown",
                "taints unreachable:NoExecute,unreachable:NoSchedule",
            ],
            id="the network is not the Node's own to judge",
        ),
        pytest.param(
            a_node(), silent(60), [], id="a Node that never said anything has a minute to start"
        ),
        pytest.param(
            a_node(),
            silent(61),
            [
                "Ready=Unknown NodeStatusNeverUpdated",
                "MemoryPressure=Unknown NodeStatusNeverUpdated",
                "DiskPressure=Unknown NodeStatusNeverUpdated",
                "PIDPressure=Unknown NodeStatusNeverUpdated",
                "taints unreachable:NoExecute,unreachable:NoSchedule",
            ],
            id="a Node that never said anything is Unknown after a minute",
        ),
        pytest.param(
            a_node(
                UNKNOWN,
                *(
                    a_condition(c, "Unknown")
                    for c in ("MemoryPressure", "DiskPressure", "PIDPressure")
                ),
                taints=UNREACHABLE_TAINTS,
            ),
            silent(9999),
            [],
            id="a Node that stays silent is not written again",
        ),
        pytest.param(
            a_node(READY, taints=(*UNREACHABLE_TAINTS, VM_HOST)),
            silent(1),
            ["taints remuda.dev/vm-host:NoSchedule"],
            id="a Node that is ready again loses our taints and keeps its own",
        ),
        pytest.param(
            a_node(NOT_READY),
            silent(1),
            ["taints not-ready:NoExecute,not-ready:NoSchedule"],
            id="a Node that says it is not ready gets nothing new",
        ),
        pytest.param(
            a_node(NOT_READY, taints=UNREACHABLE_TAINTS),
            silent(1),
            ["taints not-ready:NoExecute,not-ready:NoSchedule"],
            id="unreachable becomes not ready",
        ),
        pytest.param(
            a_node(taints=(Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),)),
            silent(1),
            ["taints none"],
            id="a Node without conditions is open, as on a real cluster",
        ),
        pytest.param(
            a_node(READY, cordoned=True),
            silent(1),
            ["taints unschedulable:NoSchedule"],
            id="a cordoned Node says so in a taint",
        ),
        pytest.param(
            a_node(READY, a_condition("DiskPressure", "True")),
            silent(1),
            ["taints disk-pressure:NoSchedule"],
            id="a full disk keeps Pods away",
        ),
    ],
)
def test_decide(node: Node, silent_for: timedelta, expected: list[str]) -> None:
    assert in_short(decide(node, silent_for, NOON, RULES)) == expected


def test_the_words_are_those_of_the_real_controller() -> None:
    (mark, _) = decide(a_node(READY), silent(41), NOON, RULES).actions
    assert isinstance(mark, MarkUnknown)
    assert mark.conditions[0] == Condition(
        type="Ready",
        status="Unknown",
        reason="NodeStatusUnknown",
        message="Kubelet stopped posting node status.",
        last_heartbeat_time=MORNING,
        last_transition_time=NOON,
    )
    assert mark.conditions[1].message == "Kubelet never posted node status."


@pytest.mark.parametrize(
    ("silent_for", "left"),
    [
        pytest.param(
            silent(0), silent(40), id="a Node that spoke just now is judged in forty seconds"
        ),
        pytest.param(silent(30), silent(10), id="ten seconds are left"),
        pytest.param(silent(41), None, id="a silent Node is looked at when it speaks"),
    ],
)
def test_when_to_look_again(silent_for: timedelta, left: timedelta | None) -> None:
    assert decide(a_node(READY), silent_for, NOON, RULES).look_again_after == left


statuses = st.sampled_from(["True", "False", "Unknown"])
kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Other"]
nodes = st.builds(
    lambda conditions, taints, cordoned: a_node(
        *(a_condition(k, s) for k, s in conditions.items()), taints=tuple(taints), cordoned=cordoned
    ),
    st.dictionaries(st.sampled_from(kinds), statuses),
    st.lists(
        st.builds(
            Taint,
            key=st.sampled_from(
                ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "theirs"]
            ),
            effect=st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        ),
        unique_by=lambda t: (t.key, t.effect),
    ),
    st.booleans(),
)


def applied(node: Node, decision: Decision) -> Node:
    conditions, taints = node.status.conditions, node.spec.taints
    for action in decision.actions:
        match action:
            case MarkUnknown(conditions=conditions):
                pass
            case SetTaints(taints=taints):
                pass
    return a_node(*conditions, taints=taints, cordoned=node.spec.unschedulable)


@given(nodes, st.integers(0, 100))
def test_one_pass_is_enough(node: Node, seconds: int) -> None:
    once = applied(node, decide(node, silent(seconds), NOON, RULES))
    assert decide(once, silent(seconds), NOON, RULES).actions == ()


@given(nodes, st.integers(0, 100))
def test_taints_of_others_are_never_touched(node: Node, seconds: int) -> None:
    after = applied(node, decide(node, silent(seconds), NOON, RULES))
    theirs = [t for t in node.spec.taints if t.key == "theirs" or t.effect == "PreferNoSchedule"]
    assert [t for t in after.spec.taints if t in theirs] == theirs
