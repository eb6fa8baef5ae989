"""``remuda demo``: play it, say how it went, and leave nothing behind."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import click

from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.demo.burst import Burst
from remuda.cli.demo.decide.account import judge, table
from remuda.cli.demo.decide.plan import JOBS_MIN, RUNNERS_MIN, deadline_s, waves
from remuda.cli.demo.fleet import DemoFailed, Fleet, temporary
from remuda.cli.demo.screen import Screen
from remuda.cli.demo.story import Story
from remuda.cli.demo.watcher import Watcher
from remuda.cli.exits import FAILED, INTERRUPTED, OK, TERMINATED
from remuda.cli.tables import duration
from remuda.cli.tree.furnish import administrator

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from remuda.cli.demo.decide.account import Verdict

T = TypeVar("T")
_SIGNALS: Final = {
    signal.SIGINT: INTERRUPTED,
    signal.SIGTERM: TERMINATED,
    signal.SIGHUP: 129,
}


@dataclass(frozen=True, slots=True)
class Told:
    """What the command was told."""

    jobs: int
    runners: int
    keep: bool


@click.command(
    epilog="Exit codes: 0 every job ran once to its end and the roll kept its cap, 1 not, 2 usage, 130 Ctrl-C."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=JOBS_MIN, max=99),
    default=20,
    show_default=True,
    help="How many jobs the burst has.",
)
@click.option(
    "--runners",
    type=click.IntRange(min=RUNNERS_MIN, max=30),
    default=10,
    show_default=True,
    help="How many runners the pool has.",
)
@click.option("--keep", is_flag=True, help="Keep data and logs also if all goes well.")
@click.pass_context
def demo(ctx: click.Context, *, jobs: int, runners: int, keep: bool) -> None:
    """
    See a fleet keep its promise: no job is lost and none is killed, whatever happens to it.

    A remuda up is started in a temporary folder. In the middle of a burst of jobs the host process of a runner is
    killed, the image is rolled, and the server and the host's agent are killed. At the end a table says when each job
    was queued, claimed, delivered, started and ended, and one line how it went. Nothing is left on this machine; if it
    goes wrong, the logs are.

    Its runners are processes of this machine: nothing has to be installed, and nothing is isolated.

    \b
    Examples:
      remuda demo
      remuda demo --jobs 40 --runners 12
      remuda demo --keep
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    ctx.exit(asyncio.run(_demo(Told(jobs, runners, keep))))


@dataclass(frozen=True, slots=True)
class _Played:
    """What there is to say at the end."""

    lines: list[str]
    notes: str
    verdict: Verdict


async def _demo(told: Told) -> int:
    clock = SystemClock()
    screen, stopped = Screen(sys.stdout, clock), Stopped()
    stopped.listen(screen)
    fleet = Fleet(temporary(), told.runners, clock)
    played = None
    try:
        played = await within(deadline_s(told.jobs), fleet, _play(fleet, told, screen, clock))
    except asyncio.CancelledError:
        if not stopped.take():
            raise
    finally:
        stopped.ending = True
        well = stopped.code is not None or (played is not None and played.verdict.ok)
        trouble = await _end(fleet, screen, keep=told.keep or not well)
    if trouble:
        return FAILED
    if stopped.code is not None:
        return stopped.code
    assert played is not None, "what was raised went on"
    screen.table(played.lines)
    screen.plain(played.notes)
    for sentence in played.verdict.troubles:
        screen.bad(sentence)
    screen.plain(f"The demo took {duration(screen.elapsed_s)}.")
    screen.last_line(played.verdict.line, ok=played.verdict.ok)
    return OK if played.verdict.ok else FAILED


async def within(limit_s: float, fleet: Fleet, play: Coroutine[None, None, T]) -> T:
    """Play, but not for ever. DemoFailed says what was waited for when the time was over."""
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await play
    except TimeoutError:
        if not limit.expired():
            raise
        raise DemoFailed(
            f"The demo was not over within {duration(limit_s)}",
            why=f"it still waited: {fleet.awaits}",
            fix=f"Run it again with less else to do for this machine; its logs are in {fleet.folder.logs}",
        ) from None


async def _play(fleet: Fleet, told: Told, screen: Screen, clock: SystemClock) -> _Played:
    """Bring a fleet up, play on it, and judge what came of it."""
    zero = clock.now()
    screen.command(f"remuda {' '.join(fleet.command)}")
    screen.says("the driver is process: runners are processes of this machine, without isolation")
    await fleet.up()
    async with AsyncExitStack() as open_:
        kube = await open_.enter_async_context(administrator(fleet.folder))
        api = await open_.enter_async_context(fleet.api())
        watcher = Watcher(kube, clock)
        burst = Burst(api, clock, fleet.ledger, SystemIds().uid())
        story = Story(fleet, kube, watcher, burst, screen, clock)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watcher.run(), name="watcher")
            await story.play(waves(told.jobs, told.runners), told.runners)
            records, roll = await burst.records(watcher.images), story.roll_record()
            watching.cancel()
    verdict = judge(told.jobs, records, roll, story.acts)
    notes = (
        f"Unavailable at once for the roll: at most {roll.unavailable_max}; its cap is {roll.cap}."
        f"\nWith runners whose jobs had ended: at most {roll.in_all} of {told.runners}."
    )
    return _Played(table(records, zero), notes, verdict)


async def _end(fleet: Fleet, screen: Screen, *, keep: bool) -> str:
    """End the fleet and remove what it wrote; returns what is wrong, which is said too."""
    screen.command("remuda down --end-jobs")
    trouble = await fleet.down()
    if trouble:
        screen.bad(trouble)
    if keep or trouble:
        screen.says(f"kept for you: {fleet.place}, with the logs in {fleet.folder.logs}")
    else:
        fleet.remove()
        screen.good("the fleet is gone, and nothing is left of it")
    return trouble


class Stopped:
    """Whether a signal asked us to end, and with which exit code."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.ending = False
        """The play is over: nothing is left to interrupt."""
        self._task = asyncio.current_task()

    def listen(self, screen: Screen) -> None:
        loop = asyncio.get_running_loop()
        for number, code in _SIGNALS.items():
            loop.add_signal_handler(number, self._ask, code, screen)

    def deafen(self) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _ask(self, code: int, screen: Screen) -> None:
        """Interrupt the play once. What ends the fleet is not interrupted: it would leave something behind."""
        if self.ending or self.code is not None:
            screen.says("the fleet is being ended; that takes a moment")
            return
        self.code = code
        assert self._task is not None
        self._task.cancel()
        screen.says("you stopped the demo")

    def take(self) -> bool:
        """Tell whether the cancellation was ours; then it is over with it."""
        if self.code is None:
            return False
        assert self._task is not None
        self._task.uncancel()
        return True
