"""Bodies of built-in kinds: null is absence, a wrong type is refused, and what is shared is not looked at again."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.standalone.decoding import decoded, decoded_change
from remuda.standalone.errors import StatusError
from remuda.standalone.kinds import BUILT_IN, ResourceKind

KINDS = {kind.kind: kind for kind in BUILT_IN}
CUSTOM = ResourceKind("test.dev", "v1", "Horse", "horses", "horse", schema={"type": "object"})


@pytest.mark.parametrize(
    ("kind", "body", "read"),
    [
        pytest.param("Pod", {"spec": {"nodeName": None}}, {"spec": {}}, id="null is absence"),
        pytest.param(
            "Pod",
            {"spec": {"containers": [{"name": "a", "command": None, "lifecycle": {"x": None}}]}},
            {"spec": {"containers": [{"name": "a", "lifecycle": {}}]}},
            id="at any depth, known or not",
        ),
        pytest.param("ConfigMap", {"data": {"a": None}}, {"data": {"a": ""}}, id="in a map, empty"),
        pytest.param("ConfigMap", {"data": None, "status": {}}, {}, id="a stranger is dropped"),
        pytest.param(
            "Secret", {"stringData": {"a": "b"}}, {"stringData": {"a": "b"}}, id="a known extra is kept"
        ),
        pytest.param(
            "Node",
            {"status": {"capacity": {"cpu": 8, "remuda.dev/vm": "2", "memory": 0.5}}},
            {"status": {"capacity": {"cpu": "8", "remuda.dev/vm": "2", "memory": "500m"}}},
            id="a quantity may be a number",
        ),
        pytest.param("Lease", {"spec": {"leaseTransitions": 0}}, {"spec": {"leaseTransitions": 0}}, id="zero stays"),
    ],
)  # fmt: skip
def test_a_body_is_read(kind: str, body: dict[str, Any], read: dict[str, Any]) -> None:
    assert decoded(KINDS[kind], body) == read


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        pytest.param(
            "Lease",
            {"spec": {"leaseDurationSeconds": "x"}},
            "json: cannot unmarshal string into Go struct field Lease.spec.leaseDurationSeconds of type int64",
            id="text for a number",
        ),
        pytest.param(
            "Lease",
            {"spec": {"leaseDurationSeconds": 1.5}},
            "json: cannot unmarshal number 1.5 into Go struct field Lease.spec.leaseDurationSeconds of type int64",
            id="a fraction for a whole number",
        ),
        pytest.param(
            "Lease",
            {"spec": {"leaseDurationSeconds": True}},
            "json: cannot unmarshal bool into Go struct field Lease.spec.leaseDurationSeconds of type int64",
            id="a truth for a number",
        ),
        pytest.param(
            "ConfigMap",
            {"data": []},
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
            id="a list for a map",
        ),
        pytest.param(
            "ConfigMap",
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ConfigMap.metadata.labels of type string",
            id="a number for a label",
        ),
        pytest.param(
            "Secret", {"data": {"a": "not b64"}}, "illegal base64 data at input byte 3", id="no base64"
        ),
        pytest.param(
            "Event",
            {"firstTimestamp": "noon"},
            'parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon"',
            id="no time",
        ),
    ],
)  # fmt: skip
def test_a_wrong_type_is_a_bad_request(kind: str, body: dict[str, Any], why: str) -> None:
    with pytest.raises(StatusError) as refused:
        decoded(KINDS[kind], body)

    assert refused.value.code == 400
    assert refused.value.message.endswith(f"cannot be handled as a {kind}: {why}")


def test_a_custom_resource_is_left_to_its_schema() -> None:
    body = {"metadata": {"labels": None, "name": "a"}, "spec": {"a": None, "b": 1.5}}

    assert decoded(CUSTOM, body) == {"metadata": {"name": "a"}, "spec": {"a": None, "b": 1.5}}


def test_what_a_patch_did_not_touch_is_not_looked_at() -> None:
    kind, spec = KINDS["Lease"], {"leaseDurationSeconds": "stored before we looked"}
    old = {"apiVersion": kind.api_version, "kind": "Lease", "metadata": {"name": "a"}, "spec": spec}

    assert (
        decoded_change(kind, old | {"metadata": {"name": "a", "labels": {}}}, old)["spec"] is spec
    )


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        pytest.param(
            KINDS["Lease"], {"kind": "Pod"}, 'no kind "Pod" is registered', id="to another kind"
        ),
        pytest.param(KINDS["Lease"], {"spec": {"renewTime": 5}}, "cannot unmarshal", id="to a type"),
        pytest.param(CUSTOM, {"kind": "Mule"}, 'kind: Invalid value: "Mule": must be Horse', id="of ours"),
    ],
)  # fmt: skip
def test_a_patch_cannot_change(kind: ResourceKind, change: dict[str, Any], why: str) -> None:
    old = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}}

    with pytest.raises(StatusError) as refused:
        decoded_change(kind, old | change, old)

    assert refused.value.code == 422
    assert why in refused.value.message
