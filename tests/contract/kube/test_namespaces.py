"""Namespaces: what comes with a new one, and how one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.kube.core import NAMESPACE
from remuda.ports.kube import Refused
from tests.support.eventually import eventually
from tests.support.manifests import CONFIG_MAP, ConfigMap, a_config_map, a_pod, a_pool

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.raw import Raw
    from tests.support.space import Space


def namespace_path(name: str) -> str:
    return f"/api/v1/namespaces/{name}"


async def is_gone(raw: Raw, path: str) -> bool:
    return (await raw.get(path)).status == 404


async def test_a_new_namespace_is_active_and_named_by_a_label(raw: Raw, space: Space) -> None:
    namespace = (await raw.get(namespace_path(space.name))).ok()

    assert namespace["status"] == {"phase": "Active"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": space.name}


async def test_the_default_account_comes_with_it_and_comes_back(raw: Raw, space: Space) -> None:
    path = space.path("serviceaccounts", "default")
    first = await raw.get(path)

    (await raw.delete(path)).ok()

    second = await eventually(lambda: raw.get(path), lambda answer: answer.status == 200)
    assert second.uid != first.uid


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
async def test_the_first_namespaces_are_there(raw: Raw, name: str) -> None:
    assert (await raw.get(namespace_path(name))).ok()["status"]["phase"] == "Active"


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_first_namespaces_stay(raw: Raw, name: str) -> None:
    answer = await raw.delete(namespace_path(name))

    message = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    assert answer.refusal == (403, "Forbidden", message)


async def test_a_name_with_a_dot_is_refused(raw: Raw) -> None:
    answer = await raw.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})

    why = 'metadata.name: Invalid value: "a.b": must not contain dots'
    assert answer.refusal == (422, "Invalid", f'Namespace "a.b" is invalid: {why}')


async def test_deleting_a_namespace_deletes_what_is_in_it(
    kube: Kube, raw: Raw, space: Space
) -> None:
    (await raw.post(space.path("configmaps"), a_config_map("mare"))).ok()
    (await raw.post(space.path("runnerpools"), a_pool("mac"))).ok()
    (await raw.post(space.path("pods"), a_pod("runner"))).ok()

    await kube.delete(NAMESPACE, space.name)

    await eventually(lambda: is_gone(raw, namespace_path(space.name)))
    for plural in ("configmaps", "runnerpools", "pods", "serviceaccounts"):
        assert (await raw.get(space.path(plural))).ok()["items"] == []


async def test_a_namespace_waits_for_what_is_held_and_takes_nothing_new(
    kube: Kube, raw: Raw, space: Space
) -> None:
    held = space.path("configmaps", "held")
    manifest = a_config_map("held", finalizers=["remuda.dev/hold"])
    (await raw.post(space.path("configmaps"), manifest)).ok()

    await kube.delete(NAMESPACE, space.name)

    ending = await kube.get(NAMESPACE, space.name)
    assert ending.status.phase == "Terminating"
    assert ending.metadata.deletion_timestamp is not None
    await eventually(
        lambda: raw.get(held), lambda answer: "deletionTimestamp" in answer.body["metadata"]
    )
    answer = await raw.post(space.path("configmaps"), a_config_map("late"))
    why = f"unable to create new content in namespace {space.name} because it is being terminated"
    assert answer.refusal == (403, "Forbidden", f'configmaps "late" is forbidden: {why}')
    cause = f"namespace {space.name} is being terminated"
    assert answer.causes == [("metadata.namespace", "NamespaceTerminating", cause)]
    late = ConfigMap(metadata=ending.metadata.__class__(name="late", namespace=space.name))
    with pytest.raises(Refused):
        await kube.create(CONFIG_MAP, late)

    (await raw.merge(held, {"metadata": {"finalizers": None}})).ok()

    await eventually(lambda: is_gone(raw, namespace_path(space.name)))
