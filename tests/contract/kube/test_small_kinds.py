"""Events, Leases, Secrets and RuntimeClasses, and what the server says of itself."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from remuda.kube.core import (
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    RUNTIME_CLASS,
    SECRET,
    SERVICE_ACCOUNT,
    DaemonEndpoint,
    DaemonEndpoints,
    Event,
    Lease,
    LeaseSpec,
    ObjectReference,
)
from remuda.kube.host import HOST
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.kube.times import micro_time
from remuda.ports.kube import Query
from tests.support.manifests import a_config_map, a_host, a_pod, a_pool
from tests.support.nodes import a_node, node_path
from tests.support.raw import TABLE

if TYPE_CHECKING:
    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.ports.kube import Kube
    from tests.support.raw import Json, Raw
    from tests.support.space import Space

# --- Events ----------------------------------------------------------------------------------------------------------


def an_event(space: Space, name: str, pod: str, reason: str = "RunnerWarm") -> Event:
    return Event(
        metadata=ObjectMeta(name=name, namespace=space.name),
        involved_object=ObjectReference(
            api_version="v1", kind="Pod", namespace=space.name, name=pod, uid=f"uid-of-{pod}"
        ),
        reason=reason,
        message="The guest said ready",
        type="Normal",
        count=1,
    )


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("involvedObject.name=mare", "a b", id="by the object's name"),
        pytest.param("involvedObject.uid=uid-of-foal", "c", id="by the object's UID"),
        pytest.param("involvedObject.kind=Pod", "a b c", id="by the object's kind"),
        pytest.param("involvedObject.name=mare,reason=JobDelivered", "b", id="by name and reason"),
        pytest.param("type!=Normal", "", id="by type"),
    ],
)
async def test_events_are_found_by_what_they_are_about(
    kube: Kube, space: Space, selector: str, names: str
) -> None:
    await kube.create(EVENT, an_event(space, "a", "mare"))
    await kube.create(EVENT, an_event(space, "b", "mare", "JobDelivered"))
    await kube.create(EVENT, an_event(space, "c", "foal"))

    found = await kube.list(EVENT, Query(namespace=space.name, fields=selector))

    assert [event.name for event in found.items] == names.split()


async def test_an_events_count_can_be_raised(kube: Kube, space: Space) -> None:
    await kube.create(EVENT, an_event(space, "a", "mare"))

    after = await kube.patch(EVENT, "a", MergePatch({"count": 2}), namespace=space.name)

    assert after.count == 2


async def test_an_event_about_another_namespace_is_refused(raw: Raw, space: Space) -> None:
    answer = await raw.post(
        space.path("events"),
        {
            "metadata": {"name": "a"},
            "involvedObject": {"kind": "Pod", "name": "mare", "namespace": "elsewhere"},
        },
    )

    assert answer.status == 422
    assert answer.causes[0][0] == "involvedObject.namespace"


# --- Leases ----------------------------------------------------------------------------------------------------------


async def test_a_lease_keeps_its_microseconds(kube: Kube, space: Space) -> None:
    whole = datetime(2026, 11, 15, 20, 0, 0, 0, UTC)
    broken = datetime(2026, 11, 15, 20, 0, 0, 120, UTC)
    spec = LeaseSpec(
        holder_identity="a",
        lease_duration_seconds=15,
        lease_transitions=0,
        acquire_time=micro_time(whole),
        renew_time=micro_time(broken),
    )

    await kube.create(LEASE, Lease(metadata=ObjectMeta(name="l", namespace=space.name), spec=spec))

    lease = await kube.get(LEASE, "l", namespace=space.name)
    assert lease.spec.acquire_time == "2026-11-15T20:00:00.000000Z"
    assert lease.spec.renew_time == "2026-11-15T20:00:00.000120Z"
    assert lease.spec.lease_transitions == 0, "an explicit zero stays"


@pytest.mark.parametrize(
    "moment", ["2026-11-15T20:00:00Z", "2026-11-15T20:00:00.123Z", "yesterday"]
)
async def test_a_lease_takes_six_digits_and_no_others(raw: Raw, space: Space, moment: str) -> None:
    answer = await raw.post(
        space.path("leases"), {"metadata": {"name": "l"}, "spec": {"renewTime": moment}}
    )

    assert answer.status == 400, answer.body
    assert answer.body["reason"] == "BadRequest"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds", id="no duration"),
        pytest.param({"leaseTransitions": -1}, "spec.leaseTransitions", id="less than no change"),
    ],
)
async def test_a_lease_is_refused(raw: Raw, space: Space, spec: Json, field: str) -> None:
    answer = await raw.post(space.path("leases"), {"metadata": {"name": "l"}, "spec": spec})

    assert answer.status == 422
    assert answer.causes[0][0] == field


async def test_a_released_lease_has_no_holder(kube: Kube, space: Space) -> None:
    spec = LeaseSpec(holder_identity="a", lease_duration_seconds=15)
    await kube.create(LEASE, Lease(metadata=ObjectMeta(name="l", namespace=space.name), spec=spec))

    after = await kube.patch(
        LEASE, "l", MergePatch({"spec": {"holderIdentity": None}}), namespace=space.name
    )

    assert not after.spec.holder_identity


# --- Secrets, RuntimeClasses, Tables ---------------------------------------------------------------------------------


async def test_a_secrets_plain_text_becomes_its_data(kube: Kube, raw: Raw, space: Space) -> None:
    (
        await raw.post(
            space.path("secrets"),
            {
                "metadata": {"name": "keys"},
                "data": {"a": base64.b64encode(b"\x00\x01").decode()},
                "stringData": {"b": "two"},
            },
        )
    ).ok()

    secret = await kube.get(SECRET, "keys", namespace=space.name)

    assert secret.type == "Opaque"
    assert secret.data == {"a": b"\x00\x01", "b": b"two"}
    assert "stringData" not in (await raw.get(space.path("secrets", "keys"))).body


async def test_a_runtime_class_adds_its_overhead_to_pods(raw: Raw, space: Space) -> None:
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    name = f"kata-{space.name}"
    overhead = {"podFixed": {"memory": "160Mi"}}
    manifest = {"metadata": {"name": name}, "handler": "kata-qemu", "overhead": overhead}
    (await raw.post(path, manifest)).ok()
    try:
        pod = await raw.post(space.path("pods"), a_pod("mare", runtimeClassName=name))
        unknown = await raw.post(space.path("pods"), a_pod("foal", runtimeClassName="nothing"))

        assert pod.ok()["spec"]["overhead"] == {"memory": "160Mi"}
        assert unknown.status == 403
        assert 'RuntimeClass "nothing" not found' in unknown.body["message"]
    finally:
        await raw.delete(f"{path}/{name}")


async def test_a_table_of_pods_is_what_kubectl_prints(raw: Raw, space: Space) -> None:
    (await raw.post(space.path("pods"), a_pod("mare"))).ok()

    table = (await raw.get(space.path("pods"), accept=TABLE)).ok()

    names = [c["name"] for c in table["columnDefinitions"] if c["priority"] == 0]
    assert names == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:4] == ["mare", "0/1", "Pending", "0"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    "kind",
    [POD, NODE, SERVICE_ACCOUNT, NAMESPACE, SECRET, EVENT, LEASE, RUNTIME_CLASS, RUNNER_POOL, HOST],
    ids=str,
)
async def test_our_types_read_whatever_the_server_has(
    kube: Kube, raw: Raw, space: Space, kind: Kind[Resource]
) -> None:
    """The tests before this one have left all sorts of objects; one of each is made here."""
    node = a_node(f"{space.name}-mac", space.name)
    node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "192.0.2.7"}]
    (await raw.post("/api/v1/nodes", node)).ok()
    (await raw.post(space.path("pods"), a_pod("mare", nodeName=node["metadata"]["name"]))).ok()
    (await raw.post(space.path("hosts"), a_host("mac"))).ok()
    (await raw.post(space.path("runnerpools"), a_pool("mac"))).ok()
    try:
        listing = await kube.list(kind)
        read = await kube.get(NODE, node["metadata"]["name"])
    finally:
        await raw.delete(node_path(node["metadata"]["name"]))

    assert all(item.uid for item in listing.items)
    assert read.status.daemon_endpoints == DaemonEndpoints(
        kubelet_endpoint=DaemonEndpoint(port=10250)
    )
    assert read.status.allocatable["remuda.dev/vm"] == "2"


# --- What is served, and what is not ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/unicorns",
        "/apis/remuda.dev/v1alpha1/unicorns",
        "/api/v1/namespaces/default/configmaps/mare/nosuch",
    ],
)
async def test_an_unknown_resource_is_not_found(raw: Raw, path: str) -> None:
    answer = await raw.get(path)

    message = "the server could not find the requested resource"
    if answer.body != "404 page not found\n":
        assert answer.refusal == (404, "NotFound", message)
    assert answer.status == 404


async def test_a_method_that_makes_no_sense_is_refused(raw: Raw, space: Space) -> None:
    answer = await raw.put(space.path("configmaps"), a_config_map("mare"))

    message = "the server does not allow this method on the requested resource"
    assert answer.refusal == (405, "MethodNotAllowed", message)


async def test_discovery_names_our_kinds(raw: Raw) -> None:
    groups = (await raw.get("/apis")).ok()
    ours = (await raw.get("/apis/remuda.dev/v1alpha1")).ok()
    core = (await raw.get("/api/v1")).ok()

    assert "remuda.dev" in [group["name"] for group in groups["groups"]]
    by_name = {resource["name"]: resource for resource in ours["resources"]}
    assert {"runnerpools", "runnerpools/status", "runnerpools/scale", "hosts"} <= set(by_name)
    pools = by_name["runnerpools"]
    assert pools["kind"] == "RunnerPool"
    assert pools["singularName"] == "runnerpool"
    assert pools["shortNames"] == ["rpool"]
    assert pools["namespaced"] is True
    assert set(pools["verbs"]) >= {"create", "delete", "get", "list", "patch", "update", "watch"}
    core_names = {resource["name"] for resource in core["resources"]}
    assert {"pods", "pods/status", "pods/binding", "nodes", "serviceaccounts/token"} <= core_names


async def test_the_server_says_that_it_is_ready(raw: Raw) -> None:
    for path in ("/readyz", "/livez", "/healthz"):
        assert (await raw.get(path)).body == "ok"
    version = (await raw.get("/version")).ok()
    assert version["major"] == "1"
    assert version["gitVersion"].startswith("v1.")
