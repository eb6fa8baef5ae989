from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remuda.kube.selectors import parse_labels
from remuda.standalone.errors import StatusError
from remuda.standalone.store import Store, StoredEvent, object_key
from remuda.standalone.watch import Selection, Watch, WatchOptions
from tests.unit.standalone.worlds import CONFIG, config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.standalone.objects import Obj


def put(store: Store, name: str, namespace: str = "herd", **labels: str) -> Obj:
    return store.put(CONFIG, {"metadata": {"name": name, "namespace": namespace, "labels": labels}})


def names(objects: list[Obj]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


def test_an_empty_store_does_not_show_version_zero() -> None:
    assert Store().revision == 1


def test_objects_are_listed_as_etcd_would_order_them() -> None:
    store = Store()
    for namespace, name in (("a", "z"), ("a-b", "a"), ("a", "b"), ("ab", "a")):
        put(store, name, namespace)

    listed = store.objects(CONFIG)

    keys = [object_key(o["metadata"]["namespace"], o["metadata"]["name"]) for o in listed]
    assert keys == ["a-b/a", "a/b", "a/z", "ab/a"]
    assert names(store.objects(CONFIG, "a")) == ["b", "z"]


def test_the_past_can_be_listed_while_it_is_remembered() -> None:
    store = Store(history_max=3)
    put(store, "a", colour="bay")
    put(store, "b")
    before = store.revision
    put(store, "a", colour="grey")
    store.remove(CONFIG, "herd", "b")
    put(store, "c")

    past = store.objects_at(CONFIG, "herd", before)
    assert names(past) == ["a", "b"]
    assert past[0]["metadata"]["labels"] == {"colour": "bay"}

    put(store, "d")  # the history holds three
    with pytest.raises(StatusError) as refused:
        store.objects_at(CONFIG, "herd", before)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    assert refused.value.message == f"too old resource version: {before} ({before + 1})"


def test_a_busy_kind_does_not_expire_a_quiet_one() -> None:
    class Quiet:
        group, plural = "", "secrets"

    store = Store(history_max=2)
    store.put(Quiet(), config("s"))
    start = store.revision
    for at in range(10):
        put(store, f"c{at}")

    assert store.events_since(Quiet(), start) == []
    assert len(store.events_since(Quiet(), start - 1)) == 1


def test_listeners_hear_every_change_once_and_in_order() -> None:
    store = Store()
    heard: list[StoredEvent] = []
    stop = store.subscribe(heard.append)
    put(store, "a")
    put(store, "a", colour="bay")
    store.remove(CONFIG, "herd", "a")
    stop()
    put(store, "b")

    assert [event.change for event in heard] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.revision for event in heard] == [2, 3, 4]
    assert heard[-1].object["metadata"]["resourceVersion"] == "4", "at the version of its deletion"
    assert heard[-1].previous is not None
    assert heard[-1].previous["metadata"]["resourceVersion"] == "3"


# --- Watches -------------------------------------------------------------------------------------------------------


def told(lines: bytes) -> list[tuple[str, str]]:
    events = [json.loads(line) for line in lines.splitlines()]
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def read(watch: Watch) -> bytes:
    return b"".join([chunk async for chunk in watch.chunks()])


async def test_a_watch_sees_objects_enter_and_leave_its_selection() -> None:
    store = Store()
    grey = Selection(CONFIG, "herd", parse_labels("colour=grey"))
    watch = Watch(store, grey, WatchOptions(since=store.revision, timeout_s=0.01))
    put(store, "a", colour="bay")
    put(store, "a", colour="grey")
    put(store, "a", colour="grey", age="7")
    put(store, "a", colour="bay")
    put(store, "b", colour="grey")
    put(store, "b", namespace="other", colour="grey")
    store.remove(CONFIG, "herd", "b")

    lines = await read(watch)

    assert told(lines) == [
        ("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b"), ("DELETED", "b"),
    ]  # fmt: skip
    left = json.loads(lines.splitlines()[2])["object"]["metadata"]
    assert (left["labels"]["age"], left["resourceVersion"]) == ("7", "5"), (
        "last seen, at the new version"
    )


async def test_a_watch_that_starts_with_what_is_there_says_when_that_is_over() -> None:
    store = Store()
    for at in range(450):  # more than one chunk
        put(store, f"c{at:03}")
    options = WatchOptions(bookmarks=True, end_of_initial=True, timeout_s=0.01)
    watch = Watch(store, Selection(CONFIG), options)
    put(store, "late")

    lines = (await read(watch)).splitlines()

    assert told(b"\n".join(lines[:450])) == [("ADDED", f"c{at:03}") for at in range(450)]
    end = json.loads(lines[450])
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert end["object"]["metadata"]["resourceVersion"] == "451"
    assert told(lines[451]) == [("ADDED", "late")]


