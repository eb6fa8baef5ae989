"""Bars: how much of a whole is what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.cli.top.decide.lines import Line, Span, Tone

if TYPE_CHECKING:
    from collections.abc import Sequence

BUSY: Final = "█"
WARM: Final = "▓"
STARTING: Final = "▒"
LEAVING: Final = "░"
MISSING: Final = "·"
_TONES: Final = {
    BUSY: Tone.AT_WORK,
    WARM: Tone.GOOD,
    STARTING: Tone.UNSURE,
    LEAVING: Tone.QUIET,
    MISSING: Tone.QUIET,
}


def bar(parts: Sequence[tuple[str, int]], size: int) -> str:
    """
    Draw parts of a whole side by side: one place for each thing while there is room for all, else in proportion.

    Every part that there is is seen, however small.
    """
    there = [(mark, count) for mark, count in parts if count > 0]
    whole = sum(count for _, count in there)
    if whole <= size:
        return "".join(mark * count for mark, count in there)
    places = [max(1, count * size // whole) for _, count in there]
    while (spare := size - sum(places)) != 0:
        # What is off goes to, or comes from, the part whose share differs most: the largest ones barely change.
        gaps = [(count * size / whole - places[n], n) for n, (_, count) in enumerate(there)]
        _, n = max(gaps) if spare > 0 else min(gap for gap in gaps if places[gap[1]] > 1)
        places[n] += 1 if spare > 0 else -1
    return "".join(mark * places[n] for n, (mark, _) in enumerate(there))


def painted(drawn: str) -> Line:
    """Give a bar its tones."""
    spans: list[Span] = []
    for char in drawn:
        tone = _TONES.get(char, Tone.PLAIN)
        if spans and spans[-1].tone is tone:
            spans[-1] = Span(spans[-1].text + char, tone)
        else:
            spans.append(Span(char, tone))
    return tuple(spans)
