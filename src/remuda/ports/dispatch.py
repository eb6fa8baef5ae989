"""Dispatch as the operator uses it: what waits for runners, and a report of each runner that ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from datetime import datetime


class DispatchError(RemudaError):
    """Dispatch did not answer, or not with what was asked. Whether a report was taken is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """How much work there is for one pool."""

    queued: int = 0
    """Jobs that could start now if there were a runner."""
    claimed: int = 0
    """Jobs that a runner has claimed."""
    occupied: int = 0
    """Runners that hold a job or still clean up after one."""
    withheld: int = 0
    """Jobs that wait for their tenant's own limit."""
    p95_concurrent_last_hour: int = 0
    oldest_queued_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The end of a runner, as far as its Pod told."""

    ended_at: datetime
    exit_code: int | None
    reason: str


class Dispatch(Protocol):
    """The dispatch server. Every call has a deadline; every error is a DispatchError."""

    async def signals(self, pool: str) -> Signals: ...

    async def stopped(self, pod: str, report: Stopped) -> None:
        """Report that a runner stopped. May be repeated; a later report can only shorten."""
        ...
