"""The real kubectl against ``remuda control-plane``: what people type is what must work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.kubectl import Kubectl

NODE = """
apiVersion: v1
kind: Node
metadata: {name: mini, labels: {os: darwin}}
spec: {taints: [{key: remuda.dev/vm-host, effect: NoSchedule}]}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: demo}}
spec:
  tolerations: [{key: remuda.dev/vm-host, operator: Exists}]
  containers:
  - {name: main, image: vm, resources: {requests: {remuda.dev/vm: 1}, limits: {remuda.dev/vm: 1}}}
"""
ROOM = {"cpu": "8", "memory": "16Gi", "pods": "10", "remuda.dev/vm": "1"}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}


@pytest.fixture(scope="module")
def furnished(kubectl: Kubectl) -> Kubectl:
    """Return kubectl, on a control plane with one Node that has room for one VM, and two Pods that want one."""
    kubectl("create", "-f", "-", stdin=NODE)
    status = {"allocatable": ROOM, "capacity": ROOM, "conditions": [READY]}
    change = json.dumps({"status": status})
    kubectl("patch", "node", "mini", "--subresource=status", "--type=merge", "-p", change)
    kubectl("apply", "-f", "-", stdin=POD.replace("NAME", "first"))
    kubectl("wait", "--for=condition=PodScheduled", "pod/first", "--timeout=20s")
    kubectl("apply", "-f", "-", stdin=POD.replace("NAME", "second"))
    kubectl("wait", "--for=condition=PodScheduled=false", "pod/second", "--timeout=20s")
    return kubectl


def test_what_is_served_can_be_found_out(kubectl: Kubectl) -> None:
    assert "pods " in kubectl("api-resources")
    assert "Server Version" in kubectl("version")
    assert "KIND:       Pod" in kubectl("explain", "pod")
    assert "default" in kubectl("get", "namespaces")


def test_a_pod_that_waits_says_why(furnished: Kubectl) -> None:
    why = "0/1 nodes are available: 1 Insufficient remuda.dev/vm."
    described = furnished("describe", "pod", "second")
    assert "FailedScheduling" in described
    assert why in described
    condition = '{.status.conditions[?(@.type=="PodScheduled")].message}'
    assert furnished("get", "pod", "second", "-o", f"jsonpath={condition}") == why


def test_pods_are_listed_with_their_node(furnished: Kubectl) -> None:
    rows = furnished("get", "pods", "-l", "app=demo", "-o", "wide", "--no-headers").splitlines()
    placed = {row.split()[0]: row.split()[6] for row in rows}
    assert placed == {"first": "mini", "second": "<none>"}


def test_labels_and_taints_can_be_changed(furnished: Kubectl) -> None:
    furnished("label", "pod", "first", "team=blue")
    assert "first" in furnished("get", "pods", "-l", "team=blue")
    furnished("cordon", "mini")
    assert "SchedulingDisabled" in furnished("get", "node", "mini")
    furnished("uncordon", "mini")
    assert "SchedulingDisabled" not in furnished("get", "node", "mini")


def test_logs_say_what_is_missing(furnished: Kubectl) -> None:
    assert "node mini has no address" in furnished("logs", "first", fails=True)
    assert "not valid for pod" in furnished("logs", "first", "-c", "x", fails=True)
    assert furnished("logs", "second") == ""


def test_kubectl_makes_objects_of_its_own(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "ci")
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", "ci", "--timeout=20s")
    kubectl("create", "configmap", "settings", "-n", "ci", "--from-literal=key=value")
    read = kubectl("get", "configmap", "settings", "-n", "ci", "-o", "jsonpath={.data.key}")
    assert read == "value"
    token = kubectl("create", "token", "default", "-n", "ci", "--audience=remuda-dispatch")
    assert token.count(".") == 2
    assert "Username    admin" in kubectl("auth", "whoami")
    kubectl("delete", "namespace", "ci", "--timeout=20s")
    assert "NotFound" in kubectl("get", "configmap", "settings", "-n", "ci", fails=True)


def test_dependents_go_with_their_owner(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "owner")
    uid = kubectl("get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
    owner = f"{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}"
    meta = f"{{name: child, ownerReferences: [{owner}]}}"
    kubectl("apply", "-f", "-", stdin=f"apiVersion: v1\nkind: ConfigMap\nmetadata: {meta}\n")
    kubectl("delete", "configmap", "owner")
    kubectl("wait", "--for=delete", "configmap/child", "--timeout=20s")


def test_without_the_kubeconfig_nothing_is_told(kubectl: Kubectl) -> None:
    refused = kubectl("get", "pods", "--token", "wrong", "--client-certificate=", fails=True)
    assert "Unauthorized" in refused or "provide credentials" in refused
