"""Signs of life: bars for eyes, lines for logs, and nothing that outlives the work."""

from __future__ import annotations

import asyncio
import io
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.cli.progress import Screen, bar, beside, is_watched, shown
from remuda.cli.tree.parts import STARTED
from remuda.cli.tree.progress import starting
from remuda.model.errors import BadInput
from remuda.sim.clock import SimClock
from remuda.sim.loop import run
from tests.support.terminals import at_terminal

if TYPE_CHECKING:
    from remuda.cli.progress import Share

XTERM = {"TERM": "xterm"}
CLEAR = "\r\x1b[K"


class Tty(io.StringIO):
    """A terminal that somebody watches."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "watched"),
    [
        pytest.param(Tty(), XTERM, True, id="a terminal"),
        pytest.param(io.StringIO(), XTERM, False, id="a pipe"),
        pytest.param(Tty(), {"TERM": "dumb"}, False, id="a terminal that cannot move its cursor"),
        pytest.param(Tty(), {}, False, id="one that does not say what it is"),
        pytest.param(Tty(), {**XTERM, "NO_COLOR": "1"}, False, id="who wants plain text"),
        pytest.param(Tty(), {**XTERM, "NO_COLOR": ""}, True, id="an empty wish is none"),
        pytest.param(Tty(), {**XTERM, "CI": "true"}, False, id="CI"),
        pytest.param(Tty(), {**XTERM, "CI": "false"}, True, id="no CI"),
    ],
)
def test_who_watches(stream: io.StringIO, env: dict[str, str], *, watched: bool) -> None:
    assert is_watched(stream, env) is watched


def test_a_bar_is_drawn_over_itself_and_taken_away() -> None:
    stream = Tty()
    screen = Screen(stream, env=XTERM)
    screen.progress("waits", 1.0, (1, 4))
    screen.progress("waits", 75.0, (2, 4))
    screen.clear()
    first, second = f"remuda: {bar(1, 4)} waits", f"remuda: {bar(2, 4)} waits (1m15s)"
    assert stream.getvalue() == CLEAR + first + CLEAR + second + CLEAR


def test_work_without_a_measure_turns() -> None:
    stream = Tty()
    screen = Screen(stream, env=XTERM)
    for _ in range(3):
        screen.progress("waits", 0.0)
    said = stream.getvalue()
    assert [f"remuda: {sign} waits" in said for sign in "|/-"] == [True] * 3


def test_a_long_text_is_cut_and_how_long_it_takes_is_still_seen() -> None:
    stream = Tty()
    Screen(stream, env=XTERM).progress("x" * 500, 30.0, (0, 1))
    assert stream.getvalue().endswith("… (30s)")
    assert "\n" not in stream.getvalue()


def test_a_pipe_is_told_in_lines_and_only_what_takes_its_time() -> None:
    stream = io.StringIO()
    screen = Screen(stream, env=XTERM)
    screen.progress("waits", 1.0, (0, 2))
    screen.progress("waits", 5.0, (0, 2))
    screen.progress("waits", 6.0, (0, 2))
    screen.progress("nearly", 7.0, (1, 2))
    screen.clear()
    assert stream.getvalue() == "remuda: waits\nremuda: nearly\n"


def test_the_quiet_are_left_alone() -> None:
    stream = Tty()
    screen = Screen(stream, quiet=True, env=XTERM)
    screen.progress("waits", 9.0)
    screen.say("over")
    assert stream.getvalue() == ""


def test_work_is_shown_for_as_long_as_it_lasts() -> None:
    stream = Tty()

    async def main() -> None:
        done = 0

        def seen() -> tuple[str, Share | None]:
            return "works", (done, 2)

        async with shown(Screen(stream, env=XTERM), SimClock(asyncio.get_running_loop()), seen):
            await asyncio.sleep(1)
            done = 1
            await asyncio.sleep(3)

    run(main)
    said = stream.getvalue()
    assert bar(0, 2) in said
    assert f"{bar(1, 2)} works (3s)" in said
    assert said.endswith(CLEAR)


def test_what_goes_wrong_is_raised_as_it_is() -> None:
    async def main() -> None:
        screen, clock = Screen(io.StringIO(), env=XTERM), SimClock(asyncio.get_running_loop())
        async with shown(screen, clock, lambda: ("works", None)):
            raise BadInput("no", why="so", fix="no")

    with pytest.raises(BadInput):
        run(main)


@pytest.mark.parametrize(
    ("of_the_rest", "beside_it", "raised"),
    [
        pytest.param(None, KeyError, KeyError, id="what is done beside"),
        pytest.param(BadInput, KeyError, BadInput, id="both, and the rest matters more"),
        pytest.param(BadInput, None, BadInput, id="the rest"),
    ],
)
def test_what_goes_wrong_is_in_no_group(
    of_the_rest: type[BadInput] | None,
    beside_it: type[Exception] | None,
    raised: type[Exception],
) -> None:
    async def work() -> None:
        if beside_it is None:
            await asyncio.sleep(10_000)
        raise KeyError

    async def main() -> None:
        async with beside(work()):
            try:
                await asyncio.sleep(10)
            finally:
                if of_the_rest is not None:
                    raise of_the_rest("no", why="so", fix="no")

    with pytest.raises(raised):
        run(main)


def test_a_look_that_fails_does_not_end_the_work() -> None:
    def look() -> tuple[str, None]:
        raise PermissionError

    async def main() -> str:
        screen, clock = Screen(io.StringIO(), env=XTERM), SimClock(asyncio.get_running_loop())
        async with shown(screen, clock, look):
            await clock.sleep(5)
        return "done"

    assert run(main) == "done"


def test_what_is_done_beside_ends_with_the_rest() -> None:
    ends: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(10_000)
        finally:
            ends.append("ended")

    async def main() -> None:
        async with beside(forever()):
            await asyncio.sleep(1)

    run(main)
    assert ends == ["ended"]


@pytest.mark.parametrize(
    ("well", "said", "share"),
    [
        pytest.param((), f"starting: {', '.join(STARTED)}", (0, 4), id="nothing yet"),
        pytest.param(STARTED[:3], f"starting: {STARTED[3]}", (3, 4), id="one is left"),
        pytest.param(STARTED, "starting: all parts are there", (4, 4), id="all are there"),
    ],
)
def test_a_start_says_what_it_waits_for(well: tuple[str, ...], said: str, share: Share) -> None:
    assert starting(well) == (said, share)


SCRIPT = """
import sys
from remuda.cli.progress import Screen
screen = Screen(sys.stderr)
screen.progress("waits for it", 6.0, (1, 2))
screen.clear()
print("over")
"""


@pytest.mark.parametrize(
    ("env", "has_bar"),
    [
        pytest.param({}, True, id="a terminal"),
        pytest.param({"NO_COLOR": "1"}, False, id="without colours"),
        pytest.param({"TERM": "dumb"}, False, id="a dumb one"),
        pytest.param({"CI": "true"}, False, id="in CI"),
    ],
)
async def test_a_real_terminal_gets(env: dict[str, str], *, has_bar: bool) -> None:
    with at_terminal([sys.executable, "-c", SCRIPT], env=env) as terminal:
        await terminal.says("over")
        assert await terminal.ended() == 0
        assert (bar(1, 2).encode() in terminal.raw) is has_bar
        assert b"waits for it" in terminal.raw
        assert (b"\x1b" in terminal.raw) is has_bar
