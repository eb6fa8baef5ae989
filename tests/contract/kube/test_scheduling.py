"""Where Pods go, what keeps them waiting, and what a silent Node costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.support.eventually import eventually
from tests.support.manifests import a_vm_pod
from tests.support.nodes import a_node, lease_path, live_nodes, node_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.nodes import LiveNodes
    from tests.support.raw import Json, Raw
    from tests.support.space import Space

VM_HOST: Json = {"key": "remuda.dev/vm-host", "effect": "NoSchedule"}


@pytest_asyncio.fixture(loop_scope="session")
async def nodes(raw: Raw) -> AsyncIterator[LiveNodes]:
    async with live_nodes(raw) as alive:
        yield alive


async def create(raw: Raw, space: Space, name: str, **spec: Json) -> None:
    (await raw.post(space.path("pods"), a_vm_pod(name, space.name, **spec))).ok()


async def node_of(raw: Raw, space: Space, name: str) -> str:
    """Wait until the Pod is bound, and return to which Node."""
    pod = await eventually(
        lambda: raw.get(space.path("pods", name)), lambda answer: "nodeName" in answer.body["spec"]
    )
    bound: str = pod.body["spec"]["nodeName"]
    return bound


async def why_pending(raw: Raw, space: Space, name: str) -> Json:
    """Wait until the scheduler has said that it cannot place the Pod, and return the condition."""

    def scheduled(pod: Json) -> Json:
        conditions = pod["status"].get("conditions", [])
        return next((c for c in conditions if c["type"] == "PodScheduled"), None)

    pod = await eventually(
        lambda: raw.get(space.path("pods", name)),
        lambda answer: (scheduled(answer.body) or {}).get("status") == "False",
    )
    assert pod.body["status"]["phase"] == "Pending"
    assert "nodeName" not in pod.body["spec"]
    return scheduled(pod.body)


async def test_two_vms_per_host_and_the_third_waits(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name))
    for name in ("a", "b"):
        await create(raw, space, name)
        assert await node_of(raw, space, name) == mac

    await create(raw, space, "c")

    condition = await why_pending(raw, space, "c")
    assert condition["reason"] == "Unschedulable"
    assert "1 Insufficient remuda.dev/vm" in condition["message"]
    assert condition["message"].startswith("0/")
    assert "nodes are available: " in condition["message"]
    first = (await raw.get(space.path("pods", "a"))).body["status"]["conditions"][0]
    assert (first["type"], first["status"]) == ("PodScheduled", "True")


async def test_a_vm_that_ends_makes_room(raw: Raw, space: Space, nodes: LiveNodes) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name, vms=1))
    await create(raw, space, "a")
    await node_of(raw, space, "a")
    await create(raw, space, "b")
    await why_pending(raw, space, "b")

    status = space.path("pods", "a", "status")
    (await raw.merge(status, {"status": {"phase": "Succeeded"}})).ok()

    assert await node_of(raw, space, "b") == mac
    await create(raw, space, "c")
    await why_pending(raw, space, "c")
    (await raw.delete(space.path("pods", "b"), gracePeriodSeconds="0")).ok()
    assert await node_of(raw, space, "c") == mac


async def test_a_pod_being_deleted_still_takes_its_place(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    await nodes.add(a_node(f"{space.name}-mac", space.name, vms=1))
    await create(raw, space, "a")
    await node_of(raw, space, "a")
    (await raw.delete(space.path("pods", "a"))).ok()

    await create(raw, space, "b")

    condition = await why_pending(raw, space, "b")
    assert "Insufficient remuda.dev/vm" in condition["message"]


async def test_a_taint_keeps_out_who_does_not_tolerate_it(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name, taints=[VM_HOST]))
    await create(raw, space, "plain")
    await create(
        raw, space, "tolerant", tolerations=[{"key": "remuda.dev/vm-host", "operator": "Exists"}]
    )
    await create(
        raw,
        space,
        "mistaken",
        tolerations=[{"key": "remuda.dev/vm-host", "operator": "Equal", "value": "x"}],
    )

    assert await node_of(raw, space, "tolerant") == mac
    for name in ("plain", "mistaken"):
        condition = await why_pending(raw, space, name)
        assert "had untolerated taint(s)" in condition["message"]


async def test_a_selector_that_no_node_has_waits(raw: Raw, space: Space, nodes: LiveNodes) -> None:
    await nodes.add(a_node(f"{space.name}-mac", space.name))

    await create(raw, space, "a", nodeSelector={"remuda.dev/fleet": "nowhere"})

    condition = await why_pending(raw, space, "a")
    assert "didn't match Pod's node affinity/selector" in condition["message"]


async def test_required_affinity_decides_and_preferred_affinity_leans(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    ready = "remuda.dev/image-0123456789abcdef"
    cold = await nodes.add(a_node(f"{space.name}-cold", space.name))
    warm = await nodes.add(a_node(f"{space.name}-warm", space.name), **{ready: "ready"})

    def affinity(operator: str) -> Json:
        expression = {"key": ready, "operator": operator}
        return {"matchExpressions": [expression]}

    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    leaning = {"nodeAffinity": {preferred: [{"weight": 100, "preference": affinity("Exists")}]}}
    for name in ("a", "b"):
        await create(raw, space, name, affinity=leaning)
        assert await node_of(raw, space, name) == warm
    await create(raw, space, "c", affinity=leaning)
    assert await node_of(raw, space, "c") == cold, "a preference is no reason to wait"
    terms = {"nodeSelectorTerms": [affinity("DoesNotExist")]}
    await create(raw, space, "d", affinity={"nodeAffinity": {required: terms}})
    assert await node_of(raw, space, "d") == cold


async def test_a_new_node_is_found_by_who_waits(raw: Raw, space: Space, nodes: LiveNodes) -> None:
    await create(raw, space, "a")
    await why_pending(raw, space, "a")

    mac = await nodes.add(a_node(f"{space.name}-mac", space.name))

    assert await node_of(raw, space, "a") == mac


async def test_a_cordoned_node_gets_nothing_new(raw: Raw, space: Space, nodes: LiveNodes) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name))
    (await raw.merge(node_path(mac), {"spec": {"unschedulable": True}})).ok()
    await eventually(
        lambda: raw.get(node_path(mac)),
        lambda answer: any(
            taint["key"] == "node.kubernetes.io/unschedulable"
            for taint in answer.body["spec"].get("taints", ())
        ),
    )

    await create(raw, space, "a")

    await why_pending(raw, space, "a")
    (await raw.merge(node_path(mac), {"spec": {"unschedulable": None}})).ok()
    assert await node_of(raw, space, "a") == mac


async def test_the_scheduler_leaves_other_schedulers_pods_alone(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name))
    await create(raw, space, "theirs", schedulerName="nobody")

    await create(raw, space, "ours")

    assert await node_of(raw, space, "ours") == mac
    theirs = (await raw.get(space.path("pods", "theirs"))).body
    assert "nodeName" not in theirs["spec"]
    assert "conditions" not in theirs["status"]


async def test_a_gated_pod_waits_for_its_gate(raw: Raw, space: Space, nodes: LiveNodes) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name))
    await create(raw, space, "a", schedulingGates=[{"name": "remuda.dev/gate"}])

    condition = await why_pending(raw, space, "a")

    assert condition["reason"] == "SchedulingGated"
    (await raw.merge(space.path("pods", "a"), {"spec": {"schedulingGates": []}})).ok()
    assert await node_of(raw, space, "a") == mac


async def test_scheduling_is_told_as_events(raw: Raw, space: Space, nodes: LiveNodes) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name, vms=1))
    await create(raw, space, "a")
    await node_of(raw, space, "a")
    await create(raw, space, "b")

    async def events(name: str) -> list[Json]:
        answer = await raw.get(
            space.path("events"),
            fieldSelector=f"involvedObject.name={name},involvedObject.kind=Pod",
        )
        items: list[Json] = answer.ok()["items"]
        return items

    (scheduled,) = await eventually(lambda: events("a"))
    (failed,) = await eventually(lambda: events("b"))

    assert (scheduled["reason"], scheduled["type"]) == ("Scheduled", "Normal")
    assert scheduled["message"] == f"Successfully assigned {space.name}/a to {mac}"
    assert (failed["reason"], failed["type"]) == ("FailedScheduling", "Warning")
    assert "Insufficient remuda.dev/vm" in failed["message"]
    assert failed["involvedObject"]["uid"] == (await raw.get(space.path("pods", "b"))).uid


async def test_a_node_that_falls_silent_becomes_unknown_and_may_come_back(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name))
    # When no Node at all is heard, the control plane doubts itself and evicts nobody.
    await nodes.add(a_node(f"{space.name}-other", "elsewhere"))
    path = node_path(mac)

    def ready(node: Json) -> Json:
        return next(c for c in node["status"]["conditions"] if c["type"] == "Ready")

    nodes.stop(mac)
    silent = await eventually(
        lambda: raw.get(path), lambda answer: ready(answer.body)["status"] == "Unknown"
    )

    assert ready(silent.body)["reason"] == "NodeStatusUnknown"
    assert ready(silent.body)["message"] == "Kubelet stopped posting node status."
    tainted = await eventually(
        lambda: raw.get(path), lambda answer: len(answer.body["spec"].get("taints", ())) == 2
    )
    taints = {(t["key"], t["effect"]) for t in tainted.body["spec"]["taints"]}
    unreachable = "node.kubernetes.io/unreachable"
    assert taints == {(unreachable, "NoSchedule"), (unreachable, "NoExecute")}
    await create(raw, space, "a")
    assert "untolerated taint" in (await why_pending(raw, space, "a"))["message"]

    back = a_node(mac, space.name)["status"]["conditions"]
    nodes.resume(mac)
    (await raw.strategic(node_path(mac, "status"), {"status": {"conditions": back}})).ok()

    assert await node_of(raw, space, "a") == mac
    healed = await eventually(
        lambda: raw.get(path), lambda answer: "taints" not in answer.body["spec"]
    )
    assert ready(healed.body)["status"] == "True"


async def test_a_renewed_lease_alone_keeps_a_node_ready(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    """The Node's status is as old as the test; only the Lease moves, past the time that silence may last."""
    quiet = await nodes.add(a_node(f"{space.name}-quiet", space.name))
    dead = await nodes.add(a_node(f"{space.name}-dead", space.name))
    nodes.stop(dead)

    def is_unknown(node: Json) -> bool:
        return any(
            c["type"] == "Ready" and c["status"] == "Unknown" for c in node["status"]["conditions"]
        )

    await eventually(lambda: raw.get(node_path(dead)), lambda answer: is_unknown(answer.body))

    assert not is_unknown((await raw.get(node_path(quiet))).body)
    assert (await raw.get(lease_path(quiet))).body["spec"]["holderIdentity"] == quiet


