"""The inbox of the forge's messages in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Delivery


@dataclass(frozen=True, slots=True)
class _Kept:
    delivery: Delivery
    not_before: datetime | None = None
    processed_at: datetime | None = None


class MemoryDeliveries:
    """Implements ``remuda.ports.deliveries.Deliveries``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        """By GUID, in the order of arrival."""

    async def record(self, delivery: Delivery) -> bool:
        if delivery.guid in self._kept:
            return False
        received = replace(delivery, attempts=0, received_at=self._clock.now())
        self._kept[delivery.guid] = _Kept(received)
        return True

    async def take(self, *, limit: int, lease: timedelta) -> tuple[Delivery, ...]:
        now = self._clock.now()
        taken: list[Delivery] = []
        passed: set[str] = set()
        for guid, kept in self._kept.items():
            subject = kept.delivery.subject
            if kept.processed_at is not None or len(taken) == limit:
                continue
            first = subject == "" or subject not in passed
            passed.add(subject)
            if first and (kept.not_before is None or kept.not_before <= now):
                delivery = replace(kept.delivery, attempts=kept.delivery.attempts + 1)
                self._kept[guid] = _Kept(delivery, now + lease)
                taken.append(delivery)
        return tuple(taken)

    async def processed(self, guid: str, outcome: str) -> bool:  # noqa: ARG002 - a test asks for no outcome
        kept = self._kept.get(guid)
        if kept is None or kept.processed_at is not None:
            return False
        forgotten = replace(kept.delivery, body=b"")
        self._kept[guid] = _Kept(forgotten, kept.not_before, self._clock.now())
        return True

    async def put_back(self, guid: str, *, retry_at: datetime) -> bool:
        kept = self._kept.get(guid)
        if kept is None or kept.processed_at is not None:
            return False
        self._kept[guid] = replace(kept, not_before=retry_at)
        return True

    async def backlog(self) -> int:
        return sum(kept.processed_at is None for kept in self._kept.values())

    async def forget(self, *, processed_before: datetime) -> int:
        old = [
            guid
            for guid, kept in self._kept.items()
            if kept.processed_at is not None and kept.processed_at < processed_before
        ]
        for guid in old:
            del self._kept[guid]
        return len(old)
