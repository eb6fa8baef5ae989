"""
When to make no runner of a template for a while: the server refuses it, or its runners end as soon as they begin.

Without this, a runner that fails at once is replaced at once, for ever and as fast as hosts can be asked. Kept per
template: what worked before is not held back with what does not work now. Plain memory: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from remuda.control.backoff import Backoff

RUNNERS_FAIL: Final = "RunnersFail"
_WAITS: Final = Backoff(first_s=2.0, longest_s=60.0)
_FREE: Final = 2
"""So many generations of runners may fail before anyone waits: a host that restarts costs one."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Refusal:
    """No runner can be made of a template, or none lasts."""

    reason: str
    why: str
    tries: int
    """How many may be tried now all the same."""
    lasts: bool = False
    """It holds until a runner serves, also while the one that is tried makes the pool complete."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A runner that ended without a job and without having been asked to."""

    created_at: datetime
    newest: datetime
    """When the youngest runner of its pool was made: only one that is younger yet can fail anew."""
    how: str


class HoldBack:
    """What of late became of the runners of one template."""

    def __init__(self) -> None:
        self.until = float("-inf")
        """When one may be tried again, on the monotonic clock."""
        self._refused, self._refusals = "", 0
        self._how, self._failures = "", 0
        self._newest = _NEVER

    def refusal(self, now: float, *, tried: bool = False) -> Refusal | None:
        """Return what stands against making one now. ``tried``: one is starting already."""
        tries = 0 if now < self.until else 1
        if self._refused:
            return Refusal("CreateRefused", self._refused, tries)
        if self._failures > _FREE:
            why = f"Runners end without having served: {self._how}. One is tried at a time."
            return Refusal(RUNNERS_FAIL, why, 0 if tried else tries, lasts=True)
        return None

    def refuse(self, why: str, now: float, fraction: float) -> None:
        """Make none for a while: the server said no, and only a person or time can help."""
        if now >= self.until:
            self._refusals += 1
            self.until = now + _WAITS.wait_s(self._refusals, fraction)
        self._refused = why

    def accept(self) -> None:
        """Take note that the server took one."""
        if self._refused:
            self.until = float("-inf")
        self._refused, self._refusals = "", 0

    def fail(self, failed: Failed, now: float, fraction: float) -> None:
        """Take note of a runner that ended for nothing. The next try waits the longer, the more did so in a row."""
        self._how = failed.how
        if failed.created_at <= self._newest:
            return  # those that were there together fail together
        self._newest = max(failed.created_at, failed.newest)
        self._failures += 1
        if self._failures > _FREE:
            self.until = now + _WAITS.wait_s(self._failures - _FREE, fraction)

    def serve(self) -> None:
        """Take note that a runner became ready: the template works."""
        self._how, self._failures = "", 0
        if not self._refused:
            self.until = float("-inf")
