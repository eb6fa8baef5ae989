"""Whether all is well with a tree, from what was seen of its parts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Condition(StrEnum):
    """How one part is."""

    HEALTHY = "healthy"
    NOT_READY = "not ready"
    """It runs and says itself that something is missing, or does not answer."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One part, as it was found."""

    name: str
    running: bool
    answered: bool = False
    ready: bool = False
    says: str = ""


def condition_of(seen: Seen) -> Condition:
    """Return how a part is."""
    if not seen.running:
        return Condition.STOPPED
    return Condition.HEALTHY if seen.answered and seen.ready else Condition.NOT_READY


def why_not(seen: Seen, last_error: str) -> str:
    """Return why a part is not healthy, in words; empty if it is."""
    match condition_of(seen):
        case Condition.HEALTHY:
            return ""
        case Condition.STOPPED:
            return last_error or "it does not run"
        case Condition.NOT_READY:
            return seen.says or "it does not answer"


def summary(parts: Sequence[Seen], *, supervised: bool) -> tuple[bool, str]:
    """Say whether all is well, and the sentence for it."""
    running = [part.name for part in parts if part.running]
    if not running and not supervised:
        return False, "Nothing runs. Start it with: remuda up"
    if not supervised:
        names = ", ".join(running)
        return False, f"Nobody tends {names}: remuda up was killed. Start it again: it takes over"
    ill = [part.name for part in parts if condition_of(part) is not Condition.HEALTHY]
    if ill:
        return False, f"Not all is well: {', '.join(ill)}"
    return True, "All is well"
