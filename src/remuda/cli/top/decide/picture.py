"""The whole screen: what stands where, line by line. And the same as plain text, for those who want one look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.cli.top.decide.board import board, drawn
from remuda.cli.top.decide.lines import Line, Span, Tone, filled, text_of
from remuda.cli.top.decide.panes import Pane
from remuda.cli.top.decide.places import places
from remuda.cli.top.decide.sight import head

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.cli.top.decide.places import Place
    from remuda.cli.top.decide.sight import Sight
    from remuda.cli.top.decide.view import View

_KEYS: Final = (
    ("Tab ↑↓", "move"),
    ("e", "explain"),
    ("/", "filter"),
    ("s", "sort"),
    ("p", "pause"),
    ("r", "refresh"),
    ("?", "help"),
    ("q", "quit"),
)
_EVENTS_ONCE: Final = 10
_WIDTH_ONCE: Final = 132


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When something is drawn: by the wall, and by the clock that only grows."""

    now: datetime
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A screen full."""

    head: tuple[Line, ...]
    panes: dict[Pane, tuple[Place, tuple[Line, ...]]]
    foot: Line


def picture(sight: Sight, view: View, at: Moment, *, width: int, height: int) -> Picture:
    """Draw the screen."""
    above = head(sight, now=at.now, now_s=at.now_s, width=width)
    boards = {pane: view.board(pane, sight, at.now) for pane in Pane}
    needs = {pane: shown.lines for pane, shown in boards.items()}
    where = places(needs, view.focused, width=width, top=len(above), bottom=height - 1)
    panes = {
        pane: (
            place,
            drawn(
                boards[pane],
                width=place.width,
                height=place.height,
                cursor=view.cursor(boards[pane]),
                is_focused=pane is view.focused,
            ),
        )
        for pane, place in where.items()
    }
    return Picture(head=above, panes=panes, foot=foot(view, width))


def foot(view: View, width: int) -> Line:
    """Return the line of keys, and the filter if there is one."""
    spans: list[Span] = []
    if view.filtered:
        spans += [Span(f" filter: {view.filtered} ", Tone.CHOSEN), Span(" Esc clears  ")]
    for key, what in _KEYS:
        spans += [Span(f" {key}", Tone.STRONG), Span(f" {what} ", Tone.QUIET)]
    return filled(tuple(spans), width)


def once(sight: Sight, at: Moment, *, width: int | None) -> list[str]:
    """Return one look as plain lines: every row there is, and the last few events. Without a width it is ample."""
    across = width or _WIDTH_ONCE
    above = head(sight, now=at.now, now_s=at.now_s, width=across)
    lines = [text_of(line).rstrip() for line in above]
    for pane in Pane:
        shown = board(pane, sight, at.now)
        height = shown.lines if pane is not Pane.EVENTS else min(shown.lines, _EVENTS_ONCE + 2)
        made = drawn(shown, width=across, height=height, cursor=None, is_focused=False)
        lines += ["", *(text_of(line).rstrip() for line in made)]
    return lines
