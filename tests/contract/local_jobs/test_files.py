"""Archives of local jobs: whole or not at all, nobody else's, bounded, and gone when nobody needs them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.ports.local_files import (
    MAKES_ROOM_AFTER,
    FileRefusal,
    Forgotten,
    NewFile,
    StoredFile,
    Way,
)
from remuda.ports.local_jobs import Upload
from tests.support.jobs import START
from tests.support.local_jobs import TOTAL_MAX, LocalStore, a_local_job, an_end

if TYPE_CHECKING:
    from remuda.ports.local_files import LocalFiles

TEXT = bytes(range(90))
LATER = START + timedelta(hours=2)


def a_file(**changes: object) -> NewFile:
    given: dict[str, object] = {"file_id": "ann-1", "way": Way.IN, "owner": "ann"}
    return NewFile(**{**given, "size_bytes": len(TEXT), **changes})  # type: ignore[arg-type] # fields


@pytest.fixture
async def files(both: LocalStore) -> LocalFiles:
    for number in (1, 2):
        await both.local.add(a_local_job(f"local-{number}"))
    return both.files


async def sent(files: LocalFiles, file: NewFile, text: bytes = TEXT) -> None:
    assert await files.append(file, 0, text, at=START) == len(text)


async def test_what_goes_with_a_job_is_kept_with_it(both: LocalStore) -> None:
    upload = Upload(file_id="ann-1", size_bytes=90, sha256="ab" * 32)
    job = a_local_job(upload=upload, download=("dist", "a b/ü"))

    assert await both.local.add(job) == job
    await both.local.end("local-1", an_end(files_note="they are too large"))

    ended = await both.local.get("local-1")
    assert ended is not None
    assert (ended.upload, ended.download) == (upload, ("dist", "a b/ü"))
    assert ended.end == an_end(files_note="they are too large")


async def test_an_archive_comes_in_pieces_and_is_read_from_anywhere(files: LocalFiles) -> None:
    for begin, end in ((0, 7), (7, 8), (8, 40), (40, 90)):
        assert await files.append(a_file(), begin, TEXT[begin:end], at=START) == end
        found = await files.get("ann-1")
        assert found is not None
        assert (found.kept_bytes, found.is_whole) == (end, end == 90)

    for offset in range(0, 95, 7):
        for limit in (1, 33, 200):
            read = await files.read("ann-1", offset, limit=limit)
            assert read == TEXT[offset : offset + limit]
    assert await files.read("none", 0, limit=10) == b""


@pytest.mark.parametrize(
    ("changes", "offset", "data", "answer"),
    [
        pytest.param({}, 0, TEXT[:40], 40, id="the same again"),
        pytest.param({}, 0, b"other words for what is there", 40, id="other words again"),
        pytest.param({}, 30, TEXT[30:50], 50, id="its end and more"),
        pytest.param({}, 41, TEXT[41:], 40, id="a gap"),
        pytest.param({}, 40, b"", 40, id="nothing"),
        pytest.param({}, 80, b"x" * 11, FileRefusal.OTHER_SIZE, id="more than it has"),
        pytest.param({"size_bytes": 91}, 40, b"x", FileRefusal.OTHER_SIZE, id="another size"),
        pytest.param({"owner": "bob"}, 40, b"x", FileRefusal.NOT_YOURS, id="somebody else"),
        pytest.param(
            {"way": Way.OUT, "job_id": "local-1"}, 40, b"x", FileRefusal.NOT_YOURS, id="another way"
        ),
    ],
)
async def test_a_second_piece(
    files: LocalFiles,
    changes: dict[str, object],
    offset: int,
    data: bytes,
    answer: int | FileRefusal,
) -> None:
    await files.append(a_file(), 0, TEXT[:40], at=START)

    assert await files.append(a_file(**changes), offset, data, at=START) == answer

    kept = answer if isinstance(answer, int) else 40
    assert await files.read("ann-1", 0, limit=100) == TEXT[:kept]


async def test_a_job_takes_an_upload_that_is_whole_and_its_submitters_own(
    files: LocalFiles,
) -> None:
    await files.append(a_file(), 0, TEXT[:89], at=START)
    assert not await files.take("ann-1", owner="ann", job_id="local-1")
    await files.append(a_file(), 89, TEXT[89:], at=START)

    assert not await files.take("ann-1", owner="bob", job_id="local-1")
    assert not await files.take("ann-2", owner="ann", job_id="local-1")
    assert await files.take("ann-1", owner="ann", job_id="local-1")
    assert await files.take("ann-1", owner="ann", job_id="local-1")
    assert not await files.take("ann-1", owner="ann", job_id="local-2")

    await files.fetched("ann-1", "u1")
    assert await files.of_job("local-1", Way.IN) == StoredFile(
        file_id="ann-1",
        way=Way.IN,
        owner="ann",
        size_bytes=90,
        kept_bytes=90,
        job_id="local-1",
        fetched_by="u1",
    )
    assert await files.of_job("local-1", Way.OUT) is None
    assert await files.of_job("local-2", Way.IN) is None


async def test_of_two_jobs_at_once_one_takes_an_upload(files: LocalFiles) -> None:
    await sent(files, a_file())

    answers = await asyncio.gather(
        *(files.take("ann-1", owner="ann", job_id=f"local-{1 + n % 2}") for n in range(8))
    )

    assert sum(answers) == 4  # each as often as it was asked for by the one


async def test_many_at_once_write_no_byte_twice_and_leave_no_gap(files: LocalFiles) -> None:
    async def send(begin: int) -> None:
        end = begin + 9
        while True:
            at = await files.append(a_file(), begin, TEXT[begin:end], at=START)
            assert isinstance(at, int)
            if at >= begin:
                return
            begin = at

    await asyncio.gather(*(send(begin) for begin in range(81, -1, -3)))

    assert await files.read("ann-1", 0, limit=100) == TEXT


async def test_all_archives_together_have_a_bound(files: LocalFiles) -> None:
    await files.append(a_file(size_bytes=TOTAL_MAX - 10), 0, b"x", at=START)

    second = a_file(file_id="ann-2", size_bytes=11)
    assert await files.append(second, 0, b"x", at=START) is FileRefusal.NO_ROOM
    assert await files.get("ann-2") is None
    fits = a_file(file_id="ann-2", size_bytes=10)
    assert await files.append(fits, 0, b"x", at=START) == 1


async def test_what_nobody_needs_is_forgotten(both: LocalStore, files: LocalFiles) -> None:
    for name, job in (("ann-1", "local-1"), ("ann-2", "local-2")):
        await sent(files, a_file(file_id=name))
        assert await files.take(name, owner="ann", job_id=job)
        back = a_file(file_id=f"out:{job}", way=Way.OUT, owner="u", job_id=job)
        await sent(files, back)
    await sent(files, a_file(file_id="ann-3"))
    await files.append(a_file(file_id="ann-4"), 0, b"x", at=LATER)

    async def left(*, untaken: int, ended: int) -> list[str]:
        before = Forgotten(
            untaken=START + timedelta(seconds=untaken),
            ended=START + timedelta(seconds=ended),
            fetched=LATER,
        )
        while await files.forget(before, limit=2):
            pass
        names = ("ann-1", "ann-2", "ann-3", "ann-4", "out:local-1", "out:local-2")
        return [name for name in names if await files.get(name) is not None]

    everything = ["ann-1", "ann-2", "ann-3", "ann-4", "out:local-1", "out:local-2"]
    assert await left(untaken=0, ended=0) == everything
    await both.local.end("local-1", an_end())
    assert await left(untaken=0, ended=0) == everything[1:]
    assert await left(untaken=1, ended=0) == ["ann-2", "ann-4", "out:local-1", "out:local-2"]
    assert await left(untaken=1, ended=1) == ["ann-2", "ann-4", "out:local-2"]


async def came_back(both: LocalStore, number: int, size: int = 300, *, over: bool = True) -> str:
    """Let files come back from a job, which is over then or not; return their name."""
    job_id, name = f"back-{number}", f"out:back-{number}"
    await both.local.add(a_local_job(job_id))
    file = a_file(file_id=name, way=Way.OUT, owner="u", job_id=job_id, size_bytes=size)
    await sent(both.files, file, b"x" * size)
    if over:
        await both.local.end(job_id, an_end())
    return name


async def test_what_came_back_goes_soon_after_it_was_fetched(both: LocalStore) -> None:
    kept = await came_back(both, 1)
    fetched = await came_back(both, 2)
    running = await came_back(both, 3, over=False)
    for name in (fetched, running):
        await both.files.given(name, at=START)
    upload = a_file(file_id="ann-9", size_bytes=1)
    await sent(both.files, upload, b"x")
    await both.files.given("ann-9", at=START)  # what goes to a runner is not fetched by people

    async def forget(fetched: timedelta) -> int:
        before = Forgotten(untaken=START, ended=START, fetched=START + fetched)
        return await both.files.forget(before, limit=10)

    assert await forget(timedelta(0)) == 0
    found = await both.files.get(fetched)
    assert found is not None
    assert found.fetched_at == START
    assert await forget(timedelta(seconds=1)) == 1
    left = [await both.files.get(name) is not None for name in (kept, fetched, running, "ann-9")]
    assert left == [True, False, True, True]


async def test_what_was_fetched_first_makes_room_first_and_what_nobody_fetched_never(
    both: LocalStore,
) -> None:
    """There is room for three archives of 300 bytes and a little more."""
    names = [await came_back(both, number) for number in (1, 2, 3)]
    await both.files.given(names[2], at=START)
    await both.files.given(names[1], at=START + timedelta(seconds=1))

    async def add(file_id: str, after: timedelta) -> int | FileRefusal:
        new = a_file(file_id=file_id, size_bytes=300)
        return await both.files.append(new, 0, b"x", at=START + after)

    async def left() -> list[bool]:
        return [await both.files.get(name) is not None for name in names]

    assert await add("ann-1", MAKES_ROOM_AFTER) is FileRefusal.NO_ROOM
    assert await left() == [True, True, True], "whoever fetched it may have to do so again"
    assert await add("ann-1", MAKES_ROOM_AFTER + timedelta(seconds=5)) == 1
    assert await left() == [True, True, False]
    assert await add("ann-2", MAKES_ROOM_AFTER + timedelta(seconds=5)) == 1
    assert await left() == [True, False, False]
    assert await add("ann-3", timedelta(days=1)) is FileRefusal.NO_ROOM
    assert await left() == [True, False, False]


async def test_what_a_job_that_runs_sent_back_makes_no_room(both: LocalStore) -> None:
    running = await came_back(both, 1, 900, over=False)
    await both.files.given(running, at=START)

    new = a_file(size_bytes=300)
    assert await both.files.append(new, 0, b"x", at=LATER) is FileRefusal.NO_ROOM
    assert await both.files.get(running) is not None


async def test_nothing_goes_where_all_that_may_go_makes_too_little_room(both: LocalStore) -> None:
    names = [await came_back(both, number) for number in (1, 2, 3)]
    for name in names[1:]:
        await both.files.given(name, at=START)

    too_large = a_file(size_bytes=701)
    assert await both.files.append(too_large, 0, b"x", at=LATER) is FileRefusal.NO_ROOM
    assert [await both.files.get(name) is not None for name in names] == [True, True, True]
    fits = a_file(size_bytes=700)
    assert await both.files.append(fits, 0, b"x", at=LATER) == 1
    assert [await both.files.get(name) is not None for name in names] == [True, False, False]


async def test_many_at_once_make_room_without_waiting_for_each_other(both: LocalStore) -> None:
    names = [await came_back(both, number, 90) for number in range(11)]
    for name in names:
        await both.files.given(name, at=START)

    answers = await asyncio.gather(
        *(
            both.files.append(a_file(file_id=f"ann-{n}", size_bytes=90), 0, b"x", at=LATER)
            for n in range(8)
        )
    )

    # One who finds that others make room at this moment may be refused: it asks again.
    assert set(answers) <= {1, FileRefusal.NO_ROOM}
    assert 1 in answers
    new = [await both.files.get(f"ann-{n}") is not None for n in range(8)]
    assert new == [answer == 1 for answer in answers]
    old = [await both.files.get(name) is not None for name in names]
    assert old.count(False) == new.count(True), (
        "each that came let one go, and one that was refused none"
    )
    assert 90 * (old.count(True) + new.count(True)) <= TOTAL_MAX


async def test_with_a_job_that_is_forgotten_its_archives_go(
    both: LocalStore, files: LocalFiles
) -> None:
    await sent(files, a_file(file_id="out:local-1", way=Way.OUT, owner="u", job_id="local-1"))
    await both.local.end("local-1", an_end())

    assert await both.local.forget(ended_before=LATER, limit=10) == 1

    assert await files.get("out:local-1") is None
    assert await files.read("out:local-1", 0, limit=10) == b""
