from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from remuda.kube.core import (
    DaemonEndpoint,
    DaemonEndpoints,
    Lease,
    LeaseSpec,
    Node,
    NodeSpec,
    NodeStatus,
    Taint,
)
from remuda.kube.meta import ObjectMeta, Resource
from remuda.kube.patches import JsonValue, merge_patch

META = ObjectMeta(name="a", labels={"ours": "1"}, resource_version="7")
NODE = Node(
    metadata=META,
    spec=NodeSpec(unschedulable=True, provider_id="scw://1"),
    status=NodeStatus(
        capacity={"cpu": "8"},
        daemon_endpoints=DaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=1)),
    ),
)
HELD = Lease(metadata=META, spec=LeaseSpec(holder_identity="me", lease_transitions=3))


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param(NODE, NODE, {}, id="nothing changed"),
        pytest.param(
            NODE,
            replace(NODE, metadata=replace(META, labels={})),
            {"metadata": {"labels": {"ours": None}}},
            id="the last label goes, and none that someone else has set since",
        ),
        pytest.param(
            NODE,
            replace(NODE, metadata=replace(META, labels={"ours": "1", "new": ""})),
            {"metadata": {"labels": {"new": ""}}},
            id="a label with an empty value is set",
        ),
        pytest.param(
            replace(NODE, metadata=replace(META, labels={})),
            NODE,
            {"metadata": {"labels": {"ours": "1"}}},
            id="the first label comes",
        ),
        pytest.param(
            NODE,
            replace(NODE, spec=NodeSpec()),
            {"spec": {"unschedulable": None, "providerID": None}},
            id="a part back at its defaults loses the keys that we hold, and no other",
        ),
        pytest.param(
            NODE,
            Node(metadata=META, status=NODE.status),
            {"spec": {"unschedulable": None, "providerID": None}},
            id="a part that was left out does, too",
        ),
        pytest.param(
            NODE,
            replace(NODE, spec=replace(NODE.spec, unschedulable=False)),
            {"spec": {"unschedulable": None}},
            id="a field back at its default is removed",
        ),
        pytest.param(
            NODE,
            replace(NODE, status=replace(NODE.status, daemon_endpoints=None)),
            {"status": {"daemonEndpoints": None}},
            id="a part that is there or not goes as a whole",
        ),
        pytest.param(
            NODE,
            replace(NODE, spec=replace(NODE.spec, taints=(Taint(key="k", effect="NoExecute"),))),
            {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}},
            id="a list is sent whole",
        ),
        pytest.param(
            HELD,
            replace(HELD, spec=replace(HELD.spec, lease_transitions=0)),
            {"spec": {"leaseTransitions": 0}},
            id="an explicit 0 is sent",
        ),
        pytest.param(
            HELD,
            replace(HELD, spec=replace(HELD.spec, holder_identity=None)),
            {"spec": {"holderIdentity": None}},
            id="None removes",
        ),
        pytest.param(
            HELD,
            replace(HELD, spec=replace(HELD.spec, holder_identity=msgspec.UNSET)),
            {"spec": {"holderIdentity": None}},
            id="unset removes",
        ),
    ],
)
def test_merge_patch(before: Resource, after: Resource, changes: dict[str, JsonValue]) -> None:
    assert msgspec.json.decode(merge_patch(before, after).encode()) == changes


def test_a_conditional_patch_names_the_version_that_was_seen() -> None:
    patch = merge_patch(NODE, replace(NODE, spec=NodeSpec()), conditional=True)

    assert patch.changes["metadata"] == {"resourceVersion": "7"}
