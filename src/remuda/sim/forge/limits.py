"""How much may be asked of the forge for one organisation in an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.ports.forge import ForgeThrottled

if TYPE_CHECKING:
    from remuda.ports.clock import Clock

HOUR_S = 3600.0


class RateLimits:
    """Counts requests. ``reserve`` of them are for minting: a sweep gives way before."""

    def __init__(self, clock: Clock, *, per_hour: int = 15_000, reserve: int = 1_000) -> None:
        self._clock = clock
        self.per_hour, self.reserve = per_hour, reserve
        self._since: dict[str, float] = {}
        self.spent: dict[str, int] = {}

    def may_sweep(self, organisation: str) -> bool:
        return self.per_hour - self._used(organisation) > self.reserve

    def spend(self, organisation: str) -> None:
        """Count one request, or refuse it."""
        used = self._used(organisation)
        if used >= self.per_hour:
            left_s = HOUR_S - (self._clock.monotonic() - self._since[organisation])
            what, why = f"A request for {organisation}", "429: its hour's requests are used up"
            raise ForgeThrottled(what, why=why, fix="Wait", retry_after_s=left_s)
        self.spent[organisation] = used + 1

    def _used(self, organisation: str) -> int:
        now = self._clock.monotonic()
        if now - self._since.setdefault(organisation, now) >= HOUR_S:
            self._since[organisation], self.spent[organisation] = now, 0
        return self.spent.get(organisation, 0)
