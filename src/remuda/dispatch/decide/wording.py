"""How explanations are worded. Pure text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from enum import StrEnum

    from remuda.model.job import Size

NAMES_MAX: Final = 5
_MIB_PER_GIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer to "why?", for a person and for a program."""

    why: StrEnum
    """The reason in one word, for programs."""
    sentence: str
    evidence: tuple[str, ...]
    """The facts that it rests on."""
    next_step: str

    def with_evidence(self, *facts: str) -> Explanation:
        return replace(self, evidence=(*self.evidence, *facts))


def when(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def amount(size: Size) -> str:
    gib, rest = divmod(size.memory_mib, _MIB_PER_GIB)
    memory = f"{size.memory_mib} MiB" if rest else f"{gib} GiB"
    return f"{size.vcpus} vCPU and {memory}"


def some(number: int, noun: str) -> str:
    """Say how many there are: ``no jobs``, ``1 job``, ``2 jobs``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number or 'no'} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Name the first few; the rest is a number."""
    shown = ", ".join(names[:NAMES_MAX])
    more = len(names) - NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown
