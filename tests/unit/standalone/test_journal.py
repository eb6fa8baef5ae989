from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from remuda.model.errors import BadInput
from remuda.standalone.errors import StatusError
from remuda.standalone.journal import FILE_NAME, Journal
from remuda.standalone.store import Store, StoredEvent
from tests.unit.standalone.worlds import CONFIG, config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

WRITER = Path(__file__).with_name("writer.py")
DEADLINE_S = 30


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Fail a test that waits for ever: a store that forgets its waiters, or a writer that writes nothing."""
    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def out_of_time(_: int, __: FrameType | None) -> NoReturn:
    pytest.fail(f"it took more than {DEADLINE_S} s")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def reopened(store: Store, directory: Path, *, history_max: int = 100) -> Store:
    await store.close()
    return Store(Journal(directory, history_max=history_max), history_max=history_max)


async def test_everything_is_there_again(directory: Path) -> None:
    store = Store(Journal(directory, history_max=100), history_max=100)
    store.put(CONFIG, config("a", data={"n": "1"}))
    store.put(CONFIG, config("b"))
    await store.settled()
    middle = store.revision
    store.put(CONFIG, config("a", data={"n": "2"}))
    store.remove(CONFIG, "herd", "b")
    await store.settled()
    objects, events = store.objects(CONFIG), store.events_since(CONFIG, 1)

    again = await reopened(store, directory)

    assert again.revision == store.revision == 5
    assert again.objects(CONFIG) == objects
    assert [shown(event) for event in again.events_since(CONFIG, 1)] == [shown(e) for e in events]
    assert [o["metadata"]["name"] for o in again.objects_at(CONFIG, "", middle)] == ["a", "b"]
    await again.close()


def shown(event: StoredEvent) -> tuple[object, ...]:
    return event.revision, event.change, event.kind, event.object, event.previous


async def test_versions_go_on_after_a_restart(directory: Path) -> None:
    store = Store(Journal(directory))
    store.put(CONFIG, config("a"))
    store.remove(CONFIG, "herd", "a")
    await store.settled()

    again = await reopened(store, directory)
    again.put(CONFIG, config("a"))
    await again.settled()

    assert again.revision == 4, "the version of a deletion is not given away again"
    await again.close()


async def test_history_stays_bounded_across_many_short_runs(directory: Path) -> None:
    for _ in range(20):
        store = Store(Journal(directory, history_max=16), history_max=16)
        store.put(CONFIG, config("a"))  # fewer than make a stride
        await store.settled()
        await store.close()

    with sqlite3.connect(directory / FILE_NAME) as db:
        ((kept,),) = db.execute("SELECT count(*) FROM events")
    db.close()
    assert kept <= 18


async def test_history_stays_bounded_on_disk_and_its_end_is_remembered(directory: Path) -> None:
    store = Store(Journal(directory, history_max=16), history_max=16)
    for at in range(200):
        store.put(CONFIG, config("a", data={"n": str(at)}))
        if at % 7 == 0:
            await store.settled()
    await store.settled()

    again = await reopened(store, directory, history_max=16)

    assert len(again.events_since(CONFIG, again.revision - 16)) == 16
    with pytest.raises(StatusError, match="too old resource version: 2 "):
        again.events_since(CONFIG, 2)
    await again.close()
    with sqlite3.connect(directory / FILE_NAME) as db:
        ((kept,),) = db.execute("SELECT count(*) FROM events")
    db.close()
    assert kept <= 16 + 16 // 8 + 7


async def test_nothing_shows_before_it_is_durable(directory: Path) -> None:
    store = Store(Journal(directory))
    heard: list[StoredEvent] = []
    store.subscribe(heard.append)

    store.put(CONFIG, config("a", data={"n": "1"}))

    assert store.get(CONFIG, "herd", "a") is None
    assert store.revision == 1
    assert heard == []
    latest = store.latest(CONFIG, "herd", "a")
    assert latest is not None, "but the next writer builds on it"

    await store.settled()

    assert store.get(CONFIG, "herd", "a") == latest
    assert [event.revision for event in heard] == [2]
    await store.close()


class CountingJournal(Journal):
    """A journal that remembers how many writes each synchronisation carried."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.sizes: list[int] = []

    def append(self, batch: list[StoredEvent]) -> None:
        self.sizes.append(len(batch))
        super().append(batch)


async def test_who_waits_while_the_last_batch_is_on_its_way_waits_for_that(directory: Path) -> None:
    store = Store(Journal(directory))
    store.put(CONFIG, config("a"))
    await asyncio.sleep(0)  # the batch is with the disk, and nothing is queued behind it

    async with asyncio.timeout(5):
        await store.settled()

    assert store.get(CONFIG, "herd", "a") is not None
    await store.close()


async def test_writes_that_wait_for_the_disk_share_the_next_batch(directory: Path) -> None:
    journal = CountingJournal(directory)
    store = Store(journal)

    async def write(name: str) -> None:
        store.put(CONFIG, config(name))
        await store.settled()

    async with asyncio.TaskGroup() as group:
        for at in range(100):
            group.create_task(write(f"c{at}"))

    assert sum(journal.sizes) == 100
    assert len(journal.sizes) < 20
    await store.close()


