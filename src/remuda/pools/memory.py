"""What the loop remembers of a pool between two passes, and only within a reign. Plain memory: no I/O, no clock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from remuda.model.runner import Phase
from remuda.pools.holdback import HoldBack

if TYPE_CHECKING:
    from remuda.model.runner import Runner
    from remuda.pools.holdback import Refusal
    from remuda.pools.turn import Creation

_HOLDS_MAX: Final = 8
"""When more templates than this are remembered, those without runners are forgotten."""


class PoolMemory:
    """One pool's. It may be lost: the next pass then begins from what the server says."""

    def __init__(self) -> None:
        self.held = ("", "")
        """UID and version of the pool over which our finalizer was written: a newer version shows it, or lost it."""
        self.fell_back_from = ""
        """The template for which it was told that runners are made from another."""
        self.doubts: dict[str, Runner] = {}
        """Runners about which a write was not answered, as they were before."""
        self.unanswered: dict[str, Creation] = {}
        """Creations that may have happened."""
        self.holds: dict[str, HoldBack] = {}
        """By template, what keeps runners of it from being made."""
        self._serving: frozenset[str] = frozenset()
        self._starting: frozenset[str] = frozenset()
        """The templates of which a runner is starting."""

    def hold(self, template: str) -> HoldBack:
        return self.holds.setdefault(template, HoldBack())

    def refusals(self, now: float) -> dict[str, Refusal]:
        """Return by template what stands against making runners of it now."""
        found = {t: hold.refusal(now, tried=t in self._starting) for t, hold in self.holds.items()}
        return {template: refusal for template, refusal in found.items() if refusal is not None}

    def waits(self, now: float) -> list[timedelta]:
        """Return after how long held-back runners may be tried again."""
        return [timedelta(seconds=h.until - now) for h in self.holds.values() if h.until > now]

    def see(self, runners: tuple[Runner, ...]) -> None:
        """Take note of who serves: a template of which one newly does works."""
        serving = {r.uid: r.template for r in runners if r.phase in (Phase.WARM, Phase.BUSY)}
        for template in {t for uid, t in serving.items() if uid not in self._serving}:
            if template in self.holds:
                self.holds[template].serve()
        self._serving = frozenset(serving)
        self._starting = frozenset(
            r.template for r in runners if r.phase is Phase.STARTING and r.is_alive
        )
        if len(self.holds) > _HOLDS_MAX:
            self.holds = {t: h for t, h in self.holds.items() if t in {r.template for r in runners}}
