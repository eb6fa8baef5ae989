"""A pool as decisions see it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What a person (or the autoscaler) wants of a pool, and what of its status a decision needs."""

    name: str
    fleet: str
    replicas: int
    """Runners wanted, busy ones included; never above the autoscaler's maximum."""
    template: str
    """The hash of the template that new runners are made from."""
    proven: str = ""
    """
    The hash of the last template whose runners worked, if runners can still be made from it: what a roll falls back on.
    Empty if there is none; the same as ``template`` once that one has worked.
    """
    roll_percent: int = 5
    paused: bool = False
    progress_deadline: timedelta
    """How long a roll may wait for one replacement to become warm before it stops retiring others."""
    start_timeout: timedelta | None = None
    """How long a start, or waiting for a host, may take. None switches the deadlines off."""
    deleting: bool = False
    roll_waiting_since: datetime | None = None
    """Since when the roll has waited for a replacement to become warm; None while it waits for none."""

    @property
    def roll_cap(self) -> int:
        """How many runners a roll may take away at once."""
        return max(1, self.roll_percent * self.replicas // 100)
