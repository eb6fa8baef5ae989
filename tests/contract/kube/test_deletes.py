"""Deleting: only what was seen, only when nobody holds it, and with or without what it owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import Cascade, Conflict, Invalid, Manifest, NotFound, Seen
from tests.support.eventually import eventually
from tests.support.manifests import CONFIG_MAP, a_config_map, a_pool, owned_by

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.manifests import ConfigMap
    from tests.support.raw import Json, Raw
    from tests.support.space import Space

HOLD = "remuda.dev/hold"


async def a_mare(kube: Kube, space: Space) -> ConfigMap:
    return await kube.create(CONFIG_MAP, Manifest(b'{"metadata":{"name":"mare"}}', space.name))


async def is_gone(raw: Raw, path: str) -> bool:
    return (await raw.get(path)).status == 404


async def test_a_delete_with_another_uid_is_refused(kube: Kube, raw: Raw, space: Space) -> None:
    mare = await a_mare(kube, space)

    with pytest.raises(Conflict):
        await kube.delete(CONFIG_MAP, "mare", namespace=space.name, seen=Seen(uid="other"))

    answer = await raw.delete(space.path("configmaps", "mare"), {"preconditions": {"uid": "other"}})
    assert answer.refusal == (
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on ConfigMap "mare": the UID in the precondition (other) does not match the '
            f"UID in record ({mare.uid}). The object might have been deleted and then recreated"
        ),
    )
    assert await kube.get(CONFIG_MAP, "mare", namespace=space.name) == mare


async def test_a_delete_of_another_version_is_refused(kube: Kube, raw: Raw, space: Space) -> None:
    old = await a_mare(kube, space)
    new = await kube.patch(
        CONFIG_MAP, "mare", MergePatch({"data": {"ridden": "yes"}}), namespace=space.name
    )
    seen = Seen(uid=old.uid, resource_version=old.resource_version)

    with pytest.raises(Conflict):
        await kube.delete(CONFIG_MAP, "mare", namespace=space.name, seen=seen)

    answer = await raw.delete(
        space.path("configmaps", "mare"),
        {"preconditions": {"uid": old.uid, "resourceVersion": old.resource_version}},
    )
    assert answer.refusal == (
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on ConfigMap "mare": the ResourceVersion in the precondition '
            f"({old.resource_version}) does not match the ResourceVersion in record ({new.resource_version}). "
            "The object might have been modified"
        ),
    )
    assert await kube.get(CONFIG_MAP, "mare", namespace=space.name) == new


async def test_a_delete_of_what_was_seen_happens(kube: Kube, space: Space) -> None:
    mare = await a_mare(kube, space)
    seen = Seen(uid=mare.uid, resource_version=mare.resource_version)

    await kube.delete(CONFIG_MAP, "mare", namespace=space.name, seen=seen)

    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAP, "mare", namespace=space.name)


async def test_deleting_nothing_is_not_found(kube: Kube, raw: Raw, space: Space) -> None:
    with pytest.raises(NotFound):
        await kube.delete(CONFIG_MAP, "mare", namespace=space.name)

    answer = await raw.delete(space.path("configmaps", "mare"))
    assert answer.refusal == (404, "NotFound", 'configmaps "mare" not found')


async def test_a_finished_delete_answers_with_a_status(raw: Raw, space: Space) -> None:
    created = await raw.post(space.path("configmaps"), a_config_map("mare"))

    answer = await raw.delete(space.path("configmaps", "mare"))

    assert answer.status == 200
    assert answer.body["kind"] == "Status"
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "mare", "kind": "configmaps", "uid": created.uid}


async def test_an_object_with_the_same_name_is_another_object(kube: Kube, space: Space) -> None:
    first = await a_mare(kube, space)
    await kube.delete(CONFIG_MAP, "mare", namespace=space.name)
    second = await a_mare(kube, space)

    assert first.uid != second.uid
    with pytest.raises(Conflict):
        await kube.delete(CONFIG_MAP, "mare", namespace=space.name, seen=Seen(uid=first.uid))


async def test_a_finalizer_holds_and_its_removal_releases(
    kube: Kube, raw: Raw, space: Space
) -> None:
    path = space.path("configmaps", "mare")
    (await raw.post(space.path("configmaps"), a_config_map("mare", finalizers=[HOLD]))).ok()

    answer = await raw.delete(path)

    held = answer.ok()
    assert held["kind"] == "ConfigMap"
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await raw.delete(path)
    assert again.version == answer.version, "a second delete changes nothing"
    labelled = await raw.merge(path, {"metadata": {"labels": {"still": "here"}}})
    assert labelled.ok()["metadata"]["deletionTimestamp"] == held["metadata"]["deletionTimestamp"]

    released = await kube.patch(
        CONFIG_MAP, "mare", MergePatch({"metadata": {"finalizers": None}}), namespace=space.name
    )

    assert released.metadata.finalizers == ()
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAP, "mare", namespace=space.name)


async def test_no_finalizer_is_added_to_what_is_being_deleted(
    kube: Kube, raw: Raw, space: Space
) -> None:
    path = space.path("configmaps", "mare")
    (await raw.post(space.path("configmaps"), a_config_map("mare", finalizers=[HOLD]))).ok()
    await raw.delete(path)
    more: Json = {"metadata": {"finalizers": [HOLD, "remuda.dev/more"]}}

    with pytest.raises(Invalid):
        await kube.patch(CONFIG_MAP, "mare", MergePatch(more), namespace=space.name)

    answer = await raw.merge(path, more)
    why = (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"remuda.dev/more"}'
    )
    assert answer.refusal == (
        422,
        "Invalid",
        f'ConfigMap "mare" is invalid: metadata.finalizers: {why}',
    )
    assert answer.causes == [("metadata.finalizers", "FieldValueForbidden", why)]


async def test_a_deletion_cannot_be_taken_back(raw: Raw, space: Space) -> None:
    path = space.path("configmaps", "mare")
    (await raw.post(space.path("configmaps"), a_config_map("mare", finalizers=[HOLD]))).ok()
    deleted = await raw.delete(path)

    answer = await raw.merge(path, {"metadata": {"deletionTimestamp": None}})

    assert answer.ok()["metadata"]["deletionTimestamp"]
    assert answer.version == deleted.version


async def test_deleting_a_collection_takes_what_the_selector_names(raw: Raw, space: Space) -> None:
    for name, herd in (("a", "north"), ("b", "north"), ("c", "south")):
        (await raw.post(space.path("configmaps"), a_config_map(name, labels={"herd": herd}))).ok()

    answer = await raw.delete(space.path("configmaps"), labelSelector="herd=north")

    assert [item["metadata"]["name"] for item in answer.ok()["items"]] == ["a", "b"]
    left = await raw.get(space.path("configmaps"))
    assert [item["metadata"]["name"] for item in left.body["items"]] == ["c"]


async def test_a_dry_delete_deletes_nothing(raw: Raw, space: Space) -> None:
    (await raw.post(space.path("configmaps"), a_config_map("mare"))).ok()

    (await raw.delete(space.path("configmaps", "mare"), dryRun="All")).ok()

    assert not await is_gone(raw, space.path("configmaps", "mare"))


async def test_an_unknown_cascade_is_refused(raw: Raw, space: Space) -> None:
    (await raw.post(space.path("configmaps"), a_config_map("mare"))).ok()

    answer = await raw.delete(space.path("configmaps", "mare"), {"propagationPolicy": "Sideways"})

    assert answer.refusal == (
        422,
        "Invalid",
        (
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sideways": supported '
            'values: "Foreground", "Background", "Orphan", "nil"'
        ),
    )


# --- Cascades --------------------------------------------------------------------------------------------------------


async def a_family(raw: Raw, space: Space, *, finalizers: list[str] | None = None) -> None:
    """Create a pool that owns a ConfigMap that owns another: a custom owner and two generations."""
    pool = (await raw.post(space.path("runnerpools"), a_pool("stable"))).ok()
    child = a_config_map("child", ownerReferences=owned_by(pool, block=True))
    made = (await raw.post(space.path("configmaps"), child)).ok()
    grandchild = a_config_map(
        "grandchild", ownerReferences=owned_by(made, block=True), finalizers=finalizers or []
    )
    (await raw.post(space.path("configmaps"), grandchild)).ok()


async def test_background_removes_the_owner_first_and_then_the_rest(
    kube: Kube, raw: Raw, space: Space
) -> None:
    await a_family(raw, space, finalizers=[HOLD])

    await kube.delete(RUNNER_POOL, "stable", namespace=space.name, cascade=Cascade.BACKGROUND)

    assert await is_gone(raw, space.path("runnerpools", "stable")), "the owner is gone at once"
    await eventually(lambda: is_gone(raw, space.path("configmaps", "child")))
    grandchild = await eventually(
        lambda: raw.get(space.path("configmaps", "grandchild")),
        lambda answer: "deletionTimestamp" in answer.body["metadata"],
    )
    assert grandchild.body["metadata"]["finalizers"] == [HOLD]


async def test_foreground_keeps_the_owner_until_its_dependents_are_gone(
    kube: Kube, raw: Raw, space: Space
) -> None:
    await a_family(raw, space, finalizers=[HOLD])
    pool, child = space.path("runnerpools", "stable"), space.path("configmaps", "child")

    await kube.delete(RUNNER_POOL, "stable", namespace=space.name, cascade=Cascade.FOREGROUND)

    waiting = await raw.get(pool)
    assert waiting.ok()["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert waiting.body["metadata"]["deletionTimestamp"]
    grandchild = space.path("configmaps", "grandchild")
    await eventually(
        lambda: raw.get(grandchild), lambda answer: "deletionTimestamp" in answer.body["metadata"]
    )
    assert not await is_gone(raw, pool), "a blocking grandchild still holds the owner"
    assert not await is_gone(raw, child)

    (await raw.merge(grandchild, {"metadata": {"finalizers": None}})).ok()

    for path in (grandchild, child, pool):
        await eventually(lambda path=path: is_gone(raw, path))  # type: ignore[misc]


async def test_orphan_lets_the_dependents_go_free(kube: Kube, raw: Raw, space: Space) -> None:
    await a_family(raw, space)

    await kube.delete(RUNNER_POOL, "stable", namespace=space.name, cascade=Cascade.ORPHAN)

    await eventually(lambda: is_gone(raw, space.path("runnerpools", "stable")))
    child = (await raw.get(space.path("configmaps", "child"))).ok()
    assert "ownerReferences" not in child["metadata"]
    assert "deletionTimestamp" not in child["metadata"]
    grandchild = (await raw.get(space.path("configmaps", "grandchild"))).ok()
    assert grandchild["metadata"]["ownerReferences"][0]["name"] == "child"


async def test_an_object_with_two_owners_outlives_the_first(raw: Raw, space: Space) -> None:
    owners = [
        (await raw.post(space.path("configmaps"), a_config_map(name))).ok() for name in ("a", "b")
    ]
    references = [reference for owner in owners for reference in owned_by(owner)]
    (
        await raw.post(space.path("configmaps"), a_config_map("child", ownerReferences=references))
    ).ok()
    child = space.path("configmaps", "child")

    (await raw.delete(space.path("configmaps", "a"))).ok()

    left = await eventually(
        lambda: raw.get(child),
        lambda answer: len(answer.body["metadata"]["ownerReferences"]) == 1,
    )
    assert left.body["metadata"]["ownerReferences"][0]["name"] == "b"
    (await raw.delete(space.path("configmaps", "b"))).ok()
    await eventually(lambda: is_gone(raw, child))


async def test_an_object_whose_owner_never_was_is_collected(raw: Raw, space: Space) -> None:
    ghost = a_config_map("ghost")
    ghost["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"
    (
        await raw.post(
            space.path("configmaps"), a_config_map("child", ownerReferences=owned_by(ghost))
        )
    ).ok()

    await eventually(lambda: is_gone(raw, space.path("configmaps", "child")))


async def test_an_owner_replaced_under_its_name_no_longer_owns(raw: Raw, space: Space) -> None:
    first = (await raw.post(space.path("configmaps"), a_config_map("owner"))).ok()
    (await raw.delete(space.path("configmaps", "owner"))).ok()
    (await raw.post(space.path("configmaps"), a_config_map("owner"))).ok()

    child = a_config_map("child", ownerReferences=owned_by(first))
    (await raw.post(space.path("configmaps"), child)).ok()

    await eventually(lambda: is_gone(raw, space.path("configmaps", "child")))
    assert not await is_gone(raw, space.path("configmaps", "owner"))