async def test_a_watch_from_too_long_ago_says_so_and_ends() -> None:
    store = Store(history_max=1)
    put(store, "a")
    put(store, "b")

    (line,) = (await read(Watch(store, Selection(CONFIG), WatchOptions(since=1)))).splitlines()

    event = json.loads(line)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_watches_that_nobody_reads_share_what_they_hold() -> None:
    store = Store()
    watches = [Watch(store, Selection(CONFIG), WatchOptions(since=1)) for _ in range(20)]
    tracemalloc.start()
    for at in range(20):
        store.put(CONFIG, config(f"c{at}", data={"k": str(at) * 100_000}))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used < 8_000_000, "the objects (3 MB), and no copy of them for each client"
    chunks = [chunk async for chunk in _ended(watches[0])]
    assert len(chunks) > 1, "much is sent in parts"
    assert len(b"".join(chunks).splitlines()) == 20


def _ended(watch: Watch) -> AsyncIterator[bytes]:
    asyncio.get_running_loop().call_later(0.05, watch.close)
    return watch.chunks()


async def test_a_slow_watch_ends_and_never_holds_up_a_writer() -> None:
    store = Store()
    watch = Watch(store, Selection(CONFIG), WatchOptions(since=1, queue_max=3))
    for at in range(10):
        put(store, f"c{at}")

    assert await read(watch) == b"", "it ends at once; the client resumes from what it saw last"
    assert len(store.events_since(CONFIG, 1)) == 10


async def test_bookmarks_come_only_with_news() -> None:
    store = Store()
    options = WatchOptions(since=1, bookmarks=True, bookmark_every_s=0.02, timeout_s=0.15)
    nothing = Selection(CONFIG, "nowhere")
    watch = Watch(store, nothing, options)
    asyncio.get_running_loop().call_later(0.03, put, store, "a")
    lines = await read(watch)

    assert [json.loads(line)["object"]["metadata"] for line in lines.splitlines()] == [
        {"resourceVersion": "2"}
    ]


async def test_closing_a_watch_wakes_its_reader() -> None:
    watch = Watch(Store(), Selection(CONFIG), WatchOptions(since=1))
    asyncio.get_running_loop().call_soon(watch.close)

    async with asyncio.timeout(1):
        assert await read(watch) == b""


async def test_an_event_is_encoded_once_for_all_watchers() -> None:
    store = Store()
    watches = [
        Watch(store, Selection(CONFIG), WatchOptions(since=1, timeout_s=0.01)) for _ in range(3)
    ]
    heard: list[StoredEvent] = []
    store.subscribe(heard.append)
    put(store, "a")

    assert heard[0].body() is heard[0].body()
    assert len({await read(watch) for watch in watches}) == 1


# --- Whatever happens ----------------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    """A store beside a plain model of every state that it ever had."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(history_max=8)
        self.model: dict[str, Any] = {}
        self.states: dict[int, dict[str, Any]] = {1: {}}

    def _note(self) -> None:
        self.states[self.store.revision] = dict(self.model)

    @rule(name=st.sampled_from("abcd"), colour=st.sampled_from(["bay", "grey"]))
    def write(self, name: str, colour: str) -> None:
        before = self.store.revision
        stored = put(self.store, name, colour=colour)
        self.model[f"herd/{name}"] = stored
        assert self.store.revision == before + 1
        self._note()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.store.remove(CONFIG, *key.split("/"))
        del self.model[key]
        self._note()

    @invariant()
    def what_is_there_is_what_was_written(self) -> None:
        assert self.store.objects(CONFIG) == [self.model[key] for key in sorted(self.model)]

    @invariant()
    def every_remembered_state_can_be_listed_and_replayed_to_now(self) -> None:
        for revision, state in self.states.items():
            try:
                past = self.store.objects_at(CONFIG, "", revision)
            except StatusError:
                assert self.store.revision - revision > 8, "forgotten only beyond the history"
                continue
            assert past == [state[key] for key in sorted(state)]
            assert self._replayed(state, revision) == self.model

    def _replayed(self, state: dict[str, Any], revision: int) -> dict[str, Any]:
        now = dict(state)
        for event in self.store.events_since(CONFIG, revision):
            assert event.revision > revision
            if event.change == "DELETED":
                del now[event.key]
            else:
                assert (event.key in now) is (event.change == "MODIFIED")
                now[event.key] = event.object
        return now


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestStore = StoreMachine.TestCase
