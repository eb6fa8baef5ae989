"""Lines of a screen, in pieces that have a tone. What a tone looks like is the terminal's to say."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from remuda.cli.tables import colour_of, cut, display_width

if TYPE_CHECKING:
    from collections.abc import Sequence


class Tone(StrEnum):
    """What a piece of text tells beside its words. Nothing is told by its tone alone: not all see colours."""

    PLAIN = "plain"
    STRONG = "strong"
    QUIET = "quiet"
    AT_WORK = "at work"
    GOOD = "good"
    UNSURE = "unsure"
    BAD = "bad"
    CHOSEN = "chosen"
    """The row or the pane that keys act on."""


@dataclass(frozen=True, slots=True)
class Span:
    """Some text and its tone."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]

_TONES = {"green": Tone.GOOD, "yellow": Tone.UNSURE, "red": Tone.BAD, None: Tone.PLAIN}


def tone_of(state: str) -> Tone:
    """Return the tone of a state, as in listings."""
    return _TONES[colour_of(state)]


def text_of(line: Line) -> str:
    """Return a line without its tones."""
    return "".join(span.text for span in line)


def width_of(line: Line) -> int:
    return sum(display_width(span.text) for span in line)


def filled(line: Line, width: int, fill: str = " ") -> Line:
    """Return a line that is exactly so wide: cut, or filled up."""
    kept: list[Span] = []
    room = width
    for span in line:
        if room <= 0:
            break
        text = cut(span.text, room)
        kept.append(Span(text, span.tone))
        room -= display_width(text)
    return (*kept, Span(fill * room, Tone.QUIET)) if room > 0 else tuple(kept)


def apart(left: Line, right: Line, width: int) -> Line:
    """Return a line with something at each end; what is right goes first if there is no room for both."""
    gap = width - width_of(left) - width_of(right)
    if gap < 1:
        return filled(left, width)
    return (*left, Span(" " * gap), *right)


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines that fit. What is broken in two is indented further than it began."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" -")))
        lines += textwrap.wrap(line, max(width, 20), subsequent_indent=indent) or [""]
    return lines


def joined(parts: Sequence[Line], gap: str = "   ") -> Line:
    """Return lines side by side."""
    spans: list[Span] = []
    for number, part in enumerate(parts):
        if number:
            spans.append(Span(gap))
        spans += part
    return tuple(spans)
