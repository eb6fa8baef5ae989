"""A run of one job on virtual time: a server that goes and comes back, a person who stops it, output that breaks."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from remuda.cli.exits import BROKEN_PIPE, INTERRUPTED, NO_RESULT, TERMINATED, TIMED_OUT
from remuda.cli.progress import Screen
from remuda.cli.run_job import LostSight, OutputFailed, Patience, Run, Stop
from remuda.cli.run_words import progress, shell_code, verdict, who_cancelled
from remuda.model.job import JobState
from remuda.model.output import Output
from remuda.ports.api import (
    ApiInvalid,
    ApiRefused,
    ApiUnavailable,
    Cancellation,
    Event,
    Explanation,
    JobRow,
    NewJob,
    Outcome,
    Submitted,
)
from remuda.sim.clock import SimClock
from remuda.sim.loop import run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from remuda.cli.run_words import Verdict
    from remuda.ports.api import Subject

AT = datetime(2026, 11, 15, tzinfo=UTC)
JOB = NewJob(pool="linux", command=("make",), timeout_s=60)
ID = "local-1"


@dataclass
class FakeApi:
    """A server with one job, and a script of what it prints: (second, bytes), then its end."""

    begins_s: float = 2.0
    prints: tuple[tuple[float, bytes], ...] = ((3.0, b"one\n"), (5.0, b"\x00\xfftwo"))
    ends_s: float = 6.0
    told_s: float = 0.0
    """How long after its end the last of its output is told; it is known until then that more may come."""
    gives_up_s: float = 120.0
    """How long the server waits for that."""
    conclusion: str = "success"
    exit_code: int | None = 0
    down: tuple[tuple[float, float], ...] = ()
    """When it does not answer: from, to."""
    piece: int = 3
    """How much of a log comes over one connection before that breaks; 0: it never does."""
    stops_s: float = 1.0
    """How long a job takes to stop."""
    stubborn: bool = False
    """It ends as it would have, whoever cancels it."""
    calls: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    refused: Exception | None = None
    audited: tuple[Event, ...] = ()
    submitted_at: float | None = None
    cancelled_at: float | None = None

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _answer(self, call: str) -> None:
        self.calls.append(call)
        await asyncio.sleep(0.01)
        if self.is_down:
            raise ApiUnavailable(call, why="nobody is there", fix="wait")
        if self.refused is not None:
            raise self.refused

    @property
    def is_down(self) -> bool:
        return any(begin <= self.now() < end for begin, end in self.down)

    @property
    def end_at(self) -> float:
        return self.ends_s if self.cancelled_at is None else min(self.ends_s, self.cancelled_at)

    async def submit(self, job: NewJob, *, key: str) -> Submitted:
        assert job == JOB
        self.keys.append(key)
        await self._answer("submit")
        self.submitted_at = self.now()
        return Submitted(id=ID, pool="linux", state=JobState.QUEUED, submitted_at=AT)

    async def outcome(self, job_id: str) -> Outcome:
        assert job_id == ID
        await self._answer("outcome")
        over = self.now() >= self.end_at
        stays = self.cancelled_at is None or self.stubborn
        conclusion = self.conclusion if stays else "cancelled"
        return Outcome(
            id=ID,
            over=over,
            conclusion=conclusion if over else "",
            exit_code=self.exit_code if over else None,
            pod="linux-a",
            submitted_at=AT,
            started_at=AT if self.now() >= self.begins_s else None,
            output=self._how_much(),
        )

    def _how_much(self) -> Output:
        if self.now() < self.end_at:
            return Output.GROWING
        if self.now() >= self.end_at + self.told_s:
            return Output.FINAL
        late = self.now() >= self.end_at + self.gives_up_s
        return Output.UNCONFIRMED if late else Output.AWAITED

    async def job(self, job_id: str) -> JobRow:
        await self._answer("job")
        return JobRow(id=job_id, state=JobState.QUEUED, pool="linux", queued_at=AT)

    async def explain(self, subject: Subject, name: str) -> Explanation:
        await self._answer("explain")
        return Explanation(
            subject=f"{subject}/{name}", why="no-runner", sentence="No runner waits."
        )

    async def audit(
        self, *, after: int = 0, job_id: str = "", limit: int | None = None
    ) -> tuple[Event, ...]:
        assert (after, job_id, limit) == (0, ID, None)
        return self.audited

    async def cancel(self, job_id: str) -> Cancellation:
        assert job_id == ID
        await self._answer("cancel")
        self.cancelled_at = self.now() + self.stops_s
        return Cancellation.STOPPING

    async def log(
        self, job_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        assert job_id == ID
        await self._answer(f"log {offset} {'follow' if follow else 'rest'}")
        sent = 0
        while True:
            now = min(self.now() - self.told_s, self.end_at)
            there = b"".join(data for at, data in self.prints if at <= now)[offset + sent :]
            if there:
                there = there[: self.piece - sent] if self.piece else there
                yield there
                sent += len(there)
            if self.is_down or (self.piece and sent >= self.piece):
                raise ApiUnavailable("log", why="it closed the connection", fix="wait")
            if not there and (not follow or self.now() >= self.end_at):
                return
            await asyncio.sleep(0.5 if not there else 0.0)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what a run must not call
        raise AssertionError(f"{name} is not for a run")


class Tape:
    """Keeps what is written, up to a number of writes."""

    def __init__(self, fails_after: int = 1000, error: Exception | None = None) -> None:
        self.data = b""
        self._left = fails_after
        self._error = error

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self._left -= 1
        if self._left < 0 and self._error is not None:
            raise self._error
        self.data += data


@dataclass
class Played:
    """What came of a run."""

    verdict: Verdict | None
    written: bytes
    said: str
    took_s: float
    error: Exception | None = None


def play(
    api: FakeApi,
    *,
    stop_at: tuple[float, int] | None = None,
    tape: Tape | None = None,
    patience: Patience | None = None,
    terminal: bool = False,
) -> Played:
    played = Played(None, b"", "", 0.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        _shift(api, began)
        out, stop = tape or Tape(), Stop()
        stream = _Terminal() if terminal else io.StringIO()
        run_ = Run(
            api=api,
            clock=SimClock(loop),
            out=out,
            screen=Screen(stream, env={"TERM": "xterm"}),
            stop=stop,
            patience=patience or Patience(),
        )
        async with asyncio.TaskGroup() as group:
            if stop_at is not None:
                group.create_task(_later(stop_at[0], lambda: stop.ask(stop_at[1])))
            try:
                played.verdict = await run_.run(JOB, key="k")
            except Exception as error:  # noqa: BLE001 - the test looks at it
                played.error = error
            played.took_s = loop.time() - began
        played.written, played.said = out.data, stream.getvalue()

    run(main)
    return played


def _shift(api: FakeApi, began: float) -> None:
    """Count the script's seconds from the beginning of the run."""
    api.begins_s += began
    api.ends_s += began
    api.prints = tuple((at + began, data) for at, data in api.prints)
    api.down = tuple((begin + began, end + began) for begin, end in api.down)


