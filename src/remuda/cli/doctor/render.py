"""A report as a person reads it. Pure: a report and a width come in, lines go out."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click

from remuda.cli.doctor.decide.findings import Level
from remuda.cli.tables import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.cli.doctor.decide.findings import Result
    from remuda.cli.doctor.decide.report import Mended, Report

_COLOURS: Final = {
    Level.OK: "green",
    Level.WARN: "yellow",
    Level.FAIL: "red",
    Level.SKIP: "bright_black",
}
_LEVEL: Final = 6
_OUTCOME: Final = 9
_WIDEST: Final = 110
"""Longer lines are hard to read, however wide the terminal is."""
_NARROWEST: Final = 60


def lines(report: Report, *, room: int | None = None, colour: bool = False) -> Iterator[str]:
    """Return the lines of a report; without ``room`` nothing is broken over lines."""
    width = None if room is None else max(_NARROWEST, min(room, _WIDEST))
    names = max((len(result.name) for result in report.checks), default=0)
    page = _Page(width, names, colour=colour)
    for group, results in groupby(report.checks, key=lambda result: result.group):
        yield page.title(group.value.upper())
        for alike in page.merged(tuple(results)):
            yield from page.entry(alike)
        yield ""
    yield from page.mended(report.mended)
    yield summary(report)


def summary(report: Report) -> str:
    """Say it in a line."""
    counts = report.counts
    order = (Level.FAIL, Level.WARN, Level.OK, Level.SKIP)
    said = ", ".join(f"{counts[level]} {level.value}" for level in order if counts[level])
    verdict = "No check failed" if report.ok else "Something is wrong"
    return f"{verdict}: {said}." if said else "Nothing was checked."


class _Page:
    def __init__(self, width: int | None, names: int, *, colour: bool) -> None:
        self._width, self._names, self._colour = width, names, colour
        self._indent = 2 + _LEVEL + names + 2

    def title(self, text: str) -> str:
        return click.style(text, bold=True) if self._colour else text

    def merged(self, results: Sequence[Result]) -> Iterator[tuple[Result, ...]]:
        """Put checks together that were skipped for the same reason: it is said once."""
        for _, alike in groupby(results, key=_sort):
            yield tuple(alike)

    def entry(self, results: tuple[Result, ...]) -> Iterator[str]:
        """Return the lines of one check, or of several that were skipped for one reason."""
        result, level = results[0], results[0].level
        mark = level.value.ljust(_LEVEL)
        if self._colour:
            mark = click.style(mark, fg=_COLOURS[level])
        if len(results) > 1:
            names = ", ".join(each.name for each in results)
            head, *rest = self._wrapped(names, 2 + _LEVEL)
            yield f"  {mark}{head}"
            said = [*rest, *self._wrapped(plain(result.sentence), 2 + _LEVEL)]
            yield from (" " * (2 + _LEVEL) + each for each in said)
            return
        head, *rest = self._wrapped(plain(result.sentence), self._indent)
        yield f"  {mark}{result.name.ljust(self._names)}  {head}".rstrip()
        yield from (" " * self._indent + each for each in rest)
        if level in {Level.WARN, Level.FAIL}:
            yield from self._details(result)

    def _details(self, result: Result) -> Iterator[str]:
        indent = 2 + _LEVEL
        for fact in result.evidence:
            yield from self._hanging(indent, "- ", plain(fact))
        if result.fix:
            yield from self._hanging(indent, "fix: ", plain(result.fix))

    def _hanging(self, indent: int, mark: str, text: str) -> Iterator[str]:
        head, *rest = self._wrapped(text, indent + len(mark))
        yield f"{' ' * indent}{mark}{head}"
        for more in rest:
            yield " " * (indent + len(mark)) + more

    def _wrapped(self, text: str, indent: int) -> list[str]:
        if self._width is None:
            return [text]
        # Commands and names are copied: they are broken at blanks only.
        return textwrap.wrap(
            text, self._width - indent, break_long_words=False, break_on_hyphens=False
        ) or [""]

    def mended(self, mended: Sequence[Mended]) -> Iterator[str]:
        if not mended:
            return
        yield self.title("FIX")
        for one in mended:
            yield from self._hanging(2, one.outcome.value.ljust(_OUTCOME), plain(one.what))
            if one.why:
                yield from self._hanging(2 + _OUTCOME, "why: ", plain(one.why))
        yield ""


def _sort(result: Result) -> tuple[Level, str]:
    return result.level, result.sentence if result.level is Level.SKIP else result.name