async def test_a_nodes_status_is_its_own_subresource(
    raw: Raw, space: Space, nodes: LiveNodes
) -> None:
    mac = await nodes.add(a_node(f"{space.name}-mac", space.name))

    main = await raw.merge(
        node_path(mac),
        {"metadata": {"labels": {"a": "b"}}, "status": {"capacity": {"remuda.dev/vm": "9"}}},
    )
    status = await raw.merge(
        node_path(mac, "status"), {"status": {"capacity": {"remuda.dev/vm": "0"}}}
    )

    assert main.ok()["metadata"]["labels"]["a"] == "b"
    assert main.body["status"]["capacity"]["remuda.dev/vm"] == "2"
    assert status.ok()["status"]["capacity"]["remuda.dev/vm"] == "0"


async def test_a_new_node_is_tainted_until_it_is_ready(raw: Raw, space: Space) -> None:
    node = a_node(f"{space.name}-mac", space.name)
    node["status"]["conditions"][0]["status"] = "False"
    try:
        created = await raw.post("/api/v1/nodes", node)

        assert created.ok()["spec"]["taints"] == [
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        ]
        await create(raw, space, "a")
        assert "untolerated taint" in (await why_pending(raw, space, "a"))["message"]
    finally:
        await raw.delete(node_path(node["metadata"]["name"]))
