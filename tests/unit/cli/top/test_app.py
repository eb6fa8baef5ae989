"""The screen, steered by textual's own pilot, on an API in memory: keys, panels, and a server that goes and comes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual.widgets import Static

from remuda.adapters.system import SystemClock
from remuda.cli.top.app import TopApp
from remuda.cli.top.decide.panes import Pane
from remuda.cli.top.panels import Panel, Question
from remuda.cli.top.reading import Reader
from remuda.model.job import JobState
from remuda.ports.api import ApiNotFound, Explanation
from tests.support.eventually import eventually
from tests.support.memory_api import MemoryApi, a_host, a_job, a_pool, a_runner, an_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

    from remuda.ports.api import Api

WITHIN_S = 60.0
EVERY_S = 0.2


@dataclass
class MemoryHands:
    """Fills ``remuda.cli.top.hands.Hands`` on an API in memory."""

    api: MemoryApi
    unknown: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    changed: list[tuple[str, bool]] = field(default_factory=list)

    async def explain(self, kind: str, name: str) -> Explanation:
        self.asked.append((kind, name))
        if name in self.unknown:
            raise ApiNotFound(f"There is no {kind} {name}", why="it went", fix="Look again")
        return Explanation(
            subject=name,
            why="so",
            sentence=f"The {kind} {name} is fine.",
            evidence=("it is [green]",),
            next_step="Nothing.",
        )

    async def set_paused(self, pool: str, *, paused: bool) -> str:
        self.changed.append((pool, paused))
        self.api.pools_ = tuple(
            a_pool(p.name, warm=p.runners.warm, paused=paused if p.name == pool else p.paused)
            for p in self.api.pools_
        )
        return f"{pool} is changed."


@dataclass
class Stage:
    """A screen, whoever presses its keys, and the fleet behind it."""

    app: TopApp
    pilot: Pilot[None]
    api: MemoryApi
    hands: MemoryHands

    def text(self) -> str:
        """Return what can be read on the screen now, panels included."""
        shown = [
            str(widget.content)
            for screen in self.app.screen_stack
            for widget in screen.query(Static)
            if widget.display
        ]
        return "\n".join(shown)

    async def says(self, *words: str) -> None:
        async def missing() -> list[str]:
            await self.pilot.pause()
            return [word for word in words if word not in self.text()]

        await eventually(missing, lambda left: not left, within_s=WITHIN_S)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()


def a_fleet() -> MemoryApi:
    return MemoryApi(
        pools_=(a_pool("linux", warm=2), a_pool("mac", warm=1)),
        runners_=(a_runner("linux-a"), a_runner("linux-b", "busy", job="job-1")),
        hosts_=(a_host("mini-1", runners=2),),
        jobs_=(a_job("job-1", JobState.RUNNING, started_s=30), a_job("job-2")),
        events_=[an_event(1, "enqueued", job_id="job-2")],
    )


@asynccontextmanager
async def a_screen(api: MemoryApi, size: tuple[int, int] = (100, 40)) -> AsyncIterator[Stage]:
    served: Api = api
    clock, hands = SystemClock(), MemoryHands(api)
    reader = Reader(served, clock, address="http://here", every_s=EVERY_S)
    app = TopApp(reader.sight, clock=clock, hands=hands, look=reader.wake)
    async with app.run_test(size=size, notifications=True) as pilot, asyncio.TaskGroup() as group:
        reading = group.create_task(reader.run(app.show))
        yield Stage(app, pilot, api, hands)
        reading.cancel()


async def test_a_fleet_is_on_the_screen_with_all_its_panes() -> None:
    async with a_screen(a_fleet(), size=(80, 24)) as stage:
        await stage.says("● healthy", "Pools 2", "Runners 2", "Hosts 1", "Jobs 2", "Events 1")
        await stage.says("linux", "mac", "job-2", "q quit")
        # Nothing is wider or lower than the screen.
        for widget in stage.app.screen.query(".pane"):
            assert widget.region.right <= 80
            assert widget.region.bottom <= 23


async def test_keys_go_from_pane_to_pane_and_from_row_to_row() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("linux-b")
        await stage.press("tab", "down", "down", "down")
        shown = stage.app.board
        chosen = stage.app.view.chosen(shown)
        assert shown.pane is Pane.RUNNERS
        assert chosen is not None
        assert chosen.key == "linux-b"
        await stage.press("right", "left", "shift+tab")
        assert stage.app.view.focused is Pane.POOLS
        await stage.press("end")
        assert stage.app.view.cursor(stage.app.board) == 1
        await stage.press("home")
        assert stage.app.view.cursor(stage.app.board) == 0


async def test_a_click_chooses_a_row() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("linux-b")
        await stage.pilot.click("#runners", offset=(3, 3))
        assert stage.app.view.focused is Pane.RUNNERS
        assert stage.app.view.cursor(stage.app.board) == 1


async def test_the_chosen_thing_is_explained_and_nothing_in_it_is_markup() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("mac")
        await stage.press("down", "e")
        await stage.says("The pool mac is fine.", "it is [green]", "Next: Nothing.")
        assert stage.hands.asked == [("pool", "mac")]
        await stage.press("j", "k", "escape")
        assert len(stage.app.screen_stack) == 1


async def test_what_cannot_be_explained_is_told_in_the_panel() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("linux")
        stage.hands.unknown.add("linux")
        await stage.press("enter")
        await stage.says("There is no pool linux", "why: it went", "fix: Look again")


async def test_words_filter_all_panes_until_they_are_cleared() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("Jobs 2")
        await stage.press("slash", "j", "o", "b", "minus", "2", "enter")
        await stage.says("Jobs 1 of 2", "Nothing here fits the filter.", "filter: job-2")
        await stage.press("escape")
        await stage.says("Jobs 2")
        assert "filter:" not in stage.text()


async def test_while_words_are_typed_keys_are_letters() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("Jobs 2")
        await stage.press("slash", "q", "e", "s")
        assert stage.app.is_running
        assert stage.app.view.filtered == "qes"
        await stage.press("escape")
        assert stage.app.view.filtered == ""


async def test_a_pane_is_sorted_another_way() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("by name")
        await stage.press("s")
        await stage.says("by most queued")


async def test_a_pool_is_paused_only_by_a_yes() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("mac")
        await stage.press("down", "p")
        await stage.says("Pause the rollout of pool mac?")
        assert isinstance(stage.app.screen, Question)
        await stage.press("n")
        assert stage.hands.changed == []
        await stage.press("p", "y")
        await stage.says("paused")
        assert stage.hands.changed == [("mac", True)]
        await stage.press("p")
        await stage.says("Let the rollout of pool mac go on?")
        await stage.press("y")

        async def done() -> bool:
            return stage.hands.changed == [("mac", True), ("mac", False)]

        await eventually(done, within_s=WITHIN_S)


async def test_nothing_is_paused_where_no_pool_is_chosen() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("mini-1")
        await stage.press("tab", "tab", "p")
        assert len(stage.app.screen_stack) == 1


async def test_the_help_names_the_keys() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.press("question_mark")
        assert isinstance(stage.app.screen, Panel)
        await stage.says("why the chosen thing is as it is", "busy", "quit")
        await stage.press("tab", "escape")
        assert len(stage.app.screen_stack) == 1


async def test_a_lost_server_is_said_to_be_lost_and_comes_back_by_itself() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("● healthy")
        stage.api.is_down = True
        await stage.says("○ lost", "STALE", "nobody is there", "linux-a")
        stage.api.pools_ = (*stage.api.pools_, a_pool("fresh", warm=3))
        stage.api.is_down = False
        await stage.says("● healthy", "fresh")
        assert "STALE" not in stage.text()


async def test_a_server_that_hangs_makes_what_is_shown_stale() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("● healthy")
        stage.api.is_stuck = True
        await stage.says("STALE")


async def test_a_screen_before_the_first_answer_says_so() -> None:
    api = a_fleet()
    api.is_down = True
    async with a_screen(api) as stage:
        await stage.says("○ away", "no data yet")
        await stage.press("e", "p", "down", "s", "tab")
        assert len(stage.app.screen_stack) == 1


async def test_what_happens_is_shown() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("Events 1")
        stage.api.happen(an_event(2, "completed", job_id="job-1", why="it ended: success"))
        await stage.says("Events 2", "it ended: success")


async def test_another_size_is_another_picture() -> None:
    async with a_screen(a_fleet(), size=(160, 40)) as stage:
        await stage.says("Pools 2")

        async def left_edges() -> set[int]:
            await stage.pilot.pause()
            return {widget.region.x for widget in stage.app.screen.query(".pane")}

        await eventually(left_edges, lambda found: len(found) == 2, within_s=WITHIN_S)
        await stage.pilot.resize_terminal(80, 24)
        await eventually(left_edges, lambda found: found == {0}, within_s=WITHIN_S)


async def test_q_quits() -> None:
    async with a_screen(a_fleet()) as stage:
        await stage.says("Pools 2")
        await stage.press("q")
        assert not stage.app.is_running
