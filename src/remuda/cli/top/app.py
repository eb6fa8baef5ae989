"""
The screen of ``remuda top``, with textual. Thin: what it shows is decided in ``decide``, and keys are steps of a View.

It neither reads the fleet nor ends with it: ``reading`` tells it what was seen, or what is wrong.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import App
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, Static

from remuda.cli.exits import TERMINATED
from remuda.cli.explain import text_of
from remuda.cli.top.decide.lines import Tone
from remuda.cli.top.decide.panes import Pane
from remuda.cli.top.decide.picture import Moment, picture
from remuda.cli.top.decide.view import View
from remuda.cli.top.hands import FleetHands
from remuda.cli.top.panels import HELP, Panel, Question
from remuda.cli.top.reading import Reader
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Click, Resize

    from remuda.cli.finding import Where
    from remuda.cli.top.decide.board import Board
    from remuda.cli.top.decide.lines import Line
    from remuda.cli.top.decide.sight import Sight
    from remuda.cli.top.hands import Hands
    from remuda.ports.api import Api
    from remuda.ports.clock import Clock

_STYLES: Final = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.QUIET: "dim",
    Tone.AT_WORK: "$text-primary",
    Tone.GOOD: "$text-success",
    Tone.UNSURE: "$text-warning",
    Tone.BAD: "bold $text-error",
    Tone.CHOSEN: "reverse bold",
}
_PAGE: Final = 10
_FAR: Final = 10**9
_TICK_S: Final = 1.0
"""Ages are drawn anew so often, whatever the fleet does."""


def content(lines: Sequence[Line]) -> Content:
    """Return lines as textual draws them. Nothing in them is markup: names are written by strangers."""
    pieces: list[str | tuple[str, str]] = []
    for number, line in enumerate(lines):
        if number:
            pieces.append("\n")
        pieces += [(span.text, _STYLES[span.tone]) for span in line]
    return Content.assemble(*pieces)


class PaneView(Static):
    """One pane: it stands where it is put."""

    def __init__(self, pane: Pane) -> None:
        super().__init__(id=pane.name.lower(), classes="pane")
        self.pane = pane


class TopApp(App[None]):
    """The screen."""

    TITLE = "remuda top"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #head { dock: top; height: 2; text-wrap: nowrap; text-overflow: clip; }
    #foot { dock: bottom; height: 1; text-wrap: nowrap; text-overflow: clip; }
    .pane { position: absolute; text-wrap: nowrap; text-overflow: clip; }
    #filter { dock: bottom; height: 1; border: none; padding: 0 1; display: none; }
    #filter.open { display: block; }
    Panel, Question { align: center middle; }
    #panel { width: 90%; max-width: 100; height: auto; max-height: 90%; border: round $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "pane(1)", "Next pane", priority=True),
        Binding("shift+tab", "pane(-1)", "Pane before", priority=True),
        ("right", "pane(1)", "Next pane"),
        ("left", "pane(-1)", "Pane before"),
        ("down,j", "row(1)", "Next row"),
        ("up,k", "row(-1)", "Row before"),
        ("pagedown", f"row({_PAGE})", "Rows down"),
        ("pageup", f"row(-{_PAGE})", "Rows up"),
        ("home", f"row(-{_FAR})", "First row"),
        ("end", f"row({_FAR})", "Last row"),
        ("e,enter", "explain", "Explain"),
        ("slash", "filter", "Filter"),
        ("escape", "clear", "Show all"),
        ("s", "sort", "Sort"),
        ("p", "pause", "Pause"),
        ("r", "look", "Look again"),
        ("question_mark", "help", "Help"),
        ("q,ctrl+c", "quit", "Quit"),
    ]

    def __init__(
        self, sight: Sight, *, clock: Clock, hands: Hands, look: Callable[[], None]
    ) -> None:
        # With the terminal's own colours none at all are written where NO_COLOR asks for that.
        super().__init__(ansi_color=bool(os.environ.get("NO_COLOR")) or None)
        self._sight, self._clock, self._hands, self._look = sight, clock, hands, look
        self.view = View()

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        for pane in Pane:
            yield PaneView(pane)
        yield Static(id="foot")
        yield Input(id="filter", placeholder="words that a row must have; Enter keeps, Esc clears")

    def on_mount(self) -> None:
        self.set_interval(_TICK_S, self.redraw)
        self.redraw()

    def on_resize(self, event: Resize) -> None:
        del event
        self.redraw()

    # --- showing ---

    def show(self, sight: Sight) -> None:
        """Take in what was seen."""
        self._sight = sight
        self.redraw()

    def redraw(self) -> None:
        if not self.is_running or not self.screen_stack:
            return
        base = self.screen_stack[0]
        if not base.query("#foot"):
            return  # it is not built yet, or is being taken down
        width, height = self.size
        at = Moment(now=self._clock.now().astimezone(), now_s=self._clock.monotonic())
        drawn = picture(self._sight, self.view, at, width=width, height=height)
        above = base.query_one("#head", Static)
        above.styles.height = len(drawn.head)
        # Nothing is laid out anew unless a place changed: the terminal is written only what differs.
        above.update(content(drawn.head), layout=False)
        base.query_one("#foot", Static).update(content([drawn.foot]), layout=False)
        for widget in base.query(PaneView):
            placed = drawn.panes.get(widget.pane)
            widget.display = placed is not None
            if placed is None:
                continue
            place, lines = placed
            widget.styles.offset = (place.x, place.y)
            widget.styles.width, widget.styles.height = place.width, place.height
            widget.update(content(lines), layout=False)

    @property
    def board(self) -> Board:
        """The pane that keys act on."""
        return self.view.board(self.view.focused, self._sight, self._clock.now().astimezone())

    def _become(self, view: View) -> None:
        self.view = view
        self.redraw()

    # --- keys ---

    def action_pane(self, step: int) -> None:
        if len(self.screen_stack) == 1:
            self._become(self.view.next_pane(step))

    def action_row(self, step: int) -> None:
        self._become(self.view.moved(self.board, step))

    def action_sort(self) -> None:
        self._become(self.view.next_order())

    def action_look(self) -> None:
        self._look()

    def action_help(self) -> None:
        self.push_screen(Panel("Keys", HELP))

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.value = self.view.filtered
        box.add_class("open")
        box.focus()

    def action_clear(self) -> None:
        self._close_filter()
        self._become(self.view.filtering(""))

    def on_input_changed(self, event: Input.Changed) -> None:
        if self.query_one("#filter", Input).has_class("open"):
            self._become(self.view.filtering(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter()
        self._become(self.view.filtering(event.value))

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("open")
        self.set_focus(None)

    def on_click(self, event: Click) -> None:
        widget = event.widget
        if not isinstance(widget, PaneView) or len(self.screen_stack) > 1:
            return
        shown = self.view.board(widget.pane, self._sight, self._clock.now().astimezone())
        self._become(self.view.clicked(shown, event.y, widget.size.height))

    # --- asking and doing ---

    def action_explain(self) -> None:
        row = self.view.chosen(self.board)
        if row is None or not row.about.kind:
            self.notify("There is nothing to explain here.", timeout=3)
            return
        about = row.about
        panel = Panel(f"{about.kind} {about.name}", "Asking …")
        self.push_screen(panel)
        self.run_worker(self._explain(panel, about.kind, about.name), exit_on_error=True)

    async def _explain(self, panel: Panel, kind: str, name: str) -> None:
        try:
            found = await self._hands.explain(kind, name)
        except RemudaError as error:
            panel.say(in_words(error))
        else:
            panel.say("\n".join(text_of(found)))

    def action_pause(self) -> None:
        row = self.view.chosen(self.board)
        fleet = self._sight.fleet
        known = {pool.name: pool for pool in fleet.pools} if fleet else {}
        pool = known.get(row.about.pool) if row else None
        if pool is None:
            self.notify("Choose a pool first, or something that belongs to one.", timeout=3)
            return
        paused = not pool.paused
        asked = (
            f"Pause the rollout of pool {pool.name}? Runners that are marked already are still replaced."
            if paused
            else f"Let the rollout of pool {pool.name} go on?"
        )

        def answered(is_yes: bool | None) -> None:  # noqa: FBT001 - textual passes it by place
            if is_yes:
                self.run_worker(self._set_paused(pool.name, paused=paused), exit_on_error=True)

        self.push_screen(Question(asked), answered)

    async def _set_paused(self, pool: str, *, paused: bool) -> None:
        try:
            done = await self._hands.set_paused(pool, paused=paused)
        except RemudaError as error:
            self.push_screen(Panel(f"pool {pool}", in_words(error)))
        else:
            self.notify(done, markup=False)
            self._look()


def in_words(error: RemudaError) -> str:
    return f"{error.what}\n\nwhy: {error.why}\nfix: {error.fix}"


async def run(api: Api, clock: Clock, *, where: Where, address: str, every_s: float) -> int:
    """Show the fleet until somebody quits. Returns the exit code."""
    reader = Reader(api, clock, address=address, every_s=every_s)
    app = TopApp(reader.sight, clock=clock, hands=FleetHands(where), look=reader.wake)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):  # the terminal is left as it was found
        loop.add_signal_handler(number, lambda: app.exit(return_code=TERMINATED))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(reader.run(app.show), name="reading")
        await app.run_async()
        reading.cancel()
    return app.return_code or 0
