"""What a check is and what it says: a level, a sentence, what it rests on, and what to do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from remuda.cli.doctor.decide.facts import Facts

EVIDENCE_MAX: Final = 10
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_NUMBER: Final = re.compile(r"(?<![\w.-])\d+(?![\w-])")
"""A number that stands by itself: a part of a name is none."""


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """Worth a look, and nothing that is broken now."""
    FAIL = "fail"
    SKIP = "skip"
    """What the check needs could not be read, or is not there to be looked at."""


class Group(StrEnum):
    """What a check is about, in the order of the report."""

    MACHINE = "machine"
    CONNECTION = "connection"
    HOSTS = "hosts"
    POOLS = "pools"
    RUNNERS = "runners"
    JOBS = "jobs"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    level: Level
    sentence: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    mendable: bool = False
    """Whether ``--fix`` does something about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that is looked at. Its name stays the same from version to version."""

    name: str
    group: Group
    about: str
    """What it looks at, for the reference."""
    look: Callable[[Facts], Finding]
    invariants: tuple[str, ...] = ()
    """The invariants that it watches over."""
    mends: str = ""
    """What ``--fix`` may do about it; empty: nothing."""
    fleeting: bool = False
    """Whether reads of different moments can look wrong: then a second look must find the same."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about one check. The fields are those of ``--json``."""

    name: str
    group: Group
    level: Level
    sentence: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    invariants: tuple[str, ...] = ()
    mendable: bool = False
    """Whether ``--fix`` does something about it."""


def ok(sentence: str, evidence: Iterable[str] = ()) -> Finding:
    return Finding(Level.OK, sentence, tuple(evidence))


def warn(sentence: str, evidence: Iterable[str] = (), fix: str = "") -> Finding:
    return Finding(Level.WARN, sentence, tuple(evidence), fix)


def fail(sentence: str, evidence: Iterable[str] = (), fix: str = "") -> Finding:
    return Finding(Level.FAIL, sentence, tuple(evidence), fix)


def skip(sentence: str) -> Finding:
    return Finding(Level.SKIP, sentence)


def seen_twice(first: Finding, second: Finding) -> Finding:
    """
    Return what two looks agree on. Evidence that only one of them has was a moment in between.

    Counts in it may differ, and the newer ones are said: what gets worse has not gone.
    """
    if second.level in {Level.OK, Level.SKIP} or first.level in {Level.OK, Level.SKIP}:
        return second if second.level in {Level.OK, Level.SKIP} else first
    before = {_NUMBER.sub("#", line) for line in first.evidence}
    both = tuple(line for line in second.evidence if _NUMBER.sub("#", line) in before)
    if not both:
        return ok("Nothing that stays.")
    return replace(second, evidence=both)


def bounded(lines: tuple[str, ...], most: int = EVIDENCE_MAX) -> tuple[str, ...]:
    """Return so many lines, and how many more there are."""
    if len(lines) <= most:
        return lines
    return (*lines[:most], f"and {len(lines) - most} more")


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def lasting(seconds: float) -> str:
    """Return a length of time in the unit that people would use: 40 s, 5 min, 3 h, 2 d."""
    whole = max(0, int(seconds))
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"
