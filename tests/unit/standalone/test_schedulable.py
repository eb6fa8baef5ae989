"""What scheduling reads from Pods and Nodes."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.core import NodeSelectorTerm, SelectorRequirement, Taint, Toleration
from remuda.model.errors import BadInput
from remuda.standalone.schedulable import (
    filled,
    read_ask,
    read_place,
    read_requests,
    waits_for_node,
)

VM = "remuda.dev/vm"


def a_pod(*, phase: str = "Pending", deleting: bool = False, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    meta = {"name": "p", "namespace": "ci", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def a_container(restart: str = "", **requests: object) -> dict[str, Any]:
    named = {name.replace("vm", VM): amount for name, amount in requests.items()}
    return {"resources": {"requests": named}, **({"restartPolicy": restart} if restart else {})}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {}, id="nothing asked for, nothing needed"),
        pytest.param(
            {"containers": [a_container(cpu="500m"), a_container(cpu="1", memory="1Gi")]},
            {"cpu": 1500, "memory": 1 << 30},
            id="containers add up",
        ),
        pytest.param(
            {"containers": [a_container(cpu=1, vm=1)]},
            {"cpu": 1000, VM: 1},
            id="numbers are as good as their spelling",
        ),
        pytest.param(
            {
                "containers": [a_container(cpu="1")],
                "initContainers": [a_container(cpu="3"), a_container(cpu="2")],
            },
            {"cpu": 3000},
            id="init containers run one after the other: the largest counts",
        ),
        pytest.param(
            {
                "containers": [a_container(cpu="1")],
                "initContainers": [a_container("Always", cpu="1"), a_container(cpu="3")],
            },
            {"cpu": 4000},
            id="a sidecar runs beside the init containers after it",
        ),
        pytest.param(
            {
                "containers": [a_container(cpu="3")],
                "initContainers": [a_container(cpu="3"), a_container("Always", cpu="1")],
            },
            {"cpu": 4000},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {"containers": [a_container(cpu="1")], "overhead": {"cpu": "250m", "memory": "1Mi"}},
            {"cpu": 1250, "memory": 1 << 20},
            id="the overhead of the runtime comes on top",
        ),
        pytest.param(
            {"containers": [a_container(cpu="1n", memory="0.5")]},
            {"cpu": 1, "memory": 1},
            id="fractions are rounded up",
        ),
    ],
)
def test_requests(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert read_requests(a_pod(**spec)) == expected


@pytest.mark.parametrize(
    ("pod", "waits"),
    [
        pytest.param(a_pod(), True, id="a new Pod waits"),
        pytest.param(a_pod(nodeName="mini"), False, id="a Pod with a Node does not"),
        pytest.param(a_pod(schedulerName="other"), False, id="a Pod of another scheduler is left"),
        pytest.param(a_pod(schedulingGates=[{"name": "x"}]), False, id="a gated Pod is held back"),
        pytest.param(a_pod(deleting=True), False, id="a Pod that is being deleted goes nowhere"),
        pytest.param(a_pod(phase="Failed"), False, id="a Pod that is over goes nowhere"),
    ],
)
def test_waits_for_node(pod: dict[str, Any], *, waits: bool) -> None:
    assert waits_for_node(pod) is waits


def test_an_ask_is_read_with_all_its_wishes() -> None:
    term = {"matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin"]}]}
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": term},
            {"weight": 7, "preference": {}},
        ],
    }
    ask = read_ask(
        a_pod(
            containers=[a_container(vm="1")],
            nodeSelector={"fleet": "a"},
            affinity={"nodeAffinity": affinity},
            tolerations=[{"key": "k", "operator": "Exists"}],
            priority=3,
            runtimeClassName=None,
        )
    )
    read = NodeSelectorTerm(
        match_expressions=(SelectorRequirement(key="os", operator="In", values=("darwin",)),)
    )
    assert ask.requests == {VM: 1}
    assert ask.node_selector == {"fleet": "a"}
    assert ask.required == (read,)
    assert ask.preferred == ((5, read),)
    assert ask.tolerations == (Toleration(key="k", operator="Exists"),)
    assert ask.priority == 3


def test_a_place_is_read_with_what_its_pods_take() -> None:
    node = {
        "metadata": {"name": "mini", "labels": {"os": "darwin"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", VM: "2", "pods": "10"}},
    }
    place = filled(read_place(node), [{VM: 1, "cpu": 1000}, {VM: 1}])
    assert place.allocatable == {"cpu": 8000, "memory": 16 << 30, VM: 2, "pods": 10}
    assert place.used == {VM: 2, "cpu": 1000}
    assert place.pod_count == 2
    assert place.taints == (Taint(key="k", effect="NoSchedule"),)
    assert place.unschedulable


def test_a_pod_that_makes_no_sense_is_said() -> None:
    with pytest.raises(BadInput, match="not a quantity"):
        read_ask(a_pod(containers=[a_container(cpu="much")]))
    with pytest.raises(BadInput, match="cannot be read"):
        read_ask(a_pod(nodeSelector={"a": 1}))
