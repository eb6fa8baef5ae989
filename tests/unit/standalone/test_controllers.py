"""The control plane's controllers at work together, on the store in memory and on virtual time."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from remuda.kube.times import micro_time
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.collector import Collector
from remuda.standalone.errors import StatusError
from remuda.standalone.event_expiry import EventExpiry
from remuda.standalone.kinds import BUILT_IN, Kinds, ResourceKind
from remuda.standalone.namespaces import Namespaces
from remuda.standalone.node_lifecycle import NodeLifecycle
from remuda.standalone.rest import Rest
from remuda.standalone.scheduler import Scheduler
from remuda.standalone.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from remuda.standalone.objects import Obj

VM = "remuda.dev/vm"


@dataclass
class World:
    """A control plane without HTTP: the verbs, and shorthands for what the tests do with them."""

    store: Store
    rest: Rest
    clock: SimClock

    def kind(self, plural: str) -> ResourceKind:
        return next(k for k in self.rest.kinds if k.plural == plural)

    async def create(self, plural: str, name: str, namespace: str = "ci", **parts: Any) -> Obj:  # noqa: ANN401 - JSON
        meta = {"name": name, **parts.pop("metadata", {})}
        kind = self.kind(plural)
        home = namespace if kind.namespaced else ""
        return await self.rest.create(kind, home, {"metadata": meta, **parts})

    def get(self, plural: str, name: str, namespace: str = "ci") -> Obj | None:
        kind = self.kind(plural)
        return self.store.get(kind, namespace if kind.namespaced else "", name)

    def names(self, plural: str, namespace: str = "ci") -> list[str]:
        kind = self.kind(plural)
        found = self.store.objects(kind, namespace if kind.namespaced else "")
        return [obj["metadata"]["name"] for obj in found]

    async def delete(self, plural: str, name: str, namespace: str = "ci", **how: Any) -> None:  # noqa: ANN401 - options
        kind = self.kind(plural)
        await self.rest.delete(kind, namespace if kind.namespaced else "", name, **how)

    async def patch(
        self, plural: str, name: str, change: Obj, namespace: str = "ci", *, subresource: str = ""
    ) -> Obj:
        kind, body = self.kind(plural), json.dumps(change).encode()
        home = namespace if kind.namespaced else ""
        merge = "application/merge-patch+json"
        return await self.rest.patch(kind, home, name, body, merge, subresource=subresource)

    async def a_node(self, name: str = "mini", vms: int = 2, **spec: object) -> None:
        await self.create("nodes", name, spec=spec)
        await self.heartbeat(name, vms)

    async def heartbeat(self, name: str = "mini", vms: int = 2) -> None:
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        room = {"cpu": "8", "memory": "16Gi", "pods": "20", VM: str(vms)}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
        status = {"allocatable": room, "capacity": room, "conditions": [ready]}
        await self.patch("nodes", name, {"status": status}, subresource="status")

    async def renew(self, name: str = "mini") -> None:
        kind = self.kind("leases")
        lease = self.store.get(kind, "kube-node-lease", name)
        spec = {"holderIdentity": name, "renewTime": micro_time(self.clock.now())}
        if lease is None:
            await self.create("leases", name, "kube-node-lease", spec=spec)
        else:
            await self.rest.update(kind, "kube-node-lease", name, lease | {"spec": spec})

    async def a_pod(self, name: str, vms: int = 1) -> None:
        limits = {"requests": {VM: str(vms)}, "limits": {VM: str(vms)}}
        container = {"name": "main", "image": "vm", "resources": limits}
        await self.create("pods", name, spec={"containers": [container]})

    def node_of(self, pod: str) -> str | None:
        found = self.get("pods", pod)
        assert found is not None
        node: str | None = found["spec"].get("nodeName")
        return node

    def why_waiting(self, pod: str) -> str:
        found = self.get("pods", pod)
        assert found is not None
        conditions = found["status"].get("conditions") or []
        return next(
            (f"{c['reason']}: {c['message']}" for c in conditions if c["status"] == "False"), ""
        )


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    clock, ids = SimClock(asyncio.get_running_loop()), SeededIds(1, "plane")
    store, kinds = Store(), Kinds(BUILT_IN)
    rest = Rest(store, kinds, clock, ids)
    namespaces = Namespaces(rest, store, kinds)
    await namespaces.bootstrap()
    loops = {
        "namespaces": namespaces.run,
        "collector": Collector(rest, store, kinds).run,
        "scheduler": Scheduler(rest, store, clock, ids).run,
        "node lifecycle": NodeLifecycle(rest, store, clock).run,
        "event expiry": EventExpiry(rest, store, clock).run,
    }
    world = World(store, rest, clock)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop(), name=name) for name, loop in loops.items()]
        await world.create("namespaces", "ci")
        await asyncio.sleep(0.1)
        yield world
        for task in tasks:
            task.cancel()


def scenario(play: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Turn a play in a world into a test on virtual time."""

    async def main() -> None:
        async with a_world() as world:
            await play(world)

    def test() -> None:
        run(main)

    test.__name__ = play.__name__
    test.__doc__ = play.__doc__
    return test


