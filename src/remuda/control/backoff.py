"""How long to wait before trying again. Pure: chance comes in as a fraction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles with every failure up to a bound, and spreads over the upper half, so that a herd does not stay one."""

    first_s: float = 0.5
    longest_s: float = 60.0

    def wait_s(self, failures: int, fraction: float) -> float:
        """Return the wait after so many failures in a row; ``fraction`` is in [0, 1)."""
        assert failures >= 1, "a wait follows a failure"
        doublings = min(
            failures - 1, 32
        )  # beyond this the bound has long been reached, and floats end
        return min(self.longest_s, self.first_s * 2.0**doublings) * (0.5 + fraction / 2)


def spread(period_s: float, fraction: float) -> float:
    """Return a period up to a tenth shorter or longer, so that what starts together drifts apart."""
    return period_s * (0.9 + 0.2 * fraction)
