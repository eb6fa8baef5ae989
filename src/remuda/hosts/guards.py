"""
Switches that take one guard OUT, so that simulations and tests can see a checker notice. All are on in production.

Each switch removes exactly one guard: what it guards is still tried, only without it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What stands between a host, or whoever changes it, and harm."""

    roll_cap: bool = True
    """A new configuration goes to a few hosts at a time, and stops where it fails."""
    drain: bool = True
    """What could end a VM waits until there is none."""
    fencing: bool = True
    """Only the leader writes, and no longer than its reign."""
    read_back: bool = True
    """What macOS made of the password is looked at: a login is there when its session is, and its file unsealed."""
    kickstart: bool = True
    """launchd starts the login window anew; nobody signals one that may be gone."""
    strip_blocks: bool = True
    """Whatever is ours in pf.conf, of any history, is taken out before the one block is put in."""
    builder_gc_off: bool = True
    """The agents of builders are told to collect no garbage."""

    @classmethod
    def without(cls, *broken: str) -> Guards:
        """Return all guards but these."""
        known = {field.name for field in fields(cls)}
        assert known.issuperset(broken), f"no such guard: {sorted(set(broken) - known)}"
        return cls(**dict.fromkeys(broken, False))


ALL: Final = Guards()
