from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.standalone import jsonpaths, tables
from remuda.standalone.ages import age, human_duration
from remuda.standalone.kinds import BUILT_IN, PrinterColumn, ResourceKind

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
KINDS = {kind.kind: kind for kind in BUILT_IN}


def at(**ago: float) -> str:
    return (NOW - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def an_object(**rest: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    meta = {
        "name": "x",
        "uid": "u",
        "creationTimestamp": at(minutes=17),
        **rest.pop("metadata", {}),
    }
    return {"metadata": meta, **rest}


def row(kind: ResourceKind, obj: dict[str, Any], *, wide: bool = True) -> dict[str, Any]:
    found = tables.table(kind, [obj], NOW, list_meta={})
    (only,) = found["rows"]
    heads = found["columnDefinitions"]
    assert len(heads) == len(only["cells"])
    return {
        h["name"]: cell
        for h, cell in zip(heads, only["cells"], strict=True)
        if wide or not h["priority"]
    }


# --- Ages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-0.5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (599, "9m59s"),
        (600, "10m"), (645, "10m"), (10_799, "179m"), (10_800, "3h"), (4 * 3600 + 120, "4h2m"), (8 * 3600, "8h"),
        (47 * 3600, "47h"), (48 * 3600, "2d"), (50 * 3600, "2d2h"), (7 * 86_400 + 3600, "7d1h"), (8 * 86_400, "8d"),
        (400 * 86_400, "400d"), (730 * 86_400, "2y"), (771 * 86_400, "2y41d"), (9 * 365 * 86_400, "9y"),
    ],
)  # fmt: skip
def test_durations_read_as_in_kubectl(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@given(st.floats(0, 1e10))
def test_every_duration_has_a_short_name(seconds: float) -> None:
    assert 2 <= len(human_duration(seconds)) <= 6


def test_a_time_that_is_not_there_is_unknown() -> None:
    assert age(None, NOW) == "<unknown>"
    assert age("yesterday", NOW) == "<invalid>"


# --- JSONPath --------------------------------------------------------------------------------------------------------

PROBE = {
    "spec": {
        "n": 3,
        "list": ["a", "b"],
        "a.b": "dotted",
        "objs": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Rolling", "status": "False"}]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param(".spec.n", [3], id="a field"),
        pytest.param("{.spec.n}", [3], id="in braces"),
        pytest.param(".spec.nope.deeper", [], id="a field that is not there"),
        pytest.param(".spec.n.deeper", [], id="a field of a number"),
        pytest.param(".spec.list[1]", ["b"], id="an index"),
        pytest.param(".spec.list[-1]", ["b"], id="an index from the end"),
        pytest.param(".spec.list[9]", [], id="an index that is not there"),
        pytest.param(".spec.list[*]", ["a", "b"], id="all of a list"),
        pytest.param(".spec.objs[*].v", [1, 2], id="a field of all"),
        pytest.param(r".spec.a\.b", ["dotted"], id="an escaped dot"),
        pytest.param(".spec['a.b']", ["dotted"], id="a quoted name"),
        pytest.param('.status.conditions[?(@.type=="Ready")].status', ["True"], id="a condition"),
        pytest.param(
            ".status.conditions[?(@.type == 'Ready')].status",
            ["True"],
            id="a condition in single quotes",
        ),
        pytest.param('.status.conditions[?(@.type!="Ready")].type', ["Rolling"], id="all but one"),
        pytest.param(".spec.objs[?(@.v==2)].k", ["y"], id="a number in a filter"),
        pytest.param('.spec.objs[?(@.none=="x")].k', [], id="a filter on what is not there"),
    ],
)
def test_paths_lead_to_values(path: str, found: list[Any]) -> None:
    assert jsonpaths.parse(path).find(PROBE) == found


@pytest.mark.parametrize(
    "path", ["spec", ".spec[", ".spec[?(@.a<1)]", ".a..b", ".spec[?(@.a==b c)]"]
)
def test_a_path_that_we_cannot_follow_is_refused(path: str) -> None:
    with pytest.raises(jsonpaths.BadPath):
        jsonpaths.parse(path)


# --- Custom resources ------------------------------------------------------------------------------------------------


def a_kind(*columns: PrinterColumn) -> ResourceKind:
    return ResourceKind("test.dev", "v1", "Thing", "things", "thing", columns=columns, schema={})


@pytest.mark.parametrize(
    ("sort", "value", "cell"),
    [
        pytest.param("integer", 3, 3, id="an integer"),
        pytest.param("integer", 3.7, 3, id="a number where an integer belongs"),
        pytest.param("integer", "3", None, id="text where a number belongs"),
        pytest.param("integer", True, None, id="a truth is no number"),
        pytest.param("number", 3.7, 3.7, id="a number"),
        pytest.param("boolean", False, False, id="a truth"),
        pytest.param("string", "x", "x", id="text"),
        pytest.param("string", ["a"], '["a"]', id="a list as text"),
        pytest.param("date", at(hours=4), "4h", id="a date is shown as an age"),
        pytest.param("date", "soon", "<invalid>", id="a date that is none"),
        pytest.param("string", None, None, id="null"),
    ],
)
def test_cells_follow_the_type_of_their_column(sort: str, value: object, cell: object) -> None:
    kind = a_kind(PrinterColumn("C", sort, ".spec.c"))

    assert row(kind, an_object(spec={"c": value}))["C"] == cell


def test_a_kind_without_columns_has_name_and_age() -> None:
    assert row(a_kind(), an_object()) == {"Name": "x", "Age": "17m"}


def test_a_path_that_we_cannot_follow_leaves_its_column_empty() -> None:
    assert row(a_kind(PrinterColumn("C", "string", ".a..b")), an_object())["C"] is None


@pytest.mark.parametrize(
    ("include", "shown"),
    [
        pytest.param(
            "Metadata",
            {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"},
            id="metadata",
        ),
        pytest.param("Object", {"spec": {"a": 1}}, id="the object"),
        pytest.param("None", None, id="nothing"),
    ],
)
def test_a_row_carries_what_was_asked_for(include: str, shown: dict[str, Any] | None) -> None:
    obj = an_object(spec={"a": 1})
    found = tables.table(a_kind(), [obj], NOW, list_meta={"resourceVersion": "7"}, include=include)

    expected = None if shown is None else shown | {"metadata": obj["metadata"]}
    assert found["rows"][0].get("object") == expected
    assert (found["kind"], found["metadata"]) == ("Table", {"resourceVersion": "7"})


# --- Pods ------------------------------------------------------------------------------------------------------------

RUNNING = {"name": "c", "ready": True, "state": {"running": {}}}


def ended(reason: str = "", code: int = 0) -> dict[str, Any]:
    return {
        "name": "c",
        "ready": False,
        "state": {"terminated": {"exitCode": code, "reason": reason}},
    }


def waiting(reason: str) -> dict[str, Any]:
    return {"name": "c", "ready": False, "state": {"waiting": {"reason": reason}}}


def a_pod(phase: str = "Running", **status: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    spec = {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}
    return an_object(spec=spec, status={"phase": phase, **status})


DELETED = {"deletionTimestamp": at(seconds=1)}


@pytest.mark.parametrize(
    ("pod", "ready", "status"),
    [
        pytest.param(a_pod("Pending"), "0/1", "Pending", id="not scheduled"),
        pytest.param(a_pod(containerStatuses=[RUNNING]), "1/1", "Running", id="running"),
        pytest.param(a_pod("Pending", containerStatuses=[waiting("ImagePullBackOff")]), "0/1", "ImagePullBackOff",
                     id="waiting with a reason"),
        pytest.param(a_pod("Succeeded", containerStatuses=[ended("Completed")]), "0/1", "Completed", id="done"),
        pytest.param(a_pod("Failed", containerStatuses=[ended("Error", 1)]), "0/1", "Error", id="failed"),
        pytest.param(a_pod("Failed", containerStatuses=[ended("", 3)]), "0/1", "ExitCode:3",
                     id="failed without a word"),
        pytest.param(a_pod("Failed", reason="Evicted"), "0/1", "Evicted", id="the Pod's own reason"),
        pytest.param(a_pod(containerStatuses=[RUNNING]) | {"metadata": {"name": "x", **DELETED}}, "1/1", "Terminating",
                     id="being deleted"),
        pytest.param(a_pod("Succeeded", containerStatuses=[ended("Completed")])
                     | {"metadata": {"name": "x", **DELETED}},
                     "0/1", "Completed", id="done and being deleted"),
        pytest.param(a_pod(reason="NodeLost") | {"metadata": {"name": "x", **DELETED}}, "0/1", "Unknown",
                     id="being deleted on a lost Node"),
        pytest.param(a_pod("Pending", initContainerStatuses=[{"name": "i", "state": {"running": {}}}]),
                     "0/1", "Init:0/1",
                     id="an init container runs"),
        pytest.param(a_pod("Pending", initContainerStatuses=[ended("Error", 2)]), "0/1", "Init:Error",
                     id="an init container failed"),
        pytest.param(a_pod("Pending", initContainerStatuses=[waiting("PodInitializing")]), "0/1", "Init:0/1",
                     id="an init container is about to run"),
        pytest.param(a_pod("Pending", initContainerStatuses=[waiting("ErrImagePull")]), "0/1", "Init:ErrImagePull",
                     id="an init container cannot start"),
        pytest.param(a_pod(initContainerStatuses=[ended("Completed")], containerStatuses=[RUNNING]), "1/1", "Running",
                     id="past its init containers"),
        pytest.param(a_pod(containerStatuses=[ended("Completed"), RUNNING]), "1/1", "NotReady",
                     id="one container done, one running"),
        pytest.param(a_pod("Pending", conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]), "0/1",
                     "SchedulingGated", id="held at a gate"),
    ],
)  # fmt: skip
def test_a_pod_in_one_word(pod: dict[str, Any], ready: str, status: str) -> None:
    found = row(KINDS["Pod"], pod)

    assert (found["Ready"], found["Status"]) == (ready, status)


def test_a_pods_other_cells() -> None:
    last = {"terminated": {"exitCode": 1, "finishedAt": at(minutes=5)}}
    pod = a_pod(
        containerStatuses=[RUNNING | {"restartCount": 2, "lastState": last}], podIP="10.0.0.9"
    )
    pod["spec"]["nodeName"] = "mac-1"
    found = row(KINDS["Pod"], pod)

    assert (found["Restarts"], found["Age"], found["IP"], found["Node"]) == (
        "2 (5m ago)",
        "17m",
        "10.0.0.9",
        "mac-1",
    )
    assert row(KINDS["Pod"], a_pod(), wide=False).keys() == {
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    }
    assert row(KINDS["Pod"], a_pod())["Node"] == "<none>"


# --- The others ------------------------------------------------------------------------------------------------------


def a_node(ready: str | None = "True", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return an_object(
        spec=spec, status={"conditions": conditions, "nodeInfo": {"kubeletVersion": "v1"}}
    )


@pytest.mark.parametrize(
    ("node", "status"),
    [
        pytest.param(a_node(), "Ready", id="ready"),
        pytest.param(a_node("False"), "NotReady", id="not ready"),
        pytest.param(a_node("Unknown"), "NotReady", id="silent"),
        pytest.param(a_node(None), "Unknown", id="never heard of"),
        pytest.param(a_node(unschedulable=True), "Ready,SchedulingDisabled", id="cordoned"),
    ],
)
def test_a_node_in_one_word(node: dict[str, Any], status: str) -> None:
    assert row(KINDS["Node"], node)["Status"] == status


def test_a_nodes_roles_come_from_its_labels() -> None:
    node = a_node() | {
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/vm": "", "a": "b"}}
    }

    assert row(KINDS["Node"], node)["Roles"] == "vm"
    assert row(KINDS["Node"], a_node())["Roles"] == "<none>"


EVENT = an_object(
    involvedObject={"kind": "Pod", "name": "p"}, type="Warning", reason="Stuck", message="It hangs.\n",
    lastTimestamp=at(seconds=9), firstTimestamp=at(minutes=3), count=4, source={"component": "remuda", "host": "h"},
)  # fmt: skip
CRD = an_object(
    spec={"group": "g", "scope": "Namespaced", "names": {"kind": "K", "shortNames": ["k"]},
          "versions": [{"name": "v1", "served": True, "storage": True}]},
    status={"conditions": [{"type": "Established", "status": "True"}]},
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "obj", "cells"),
    [
        ("Namespace", an_object(status={"phase": "Active"}), {"Name": "x", "Status": "Active", "Age": "17m"}),
        ("ServiceAccount", an_object(), {"Name": "x", "Age": "17m"}),
        ("Secret", an_object(type="Opaque", data={"a": ""}), {"Name": "x", "Type": "Opaque", "Data": 1, "Age": "17m"}),
        ("ConfigMap", an_object(data={"a": ""}, binaryData={"b": ""}), {"Name": "x", "Data": 2, "Age": "17m"}),
        ("Lease", an_object(spec={"holderIdentity": "me"}), {"Name": "x", "Holder": "me", "Age": "17m"}),
        ("RuntimeClass", an_object(handler="kata"), {"Name": "x", "Handler": "kata", "Age": "17m"}),
        ("Event", EVENT, {"Last Seen": "9s", "Type": "Warning", "Reason": "Stuck", "Object": "pod/p",
                          "Message": "It hangs."}),
        ("CustomResourceDefinition", CRD, {"Name": "x", "Scope": "Namespaced", "Versions": "v1(storage)",
                                           "Created At": at(minutes=17)}),
    ],
)  # fmt: skip
def test_the_columns_of_the_other_kinds(
    kind: str, obj: dict[str, Any], cells: dict[str, Any]
) -> None:
    assert row(KINDS[kind], obj, wide=False) == cells


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: str(kind.kind))
def test_an_empty_object_has_a_row_too(kind: ResourceKind) -> None:
    assert row(kind, {"metadata": {}})
