"""A local job's life: kept once, begun by one Pod, ended by the first word, forgotten in the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.support.jobs import START
from tests.support.local_jobs import LocalStore, a_local_job, an_end

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database

LATER = START + timedelta(seconds=5)


async def test_a_job_is_kept_as_it_was_given(both: LocalStore) -> None:
    job = a_local_job(
        script='#!/bin/sh\nprintf "%s" "äö\U0001f40e\\"', env={"A": "1 '\"\n", "B": ""}
    )

    assert await both.local.add(job) == job
    assert await both.local.get("local-1") == job
    assert await both.local.get("local-2") is None


async def test_a_job_that_is_added_again_stays_the_first(both: LocalStore) -> None:
    await both.local.add(a_local_job())
    await both.local.begin("local-1", pod="a", pod_uid="u1", at=LATER)

    again = await both.local.add(a_local_job(script="other", request="11"))

    assert again == a_local_job(started_at=LATER, begun_by="u1", pod="a")
    assert await both.local.get("local-1") == again


async def test_one_pod_begins_a_job_and_may_say_so_again(both: LocalStore) -> None:
    await both.local.add(a_local_job())

    assert await both.local.begin("local-1", pod="a", pod_uid="u1", at=START)
    assert await both.local.begin("local-1", pod="a", pod_uid="u1", at=LATER, tells_end=True)
    assert not await both.local.begin("local-1", pod="a", pod_uid="u2", at=LATER)

    job = await both.local.get("local-1")
    assert job is not None
    assert (job.started_at, job.begun_by, job.tells_end) == (START, "u1", True)
    assert await both.local.begun_by("u1") == "local-1"
    assert await both.local.begun_by("u2") == ""
    assert await both.local.begun_by("") == ""


async def test_a_pod_begins_no_second_job(both: LocalStore) -> None:
    await both.local.add(a_local_job("local-1"))
    await both.local.add(a_local_job("local-2"))
    await both.local.begin("local-1", pod="a", pod_uid="u1", at=START)

    assert not await both.local.begin("local-2", pod="a", pod_uid="u1", at=START)

    second = await both.local.get("local-2")
    assert second is not None
    assert second.started_at is None


async def test_an_unknown_a_cancelled_and_an_ended_job_are_not_begun(both: LocalStore) -> None:
    for number in (1, 2):
        await both.local.add(a_local_job(f"local-{number}"))
    await both.local.cancel("local-1", START)
    await both.local.end("local-2", an_end())

    for number in (1, 2, 3):
        assert not await both.local.begin(
            f"local-{number}", pod="a", pod_uid=f"u{number}", at=LATER
        )


async def test_a_begun_job_that_was_cancelled_may_repeat_that_it_began(both: LocalStore) -> None:
    await both.local.add(a_local_job())
    await both.local.begin("local-1", pod="a", pod_uid="u1", at=START)
    await both.local.cancel("local-1", START)

    assert await both.local.begin("local-1", pod="a", pod_uid="u1", at=LATER)


async def test_of_many_pods_at_once_one_begins_the_job(both: LocalStore) -> None:
    await both.local.add(a_local_job())

    answers = await asyncio.gather(
        *(both.local.begin("local-1", pod="a", pod_uid=f"u{n}", at=START) for n in range(16))
    )

    assert sum(answers) == 1
    job = await both.local.get("local-1")
    assert job is not None
    assert job.begun_by == f"u{answers.index(True)}"


async def test_of_many_jobs_at_once_a_pod_begins_one(both: LocalStore) -> None:
    for number in range(8):
        await both.local.add(a_local_job(f"local-{number}"))

    answers = await asyncio.gather(
        *(both.local.begin(f"local-{n}", pod="a", pod_uid="u1", at=START) for n in range(8))
    )

    assert sum(answers) == 1
    assert await both.local.begun_by("u1") == f"local-{answers.index(True)}"


async def test_the_first_word_about_the_end_counts(both: LocalStore) -> None:
    await both.local.add(a_local_job())
    first = an_end("failure", exit_code=3, reason="exit 3")

    assert await both.local.end("local-1", first) == first
    assert await both.local.end("local-1", an_end(at=LATER)) == first
    assert await both.local.end("local-9", an_end()) is None


async def test_the_end_forgets_the_script_and_its_environment(both: LocalStore) -> None:
    await both.local.add(a_local_job(script="echo SECRET-OF-ANN", env={"A": "SECRET-OF-ANN"}))
    await both.local.end("local-1", an_end(exit_code=None, reason=""))

    job = await both.local.get("local-1")

    assert job == a_local_job(script="", env={}, end=an_end(exit_code=None))


async def test_a_cancel_is_noted_once_and_not_after_the_end(both: LocalStore) -> None:
    await both.local.add(a_local_job())

    assert await both.local.cancel("local-1", START)
    assert await both.local.cancel("local-1", LATER)
    job = await both.local.get("local-1")
    assert job is not None
    assert job.cancelled_at == START
    await both.local.end("local-1", an_end())
    assert not await both.local.cancel("local-1", LATER)
    assert not await both.local.cancel("local-9", LATER)


async def test_what_ended_long_ago_is_forgotten_with_its_log(both: LocalStore) -> None:
    for number in range(4):
        await both.local.add(a_local_job(f"local-{number}"))
        await both.local.append_log(f"local-{number}", 0, b"words")
    for number in range(3):
        at = START + timedelta(seconds=number)
        await both.local.end(f"local-{number}", an_end(at=at))

    assert await both.local.forget(ended_before=START + timedelta(seconds=2), limit=1) == 1
    assert await both.local.get("local-0") is None
    assert await both.local.forget(ended_before=START + timedelta(seconds=2), limit=9) == 1
    assert await both.local.forget(ended_before=START + timedelta(seconds=2), limit=9) == 0
    assert await both.local.read_log("local-1", 0, limit=9) is None
    assert await both.local.get("local-2") is not None
    assert await both.local.get("local-3") is not None


async def test_jobs_about_which_both_stores_agree_are_settled(both: LocalStore) -> None:
    await both.local.add(a_local_job("local-1"))
    await both.local.add(a_local_job("local-2"))
    await both.queue("local-1")
    await both.queue("local-2")
    await both.local.end("local-2", an_end())
    await both.complete("local-2")

    assert await both.local.unsettled(submitted_before=LATER, limit=9) == ()


async def test_a_job_that_was_never_enqueued_is_unsettled_once_it_is_old(both: LocalStore) -> None:
    await both.local.add(a_local_job())

    assert await both.local.unsettled(submitted_before=START, limit=9) == ()
    assert await both.local.unsettled(submitted_before=LATER, limit=9) == ("local-1",)


@pytest.mark.parametrize("what", ["ended here", "ended there", "cancelled", "begun"])
async def test_a_job_that_is_further_in_one_store_is_unsettled(both: LocalStore, what: str) -> None:
    await both.local.add(a_local_job())
    await both.queue()
    match what:
        case "ended here":
            await both.local.end("local-1", an_end())
        case "ended there":
            await both.complete("local-1")
        case "cancelled":
            await both.local.cancel("local-1", START)
        case _:
            await both.local.begin("local-1", pod="a", pod_uid="u1", at=START)

    assert await both.local.unsettled(submitted_before=START, limit=9) == ("local-1",)


async def test_a_begun_job_that_runs_is_settled(both: LocalStore) -> None:
    await both.local.add(a_local_job())
    await both.queue()
    await both.run("a")
    await both.local.begin("local-1", pod="a", pod_uid="uid-a", at=START)
    await both.local.cancel("local-1", START)

    assert await both.local.unsettled(submitted_before=LATER, limit=9) == ()


async def test_unsettled_jobs_come_oldest_first_and_no_more_than_asked_for(
    both: LocalStore,
) -> None:
    for number in (3, 1, 2):
        at = START + timedelta(seconds=number)
        await both.local.add(replace(a_local_job(f"local-{number}"), submitted_at=at))

    later = START + timedelta(hours=1)
    assert await both.local.unsettled(submitted_before=later, limit=2) == ("local-1", "local-2")


async def test_no_row_keeps_a_script_past_its_end(database: Database) -> None:
    statement = (
        "INSERT INTO local_jobs (job_id, request, script, env, timeout_s, submitted_by, submitted_at, ended_at, "
        "conclusion) VALUES ('x', '', 'secret', '{}', 1, '', now(), now(), 'success')"
    )
    with pytest.raises(asyncpg.CheckViolationError, match="local_jobs_script"):
        async with database.connection() as c:
            await c.execute(statement)


async def test_an_end_that_was_read_off_a_pod_is_confirmed_once_and_stays_as_it_is(
    both: LocalStore,
) -> None:
    read_off = an_end("failure", more_until=LATER)
    for number in (1, 2):
        await both.local.add(a_local_job(f"local-{number}"))
    await both.local.told("local-1", files_note="too early")
    await both.local.end("local-1", read_off)
    await both.local.end("local-2", an_end())
    assert await both.local.end("local-1", an_end()) == read_off, "the first word counts"

    for note in ("the guest left none", "said again"):
        for number in (1, 2, 3):
            await both.local.told(f"local-{number}", files_note=note)

    first, second = await both.local.get("local-1"), await both.local.get("local-2")
    assert first is not None
    assert second is not None
    assert first.end == an_end("failure", files_note="the guest left none")
    assert second.end == an_end(), "nothing was waited for"
