"""Watching: nothing missed, nothing twice, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from remuda.kube.core import EVENT
from remuda.kube.patches import MergePatch
from remuda.ports.kube import Bookmark, Change, Expired, Manifest, Query, WatchEvent
from tests.support.eventually import eventually, within
from tests.support.manifests import CONFIG_MAP, a_config_map

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.ports.kube import Kube
    from tests.support.backends import Backend
    from tests.support.manifests import ConfigMap
    from tests.support.raw import Json, Raw
    from tests.support.space import Space


class Reader:
    """Takes events off a watch of the port one at a time; bookmarks are kept apart."""

    def __init__(
        self, batches: AsyncIterator[tuple[WatchEvent[ConfigMap] | Bookmark, ...]]
    ) -> None:
        self._batches = batches
        self._waiting: list[WatchEvent[ConfigMap] | Bookmark] = []

    async def next(self) -> WatchEvent[ConfigMap] | Bookmark:
        while not self._waiting:
            self._waiting.extend(await within(anext(self._batches)))
        return self._waiting.pop(0)

    async def change(self) -> tuple[str, str, str]:
        """Return the next change: what, which object, and which turn of it."""
        while isinstance(event := await self.next(), Bookmark):
            pass
        return event.change, event.object.name, event.object.data.get("turn", "")


async def a_herd(kube: Kube, space: Space, *names: str) -> None:
    for name in names:
        body = f'{{"metadata":{{"name":"{name}"}},"data":{{"turn":"0"}}}}'.encode()
        await kube.create(CONFIG_MAP, Manifest(body, space.name))


async def turn(kube: Kube, space: Space, name: str, number: int) -> ConfigMap:
    patch = MergePatch({"data": {"turn": str(number)}})
    return await kube.patch(CONFIG_MAP, name, patch, namespace=space.name)


async def test_a_watch_tells_all_changes_in_order(kube: Kube, space: Space) -> None:
    await a_herd(kube, space, "a")
    start = await kube.list(CONFIG_MAP, Query(namespace=space.name))

    async with kube.watch(
        CONFIG_MAP, Query(namespace=space.name), since=start.resource_version
    ) as batches:
        reader = Reader(batches)
        await turn(kube, space, "a", 1)
        await a_herd(kube, space, "b")
        await kube.delete(CONFIG_MAP, "a", namespace=space.name)

        assert await reader.change() == (Change.MODIFIED, "a", "1")
        assert await reader.change() == (Change.ADDED, "b", "0")
        assert await reader.change() == (Change.DELETED, "a", "1")


async def test_the_version_of_a_deletion_is_newer_than_the_object(raw: Raw, space: Space) -> None:
    created = await raw.post(space.path("configmaps"), a_config_map("mare"))
    async with raw.watch(space.path("configmaps"), resourceVersion=created.version) as events:
        (await raw.delete(space.path("configmaps", "mare"))).ok()
        event = await events.next()

    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(created.version)
    assert event["object"]["apiVersion"] == "v1"
    assert event["object"]["kind"] == "ConfigMap"


async def test_a_watch_without_a_version_begins_with_what_is_there(raw: Raw, space: Space) -> None:
    for name in ("a", "b"):
        (await raw.post(space.path("configmaps"), a_config_map(name))).ok()

    for query in ({}, {"resourceVersion": "0"}):
        async with raw.watch(space.path("configmaps"), **query) as events:
            seen = await events.until("ADDED", "b")
        assert [(e["type"], e["object"]["metadata"]["name"]) for e in seen] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]


async def test_watching_across_reconnects_misses_and_doubles_nothing(
    kube: Kube, space: Space
) -> None:
    """A writer keeps writing while the watcher drops its connection after each few events."""
    writes = 60
    await a_herd(kube, space, "a", "b", "c")
    version = (await kube.list(CONFIG_MAP, Query(namespace=space.name))).resource_version
    seen: list[tuple[str, str]] = []

    async def write() -> None:
        for number in range(1, writes + 1):
            await turn(kube, space, "abc"[number % 3], number)

    async def follow_for_a_while(version: str) -> str:
        stop_at = min(len(seen) + 5, writes)
        async with kube.watch(CONFIG_MAP, Query(namespace=space.name), since=version) as batches:
            while len(seen) < stop_at:
                for event in await within(anext(batches)):
                    if isinstance(event, WatchEvent):
                        version = event.object.resource_version
                        seen.append((event.object.name, event.object.data["turn"]))
        return version

    async with asyncio.TaskGroup() as group:
        group.create_task(write(), name="writer")
        while len(seen) < writes:
            version = await follow_for_a_while(version)

    assert seen == [("abc"[n % 3], str(n)) for n in range(1, writes + 1)]


async def test_many_watchers_all_see_everything(kube: Kube, space: Space) -> None:
    await a_herd(kube, space, "a")
    start = (await kube.list(CONFIG_MAP, Query(namespace=space.name))).resource_version

    async def follow() -> list[str]:
        async with kube.watch(CONFIG_MAP, Query(namespace=space.name), since=start) as batches:
            reader = Reader(batches)
            return [(await reader.change())[2] for _ in range(20)]

    async with asyncio.TaskGroup() as group:
        followers = [group.create_task(follow(), name=f"follower {n}") for n in range(10)]
        for number in range(1, 21):
            await turn(kube, space, "a", number)

    expected = [str(number) for number in range(1, 21)]
    assert [follower.result() for follower in followers] == [expected] * 10


async def test_a_streaming_list_ends_with_its_bookmark_and_goes_on(
    kube: Kube, space: Space
) -> None:
    await a_herd(kube, space, "a", "b")

    async with kube.watch(CONFIG_MAP, Query(namespace=space.name), streaming_list=True) as batches:
        reader = Reader(batches)
        first = [await reader.next() for _ in range(2)]
        end = await reader.next()
        changed = await turn(kube, space, "a", 1)

        assert [e.object.name for e in first if isinstance(e, WatchEvent)] == ["a", "b"]
        assert {e.change for e in first if isinstance(e, WatchEvent)} == {Change.ADDED}
        assert isinstance(end, Bookmark)
        assert end.initial_events_end
        assert int(end.resource_version) < int(changed.resource_version)
        assert await reader.change() == (Change.MODIFIED, "a", "1")


async def test_a_streaming_list_of_nothing_ends_at_once(kube: Kube, space: Space) -> None:
    async with kube.watch(CONFIG_MAP, Query(namespace=space.name), streaming_list=True) as batches:
        end = await Reader(batches).next()

    assert isinstance(end, Bookmark)
    assert end.initial_events_end


async def test_a_streaming_list_must_say_how_fresh(raw: Raw, space: Space) -> None:
    answer = await raw.get(
        space.path("configmaps"), watch="true", sendInitialEvents="true", allowWatchBookmarks="true"
    )

    why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    message = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {why}'
    assert answer.refusal == (422, "Invalid", message)


async def test_a_bookmark_carries_a_version_to_resume_from(raw: Raw, space: Space) -> None:
    """It is ahead of the watched objects: what it spares the watcher are the changes of all others."""
    path = space.path("configmaps", "mare")
    (await raw.post(space.path("configmaps"), a_config_map("mare"))).ok()
    newest = (await raw.post(space.path("configmaps"), a_config_map("other"))).version
    only_mare = {"fieldSelector": "metadata.name=mare", "allowWatchBookmarks": "true"}

    async with raw.watch(space.path("configmaps"), **only_mare) as events:
        first, bookmark = await events.next(), await events.next()

    assert (first["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert bookmark["object"]["apiVersion"] == "v1"
    assert "name" not in bookmark["object"]["metadata"]
    version = bookmark["object"]["metadata"]["resourceVersion"]
    assert int(version) >= int(newest)
    changed = await raw.merge(path, {"data": {"turn": "1"}})
    async with raw.watch(space.path("configmaps"), resourceVersion=version, **only_mare) as events:
        event = await events.next()
    assert event["object"]["metadata"]["resourceVersion"] == changed.version


async def test_without_asking_no_bookmark_comes(raw: Raw, space: Space) -> None:
    created = await raw.post(space.path("configmaps"), a_config_map("a"))
    async with raw.watch(
        space.path("configmaps"), resourceVersion=created.version, timeoutSeconds="3"
    ) as stream:
        assert await stream.next() is None, "the server ends the watch, without an event"


async def test_a_version_that_is_too_old_says_expired_and_a_new_list_recovers(
    kube: Kube, raw: Raw, space: Space, backend: Backend
) -> None:
    first = (await raw.post(space.path("events"), an_event("first", space))).version
    for name in ("second", "third"):
        (await raw.post(space.path("events"), an_event(name, space))).ok()
    await backend.forget_history()

    with pytest.raises(Expired):
        async with kube.watch(EVENT, Query(namespace=space.name), since=first) as batches:
            await within(anext(batches))

    listing = await kube.list(EVENT, Query(namespace=space.name))
    assert [item.name for item in listing.items] == ["first", "second", "third"]
    query = Query(namespace=space.name)
    async with kube.watch(EVENT, query, since=listing.resource_version) as batches:
        (await raw.post(space.path("events"), an_event("fourth", space))).ok()
        events = await within(anext(batches))
    assert [e.object.name for e in events if isinstance(e, WatchEvent)] == ["fourth"]


async def test_an_expired_watch_is_told_so_in_the_stream(
    raw: Raw, space: Space, backend: Backend
) -> None:
    first = (await raw.post(space.path("events"), an_event("first", space))).version
    for name in ("second", "third"):
        (await raw.post(space.path("events"), an_event(name, space))).ok()
    await backend.forget_history()

    async with raw.watch(space.path("events"), resourceVersion=first) as events:
        event = await events.next()

    assert event["type"] == "ERROR"
    assert event["object"]["kind"] == "Status"
    assert event["object"]["code"] == 410
    assert event["object"]["reason"] == "Expired"


def an_event(name: str, space: Space) -> Json:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "mare", "namespace": space.name},
        "reason": "RunnerWarm",
        "message": "The guest said ready",
        "type": "Normal",
    }


async def test_a_watch_ends_with_the_kind_that_it_watches(raw: Raw, space: Space) -> None:
    plural = space.name.replace("-", "")
    path = f"/apis/test.remuda.dev/v1/namespaces/{space.name}/{plural}"
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await raw.post(crds, _a_crd(plural))).ok()
    await eventually(lambda: raw.get(path), lambda answer: answer.status == 200)
    mare = {"apiVersion": "test.remuda.dev/v1", "kind": "Mare", "metadata": {"name": "mare"}}
    await eventually(lambda: raw.post(path, mare), lambda answer: answer.status in (201, 409))

    async with raw.watch(path) as events:
        await events.until("ADDED", "mare")
        (await raw.delete(f"{crds}/{plural}.test.remuda.dev")).ok()
        await events.until("DELETED", "mare")
        assert await events.next() is None


def _a_crd(plural: str) -> Json:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.remuda.dev"},
        "spec": {
            "group": "test.remuda.dev",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Mare"},
            "versions": [version],
        },
    }
