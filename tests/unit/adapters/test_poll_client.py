"""A runner's own side asks for a job and says how it goes: typed answers, bounds, and no secret in any text."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from remuda.adapters.poll_client import PollClient, PollSettings
from remuda.control.pace import Pace
from remuda.ports.desk import (
    AskLater,
    GoHome,
    HandedBefore,
    HandedJob,
    JobKind,
    JobReport,
    NoJobYet,
    NotYou,
    ReportReply,
)
from remuda.ports.dispatch import DispatchError
from remuda.sim.ids import SeededIds
from tests.support.jobs import StillClock
from tests.support.poll_server import (
    GITHUB_JOB,
    LOCAL_JOB,
    SECRET,
    a_poll_server,
    cut,
    endless,
    half,
    says,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.poll_server import PollServer

WHY = {"error": "No", "why": "it is not you", "fix": "go"}


@asynccontextmanager
async def a_client(
    server: PollServer,
    **settings: Any,  # noqa: ANN401 - settings
) -> AsyncIterator[PollClient]:
    given: dict[str, Any] = {"token": "t-1", "wait_s": 2.0, "answer_s": 10.0, **settings}
    client = PollClient(PollSettings(base_url=server.url, **given))
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        pytest.param(says(204), NoJobYet(), id="nothing yet"),
        pytest.param(says(410, {"reason": "drained"}), GoHome("drained"), id="go home"),
        pytest.param(says(410, b"<html>"), GoHome(""), id="go home, without a reason"),
        pytest.param(says(409, WHY), HandedBefore("No: it is not you"), id="handed before"),
        pytest.param(says(401, WHY), NotYou(401, "No: it is not you"), id="unknown"),
        pytest.param(says(403, WHY), NotYou(403, "No: it is not you"), id="somebody else"),
        pytest.param(says(429, WHY), AskLater(None, "No: it is not you"), id="too much"),
        pytest.param(
            says(503, WHY, **{"Retry-After": "7"}), AskLater(7.0, "No: it is not you"), id="not now"
        ),
        pytest.param(
            says(503, None, **{"Retry-After": "999999999999"}),
            AskLater(60.0, ""),
            id="not for years",
        ),
        pytest.param(
            says(503, None, **{"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
            AskLater(None, ""),
            id="a date",
        ),
        pytest.param(
            says(503, None, **{"Retry-After": "-1"}), AskLater(None, ""), id="in the past"
        ),
    ],
)
async def test_answers(answer: Any, read: Any) -> None:  # noqa: ANN401 - of the table
    async with a_poll_server() as server, a_client(server) as client:
        server.polls.append(answer)
        assert await client.poll() == read
        assert server.asked[0]["Prefer"] == "wait=2"
        assert server.asked[0]["Authorization"] == "Bearer t-1"


@pytest.mark.parametrize("job", [GITHUB_JOB, LOCAL_JOB], ids=["github", "local"])
async def test_a_job_is_read_for_the_mailbox_and_never_shown(job: dict[str, Any]) -> None:
    async with a_poll_server() as server, a_client(server) as client:
        server.polls.append(says(200, {**job, "something": "new"}))
        handed = await client.poll()

    assert isinstance(handed, HandedJob)
    assert (handed.job_id, handed.kind) == (job["job_id"], JobKind(job["kind"]))
    document = json.loads(handed.document)
    assert document == {name: value for name, value in job.items() if value is not None}
    assert SECRET not in repr(handed)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(says(200, f"{{ {SECRET}".encode()), id="no JSON"),
        pytest.param(says(200, SECRET.encode()), id="a word"),
        pytest.param(says(200, b""), id="nothing"),
        pytest.param(says(200, [SECRET]), id="a list"),
        pytest.param(says(200, {**GITHUB_JOB, "kind": SECRET}), id="an unknown kind"),
        pytest.param(
            says(200, {**GITHUB_JOB, "encoded_jit_config": [SECRET]}), id="a config that is a list"
        ),
        pytest.param(says(200, {**GITHUB_JOB, "encoded_jit_config": ""}), id="no config"),
        pytest.param(says(200, {**GITHUB_JOB, "script": SECRET}), id="both a config and a script"),
        pytest.param(says(200, {**LOCAL_JOB, "script": ""}), id="no script"),
        pytest.param(says(200, {**LOCAL_JOB, "deadline": SECRET}), id="a deadline that is none"),
        pytest.param(says(200, {**LOCAL_JOB, "job_id": ""}), id="no id"),
        pytest.param(says(200, {**LOCAL_JOB, "job_id": SECRET * 20}), id="an endless id"),
        pytest.param(half(json.dumps(LOCAL_JOB).encode()), id="half a body"),
        pytest.param(endless(100_000_000), id="100 MB"),
        pytest.param(cut(), id="no answer"),
        pytest.param(says(302, GITHUB_JOB, Location="http://127.0.0.1:1/"), id="a redirect"),
        pytest.param(says(404), id="not found"),
        pytest.param(says(500, b"<html>"), id="a fault"),
        pytest.param(says(201, GITHUB_JOB), id="another success"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_an_error_without_its_content(answer: Any) -> None:  # noqa: ANN401 - a handler
    async with a_poll_server() as server, a_client(server) as client:
        server.polls.append(answer)
        with pytest.raises(DispatchError) as raised:
            await client.poll()

        shown = f"{raised.value!r} {raised.value} {raised.value.__cause__} {raised.value.__dict__}"
        assert SECRET not in shown
        server.polls.append(says(204))
        assert await client.poll() == NoJobYet()


async def test_a_server_that_hangs_is_given_up_after_the_wait_and_a_while() -> None:
    async with a_poll_server() as server, a_client(server, wait_s=0.1, answer_s=0.1) as client:
        with pytest.raises(DispatchError, match=r"did not answer within 0\.2 s"):
            await client.poll()


async def test_the_token_is_read_for_each_poll(tmp_path: Path) -> None:
    file = tmp_path / "token"
    async with a_poll_server() as server, a_client(server, token="", token_file=file) as client:
        for token in ("one", "two"):
            file.write_text(token)
            server.polls.append(says(204))
            await client.poll()
        file.unlink()
        with pytest.raises(DispatchError, match="the token in the file"):
            await client.poll()

    assert [headers["Authorization"] for headers in server.asked] == ["Bearer one", "Bearer two"]


async def test_runners_share_connections_and_not_their_tokens() -> None:
    tokens = {"a": "token-of-a", "b": "token-of-b"}
    async with a_poll_server() as server, a_client(server) as client:
        a, b = client.acting_as(lambda: tokens["a"]), client.acting_as(lambda: tokens["b"])
        for each in (a, b, client):
            server.polls.append(says(204))
            await each.poll()
            await each.report("pod", JobReport(exit_code=0))
        tokens["a"] = "a fresh one"
        server.polls.append(says(401, {"error": "a fresh one is no good"}))
        refused = await a.poll()
        tokens["b"] = ""
        with pytest.raises(DispatchError, match="who asks holds no token"):
            await b.poll()

    used = [headers["Authorization"].removeprefix("Bearer ") for headers in server.asked]
    assert used == ["token-of-a", "token-of-b", "t-1", "a fresh one"]
    assert [told["token"].removeprefix("Bearer ") for told in server.told] == used[:3]
    assert refused == NotYou(401, "… is no good")
    assert "token-of" not in f"{vars(a)!r}"


async def test_as_many_polls_are_held_open_as_there_are_runners() -> None:
    """One that waited for a connection would lose its deadline there."""
    many = 80
    async with (
        a_poll_server() as server,
        a_client(server, wait_s=120.0, report_timeout_s=60.0) as client,
        asyncio.TaskGroup() as group,
    ):
        polls = [group.create_task(client.acting_as(lambda: "t").poll()) for _ in range(many)]
        await server.until(lambda: len(server.asked) == many, within_s=60.0)
        assert await client.report("a", JobReport(exit_code=0)) == ReportReply()
        for poll in polls:
            poll.cancel()


async def test_a_report_says_what_the_contract_says() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    report = JobReport(
        started_at=noon, log=b"hi\n", log_offset=4, exit_code=3, exit_reason="r", finished_at=noon
    )
    async with a_poll_server() as server, a_client(server) as client:
        server.reports.extend(
            [says(204), says(200, {"stop": "cancelled", "log_offset": 9, "new": 1})]
        )
        assert await client.report("linux-a", report) == ReportReply()
        assert await client.report("a/../b", JobReport(log=b"x")) == ReportReply("cancelled", 9)

    assert server.told[0] == {
        "path": "/api/v1/runners/linux-a/telemetry",
        "token": "Bearer t-1",
        "started_at": "2026-03-01T12:00:00Z",
        "log": {"offset": 4, "data": "aGkK"},
        "exit": {"code": 3, "reason": "r", "finished_at": "2026-03-01T12:00:00Z"},
    }
    assert server.told[1]["path"] == "/api/v1/runners/a/../b/telemetry"


@pytest.mark.parametrize(
    "answer", [says(500), says(200, b"???"), says(200, {"log_offset": -1}), says(302), cut()]
)
async def test_a_report_that_was_not_taken_is_an_error(answer: Any) -> None:  # noqa: ANN401 - a handler
    async with a_poll_server() as server, a_client(server) as client:
        server.reports.append(answer)
        with pytest.raises(DispatchError):
            await client.report("linux-a", JobReport(exit_code=0))


async def test_a_report_of_somebody_else_is_refused() -> None:
    async with a_poll_server() as server, a_client(server) as client:
        server.reports.append(says(403, WHY))
        assert await client.report("a", JobReport()) == NotYou(403, "No: it is not you")


# --- Pace -------------------------------------------------------------------------------------------------------------


async def test_the_wait_grows_with_each_failure_and_begins_anew_after_an_answer() -> None:
    clock = StillClock()
    pace = Pace(clock, SeededIds(1, "pace"))
    waits = [await pace.after_failure() for _ in range(12)]

    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits[:7]))
    assert all(30 <= wait <= 60 for wait in waits[8:])
    await pace.after_nothing(clock.monotonic())
    assert await pace.after_failure() <= 0.5
    await pace.after_failure()
    pace.worked()
    assert await pace.after_failure() <= 0.5


async def test_a_wait_is_at_least_what_was_asked_for() -> None:
    pace = Pace(StillClock(), SeededIds(1, "pace"))
    assert 18 <= await pace.after_failure(20.0) <= 22


async def test_polls_that_are_answered_at_once_are_a_second_apart() -> None:
    clock = StillClock()
    pace = Pace(clock, SeededIds(1, "pace"))
    for _ in range(10):
        await pace.after_nothing(clock.monotonic())
    assert 9 <= clock.monotonic() <= 11
    before = clock.monotonic()
    await pace.after_nothing(before - 25)
    assert clock.monotonic() == before
