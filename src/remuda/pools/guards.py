"""
Switches that take one guard OUT, so that simulations and tests can see a checker notice. All are on in production.

Each switch removes exactly one guard: what it guards is still tried, only without it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What stands between the operator and harm."""

    preconditions: bool = True
    """Deletes and marks carry the UID and version that were seen."""
    roll_cap: bool = True
    """A roll takes away at most its cap."""
    void_marks: bool = True
    """A mark for another template, or on a busy runner, is taken away."""
    drain_finalizer: bool = True
    """A deleted pool is held until its busy runners have finished."""
    deletion_first: bool = True
    """A runner that is being deleted is left alone, whatever its phase; its deletion is looked at first."""
    expectations: bool = True
    """What was written and is not seen yet is counted."""
    fencing: bool = True
    """Only the leader writes, and no longer than its reign."""
    brake: bool = True
    """At most so many runners of a fleet start at once."""
    fallback: bool = True
    """While a template is on trial, missing runners beyond the roll's cap are made from the last one that worked."""
    avoidance: bool = True
    """Hosts on which nothing starts are avoided."""

    @classmethod
    def without(cls, *broken: str) -> Guards:
        """Return all guards but these."""
        known = {field.name for field in fields(cls)}
        assert known.issuperset(broken), f"no such guard: {sorted(set(broken) - known)}"
        return cls(**dict.fromkeys(broken, False))
