"""
How much may still be asked of GitHub: one limit per installation, and one for the App itself. Pure: time comes in.

Sweeps stop before they touch the part that minting needs, and spread the rest over the hour, so that they do not go
blind for the second half of it. After GitHub said "too much", nobody asks it anything before the time that it named.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

APP: Final = 0
"""The key of the App's own limit; installations have theirs under their number."""
WINDOW_S: Final = 3600.0
_SLACK: Final = 0.15
"""How far sweeps may run ahead of an even pace, as a part of the limit."""
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Limit:
    """What GitHub said last. ``resets_at`` is seconds since 1970, by GitHub's clock."""

    limit: int
    remaining: int
    resets_at: float


@dataclass(slots=True)
class _Account:
    said: Limit | None = None
    silent_until: float = 0.0
    minute_began: float = field(default=float("-inf"))
    in_minute: int = 0


class Budgets:
    """What is left for each installation."""

    def __init__(self, *, reserve: float, sweep_per_minute_max: int) -> None:
        self._reserve = reserve
        self._sweep_per_minute_max = sweep_per_minute_max
        self._accounts: defaultdict[int, _Account] = defaultdict(_Account)

    def heard(self, key: int, headers: Mapping[str, str]) -> None:
        """Note what an answer says. Answers overtake each other: within one window the lowest count is right."""
        said = read_limit(headers)
        # Registering runners may be counted by itself; sweeps use what everything else uses.
        if said is None or headers.get("x-ratelimit-resource", "core") != "core":
            return
        account = self._accounts[key]
        known = account.said
        if known is not None and (
            said.resets_at < known.resets_at
            or (said.resets_at == known.resets_at and said.remaining > known.remaining)
        ):
            return
        account.said = said

    def quieten(self, key: int, *, until: float) -> None:
        """Ask nothing before ``until`` (monotonic)."""
        account = self._accounts[key]
        account.silent_until = max(account.silent_until, until)

    def silent_s(self, key: int, *, at: float) -> float:
        """Return for how long nothing may be asked."""
        return max(0.0, self._accounts[key].silent_until - at) if key in self._accounts else 0.0

    def take_for_sweep(self, key: int, *, at: float, now: float) -> bool:
        """Take one request for a sweep, if minting and the pace leave room for it. ``now`` is seconds since 1970."""
        account = self._accounts[key]
        if account.silent_until > at or not may_sweep(account.said, now, self._reserve):
            return False
        if at - account.minute_began >= _MINUTE_S:
            account.minute_began, account.in_minute = at, 0
        if account.in_minute >= self._sweep_per_minute_max:
            return False
        account.in_minute += 1
        return True

    def room(self, key: int, *, now: float) -> tuple[int | None, float]:
        """Return what sweeps may still use before the limit begins anew, None if nothing is known, and when that is."""
        said = self._accounts[key].said if key in self._accounts else None
        if said is None or now >= said.resets_at:
            return None, 0.0
        left = said.remaining - int(self._reserve * said.limit)
        return max(0, left), said.resets_at - now

    def least_remaining(self, *, now: float) -> int | None:
        """Return the least that anybody has left; None before GitHub said anything."""
        said = [a.said for a in self._accounts.values() if a.said is not None]
        return min((_left(limit, now) for limit in said), default=None)


def may_sweep(said: Limit | None, now: float, reserve: float) -> bool:
    """Say whether a sweep may ask once more."""
    if said is None or now >= said.resets_at:
        return True
    left = said.remaining / max(1, said.limit)
    ahead = min(1.0, (said.resets_at - now) / WINDOW_S)
    return left > max(reserve, reserve + (1 - reserve) * ahead - _SLACK)


def _left(said: Limit, now: float) -> int:
    return said.limit if now >= said.resets_at else said.remaining


def read_limit(headers: Mapping[str, str]) -> Limit | None:
    numbers = [headers.get(f"x-ratelimit-{name}", "") for name in ("limit", "remaining", "reset")]
    if not all(n.isascii() and n.isdigit() and len(n) < 16 for n in numbers):  # noqa: PLR2004 - exact as a float
        return None
    limit, remaining, reset = (int(n) for n in numbers)
    return Limit(limit, remaining, float(reset))
