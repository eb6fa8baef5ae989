"""Listings, once and followed: rows in, text out; and the commands against the real application on a real socket."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import structlog
import yaml
from click.testing import CliRunner

from remuda.adapters.http_server import serving_http
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock
from remuda.cli.exits import FAILED, NOT_FOUND, OK, REFUSED, USAGE, code_of
from remuda.cli.hosts import HOSTS
from remuda.cli.jobs import JOBS
from remuda.cli.listing import Appended, How, Redrawn, has_colour, is_live, text_of
from remuda.cli.main import remuda
from remuda.cli.man import escaped
from remuda.cli.pools import POOLS
from remuda.cli.runners import RUNNERS
from remuda.cli.tables import table
from remuda.cli.watching import Change, Changes, follow, frame
from remuda.model.errors import RemudaError
from remuda.model.job import JobState
from remuda.ports.api import (
    ApiNotFound,
    ApiUnavailable,
    ClaimRow,
    Condition,
    HostRow,
    JobRow,
    PodRow,
    PoolRow,
    RunnerCounts,
    RunnerRow,
)
from remuda.sim.clock import EPOCH, SimClock
from remuda.sim.loop import run
from tests.support.api import an_office

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.support.api import Office

NOON = EPOCH + timedelta(hours=12)


def a_job(name: str = "local/1", state: JobState = JobState.QUEUED, **more: Any) -> JobRow:  # noqa: ANN401 - fields
    given = {"queued_at": NOON - timedelta(minutes=5), "pool": "mac", **more}
    return JobRow(id=name, state=state, **given)


def a_runner(name: str = "mac-1", phase: str = "warm", **pod: Any) -> RunnerRow:  # noqa: ANN401 - fields
    given = {"uid": "u", "phase": phase, "node": "mini", "created_at": NOON, **pod}
    return RunnerRow(name=name, pool="mac", pod=PodRow(**given))


class At:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody sleeps {seconds} s here")


class Terminal(io.StringIO):
    """A stream that says that a terminal watches."""

    def isatty(self) -> bool:
        return True


# --- in little room ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [20, 40, 80, 100, 300])
@pytest.mark.parametrize("output", ["table", "wide"])
def test_a_name_that_people_copy_is_whole_in_every_terminal(columns: int, output: str) -> None:
    key = "local-c036845704ec056f71d4"
    over = {"conclusion": "failure", "pod": "default-hbtfll7b", "pool": "a-longer-name-of-a-pool"}
    job, runner = a_job(key, JobState.COMPLETED, **over), a_runner("default-hbtfll7b")
    rows = [
        table(JOBS.shown(output), [job], NOON, room=columns),
        table(RUNNERS.shown(output), [runner], NOON, room=columns),
    ]

    for lines, name in zip(rows, (key, "default-hbtfll7b"), strict=True):
        assert name in lines[1]
        if output == "table" and columns >= 40:
            assert all(len(each) <= columns for each in lines), lines
    if columns >= 80:
        assert "completed" in rows[0][1]
        assert "failure" in rows[0][1]


# --- what the columns say ---------------------------------------------------------------------------------------------


def says(listing: Any, row: Any) -> dict[str, str]:  # noqa: ANN401 - of any kind
    return {c.title: c.cell(row, NOON) for c in listing.columns}


def test_a_job_that_waits_and_one_that_is_over() -> None:
    waits = says(JOBS, a_job())
    assert (waits["STATE"], waits["WAITED"], waits["TOOK"]) == ("queued", "5m", "")

    over = a_job(
        state=JobState.COMPLETED,
        conclusion="failure",
        started_at=NOON - timedelta(minutes=4),
        ended_at=NOON - timedelta(minutes=1),
        pod="mac-1",
    )
    said = says(JOBS, over)
    assert (said["RESULT"], said["WAITED"], said["TOOK"]) == ("failure", "1m", "3m")
    assert (said["RUNNER"], said["AGE"]) == ("mac-1", "5m")


@pytest.mark.parametrize(
    ("runner", "state"),
    [
        pytest.param(a_runner(), "warm", id="as its Pod is"),
        pytest.param(a_runner(deleting_since=NOON), "leaving", id="whose deletion was asked for"),
        pytest.param(RunnerRow(name="mac-1"), "gone", id="whose Pod is gone"),
    ],
)
def test_a_runner(runner: RunnerRow, state: str) -> None:
    assert says(RUNNERS, runner)["STATE"] == state


def test_a_runner_says_which_job_it_has_and_what_is_special() -> None:
    claim = ClaimRow(job_id="local/1", pod="mac-1", claimed_at=NOON, tenant="acme")
    busy = RunnerRow(
        name="mac-1",
        claim=claim,
        pod=PodRow(uid="u", phase="busy", created_at=NOON, stale=True, marked=True),
    )
    said = says(RUNNERS, busy)
    assert (said["JOB"], said["TENANT"]) == ("local/1", "acme")
    assert said["NOTE"] == "makes room for a roll, stale"


@pytest.mark.parametrize(
    ("conditions", "more", "state"),
    [
        pytest.param({}, {}, "not ready", id="nothing said yet"),
        pytest.param({"Ready": "True"}, {}, "ready", id="ready"),
        pytest.param({"Ready": "True", "Rolling": "True"}, {}, "rolling", id="rolling"),
        pytest.param({"Ready": "True", "Rolling": "True"}, {"paused": True}, "paused", id="paused"),
        pytest.param({"Degraded": "True"}, {"paused": True}, "degraded", id="the worst first"),
        pytest.param({"Degraded": "True"}, {"deleting": True}, "deleting", id="on its way out"),
        pytest.param({"Degraded": "False", "Ready": "True"}, {}, "ready", id="False is not so"),
    ],
)
def test_the_state_of_a_pool(conditions: dict[str, str], more: dict[str, bool], state: str) -> None:
    said = tuple(Condition(type=kind, status=status) for kind, status in conditions.items())
    pool = PoolRow(name="mac", conditions=said, **more)  # type: ignore[arg-type] # only flags

    assert says(POOLS, pool)["STATE"] == state


def test_zeros_of_a_pool_are_said() -> None:
    pool = PoolRow(name="mac", runners=RunnerCounts(ended=1, terminating=2), labels=("a", "b"))
    said = says(POOLS, pool)

    assert (said["WANTED"], said["WARM"], said["LEAVING"]) == ("0", "0", "3")
    assert (said["LABELS"], said["SCALED"]) == ("a,b", "by hand")


@pytest.mark.parametrize(
    ("host", "state"),
    [
        (HostRow(name="mini", healthy=True), "ready"),
        (HostRow(name="mini", why_not="not_ready"), "not ready"),
        (HostRow(name="mini", why_not="disk_pressure"), "disk pressure"),
        (HostRow(name="mini", why_not="unschedulable", runners=1), "draining"),
        (HostRow(name="mini", why_not="unschedulable"), "drained"),
    ],
)
def test_the_state_of_a_host(host: HostRow, state: str) -> None:
    assert says(HOSTS, host)["STATE"] == state


# --- how rows are printed ---------------------------------------------------------------------------------------------


def printed(output: str, *jobs: JobRow, single: bool = False) -> str:
    how = How(output=output, single=single)
    return "\n".join(text_of(JOBS, jobs, how, At(), io.StringIO()))


def test_every_output_tells_of_every_row() -> None:
    jobs = (a_job("local/1"), a_job("local/2", JobState.RUNNING))

    assert printed("name", *jobs) == "local/1\nlocal/2"
    assert [row["state"] for row in json.loads(printed("json", *jobs))] == ["queued", "running"]
    assert [row["id"] for row in yaml.safe_load(printed("yaml", *jobs))] == ["local/1", "local/2"]
    assert printed("table", *jobs).splitlines()[1].split()[:2] == ["local/1", "queued"]
    assert "REPOSITORY" in printed("wide", *jobs)
    assert "REPOSITORY" not in printed("table", *jobs)


def test_one_thing_by_its_name_is_no_list() -> None:
    assert json.loads(printed("json", a_job(), single=True))["id"] == "local/1"
    assert yaml.safe_load(printed("yaml", a_job(), single=True))["id"] == "local/1"


def test_no_rows_are_an_empty_list_for_programs() -> None:
    assert (printed("json"), printed("yaml"), printed("name")) == ("[]", "[]", "")


def test_what_is_not_a_terminal_has_no_colours_and_is_not_cut() -> None:
    long = a_job(name="local/" + "x" * 300)

    assert "x" * 300 in printed("table", long)
    assert "\x1b" not in printed("table", long)


@pytest.mark.parametrize(
    ("stream", "env", "live", "colour"),
    [
        pytest.param(Terminal(), {"TERM": "xterm"}, True, True, id="a terminal"),
        pytest.param(Terminal(), {"TERM": "dumb"}, False, False, id="one that is drawn on only"),
        pytest.param(Terminal(), {}, False, False, id="one that does not say what it is"),
        pytest.param(io.StringIO(), {"TERM": "xterm"}, False, False, id="a pipe"),
        pytest.param(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, True, False, id="NO_COLOR"),
    ],
)
def test_where_colours_help(
    stream: io.StringIO, env: dict[str, str], *, live: bool, colour: bool
) -> None:
    assert (is_live(stream, env), has_colour(stream, env)) == (live, colour)


# --- following --------------------------------------------------------------------------------------------------------


def test_what_changed_since_the_last_look() -> None:
    changes: Changes[JobRow] = Changes(JOBS.key)
    one, two = a_job("1"), a_job("2")
    begun = a_job("1", JobState.RUNNING)

    assert changes.since([one, two]) == [(Change.ADDED, one), (Change.ADDED, two)]
    assert changes.since([one, two]) == []
    assert changes.since([begun]) == [(Change.CHANGED, begun), (Change.GONE, two)]
    assert changes.since([begun, two]) == [(Change.ADDED, two)]


def appended(output: str, *looks: Sequence[RunnerRow]) -> list[str]:
    out = io.StringIO()
    board = Appended(RUNNERS, How(output=output, watch=True), At(), out)
    for rows in looks:
        board.show(rows)
    return out.getvalue().splitlines()


def test_changes_are_appended_below_one_header() -> None:
    lines = appended(
        "table",
        [a_runner("mac-1", "starting")],
        [a_runner("mac-1", "starting")],
        [a_runner("mac-1"), a_runner("mac-2-with-a-longer-name", "starting")],
        [a_runner("mac-2-with-a-longer-name")],
    )

    assert [line.split()[0] for line in lines].count("NAME") == 1
    assert [tuple(line.split()[:3]) for line in lines[1:]] == [
        ("mac-1", "mac", "starting"),
        ("mac-1", "mac", "warm"),
        ("mac-2-with-a-longer-name", "mac", "starting"),
        ("mac-2-with-a-longer-name", "mac", "warm"),
        ("mac-1", "mac", "gone"),
    ]


def test_a_watch_that_begins_with_nothing_says_its_header_with_the_first_row() -> None:
    lines = appended("table", [], [a_runner()])

    assert [line.split()[0] for line in lines] == ["NAME", "mac-1"]


def test_for_programs_each_change_is_a_line_of_json() -> None:
    lines = appended("json", [a_runner()], [])

    said = [json.loads(line) for line in lines]
    assert [(each["change"], each["runner"]["name"]) for each in said] == [
        ("added", "mac-1"),
        ("gone", "mac-1"),
    ]


def test_or_a_document_of_yaml() -> None:
    text = "\n".join(appended("yaml", [a_runner("a"), a_runner("b")]))

    assert [each["runner"]["name"] for each in yaml.safe_load_all(text)] == ["a", "b"]


def test_a_terminal_is_drawn_over() -> None:
    out = Terminal()
    board = Redrawn(RUNNERS, How(watch=True), At(), out)
    board.show([a_runner()])
    first = out.getvalue()
    board.show([])

    assert first.startswith("\x1b[H")
    assert "mac-1" in first
    assert "There are no runners." in out.getvalue().removeprefix(first)


def test_a_screen_that_is_too_small_says_how_much_is_left_out() -> None:
    text = frame([f"line {n}" for n in range(10)], height=5)

    assert text.count("\n") == 4
    assert "line 2" in text
    assert "line 3" not in text
    assert "… 7 more" in text


class Seen:
    """Keeps what a board was shown, and ends the watch when it has seen enough."""

    def __init__(self, enough: int) -> None:
        self.looks: list[list[str]] = []
        self._enough = enough

    def show(self, rows: Sequence[JobRow]) -> None:
        self.looks.append([row.id for row in rows])
        if len(self.looks) == self._enough:
            raise asyncio.CancelledError


def followed(*answers: JobRow | Exception, enough: int) -> tuple[list[list[str]], list[str]]:
    said: list[str] = []
    board, left = Seen(enough), list(answers)

    async def read() -> tuple[JobRow, ...]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return (answer,)

    async def main() -> None:
        clock = SimClock(asyncio.get_running_loop())
        try:
            await follow(read, board, clock, every_s=2, say=said.append)
        except asyncio.CancelledError:
            return

    run(main)
    return board.looks, said


AWAY = ApiUnavailable("no", why="the server is away", fix="wait")


def test_a_watch_outlives_a_server_that_is_away_and_says_so_once() -> None:
    looks, said = followed(a_job("1"), AWAY, AWAY, a_job("2"), enough=2)

    assert looks == [["1"], ["2"]]
    assert len(said) == 2
    assert "the server is away" in said[0]
    assert "again" in said[1]


def test_what_is_not_found_any_more_is_gone() -> None:
    missing = ApiNotFound("no", why="no such job", fix="look")
    looks, said = followed(a_job("1"), missing, enough=2)

    assert (looks, said) == ([["1"], []], [])


def test_a_watch_of_what_was_never_there_is_an_error() -> None:
    with pytest.raises(ApiUnavailable):
        followed(AWAY, enough=1)


# --- the commands -----------------------------------------------------------------------------------------------------


class Commands:
    """Runs commands as a person of some role would."""

    def __init__(self, office: Office, url: str) -> None:
        self.office, self._url = office, url

    async def __call__(self, *args: str, role: str = "read") -> tuple[int, str]:
        """Return the exit code, and what was printed, or the error in full."""
        env = {
            "REMUDA_SERVER": self._url,
            "REMUDA_API_TOKEN": self.office.keys[role],
            "REMUDA_KUBECONFIG": None,
        }
        invoke = CliRunner().invoke
        result = await asyncio.to_thread(invoke, remuda, args, env=env)
        if isinstance(result.exception, RemudaError):
            return code_of([result.exception]), str(result.exception)
        assert not result.exception or isinstance(result.exception, SystemExit), result.output
        return result.exit_code, result.output


@asynccontextmanager
async def commands() -> AsyncIterator[Commands]:
    # The server is in this process: what it logs would stand between what commands print.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    async with (
        an_office(SystemClock()) as office,
        serving_http(office.app, Listen(port=0), shutdown_s=1.0) as server,
    ):
        yield Commands(office, server.address)


async def test_each_kind_is_listed_shown_and_explained() -> None:
    async with commands() as remuda_:
        office = remuda_.office
        await office.add_pool("linux")
        await office.add_pod("linux-1")
        await office.add_node("mini")
        await office.queue(1)
        jobs = (await office.get("/api/v1/jobs"))["jobs"]
        for kind, name in (
            ("job", jobs[0]["id"]),
            ("runner", "linux-1"),
            ("pool", "linux"),
            ("host", "mini"),
        ):
            assert await remuda_(f"{kind}s", "-o", "name") == (OK, f"{name}\n")
            for output in ("table", "wide"):
                code, text = await remuda_(f"{kind}s", name, "-o", output)
                assert (code, text.splitlines()[1].split()[0]) == (OK, name)
            code, text = await remuda_(f"{kind}s", "-o", "json")
            assert (code, len(json.loads(text))) == (OK, 1)
            code, text = await remuda_(f"{kind}s", name, "-o", "yaml")
            assert (code, name in yaml.safe_load(text).values()) == (OK, True)
            code, text = await remuda_(f"{kind}s", "ghost")
            assert code == NOT_FOUND, text
            assert "/api/v1" not in text, "what to do is said in commands"
            if kind != "host":
                code, text = await remuda_("explain", kind, name)
                assert (code, "\nNext: " in text) == (OK, True)
                assert (await remuda_("explain", kind, "ghost"))[0] == NOT_FOUND


async def test_filters_reach_the_server() -> None:
    async with commands() as remuda_:
        await remuda_.office.add_pool("linux")
        await remuda_.office.queue(1, 2, 3)

        async def count(*args: str) -> int:
            code, text = await remuda_("jobs", "-o", "name", *args)
            assert code == OK, text
            return len(text.splitlines())

        assert await count() == 3
        assert await count("--limit", "2") == 2
        assert await count("--limit", "2", "--all") == 3
        assert await count("--state", "queued") == 3
        assert await count("--state", "running", "--state", "completed") == 0
        assert await count("--pool", "linux") == 3
        assert await count("--pool", "other") == 0
        assert await count("--tenant", "nobody") == 0
        assert await count("--repository", "no/such") == 0


async def test_who_is_shown_only_some_is_told_so() -> None:
    async with commands() as remuda_:
        await remuda_.office.add_pool("linux")
        await remuda_.office.queue(1, 2, 3)

        assert "may be more" in (await remuda_("jobs", "--limit", "2"))[1]
        assert "may be more" not in (await remuda_("jobs"))[1]
        assert "may be more" not in (await remuda_("jobs", "--limit", "2", "-o", "json"))[1]


async def test_labels_are_explained() -> None:
    async with commands() as remuda_:
        await remuda_.office.add_pool("linux")

        code, text = await remuda_("explain", "labels", "linux", "-o", "json")
        assert (code, json.loads(text)["why"]) == (OK, "served")
        code, text = await remuda_("explain", "labels", "amiga")
        assert (code, "Next: " in text) == (OK, True)


async def test_empty_lists_say_so() -> None:
    async with commands() as remuda_:
        for many in ("jobs", "runners", "pools", "hosts"):
            assert await remuda_(many) == (OK, f"There are no {many}.\n")
            assert await remuda_(many, "-o", "json") == (OK, "[]\n")


async def test_exit_codes() -> None:
    async with commands() as remuda_:
        assert (await remuda_("jobs", role="unknown"))[0] == REFUSED
        assert (await remuda_("jobs", "--no-such-option"))[0] == USAGE
        assert (await remuda_("pools", "scale", "linux", "-1"))[0] == USAGE
        assert (await remuda_("pools", "pause"))[0] == USAGE
        closed = Commands(remuda_.office, "http://127.0.0.1:1")
        assert (await closed("jobs"))[0] == FAILED


# --- completion and manual pages --------------------------------------------------------------------------------------


async def completed(remuda_: Commands, *words: str) -> list[str]:
    """Return what a shell would offer for the last word."""
    env = {
        "_REMUDA_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("remuda", *words)),
        "COMP_CWORD": str(len(words)),
        "REMUDA_SERVER": remuda_._url,  # noqa: SLF001 - of this file
        "REMUDA_API_TOKEN": remuda_.office.keys["read"],
    }
    invoke = CliRunner().invoke
    result = await asyncio.to_thread(invoke, remuda, [], env=env, prog_name="remuda")
    return [line.partition(",")[2] for line in result.output.splitlines() if line]


async def test_a_shell_is_offered_commands_and_names_of_the_fleet() -> None:
    async with commands() as remuda_:
        await remuda_.office.add_pool("linux")
        await remuda_.office.add_pool("lions")
        await remuda_.office.add_node("mini")

        assert await completed(remuda_, "po") == ["poller", "pools"]
        assert await completed(remuda_, "pools", "pause", "lin") == ["linux"]
        assert await completed(remuda_, "pools", "li") == ["list", "linux", "lions"]
        assert await completed(remuda_, "explain", "host", "") == ["mini"]
        assert await completed(remuda_, "jobs", "--pool", "lio") == ["lions"]
        assert await completed(remuda_, "jobs", "-o", "j") == ["json"]
        assert "--watch" in await completed(remuda_, "hosts", "--w")


async def test_a_fleet_that_is_away_offers_nothing_and_no_error() -> None:
    async with commands() as remuda_:
        away = Commands(remuda_.office, "http://127.0.0.1:1")
        assert await completed(away, "pools", "pause", "lin") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(remuda, ["completion", shell])

    assert result.exit_code == OK
    assert f"_REMUDA_COMPLETE={shell}_complete" in result.output


def test_manual_pages_of_every_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(remuda, ["man", str(tmp_path)])

    assert result.exit_code == OK, result.output
    pages = {file.name for file in tmp_path.iterdir()}
    assert {"remuda.1", "remuda-jobs.1", "remuda-pools-scale.1", "remuda-explain-job.1"} <= pages
    text = (tmp_path / "remuda-pools.1").read_text()
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "SEE ALSO"):
        assert f".SH {heading}\n" in text
    assert "\\fB\\-o, \\-\\-output" in text
    assert all(file.read_text().isascii() for file in tmp_path.iterdir())


def test_manual_pages_where_none_can_be(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    result = CliRunner().invoke(remuda, ["man", str(tmp_path / "taken" / "man1")])

    assert isinstance(result.exception, RemudaError)
    assert "could not be written" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        ("--help", "\\-\\-help"),
        (".so /etc/passwd", "\\&.so /etc/passwd"),
        ("a\\b", "a\\eb"),
        ('say "x"', "say \\(dqx\\(dq"),
        ("wait…", "wait\\[u2026]"),
    ],
)
def test_text_is_no_request_to_roff(text: str, roff: str) -> None:
    assert escaped(text) == roff