async def _later(seconds: float, what: Callable[[], None]) -> None:
    await asyncio.sleep(seconds)
    what()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- a run ---


@pytest.mark.parametrize("piece", [0, 1, 2, 3, 100])
def test_output_comes_whole_and_once_however_often_the_line_breaks(piece: int) -> None:
    played = play(FakeApi(piece=piece))
    assert played.error is None
    assert played.verdict is not None
    assert played.verdict.code == 0
    assert played.written == b"one\n\x00\xfftwo"


def test_what_is_printed_after_the_last_look_and_before_the_end_is_not_lost() -> None:
    last = tuple((5.9 + number / 1000, b"x") for number in range(100))
    played = play(FakeApi(prints=last, ends_s=6.0, piece=0))
    assert played.written == b"x" * 100


def test_the_last_of_the_output_is_waited_for_if_its_end_was_known_before() -> None:
    played = play(FakeApi(piece=0, told_s=20.0))
    assert played.verdict is not None
    assert (played.verdict.code, played.verdict.says) == (0, "")
    assert played.written == b"one\n\x00\xfftwo"


@pytest.mark.parametrize("gives_up_s", [120.0, 1e9])
def test_who_is_never_told_the_last_of_the_output_is_told_that_and_not_held(
    gives_up_s: float,
) -> None:
    played = play(FakeApi(piece=0, told_s=1e9, gives_up_s=gives_up_s))
    assert played.verdict is not None
    assert played.verdict.code == 0, "the code is the command's own"
    assert "output may be missing" in played.verdict.says
    assert "linux-a did not tell" in played.verdict.says
    assert played.took_s < 200


