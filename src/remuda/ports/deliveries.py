"""
The forge's messages, kept until they are worked off: answered only once durable, worked once, in order for each job.

Bodies are kept only until then. They hold no credentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message of a forge whose signature was right."""

    guid: str
    event: str
    body: bytes
    subject: str = ""
    """The job that it is about. Messages about one job are worked one after the other, in the order of arrival."""
    attempts: int = 0
    received_at: datetime | None = None


class Deliveries(Protocol):
    """A durable inbox."""

    async def record(self, delivery: Delivery) -> bool:
        """Keep a message. False: a message with this GUID was here before."""
        ...

    async def take(self, *, limit: int, lease: timedelta) -> tuple[Delivery, ...]:
        """Return messages to work on, which nobody else gets before the lease ends."""
        ...

    async def processed(self, guid: str, outcome: str) -> bool:
        """Say that a message is worked off (or given up) and forget its body. False: it was already."""
        ...

    async def put_back(self, guid: str, *, retry_at: datetime) -> bool:
        """Say that a message failed; nobody gets it before then."""
        ...

    async def backlog(self) -> int:
        """Return how many messages wait."""
        ...

    async def forget(self, *, processed_before: datetime) -> int:
        """Delete what was worked off before then; its GUID may be taken for new afterwards."""
        ...