async def test_a_batch_that_cannot_be_written_is_forgotten_and_the_store_goes_on(
    directory: Path,
) -> None:
    journal = Journal(directory)
    store = Store(journal)
    store.put(CONFIG, config("before"))
    await store.settled()
    heard: list[StoredEvent] = []
    store.subscribe(heard.append)

    with disk_full(directory, journal):
        for name in ("before", "new"):
            store.put(CONFIG, config(name, data={"x": "y" * 10_000}))
        waiting = [asyncio.create_task(store.settled()) for _ in range(2)]  # noqa: TID251 - two writers
        store.put(CONFIG, config("on-top"))
        refusals = await asyncio.gather(*waiting, return_exceptions=True)

    for refusal in refusals:
        assert isinstance(refusal, StatusError)
        assert refusal.code == 500
        assert "full" in refusal.message
        assert "Free disk space" in refusal.message
    assert heard == []
    assert store.latest(CONFIG, "herd", "new") is None
    assert store.latest(CONFIG, "herd", "on-top") is None
    assert "data" not in (store.latest(CONFIG, "herd", "before") or {})

    given_away = store.revision
    store.put(CONFIG, config("after"))
    await store.settled()
    assert store.revision > given_away
    again = await reopened(store, directory)
    assert [o["metadata"]["name"] for o in again.objects(CONFIG)] == ["after", "before"]
    await again.close()


class disk_full:  # noqa: N801 - reads as a statement
    """Let the database have no page more than it has, as on a full disk."""

    def __init__(self, _: Path, journal: Journal) -> None:
        self._db = journal._db  # noqa: SLF001 - a disk cannot be filled from outside

    def __enter__(self) -> None:
        ((pages,),) = self._db.execute("PRAGMA page_count")
        self._db.execute(f"PRAGMA max_page_count = {pages}")

    def __exit__(self, *_: object) -> None:
        self._db.execute("PRAGMA max_page_count = 1000000")


# --- Directories that cannot be used ----------------------------------------------------------------------------------


async def test_a_directory_serves_one_control_plane_at_a_time(directory: Path) -> None:
    store = Store(Journal(directory))

    with pytest.raises(BadInput, match=r"data is in use: another control plane holds its lock\."):
        Journal(directory)

    await store.close()
    Journal(directory).close()


def test_nobody_else_may_read_it(directory: Path) -> None:
    directory.mkdir(mode=0o755)

    Journal(directory).close()

    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / FILE_NAME).stat().st_mode & 0o077 == 0


def another_program(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE horses (name)")
    db.close()


def a_newer_version(path: Path) -> None:
    Journal(path.parent).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def no_database(path: Path) -> None:
    path.write_bytes(b"not a database " * 500)


def torn_pages(path: Path) -> None:
    journal = Journal(path.parent)
    store_batch = [
        StoredEvent(at, "ADDED", ("", "configmaps"), config(f"c{at}", data="x" * 3000), None)
        for at in range(2, 40)
    ]
    journal.append(store_batch)
    journal.close()
    torn = bytearray(path.read_bytes())
    torn[5 * 4096 : 12 * 4096] = b"\xff" * (7 * 4096)
    path.write_bytes(torn)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        pytest.param(
            another_program, "it is a database of another program", id="another program's"
        ),
        pytest.param(a_newer_version, "its schema is version 99, this program knows 1", id="newer"),
        pytest.param(no_database, "file is not a database", id="not a database"),
        pytest.param(torn_pages, "", id="torn"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(
    directory: Path, spoil: Callable[[Path], None], says: str
) -> None:
    directory.mkdir()
    path = directory / FILE_NAME
    spoil(path)
    before = path.read_bytes()

    with pytest.raises(BadInput) as refused:
        Journal(directory)

    assert str(path) in str(refused.value)
    assert says in str(refused.value)
    assert "Restore it from a backup" in str(refused.value)
    assert path.read_bytes() == before


# --- kill -9 -------------------------------------------------------------------------------------------------------


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(directory: Path) -> None:
    acknowledged: dict[str, int] = {}
    versions: list[int] = []
    for _ in range(3):
        for name, number, version in killed_midway(directory, after=150):
            acknowledged[name] = max(acknowledged.get(name, 0), number)
            versions.append(version)
    assert len(set(versions)) == len(versions), "no version is given twice, crashes or not"

    store = Store(Journal(directory, history_max=100_000), history_max=100_000)

    found = {o["metadata"]["name"]: int(o["data"]["n"]) for o in store.objects(CONFIG)}
    assert {
        name: found.get(name, 0) >= number for name, number in acknowledged.items()
    } == dict.fromkeys(acknowledged, True)
    assert store.revision >= max(versions)
    replayed: dict[str, int] = {}
    for event in store.events_since(CONFIG, 1):
        name, number = event.object["metadata"]["name"], int(event.object["data"]["n"])
        assert number == replayed.get(name, 0) + 1, "a watch from the start misses nothing"
        replayed[name] = number
    assert replayed == found
    asyncio.run(store.close())


def killed_midway(directory: Path, *, after: int) -> list[tuple[str, int, int]]:
    """Run the writer until it has acknowledged so many writes, kill it, and return what it acknowledged."""
    command = [sys.executable, str(WRITER), str(directory), "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:  # noqa: S603 - our own file
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(after)]
        writer.kill()
        lines += writer.stdout.readlines()
    whole = [line.split() for line in lines if line.endswith(b"\n")]
    return [(name.decode(), int(number), int(version)) for name, number, version in whole]
