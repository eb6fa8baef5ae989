"""
Kill -9 in the middle of a thousand writes, again and again, over the same data.

What was acknowledged is there, to the letter; what was not is there wholly or not at all; versions only grow; and a
watcher that reconnects from the last version it saw gets every change exactly once.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.kube_client import KubeClient
from remuda.adapters.system import SystemClock
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.ports.kube import Bookmark, Change, Query, Unavailable
from tests.support.eventually import eventually
from tests.support.manifests import CONFIG_MAP, ConfigMap
from tests.support.standalone import StandaloneProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remuda.ports.kube import Kube, WatchEvent

ROUNDS = 20
WRITES = 1000
NAMESPACE = "default"
ALL = Query(namespace=NAMESPACE)
RETRY_S = 0.02


@dataclass(frozen=True, slots=True)
class Write:
    """One write: what an object becomes. None is its deletion."""

    name: str
    text: str | None

    @property
    def data(self) -> dict[str, str] | None:
        """Say the same twice and at length, so that half of it would show."""
        return None if self.text is None else {"first": self.text * 20, "second": self.text * 20}


@dataclass(slots=True)
class Ledger:
    """What we know to be true of the server: the last acknowledged state, and what was asked for since."""

    known: dict[str, ConfigMap] = field(default_factory=dict)
    pending: dict[str, Write] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    """Versions, as the answers said."""

    def acknowledge(self, write: Write, answer: ConfigMap | None) -> None:
        del self.pending[write.name]
        if answer is None:
            self.known.pop(write.name)
            return
        assert answer.data == write.data
        self.known[write.name] = answer
        self.acknowledged.append(answer.resource_version)

    def settle(self, found: dict[str, ConfigMap]) -> None:
        """Hold what a restarted server shows against what is known, and take its word for what was pending."""
        for name in sorted(self.known.keys() | found.keys() | self.pending.keys()):
            known, now = self.known.get(name), found.get(name)
            if name not in self.pending:
                assert now == known, f"{name} was acknowledged"
            elif now != known:
                data = None if now is None else now.data
                assert data == self.pending[name].data, f"{name} is half written"
        self.known = dict(found)
        self.pending.clear()


class Watcher:
    """Follows everything, reconnecting from the last version it saw."""

    def __init__(self, kube: Kube, since: str) -> None:
        self._kube = kube
        self.version = since
        self.events: list[WatchEvent[ConfigMap]] = []
        self.reconnects = 0

    async def run(self) -> None:
        clock = SystemClock()
        while True:
            try:
                async with self._kube.watch(CONFIG_MAP, ALL, since=self.version) as batches:
                    async for batch in batches:
                        for event in batch:
                            self._note(event)
            except Unavailable:
                self.reconnects += 1
            await clock.sleep(RETRY_S)

    def _note(self, event: WatchEvent[ConfigMap] | Bookmark) -> None:
        if isinstance(event, Bookmark):
            self.version = event.resource_version
            return
        self.version = event.object.resource_version
        self.events.append(event)

    def state(self) -> dict[str, ConfigMap]:
        objects: dict[str, ConfigMap] = {}
        for event in self.events:
            if event.change is Change.DELETED:
                assert event.object.name in objects, f"{event.object.name} went without having come"
                del objects[event.object.name]
            else:
                objects[event.object.name] = event.object
        return objects


def plan(round_number: int, ledger: Ledger, chance: random.Random) -> list[Write]:
    """Choose a thousand writes, at most one to each object: half creations, then changes, then deletions."""
    old = sorted(ledger.known)
    chance.shuffle(old)
    changed, deleted = old[: WRITES * 3 // 10], old[WRITES * 3 // 10 : WRITES // 2]
    writes = [Write(name, f"changed in round {round_number} ") for name in changed]
    writes += [Write(name, None) for name in deleted]
    writes += [
        Write(f"mare-{round_number:02}-{number:04}", f"born in round {round_number} ")
        for number in range(WRITES - len(writes))
    ]
    chance.shuffle(writes)
    return writes


async def carry_out(kube: Kube, write: Write, ledger: Ledger) -> None:
    try:
        if write.text is None:
            await kube.delete(CONFIG_MAP, write.name, namespace=NAMESPACE)
            ledger.acknowledge(write, None)
        elif write.name in ledger.known:
            patch = MergePatch({"data": {**(write.data or {})}})
            answer = await kube.patch(CONFIG_MAP, write.name, patch, namespace=NAMESPACE)
            ledger.acknowledge(write, answer)
        else:
            meta = ObjectMeta(name=write.name, namespace=NAMESPACE)
            new = ConfigMap(metadata=meta, data=write.data or {})
            ledger.acknowledge(write, await kube.create(CONFIG_MAP, new))
    except Unavailable:
        pass  # cut off: it stays pending, because nobody can say whether it was done


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[StandaloneProcess]:
    process = StandaloneProcess(tmp_path)
    yield process
    process.stop()


async def one_round(kube: Kube, standalone: StandaloneProcess, ledger: Ledger, number: int) -> None:
    """Write a thousand things at once, and pull the plug at the moment when some, but not all, are acknowledged."""
    chance = random.Random(number)  # noqa: S311 - a seed, so that a bad round can be repeated
    writes = plan(number, ledger, chance)
    ledger.pending = {write.name: write for write in writes}
    # More than the client has connections: so some of the rest are cut off on their way, whatever is answered already.
    left_when_killed = chance.randrange(250, 950)

    async def write_and_watch_the_count(write: Write) -> None:
        await carry_out(kube, write, ledger)
        if len(ledger.pending) == left_when_killed:
            standalone.kill()

    async with asyncio.TaskGroup() as group:
        for write in writes:
            group.create_task(write_and_watch_the_count(write), name=write.name)


async def test_kill_nine_loses_nothing(standalone: StandaloneProcess) -> None:
    standalone.start()
    wire, watching_wire = standalone.wire(), standalone.wire()
    try:
        kube, ledger = KubeClient(wire), Ledger()
        since = (await kube.list(CONFIG_MAP, ALL)).resource_version
        watcher = Watcher(KubeClient(watching_wire), since)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watcher.run(), name="watcher")
            last = await all_rounds(kube, standalone, ledger, since)
            await eventually(lambda: caught_up(watcher, last.resource_version))
            watching.cancel()
    finally:
        await wire.close()
        await watching_wire.close()

    versions = [int(event.object.resource_version) for event in watcher.events]
    assert watcher.reconnects >= ROUNDS
    assert versions == sorted(set(versions)), "an event came twice, or out of order"
    assert {int(version) for version in ledger.acknowledged} <= set(versions), "an event is missing"
    assert watcher.state() == {**ledger.known, last.name: last}


async def all_rounds(
    kube: Kube, standalone: StandaloneProcess, ledger: Ledger, newest: str
) -> ConfigMap:
    """Kill and look, twenty times; then write once more, as the mark that the watcher has to reach."""
    for number in range(ROUNDS):
        await one_round(kube, standalone, ledger, number)
        assert 0 < len(ledger.pending) < WRITES, "the plug was pulled too early or too late"
        await asyncio.to_thread(standalone.start)
        listing = await kube.list(CONFIG_MAP, ALL)
        ledger.settle({item.name: item for item in listing.items})
        assert int(listing.resource_version) >= int(newest), "versions went back"
        newest = listing.resource_version
    mark = MergePatch({"data": {"last": "1"}})
    return await kube.patch(CONFIG_MAP, min(ledger.known), mark, namespace=NAMESPACE)


async def caught_up(watcher: Watcher, version: str) -> bool:
    return watcher.version == version
