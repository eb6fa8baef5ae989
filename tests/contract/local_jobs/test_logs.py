"""What a job printed: no byte twice, no gap, bounded, and readable from anywhere in it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from remuda.ports.local_jobs import LogPart, cut_notice
from tests.support.local_jobs import LOG_MAX, LocalStore, a_local_job, an_end

if TYPE_CHECKING:
    from remuda.ports.local_jobs import LocalJobs

NOTICE = cut_notice(LOG_MAX)


@pytest.fixture
async def local(both: LocalStore) -> LocalJobs:
    await both.local.add(a_local_job())
    return both.local


async def whole(local: LocalJobs) -> bytes:
    part = await local.read_log("local-1", 0, limit=1_000_000)
    assert part is not None
    return part.data


async def test_output_is_kept_in_its_order(local: LocalJobs) -> None:
    assert await local.append_log("local-1", 0, b"one ") == 4
    assert await local.append_log("local-1", 4, b"two\x00\xff") == 9

    assert await whole(local) == b"one two\x00\xff"


@pytest.mark.parametrize(
    ("offset", "data", "answer", "kept"),
    [
        pytest.param(0, b"hello", 5, b"hello", id="the same again"),
        pytest.param(0, b"hel", 5, b"hello", id="a part of it again"),
        pytest.param(2, b"llo world", 11, b"hello world", id="its end and more"),
        pytest.param(0, b"HELLO world", 11, b"hello world", id="other words for what is there"),
        pytest.param(5, b"", 5, b"hello", id="nothing"),
        pytest.param(6, b"world", 5, b"hello", id="a gap"),
        pytest.param(99, b"", 5, b"hello", id="nothing after a gap"),
    ],
)
async def test_a_second_append(
    local: LocalJobs, offset: int, data: bytes, answer: int, kept: bytes
) -> None:
    await local.append_log("local-1", 0, b"hello")

    assert await local.append_log("local-1", offset, data) == answer
    assert await whole(local) == kept


async def test_an_unknown_job_has_no_log(local: LocalJobs) -> None:
    assert await local.append_log("local-9", 0, b"x") is None
    assert await local.read_log("local-9", 0, limit=10) is None


async def test_a_log_of_exactly_the_bound_is_not_cut(local: LocalJobs) -> None:
    assert await local.append_log("local-1", 0, b"a" * LOG_MAX) == LOG_MAX

    assert await whole(local) == b"a" * LOG_MAX


async def test_past_the_bound_nothing_is_kept_and_the_log_says_so(local: LocalJobs) -> None:
    await local.append_log("local-1", 0, b"a" * (LOG_MAX - 1))

    assert await local.append_log("local-1", LOG_MAX - 1, b"bcd") == LOG_MAX + 2
    assert await local.append_log("local-1", LOG_MAX + 2, b"more") == LOG_MAX + 6
    assert await local.append_log("local-1", LOG_MAX + 1000, b"!") == LOG_MAX + 1001

    assert await whole(local) == b"a" * (LOG_MAX - 1) + b"b" + NOTICE


async def test_a_full_log_says_so_at_the_next_byte(local: LocalJobs) -> None:
    await local.append_log("local-1", 0, b"a" * LOG_MAX)
    await local.append_log("local-1", LOG_MAX, b"b")

    assert await whole(local) == b"a" * LOG_MAX + NOTICE


async def test_one_append_larger_than_the_bound_is_cut(local: LocalJobs) -> None:
    assert await local.append_log("local-1", 0, b"a" * 5000) == 5000

    assert await whole(local) == b"a" * LOG_MAX + NOTICE


async def test_a_log_is_read_from_any_offset_in_parts_of_any_size(local: LocalJobs) -> None:
    text = bytes(range(90))
    for begin, end in ((0, 7), (7, 8), (8, 40), (40, 90)):
        await local.append_log("local-1", begin, text[begin:end])

    for offset in range(0, 92, 3):
        for limit in (1, 6, 33, 200):
            part = await local.read_log("local-1", offset, limit=limit)
            assert part is not None
            assert part.data == text[offset : offset + limit]
            assert part.next_offset == offset + len(part.data)


async def test_a_log_is_complete_only_when_the_job_is_over_and_all_was_read(
    local: LocalJobs,
) -> None:
    await local.append_log("local-1", 0, b"hello")
    assert await local.read_log("local-1", 0, limit=10) == LogPart(b"hello", 5, complete=False)
    assert await local.read_log("local-1", 5, limit=10) == LogPart(b"", 5, complete=False)
    await local.end("local-1", an_end())

    assert await local.read_log("local-1", 0, limit=3) == LogPart(b"hel", 3, complete=False)
    assert await local.read_log("local-1", 3, limit=3) == LogPart(b"lo", 5, complete=True)
    assert await local.read_log("local-1", 50, limit=3) == LogPart(b"", 50, complete=True)


async def test_a_job_that_printed_nothing_has_an_empty_log(local: LocalJobs) -> None:
    assert await local.read_log("local-1", 0, limit=10) == LogPart(b"", 0, complete=False)


async def test_what_comes_after_the_end_is_kept_too(local: LocalJobs) -> None:
    await local.end("local-1", an_end())

    assert await local.append_log("local-1", 0, b"late") == 4
    assert await whole(local) == b"late"


async def test_many_at_once_write_no_byte_twice_and_leave_no_gap(local: LocalJobs) -> None:
    text = bytes(i % 251 for i in range(LOG_MAX))
    chance = random.Random(7)  # noqa: S311 - a shuffle, no secret
    parts = [(at, at + chance.randrange(1, 30)) for at in range(0, LOG_MAX, 5) for _ in range(2)]
    chance.shuffle(parts)

    async def send(begin: int, end: int) -> None:
        """Send as a runner does: on a gap, from where the answer says."""
        while (kept := await local.append_log("local-1", begin, text[begin:end])) is not None:
            if kept >= begin:
                return
            begin = kept

    await asyncio.gather(*(send(begin, end) for begin, end in parts))

    assert await whole(local) == text
