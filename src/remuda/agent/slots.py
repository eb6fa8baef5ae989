"""
Who may start a VM now. The limit is the host's, so whatever runs on it counts, whoever started it.

A slot is taken before a VM starts and given back when it was seen stopped: between the two it counts, seen or not.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.decide.capacity import Slots, slots
from remuda.agent.decide.recorded import State
from remuda.control.backoff import spread
from remuda.ports.vms import HostUnfit, Power, VmsError

if TYPE_CHECKING:
    from remuda.agent.decide.capacity import HostOffer
    from remuda.agent.ledger import Ledger
    from remuda.agent.metrics import AgentMetrics
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.vms import Vms

log = structlog.get_logger(__name__)

REFRESH_S: Final = 10.0
PATIENCE_S: Final = 10.0
"""How long a start waits for the list of what runs; then it goes by the last one."""
HIDDEN_S: Final = 300.0
"""How long a host that refused a start counts as full: who took the slot may be another user, in no list of ours."""
UNFIT_S: Final = 300.0
"""How long a host counts as unfit after it said so: it gets no Pods meanwhile, so nobody would find it healed."""
_MAY_RUN: Final = frozenset({State.STARTED, State.DELIVERING, State.DELIVERED, State.EXITED})


class SlotBook:
    """The slots of this host."""

    def __init__(
        self,
        vms: Vms,
        ledger: Ledger,
        offer: HostOffer,
        *,
        clock: Clock,
        ids: Ids,
        metrics: AgentMetrics,
    ) -> None:
        self._vms, self._ledger, self._offer = vms, ledger, offer
        self._clock, self._ids, self._metrics = clock, ids, metrics
        # Whatever was started once counts until it was seen stopped.
        self._taken = {record.vm for record in ledger.vms() if record.state in _MAY_RUN}
        self._seen_ours: set[str] = set()
        self._foreign: tuple[str, ...] = ()
        self._hidden, self._hidden_until = 0, 0.0
        self._listed = False
        self._failed_at: float | None = None
        self._unfit, self._unfit_until = "", 0.0
        self.freed = asyncio.Event()
        """Set when a slot may have become free. Whoever waits clears it."""

    async def run(self) -> None:
        """Keep the count of other people's VMs current until cancelled."""
        while True:
            await self.refresh()
            await self._clock.sleep(spread(REFRESH_S, self._ids.fraction()))

    def now(self) -> Slots:
        """Return how many there may be and are, as far as is known."""
        foreign = len(self._foreign)
        if self._clock.monotonic() < self._hidden_until:
            foreign = max(foreign, self._hidden)
        ours = len(self._taken | self._seen_ours)
        return slots(self._offer, self._vms.abilities, ours=ours, foreign=foreign)

    async def take(self, vm: str) -> bool:
        """Take a slot for a VM that is to start. False: there is none, wait and ask again."""
        if self._vms.abilities.vms_max is not None:
            await self._look()
        # From here on nothing is awaited: of two who ask, one gets the last slot.
        if vm not in self._taken and self.now().free < 1:
            return False
        self._taken.add(vm)
        return True

    def release(self, vm: str) -> None:
        """Give a slot back: its VM was seen not to run, or was never started."""
        if vm in self._taken or vm in self._seen_ours:
            self._taken.discard(vm)
            self._seen_ours.discard(vm)
            self.freed.set()

    def full(self) -> None:
        """Take the host's word that it runs as many VMs as it can: offer fewer for a while."""
        most = self.now().most
        self._hidden = max(0, most - len(self._taken | self._seen_ours))
        self._hidden_until = self._clock.monotonic() + HIDDEN_S

    @property
    def listed(self) -> bool:
        """Whether what runs here was listed once since we began."""
        return self._listed

    @property
    def unfit(self) -> str:
        """Why no VM can run here, as a sentence; empty: nothing is known against it."""
        return self._unfit if self._clock.monotonic() < self._unfit_until else ""

    def cannot_run(self, error: HostUnfit) -> None:
        """Take the host's word that it can run no VM at all."""
        self._unfit = f"{error.what}: {error.why}"
        self._unfit_until = self._clock.monotonic() + UNFIT_S

    def can_run(self) -> None:
        """Take note that a VM was started: whatever was wrong is not any more."""
        self._unfit = ""

    async def refresh(self) -> bool:
        """List what runs. Returns whether that went well; a failure leaves what was known."""
        try:
            inventory = await self._vms.inventory()
        except VmsError as error:
            self._failed_at = self._clock.monotonic()
            if isinstance(error, HostUnfit):
                self.cannot_run(error)
            log.info("the VMs of this host could not be listed", error=str(error))
            return False
        self._failed_at = None
        self._note(frozenset(vm.name for vm in inventory.vms if vm.power is Power.RUNNING))
        return True

    def _note(self, running: frozenset[str]) -> None:
        records = self._ledger.vms()
        ours = {record.vm for record in records if record.state is not State.REFUSED}
        free = self.now().free
        self._listed = True
        self._seen_ours = set(running & ours)
        self._foreign = tuple(sorted(running - ours))
        self._metrics.vms.labels("ours").set(len(self._seen_ours))
        self._metrics.vms.labels("others").set(len(self._foreign))
        if self.now().free > free:  # else those who wait would wake one another for ever
            self.freed.set()

    async def _look(self) -> None:
        """See what runs now, but let no hung list hold up a start for long once something is known."""
        with contextlib.suppress(VmsError):  # then it is listed, and what that says counts
            if (running := self._vms.running()) is not None:
                self._note(running)
                return
        if self._listed and self._failed_lately():
            return
        try:
            async with asyncio.timeout(PATIENCE_S if self._listed else None):
                listed = await self.refresh()
        except TimeoutError:
            self._failed_at = self._clock.monotonic()
            return
        if not listed and not self._listed:
            raise VmsError(
                "No VM was started",
                why="what runs on this host could not be listed",
                fix="It is tried again; see the agent's log for why the list failed",
            )

    def _failed_lately(self) -> bool:
        return (
            self._failed_at is not None
            and self._clock.monotonic() - self._failed_at < 2 * PATIENCE_S
        )
