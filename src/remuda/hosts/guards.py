"""
Switches that take one guard OUT, so that simulations and tests can see a checker notice. All are on in production.

Each switch removes exactly one guard: what it guards is still tried, only without it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What stands between the operator and harm."""

    roll_cap: bool = True
    """A new configuration goes to a few hosts at a time, and stops where it fails."""
    drain: bool = True
    """What could end a VM waits until there is none."""
    fencing: bool = True
    """Only the leader writes, and no longer than its reign."""

    @classmethod
    def without(cls, *broken: str) -> Guards:
        """Return all guards but these."""
        known = {field.name for field in fields(cls)}
        assert known.issuperset(broken), f"no such guard: {sorted(set(broken) - known)}"
        return cls(**dict.fromkeys(broken, False))