def owned_by(owner: Obj, kind: str = "ConfigMap", *, blocks: bool = False) -> dict[str, Any]:
    meta = owner["metadata"]
    ref = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {"ownerReferences": [ref | {"blockOwnerDeletion": blocks}]}


# --- Garbage collection -----------------------------------------------------------------------------------------------


@scenario
async def test_dependents_follow_their_owner_through_generations(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    child = await world.create("configmaps", "child", metadata=owned_by(owner))
    await world.create("secrets", "grandchild", metadata=owned_by(child))
    await world.delete("configmaps", "owner")
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == []
    assert world.names("secrets") == []


@scenario
async def test_a_dependent_of_an_owner_that_never_was_goes_at_once(world: World) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "not-a-uid"}}
    await world.create("configmaps", "child", metadata=owned_by(ghost))
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == []


@scenario
async def test_another_object_of_the_owners_name_is_not_the_owner(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    await world.create("configmaps", "child", metadata=owned_by(owner))
    await world.delete("configmaps", "owner")
    await world.create("configmaps", "owner")
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == ["owner"]


@scenario
async def test_an_owner_in_another_namespace_is_no_owner(world: World) -> None:
    owner = await world.create("configmaps", "owner", "default")
    await world.create("configmaps", "child", "ci", metadata=owned_by(owner))
    await asyncio.sleep(0.1)
    assert world.names("configmaps", "default") == ["owner"]
    assert world.names("configmaps", "ci") == []


@scenario
async def test_a_foreground_delete_waits_for_those_that_block(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    blocking = owned_by(owner, blocks=True) | {"finalizers": ["remuda.dev/hold"]}
    await world.create("configmaps", "child", metadata=blocking)
    await world.delete("configmaps", "owner", cascade="Foreground")
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == ["child", "owner"]
    await world.patch("configmaps", "child", {"metadata": {"finalizers": None}})
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == []


@scenario
async def test_an_orphaning_delete_leaves_the_dependents_without_owner(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    await world.create("configmaps", "child", metadata=owned_by(owner))
    await world.delete("configmaps", "owner", cascade="Orphan")
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == ["child"]
    child = world.get("configmaps", "child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]


@scenario
async def test_objects_that_own_each_other_can_still_be_deleted_in_the_foreground(
    world: World,
) -> None:
    a = await world.create("configmaps", "a")
    b = await world.create("configmaps", "b", metadata=owned_by(a, blocks=True))
    await world.patch("configmaps", "a", {"metadata": owned_by(b, blocks=True)})
    await world.delete("configmaps", "a", cascade="Foreground")
    await asyncio.sleep(5)
    assert world.names("configmaps") == []


@scenario
async def test_one_living_owner_is_enough(world: World) -> None:
    first, second = [await world.create("configmaps", n) for n in ("first", "second")]
    both = [*owned_by(first)["ownerReferences"], *owned_by(second)["ownerReferences"]]
    await world.create("secrets", "child", metadata={"ownerReferences": both})
    await world.delete("configmaps", "first")
    await asyncio.sleep(0.1)
    child = world.get("secrets", "child")
    assert child is not None
    assert [ref["name"] for ref in child["metadata"]["ownerReferences"]] == ["second"]


@scenario
async def test_a_wrong_reference_to_a_living_owner_does_no_harm(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    right = owned_by(owner)["ownerReferences"][0]
    for at, references in enumerate(
        ([right, right | {"name": "x"}], [right | {"name": "x"}, right])
    ):
        await world.create("secrets", f"child-{at}", metadata={"ownerReferences": references})
    await asyncio.sleep(1)
    assert world.names("secrets") == ["child-0", "child-1"]


@scenario
async def test_an_owner_that_waits_goes_when_its_dependent_is_cut_loose(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    held = owned_by(owner, blocks=True) | {"finalizers": ["remuda.dev/hold"]}
    await world.create("configmaps", "child", metadata=held)
    await world.delete("configmaps", "owner", cascade="Foreground")
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == ["child", "owner"]
    await world.patch("configmaps", "child", {"metadata": {"ownerReferences": None}})
    await asyncio.sleep(0.1)
    assert world.names("configmaps") == ["child"]


def a_crd() -> dict[str, Any]:
    names = {"plural": "herds", "singular": "herd", "kind": "Herd", "listKind": "HerdList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}


@scenario
async def test_an_owner_of_an_unknown_kind_keeps_its_dependents_until_the_kind_is_known(
    world: World,
) -> None:
    ref = {"apiVersion": "example.com/v1", "kind": "Herd", "name": "h", "uid": "gone"}
    await world.create("configmaps", "child", metadata={"ownerReferences": [ref]})
    await asyncio.sleep(60)
    assert world.names("configmaps") == ["child"]
    await world.create("customresourcedefinitions", "herds.example.com", spec=a_crd())
    await asyncio.sleep(1)
    assert world.names("configmaps") == []


@scenario
async def test_a_custom_resource_takes_its_dependents_along(world: World) -> None:
    await world.create("customresourcedefinitions", "herds.example.com", spec=a_crd())
    await asyncio.sleep(1)
    herd = await world.create("herds", "h", apiVersion="example.com/v1", kind="Herd")
    ref = owned_by(herd, "Herd")["ownerReferences"][0] | {"apiVersion": "example.com/v1"}
    await world.create("configmaps", "child", metadata={"ownerReferences": [ref]})
    await asyncio.sleep(1)
    assert world.names("configmaps") == ["child"]
    await world.delete("herds", "h")
    await asyncio.sleep(1)
    assert world.names("configmaps") == []


@scenario
async def test_a_kind_that_goes_takes_the_dependents_of_its_objects_along(world: World) -> None:
    await world.create("customresourcedefinitions", "herds.example.com", spec=a_crd())
    await asyncio.sleep(1)
    herd = await world.create("herds", "h", apiVersion="example.com/v1", kind="Herd")
    ref = owned_by(herd, "Herd")["ownerReferences"][0] | {"apiVersion": "example.com/v1"}
    await world.create("configmaps", "child", metadata={"ownerReferences": [ref]})
    await asyncio.sleep(1)
    await world.delete("customresourcedefinitions", "herds.example.com")
    await asyncio.sleep(1)
    assert world.names("configmaps") == []


class RefusingRest(Rest):
    """Fails the first deletes, as a full disk would."""

    refusals = 3

    async def delete(self, *where: Any, **how: Any) -> Obj:  # noqa: ANN401 - as inherited
        if self.refusals:
            self.refusals -= 1
            raise StatusError(500, "InternalError", "the disk is full")
        return await super().delete(*where, **how)


def test_a_delete_that_fails_is_tried_again() -> None:
    async def main() -> None:
        clock, ids = SimClock(asyncio.get_running_loop()), SeededIds(1, "plane")
        store, kinds = Store(), Kinds(BUILT_IN)
        rest = RefusingRest(store, kinds, clock, ids)
        await Namespaces(rest, store, kinds).bootstrap()
        world = World(store, rest, clock)
        ghost = {"metadata": {"name": "ghost", "uid": "not-a-uid"}}
        await world.create("configmaps", "child", "default", metadata=owned_by(ghost))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(Collector(rest, store, kinds).run(), name="collector")
            await asyncio.sleep(6)
            assert world.names("configmaps", "default") == ["child"]
            await asyncio.sleep(2)  # after 1, 2 and 4 seconds
            task.cancel()
        assert world.names("configmaps", "default") == []

    run(main)


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
