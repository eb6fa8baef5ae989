"""The control plane's controllers at work together, on the store in memory and on virtual time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.errors import StatusError
from remuda.standalone.kinds import BUILT_IN, Kinds
from remuda.standalone.namespaces import Namespaces
from remuda.standalone.node_lifecycle import NodeLifecycle
from remuda.standalone.rest import Rest
from remuda.standalone.scheduler import Scheduler
from remuda.standalone.store import Store
from tests.unit.standalone.controlled import VM, World, a_world, scenario

if TYPE_CHECKING:
    from remuda.standalone.objects import Obj


# --- Scheduling -------------------------------------------------------------------------------------------------------


@scenario
async def test_a_third_vm_waits_with_a_reason_and_goes_when_a_slot_is_free(world: World) -> None:
    await world.a_node(vms=2)
    for name in ("a", "b", "c"):
        await world.a_pod(name)
    await asyncio.sleep(1)
    assert [world.node_of(p) for p in "abc"] == ["mini", "mini", None]
    why = "0/1 nodes are available: 1 Insufficient remuda.dev/vm."
    assert world.why_waiting("c") == f"Unschedulable: {why}"
    await world.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    await asyncio.sleep(5)
    assert world.node_of("c") == "mini"
    reasons = [e["reason"] for e in world.store.objects(world.kind("events"), "ci")]
    assert sorted(reasons) == ["FailedScheduling", "Scheduled", "Scheduled", "Scheduled"]


@scenario
async def test_many_pods_are_placed_in_order_and_none_too_many(world: World) -> None:
    names = [f"pod-{at:03}" for at in range(100)]
    for name in names:
        await world.a_pod(name)
    await world.a_node(vms=70)
    await world.patch(
        "nodes", "mini", {"status": {"allocatable": {"pods": "200"}}}, subresource="status"
    )
    await asyncio.sleep(60)
    assert [name for name in names if world.node_of(name)] == names[:70]


class SlowRest(Rest):
    """Binds as slowly as a busy disk would have it."""

    async def bind(self, *where: Any, **how: Any) -> Obj:  # noqa: ANN401 - as inherited
        bound = await super().bind(*where, **how)
        await asyncio.sleep(1)
        return bound


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"status": {"allocatable": {VM: "1"}}}, id="has less room"),
        pytest.param({"spec": {"unschedulable": True}}, id="is cordoned"),
        pytest.param(None, id="is gone"),
    ],
)
def test_a_node_that_changes_during_a_pass_is_looked_at_again(change: Obj | None) -> None:
    async def main() -> None:
        clock, ids = SimClock(asyncio.get_running_loop()), SeededIds(1, "plane")
        store, kinds = Store(), Kinds(BUILT_IN)
        rest = SlowRest(store, kinds, clock, ids)
        await Namespaces(rest, store, kinds).bootstrap()
        world = World(store, rest, clock)
        await world.create("namespaces", "ci")
        await world.create("serviceaccounts", "default")
        await world.a_node()
        await world.patch("nodes", "mini", {"spec": {"taints": None}})
        for name in ("first", "second"):
            await world.a_pod(name)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(Scheduler(rest, store, clock, ids).run(), name="scheduler")
            await asyncio.sleep(0.5)
            if change is None:
                await world.delete("nodes", "mini")
            else:
                part = "status" if "status" in change else ""
                await world.patch("nodes", "mini", change, subresource=part)
            await asyncio.sleep(30)
            task.cancel()
        assert (world.node_of("first"), world.node_of("second")) == ("mini", None)
        assert "available" in world.why_waiting("second")

    run(main)


@scenario
async def test_a_new_node_takes_the_pods_that_waited(world: World) -> None:
    await world.a_pod("a")
    await asyncio.sleep(1)
    assert world.why_waiting("a") == "Unschedulable: no nodes available to schedule pods"
    await world.a_node()
    await asyncio.sleep(5)
    assert world.node_of("a") == "mini"


@scenario
async def test_a_waiting_pod_is_not_written_again_while_nothing_changes(world: World) -> None:
    await world.a_node(vms=0)
    await world.a_pod("a")
    await asyncio.sleep(20)
    before = world.get("pods", "a")
    for _ in range(40):
        await world.heartbeat(vms=0)
        await world.renew()
        await asyncio.sleep(30)
    assert world.get("pods", "a") is before


@scenario
async def test_the_same_reason_is_said_once_however_often_it_is_found(world: World) -> None:
    await world.a_node(vms=0)
    await world.a_pod("a")
    for turn in range(5):
        await asyncio.sleep(20)
        await world.patch("nodes", "mini", {"metadata": {"labels": {"turn": str(turn)}}})
        await world.heartbeat(vms=0)
    reasons = [e["reason"] for e in world.store.objects(world.kind("events"), "ci")]
    assert reasons == ["FailedScheduling"]


@scenario
async def test_a_cordoned_node_takes_nobody(world: World) -> None:
    await world.a_node(unschedulable=True)
    await world.a_pod("a")
    await asyncio.sleep(1)
    assert world.node_of("a") is None
    await world.patch("nodes", "mini", {"spec": {"unschedulable": None}})
    await asyncio.sleep(5)
    assert world.node_of("a") == "mini"


# --- Nodes ------------------------------------------------------------------------------------------------------------


def ready_of(world: World) -> str:
    node = world.get("nodes", "mini")
    assert node is not None
    return next(str(c["status"]) for c in node["status"]["conditions"] if c["type"] == "Ready")


def taints_of(world: World) -> list[str]:
    node = world.get("nodes", "mini")
    assert node is not None
    return [f"{t['key']}:{t['effect']}" for t in node["spec"].get("taints") or []]


@scenario
async def test_a_silent_node_becomes_unknown_and_its_pods_stay(world: World) -> None:
    await world.a_node()
    await world.a_pod("a")
    await asyncio.sleep(39)
    assert (ready_of(world), taints_of(world)) == ("True", [])
    await asyncio.sleep(2)
    assert ready_of(world) == "Unknown"
    assert taints_of(world) == [
        "node.kubernetes.io/unreachable:NoExecute",
        "node.kubernetes.io/unreachable:NoSchedule",
    ]
    await asyncio.sleep(3600)
    assert world.names("pods") == ["a"]
    await world.heartbeat()
    await asyncio.sleep(1)
    assert (ready_of(world), taints_of(world)) == ("True", [])


@scenario
async def test_silence_is_counted_from_the_last_sign_of_life(world: World) -> None:
    await world.a_node()
    await asyncio.sleep(30)
    await world.renew()
    await asyncio.sleep(39)
    assert ready_of(world) == "True"
    await asyncio.sleep(2)
    assert ready_of(world) == "Unknown"
    await world.heartbeat()
    await asyncio.sleep(30)
    await world.heartbeat()
    await asyncio.sleep(41)
    assert ready_of(world) == "Unknown"


@scenario
async def test_a_lease_alone_keeps_a_node_ready(world: World) -> None:
    await world.a_node()
    for _ in range(30):
        await world.renew()
        await asyncio.sleep(10)
    assert ready_of(world) == "True"


@scenario
async def test_a_node_is_not_judged_by_what_was_before_this_process_started(world: World) -> None:
    await world.a_node()
    await asyncio.sleep(35)
    late = NodeLifecycle(world.rest, world.store, world.clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(late.run(), name="restarted")
        assert ready_of(world) == "True"
        await asyncio.sleep(4)
        task.cancel()
    assert ready_of(world) == "True"


# --- Namespaces and Events --------------------------------------------------------------------------------------------


@scenario
async def test_a_namespace_is_furnished_and_a_lost_account_comes_back(world: World) -> None:
    assert world.names("serviceaccounts") == ["default"]
    assert world.names("namespaces") == [
        "ci",
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    await world.delete("serviceaccounts", "default")
    await asyncio.sleep(0.1)
    assert world.names("serviceaccounts") == ["default"]


@scenario
async def test_a_deleted_namespace_takes_its_contents_along(world: World) -> None:
    await world.create("configmaps", "a")
    await world.create("secrets", "b")
    await world.create("configmaps", "elsewhere", "default")
    await world.delete("namespaces", "ci")
    await asyncio.sleep(0.1)
    assert "ci" not in world.names("namespaces")
    assert world.names("configmaps", "") == ["elsewhere"]
    assert world.names("secrets", "") == []


@scenario
async def test_a_finalizer_holds_a_namespace(world: World) -> None:
    await world.create("configmaps", "a", metadata={"finalizers": ["remuda.dev/hold"]})
    await world.delete("namespaces", "ci")
    await asyncio.sleep(60)
    home = world.get("namespaces", "ci")
    assert home is not None
    assert home["status"]["phase"] == "Terminating"
    with pytest.raises(StatusError, match="because it is being terminated"):
        await world.create("configmaps", "b")
    await world.patch("configmaps", "a", {"metadata": {"finalizers": None}})
    await asyncio.sleep(0.1)
    assert "ci" not in world.names("namespaces")


@scenario
async def test_events_are_kept_for_an_hour(world: World) -> None:
    about = {"kind": "Pod", "namespace": "ci", "name": "p"}
    await world.create("events", "old", involvedObject=about, reason="R")
    await asyncio.sleep(3000)
    await world.create("events", "young", involvedObject=about, reason="R")
    assert world.names("events") == ["old", "young"]
    await asyncio.sleep(1500)
    assert world.names("events") == ["young"]


# --- Cost -------------------------------------------------------------------------------------------------------------


def test_an_idle_day_costs_next_to_nothing() -> None:
    async def main() -> int:
        async with a_world() as world:
            await world.a_node()
            for n in range(2):
                await world.a_pod(f"p{n}")
            loop = asyncio.get_running_loop()
            before: int = loop.steps  # type: ignore[attr-defined] # of the virtual loop
            await asyncio.sleep(24 * 3600)
            after: int = loop.steps  # type: ignore[attr-defined] # likewise
            return after - before

    assert run(main) < 2000


def test_the_same_seed_gives_the_same_world() -> None:
    async def main() -> str:
        async with a_world() as world:
            await world.a_node("b")
            await world.a_node("a")
            for n in range(6):
                await world.a_pod(f"p{n}")
            await asyncio.sleep(60)
            await world.delete("namespaces", "ci")
            await asyncio.sleep(60)
            kinds = [k for k in world.rest.kinds if "list" in k.verbs]
            return json.dumps([world.store.objects(kind) for kind in kinds])

    assert run(main) == run(main)
