"""
Switches that take one guard OUT, so that tests can see what happens without it. All are on in production.

Each switch removes exactly one guard: what it guards is still tried, only without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What stands between the agent and harm."""

    ownership: bool = True
    """Garbage is only what this agent has a record of. Everything else on the host is somebody's."""


ALL: Final = Guards()
