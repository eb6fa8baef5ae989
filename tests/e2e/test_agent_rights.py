"""What a host may do on a real API server with docs/howto/agent-rbac.yaml: what the agent does, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from remuda.adapters.kube_client import KubeClient
from remuda.adapters.system import SystemIds
from remuda.agent.permissions import WrongIdentity, check_identity
from remuda.kube.core import POD
from remuda.kube.names import AUDIENCE, VM_CLEANUP
from remuda.kube.patches import JsonPatch, MergePatch
from remuda.ports.kube import BoundPod, Query
from tests.support.control_plane import REPOSITORY
from tests.support.eventually import eventually
from tests.support.node_identity import node_identity, wire_of
from tests.support.nodes import a_node, lease_path, node_path
from tests.support.raw import Raw
from tests.support.space import Space

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.control_plane import RealControlPlane
    from tests.support.raw import Answer

Json = dict[str, Any]
RIGHTS = REPOSITORY / "docs" / "howto" / "agent-rbac.yaml"
WITHIN_S = 60.0
TAINT = {"key": "remuda.dev/vm-host", "effect": "NoSchedule"}


@dataclass
class Stage:
    """Two nodes, ``us`` and ``them``, with a runner on each, as seen by the administrator and by us."""

    admin: Raw
    node: Raw
    kube: KubeClient
    space: Space
    us: str
    them: str
    uids: dict[str, str]

    def pod(self, name: str, subresource: str = "") -> str:
        return self.space.path("pods", name, subresource)

    def token(self, account: str) -> str:
        return self.space.path("serviceaccounts", account, "token")


def a_pod(name: str, node: str, **more: Any) -> Json:  # noqa: ANN401 - JSON
    token = {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    volume = {
        "name": "remuda-token",
        "projected": {"sources": [{"serviceAccountToken": token}]},
    }
    room = {"remuda.dev/vm": "1"}
    return {
        "metadata": {
            "name": name,
            "labels": {"remuda.dev/runner": "true", "remuda.dev/pool": "mac"},
            "finalizers": more.pop("finalizers", []),
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": name,
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "runner", "image": "i", "resources": {"requests": room, "limits": room}}
            ],
            "volumes": [volume, *more.pop("volumes", [])],
            "tolerations": [{"operator": "Exists"}],
        },
    }


@asynccontextmanager
async def staged(plane: RealControlPlane) -> AsyncIterator[Stage]:
    plane.kubectl("apply", f"--filename={RIGHTS}")
    suffix = SystemIds().suffix()
    us, them, space = f"us-{suffix}", f"them-{suffix}", Space(f"rights-{suffix}")
    async with (
        wire_of(plane.access.kubeconfig) as admin_wire,
        wire_of(node_identity(plane, us).kubeconfig) as our_wire,
        wire_of(node_identity(plane, them).kubeconfig) as their_wire,
    ):
        admin, node = Raw(admin_wire), Raw(our_wire)
        stage = Stage(admin, node, KubeClient(our_wire), space, us, them, {})
        try:
            await _set_up(stage, Raw(their_wire))
            await _until_the_policy_holds(stage)
            yield stage
        finally:
            for name in stage.uids:
                await admin.merge(stage.pod(name), {"metadata": {"finalizers": None}})
                await admin.delete(stage.pod(name), gracePeriodSeconds="0")
            for name in (us, them):
                await admin.delete(node_path(name))
                await admin.delete(lease_path(name))
            await admin.delete(f"/api/v1/namespaces/{space.name}")


async def _set_up(stage: Stage, their_node: Raw) -> None:
    admin, space = stage.admin, stage.space
    (await admin.post("/api/v1/namespaces", {"metadata": {"name": space.name}})).ok()
    for raw, name in ((stage.node, stage.us), (their_node, stage.them)):
        (await raw.post("/api/v1/nodes", a_node(name, "minis", taints=[TAINT]))).ok()
    for account in ("mine", "held", "theirs", "doomed"):
        body = {"metadata": {"name": account}}
        (await admin.post(space.path("serviceaccounts"), body)).ok()
    for name in ("unmounted", "hers"):
        body = {"metadata": {"name": name}, "stringData": {"key": "secret"}}
        (await admin.post(space.path("secrets"), body)).ok()
    hers = {"name": "hers", "secret": {"secretName": "hers"}}
    for pod in (
        a_pod("mine", stage.us),
        a_pod("held", stage.us, finalizers=["example.com/theirs"]),
        a_pod("doomed", stage.us),
        a_pod("theirs", stage.them, volumes=[hers]),
    ):
        made = (await admin.post(space.path("pods"), pod)).ok()
        stage.uids[made["metadata"]["name"]] = made["metadata"]["uid"]
    # The authorizer learns of a Pod by watching: a moment after it was made.
    await eventually(
        lambda: stage.node.get(stage.pod("mine")), lambda a: a.status == 200, within_s=WITHIN_S
    )


async def _until_the_policy_holds(stage: Stage) -> None:
    """Wait until the API server has read the policy: it takes a moment, and until then it would let all of it pass."""
    patch = {"metadata": {"finalizers": ["example.com/early"]}}

    async def tried() -> Answer:
        answer = await stage.node.merge(stage.pod("doomed", "status"), patch)
        if answer.status == 200:
            undo = {"metadata": {"finalizers": None}}
            (await stage.admin.merge(stage.pod("doomed"), undo)).ok()
        return answer

    await eventually(tried, lambda answer: answer.status == 403, within_s=WITHIN_S)


def _token_request(audience: str, pod: str = "", uid: str = "") -> Json:
    spec: Json = {"audiences": [audience], "expirationSeconds": 3600}
    if pod:
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def _finalizers(*names: str) -> Json:
    return {"metadata": {"finalizers": list(names)}}


FORBIDDEN: dict[str, Callable[[Stage], Awaitable[Answer]]] = {
    "read a Secret that none of its Pods mounts": lambda s: s.node.get(
        s.space.path("secrets", "unmounted")
    ),
    "read a Secret that another node's Pod mounts": lambda s: s.node.get(
        s.space.path("secrets", "hers")
    ),
    "list Secrets": lambda s: s.node.get(s.space.path("secrets")),
    "write a Secret": lambda s: s.node.post(s.space.path("secrets"), {"metadata": {"name": "new"}}),
    "read any ConfigMap": lambda s: s.node.get(s.space.path("configmaps", "kube-root-ca.crt")),
    "label its own Pod": lambda s: s.node.merge(
        s.pod("mine"), {"metadata": {"labels": {"remuda.dev/owner": "me"}}}
    ),
    "label its own Pod by its status": lambda s: s.node.merge(
        s.pod("mine", "status"), {"metadata": {"labels": {"remuda.dev/owner": "me"}}}
    ),
    "take a label off its own Pod by its status": lambda s: s.node.merge(
        s.pod("mine", "status"), {"metadata": {"labels": {"remuda.dev/pool": None}}}
    ),
    "annotate its own Pod": lambda s: s.node.merge(
        s.pod("mine"), {"metadata": {"annotations": {"remuda.dev/claim": "x"}}}
    ),
    "annotate its own Pod by its status": lambda s: s.node.merge(
        s.pod("mine", "status"), {"metadata": {"annotations": {"remuda.dev/claim": "x"}}}
    ),
    "put our finalizer on through the Pod itself": lambda s: s.node.merge(
        s.pod("mine"), _finalizers(VM_CLEANUP)
    ),
    "put another finalizer on its own Pod": lambda s: s.node.merge(
        s.pod("mine", "status"), _finalizers("example.com/x")
    ),
    "put another finalizer on beside ours": lambda s: s.node.merge(
        s.pod("mine", "status"), _finalizers(VM_CLEANUP, "example.com/x")
    ),
    "take another's finalizer off its own Pod": lambda s: s.node.merge(
        s.pod("held", "status"), {"metadata": {"finalizers": None}}
    ),
    "put ours in place of another's": lambda s: s.node.merge(
        s.pod("held", "status"), _finalizers(VM_CLEANUP)
    ),
    "change the image of its own Pod": lambda s: s.node.json_patch(
        s.pod("mine"), {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}
    ),
    "write the status of another node's Pod": lambda s: s.node.merge(
        s.pod("theirs", "status"), {"status": {"phase": "Failed"}}
    ),
    "put our finalizer on another node's Pod": lambda s: s.node.merge(
        s.pod("theirs", "status"), _finalizers(VM_CLEANUP)
    ),
    "read another node's Pod": lambda s: s.node.get(s.pod("theirs")),
    "delete another node's Pod": lambda s: s.node.delete(s.pod("theirs")),
    "evict another node's Pod": lambda s: s.node.post(
        s.pod("theirs", "eviction"),
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "theirs"}},
    ),
    "list all Pods": lambda s: s.node.get("/api/v1/pods"),
    "list another node's Pods": lambda s: s.node.get(
        "/api/v1/pods", fieldSelector=f"spec.nodeName={s.them}"
    ),
    "run something in a Pod": lambda s: s.node.post(s.pod("mine", "exec"), {}, command="sh"),
    "make a Pod": lambda s: s.node.post(s.space.path("pods"), a_pod("theirs", s.us)),
    "bind a Pod": lambda s: s.node.post(
        s.pod("mine", "binding"), {"target": {"kind": "Node", "name": s.us}}
    ),
    "label another Node": lambda s: s.node.merge(
        node_path(s.them), {"metadata": {"labels": {"remuda.dev/fleet": "mine"}}}
    ),
    "write another Node's status": lambda s: s.node.merge(
        node_path(s.them, "status"), {"status": {"capacity": {"remuda.dev/vm": "0"}}}
    ),
    "delete another Node": lambda s: s.node.delete(node_path(s.them)),
    "make another Node": lambda s: s.node.post("/api/v1/nodes", a_node("third", "minis")),
    "take its own taint away": lambda s: s.node.merge(node_path(s.us), {"spec": {"taints": None}}),
    "give itself a protected label": lambda s: s.node.merge(
        node_path(s.us), {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "1"}}}
    ),
    "have a token for another audience": lambda s: s.node.post(
        s.token("mine"), _token_request("https://elsewhere.test", "mine", s.uids["mine"])
    ),
    "have a token for the API server": lambda s: s.node.post(
        s.token("mine"), _token_request("https://kubernetes.default.svc", "mine", s.uids["mine"])
    ),
    "have a token that is bound to no Pod": lambda s: s.node.post(
        s.token("mine"), _token_request(AUDIENCE)
    ),
    "have a token of another node's Pod": lambda s: s.node.post(
        s.token("theirs"), _token_request(AUDIENCE, "theirs", s.uids["theirs"])
    ),
    "have another's token bound to its own Pod": lambda s: s.node.post(
        s.token("theirs"), _token_request(AUDIENCE, "mine", s.uids["mine"])
    ),
    "have a token for a Pod that was there before": lambda s: s.node.post(
        s.token("mine"), _token_request(AUDIENCE, "mine", s.uids["theirs"])
    ),
    "make a ServiceAccount": lambda s: s.node.post(
        s.space.path("serviceaccounts"), {"metadata": {"name": "new"}}
    ),
    "renew another node's Lease": lambda s: s.node.merge(
        lease_path(s.them), {"spec": {"holderIdentity": "me"}}
    ),
    "make another node's Lease": lambda s: s.node.post(
        lease_path(), {"metadata": {"name": s.them}, "spec": {}}
    ),
    "read pools": lambda s: s.node.get(s.space.path("runnerpools")),
    "give itself rights": lambda s: s.node.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "evil"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
        },
    ),
    "change the policy that binds it": lambda s: s.node.delete(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/remuda-nodes"
    ),
}


async def test_what_a_host_may_not_do(real_control_plane: RealControlPlane) -> None:
    async with staged(real_control_plane) as stage:
        answers = {says: await ask(stage) for says, ask in FORBIDDEN.items()}
        allowed = {
            says: (answer.status, answer.body.get("message"))
            for says, answer in answers.items()
            if answer.status != 403
        }
        assert allowed == {}
        for name in ("mine", "held", "theirs"):
            pod = (await stage.admin.get(stage.pod(name))).ok()
            held = ["example.com/theirs"] if name == "held" else None
            assert pod["metadata"].get("finalizers") == held
            assert "annotations" not in pod["metadata"]
            assert pod["metadata"]["uid"] == stage.uids[name]


async def test_what_the_agent_does_to_pods_is_allowed(real_control_plane: RealControlPlane) -> None:
    async with staged(real_control_plane) as stage:
        kube, space = stage.kube, stage.space.name
        await check_identity(kube, stage.us)
        found = await kube.list(POD, Query(fields=f"spec.nodeName={stage.us}"))
        assert {pod.name for pod in found.items} == {"mine", "held", "doomed"}

        on = MergePatch({"metadata": {"finalizers": [VM_CLEANUP]}})
        pod = await kube.patch(POD, "mine", on, namespace=space, subresource="status")
        assert pod.metadata.finalizers == (VM_CLEANUP,)
        beside = JsonPatch(({"op": "add", "path": "/metadata/finalizers/-", "value": VM_CLEANUP},))
        pod = await kube.patch(POD, "held", beside, namespace=space, subresource="status")
        assert pod.metadata.finalizers == ("example.com/theirs", VM_CLEANUP)

        status: Json = {"phase": "Running", "hostIP": "127.0.0.1"}
        pod = await kube.patch(
            POD, "mine", MergePatch({"status": status}), namespace=space, subresource="status"
        )
        assert pod.status.phase == "Running"
        token = await kube.request_token(
            "mine",
            namespace=space,
            audience=AUDIENCE,
            expiration_s=3600,
            pod=BoundPod("mine", stage.uids["mine"]),
        )
        assert token.text

        await kube.delete(POD, "mine", namespace=space, grace_s=0)
        pod = await kube.get(POD, "mine", namespace=space)
        assert pod.metadata.deletion_timestamp is not None, "our finalizer holds it"
        off = MergePatch({"metadata": {"finalizers": None}})
        await kube.patch(POD, "mine", off, namespace=space, subresource="status")
        # A node is told that it may not look at a Pod that is gone, not that it is gone.
        await eventually(
            lambda: stage.node.get(stage.pod("mine")),
            lambda answer: answer.status in (403, 404),
            within_s=WITHIN_S,
        )
        left = await kube.list(POD, Query(fields=f"spec.nodeName={stage.us}"))
        assert {pod.name for pod in left.items} == {"held", "doomed"}


async def test_an_agent_with_another_hosts_credential_is_told_so(
    real_control_plane: RealControlPlane,
) -> None:
    async with staged(real_control_plane) as stage:
        with pytest.raises(WrongIdentity, match=f"system:node:{stage.them}"):
            async with asyncio.timeout(WITHIN_S):
                await check_identity(stage.kube, stage.them)