def test_who_stops_does_not_wait_for_the_last_of_the_output() -> None:
    played = play(FakeApi(piece=0, told_s=100.0, stubborn=True), stop_at=(8.0, INTERRUPTED))
    assert played.verdict is not None
    assert played.verdict.code == 0, "it was over before"
    assert "output may be missing" in played.verdict.says
    assert played.took_s < 12


@pytest.mark.parametrize("down", [(0.0, 5.0), (1.0, 30.0), (2.5, 4.5), (4.9, 300.0), (5.5, 9.0)])
def test_a_server_that_restarts_costs_time_only(down: tuple[float, float]) -> None:
    api = FakeApi(down=(down,), piece=0)
    played = play(api)
    assert played.error is None
    assert played.verdict is not None
    assert played.verdict.code == 0
    assert played.written == b"one\n\x00\xfftwo"
    assert set(api.keys) == {"k"}, "the same request, not another job"
    if down[1] - down[0] > 3:
        assert played.said.count("does not answer") == 1
        assert "answers again" in played.said


def test_a_line_that_breaks_after_hours_is_no_server_that_was_silent_for_hours() -> None:
    steady = tuple((float(second), b"x") for second in range(2, 3000, 7))
    api = FakeApi(prints=steady, ends_s=3000.0, down=((2000.0, 2030.0), (2700.0, 2730.0)), piece=0)
    played = play(api)
    assert played.error is None
    assert played.written == b"x" * len(steady)


def test_a_server_that_is_never_there_is_given_up_soon() -> None:
    played = play(FakeApi(down=((0.0, 1e9),)))
    assert isinstance(played.error, ApiUnavailable)
    assert 10 <= played.took_s < 20


def test_a_server_that_does_not_come_back_is_given_up_and_the_job_named() -> None:
    played = play(FakeApi(down=((4.0, 1e9),)))
    assert isinstance(played.error, LostSight)
    assert ID in played.error.what
    assert f"remuda explain job {ID}" in played.error.fix
    assert 600 <= played.took_s < 700


def test_what_asking_again_cannot_help_is_said_at_once() -> None:
    for error in (ApiRefused("no", why="w", fix="f"), ApiInvalid("no", why="no pool", fix="f")):
        played = play(FakeApi(refused=error))
        assert played.error is error
        assert played.took_s < 1


# --- stopping ---


@pytest.mark.parametrize("code", [INTERRUPTED, TERMINATED])
@pytest.mark.parametrize("at", [0.005, 1.0, 2.2, 4.0])
def test_who_stops_it_cancels_the_job_and_waits_for_its_end(at: float, code: int) -> None:
    api = FakeApi(ends_s=500.0, piece=0)
    played = play(api, stop_at=(at, code))
    assert played.verdict is not None
    assert played.verdict.code == code
    assert api.calls.count("cancel") == 1
    assert "cancelling the job local-1" in played.said
    assert played.took_s < 10


def test_a_job_that_ended_all_the_same_has_its_own_code() -> None:
    api = FakeApi(ends_s=6.0, stops_s=100.0, exit_code=3, stubborn=True, piece=0)
    api.conclusion = "failure"
    played = play(api, stop_at=(4.0, INTERRUPTED))
    assert played.verdict is not None
    assert played.verdict.code == 3


def test_a_cancellation_reaches_a_server_that_was_away() -> None:
    api = FakeApi(ends_s=500.0, down=((3.0, 20.0),), piece=0)
    played = play(api, stop_at=(4.0, INTERRUPTED))
    assert played.verdict is not None
    assert played.verdict.code == INTERRUPTED
    assert api.cancelled_at is not None


def test_who_stops_before_the_server_answers_does_not_wait() -> None:
    played = play(FakeApi(down=((0.0, 1e9),)), stop_at=(1.0, INTERRUPTED))
    assert played.verdict is not None
    assert played.verdict.code == INTERRUPTED
    assert "if it took the job" in played.verdict.says
    assert played.took_s < 5


