"""The garbage collector at work, on the store in memory and on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.collector import Collector
from remuda.standalone.errors import StatusError
from remuda.standalone.kinds import BUILT_IN, Kinds
from remuda.standalone.namespaces import Namespaces
from remuda.standalone.rest import Rest
from remuda.standalone.store import Store
from tests.unit.standalone.controlled import World, scenario

if TYPE_CHECKING:
    from remuda.standalone.objects import Obj


def owned_by(owner: Obj, kind: str = "ConfigMap", *, blocks: bool = False) -> dict[str, Any]:
    meta = owner["metadata"]
    ref = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {"ownerReferences": [ref | {"blockOwnerDeletion": blocks}]}


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
