"""
The forge's messages on their way: late, twice, out of order, or never.

Each goes to one of those who can be reached, as through a load balancer. The forge keeps a list of what it sent and
whether it arrived, and sends again only when asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import log
from typing import TYPE_CHECKING

from remuda.model.errors import RemudaError
from remuda.sim.forge.things import PostRates, Sent

if TYPE_CHECKING:
    from datetime import timedelta

    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Delivery
    from remuda.sim.ids import SeededIds

Receiver = Callable[["Delivery"], Awaitable[object]]
"""Takes a message in. Any error means that it did not."""

AGAIN_S = 30.0
"""How long after it was sent a message counts as not arrived."""


class Post:
    """What the forge sends. Rates may change while a story runs."""

    def __init__(self, clock: Clock, ids: SeededIds) -> None:
        self._clock, self._ids = clock, ids
        self._tasks: set[asyncio.Task[None]] = set()
        self.rates = PostRates()
        self.receivers: dict[str, Receiver] = {}
        """By the name of who listens. Nobody: it does not arrive."""
        self.sent: dict[str, Sent] = {}
        """By GUID, oldest first."""
        self.fates: Counter[str] = Counter()

    def send(self, delivery: Delivery) -> None:
        """Send a message, by chance."""
        rates, draw = self.rates, self._ids.fraction()
        wait_s = -rates.latency_s * log(1.0 - self._ids.fraction())
        if draw < rates.dropped:
            self.fates["dropped"] += 1
            return
        self.sent[delivery.guid] = Sent(delivery, self._clock.now())
        if draw < rates.dropped + rates.failed:
            self.fates["failed"] += 1
            return
        if self._ids.fraction() < rates.delayed:
            self.fates["delayed"] += 1
            wait_s += rates.delay_s
        self._carry(delivery, wait_s)
        if self._ids.fraction() < rates.duplicated:
            self.fates["duplicated"] += 1
            self._carry(delivery, wait_s + self._ids.fraction() * 60.0)

    def again(self, *, within: timedelta) -> int:
        """Send again what did not arrive; how often is the asker's business."""
        now, found = self._clock.now(), 0
        for sent in self.sent.values():
            age_s = (now - sent.sent_at).total_seconds()
            if sent.arrived or age_s < AGAIN_S or age_s > within.total_seconds():
                continue
            sent.asked_again += 1
            found += 1
            self._carry(sent.delivery, self._ids.fraction())
        self.fates["again"] += found
        return found

    def _carry(self, delivery: Delivery, wait_s: float) -> None:
        # Nobody's: it goes on while those who cause it, or would take it, are paused or dead.
        loop = asyncio.get_running_loop()
        task = loop.create_task(
            self._deliver(delivery, wait_s), name=f"message {delivery.guid}", context=Context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        if not self.receivers:
            self.fates["unheard"] += 1
            return
        names = sorted(self.receivers)
        receiver = self.receivers[names[int(self._ids.fraction() * len(names))]]
        try:
            await receiver(delivery)
        except RemudaError:
            self.fates["not taken"] += 1
        else:
            self.fates["arrived"] += 1
            if delivery.guid in self.sent:
                self.sent[delivery.guid].arrived = True
