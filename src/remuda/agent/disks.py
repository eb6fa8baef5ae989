"""
How full the host's disk is and those of the guests: measured now and then, judged by ``decide.disk``.

The host is asked often, as that costs nothing; the guests seldom, side by side, and each for as long as its driver
allows. A guest that does not answer, or a list that fails, changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.decide.disk import DiskSpace, DiskState, judge, why
from remuda.control.backoff import spread
from remuda.ports.vms import Power, VmsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.agent.decide.disk import DiskMarks
    from remuda.agent.images import Goldens
    from remuda.agent.ledger import Ledger
    from remuda.agent.metrics import AgentMetrics
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.vms import Vms

log = structlog.get_logger(__name__)

_AT_ONCE_MAX: Final = 4
"""How many guests are asked at once: each is a process, and these are for no Pod in particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisksParts:
    """What is needed to measure disks."""

    vms: Vms
    ledger: Ledger
    goldens: Goldens
    space: Callable[[], DiskSpace | None]
    """Measures the host's disk now, and does not wait for more than a local disk."""
    marks: DiskMarks
    clock: Clock
    ids: Ids
    metrics: AgentMetrics


class Disks:
    """What the Node says about disks, and what garbage collection goes by."""

    def __init__(self, parts: DisksParts, *, host_s: float = 10.0, guests_s: float = 45.0) -> None:
        self._parts = parts
        self._host_s, self._guests_s = host_s, guests_s
        self._guests: dict[str, float | None] = {}
        self._handlers: list[Callable[[], None]] = []
        self._asking = asyncio.Semaphore(_AT_ONCE_MAX)
        self.state = DiskState()
        self.space: DiskSpace | None = None
        """As last measured; None: it could not be."""

    def on_change(self, handler: Callable[[], None]) -> None:
        """Have a handler told whenever an alarm begins or ends. It must not wait."""
        self._handlers.append(handler)

    def measure(self) -> DiskSpace | None:
        """Measure the host's disk now, and judge."""
        self.space = self._parts.space()
        free = self.space.free_ratio if self.space is not None else None
        if free is not None:
            self._parts.metrics.disk_free.set(free)
        self._judge()
        return self.space

    async def run(self) -> None:
        """Measure until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._host_forever(), name="disk of the host")
            group.create_task(self._guests_forever(), name="disks of the guests")

    async def look_at_guests(self) -> None:
        """Ask every running guest of ours once, and judge."""
        try:
            seen = await self._parts.vms.inventory()
        except VmsError as error:
            log.info("guests not looked at", error=str(error))
            return
        self._parts.goldens.saw(seen)
        ours = {record.vm for record in self._parts.ledger.vms()}
        if not self._parts.vms.abilities.sees_guest_disk:
            return
        running = [vm.name for vm in seen.vms if vm.name in ours and vm.power is Power.RUNNING]
        async with asyncio.TaskGroup() as group:
            asked = {name: group.create_task(self._used(name), name=name) for name in running}
        self._guests = {name: task.result() for name, task in asked.items()}
        self._judge()

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _host_forever(self) -> None:
        while True:
            self.measure()
            await self._sleep(self._host_s)

    async def _guests_forever(self) -> None:
        while True:
            await self.look_at_guests()
            await self._sleep(self._guests_s)

    async def _sleep(self, seconds: float) -> None:
        await self._parts.clock.sleep(spread(seconds, self._parts.ids.fraction()))

    async def _used(self, name: str) -> float | None:
        async with self._asking:
            try:
                return await self._parts.vms.guest_disk_used(name)
            except VmsError as error:
                log.info("guest's disk not read", vm=name, error=str(error))
                return None

    def _judge(self) -> None:
        before, self.state = (
            self.state,
            judge(self.state, self.space, self._guests, self._parts.marks),
        )
        if self.state == before:
            return
        log.info("disk", why=why(self.state, self.space), reclaiming=self.state.reclaiming)
        for handler in self._handlers:
            handler()