# --- output that cannot be written ---


def test_nobody_who_reads_cancels_the_job_and_does_not_wait_for_its_end() -> None:
    api = FakeApi(ends_s=500.0, piece=0, stops_s=100.0)
    played = play(api, tape=Tape(0, BrokenPipeError()))
    assert played.verdict is not None
    assert played.verdict.code == BROKEN_PIPE
    assert api.cancelled_at is not None
    assert played.took_s < 10


def test_a_disk_that_is_full_cancels_the_job_and_says_so() -> None:
    api = FakeApi(ends_s=500.0, piece=0, stops_s=100.0)
    full = OutputFailed("not written", why="No space left on device", fix="Make room")
    played = play(api, tape=Tape(1, full))
    assert played.error is full
    assert api.cancelled_at is not None
    assert played.written == b"one\n"


# --- words ---

OVER = Outcome(id=ID, over=True, conclusion="success", submitted_at=AT, pod="linux-a")


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"conclusion": "failure", "exit_code": 7}, 7, ""),
        ({"conclusion": "failure", "exit_code": -9}, 137, ""),
        ({"conclusion": "failure", "exit_code": 7, "reason": "The job ended by itself"}, 7, ""),
        ({"conclusion": "failure", "exit_code": 7, "reason": "Error"}, 7, ""),
        ({"conclusion": "failure", "exit_code": 143, "reason": "It was told"}, 143, "It was told"),
        ({"conclusion": "failure", "reason": "Its VM crashed."}, NO_RESULT, "Its VM crashed"),
        ({"conclusion": "timed_out", "exit_code": 143}, TIMED_OUT, "longer than its 60 s"),
        ({"conclusion": "cancelled", "exit_code": 143}, NO_RESULT, "cancelled by somebody else"),
        ({"conclusion": "lost", "reason": "its \x1b host died"}, NO_RESULT, "linux-a is gone"),
        ({"conclusion": "eaten"}, NO_RESULT, "without an exit code"),
    ],
)
def test_each_end_has_its_code_and_words(changes: dict[str, Any], code: int, says: str) -> None:
    found = verdict(replace(OVER, **changes), asked=None, timeout_s=60)
    assert found.code == code
    assert says in found.says
    assert bool(found.says) is bool(says)
    assert found.says.isprintable()


@pytest.mark.parametrize(
    ("code", "shell"), [(0, 0), (1, 1), (255, 255), (256, 1), (258, 2), (-15, 143), (-2000, 255)]
)
def test_a_code_fits_in_a_byte_and_none_turns_into_success(code: int, shell: int) -> None:
    assert shell_code(code) == shell


def test_who_else_cancelled_it_is_named_if_known() -> None:
    by = (
        Event(number=1, at=AT, who="api:bob", what="enqueued"),
        Event(number=2, at=AT, who="api:ann", what="completed"),
    )
    played = play(FakeApi(ends_s=4.0, conclusion="cancelled", exit_code=None, audited=by))
    assert played.verdict is not None
    assert (played.verdict.code, "by ann" in played.verdict.says) == (NO_RESULT, True)
    assert who_cancelled(by[:1]) == ""
    assert who_cancelled([replace(by[1], who="local forge")]) == ""


def test_why_it_waits_is_shown_where_a_terminal_watches_and_removed_before_output() -> None:
    played = play(FakeApi(piece=0), terminal=True)
    assert "waits in the pool linux: No runner waits" in played.said
    assert played.said.endswith("\r\x1b[K")


def test_a_short_wait_is_worth_no_line_where_none_watches() -> None:
    assert play(FakeApi(piece=0)).said == ""
    long = play(FakeApi(begins_s=30.0, prints=(), ends_s=40.0, piece=0))
    assert long.said.count("waits in the pool linux") == 1


def test_how_far_a_job_is_has_a_word_for_each_state() -> None:
    row = JobRow(id=ID, pool="linux", pod="linux-a", queued_at=AT, state=JobState.QUEUED)
    said = {state: progress(replace(row, state=state), None) for state in JobState}
    assert len(set(said.values())) == 4
    assert "linux-a" in said[JobState.CLAIMED]
