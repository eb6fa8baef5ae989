"""
The host operator as one process: campaigns for the Lease, and leads while it holds it.

A standby does nothing but campaign. Each reign begins with an empty memory and a fresh, consistent list, and writes
through fences that close when the reign ends. Losing the Lease cancels everything of the reign, attempts too: what they
did stays done, and the next leader begins with a fresh look.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.election import LeaderElector
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.fencing import FencedKube
from remuda.control.health import BeatingClock
from remuda.control.tasks import run_forever
from remuda.hosts.adopter import Adopter
from remuda.hosts.fencing import FencedMachines
from remuda.hosts.loop import HostLoop
from remuda.hosts.reins import Reins
from remuda.hosts.status import StatusWriter
from remuda.hosts.sweeps import Sweeps
from remuda.hosts.view import HostsView

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.control.health import Health
    from remuda.hosts.converging import Converger
    from remuda.hosts.identity import Identities
    from remuda.hosts.metrics import HostMetrics
    from remuda.hosts.registration import Registrations
    from remuda.hosts.settings import HostSettings
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube
    from remuda.ports.machines import Machines

log = structlog.get_logger(__name__)

ELECTION: Final = "election"
COMPONENT: Final = "remuda-hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPorts:
    """Everything outside that the operator reaches."""

    kube: Kube
    election_kube: Kube
    """Its own, so that work never starves a renewal."""
    machines: Machines | None
    converger: Converger
    identities: Callable[[Kube], Identities]
    """Made anew for each reign, on what writes only while we lead."""
    registrations: Registrations | None = None
    clock: Clock
    ids: Ids


class HostOperator:
    """``run`` it; it leads when it may."""

    def __init__(
        self, ports: HostPorts, settings: HostSettings, *, metrics: HostMetrics, health: Health
    ) -> None:
        self._ports, self._settings = ports, settings
        self._metrics, self._health = metrics, health
        beating = BeatingClock(ports.clock, health, ELECTION)
        self._elector = LeaderElector(
            ports.election_kube, settings.election(), clock=beating, ids=ports.ids
        )
        self._limit_s = settings.renew_deadline_s * 3
        self._view: HostsView | None = None

    def ready(self) -> tuple[bool, str]:
        """Say whether this replica does its part: it stands by, or it leads and has seen all Hosts."""
        if not self._elector.is_leader:
            if trouble := self._elector.trouble:
                return False, f"cannot take part in the election: {trouble}"
            return True, "standing by: another replica leads, or will in a moment"
        if self._view is None or not self._view.synced:
            return False, "leading, but the Hosts are not listed yet"
        return True, "leading"

    async def run(self) -> None:
        """Campaign and lead until cancelled."""
        with self._health.watched(ELECTION, self._limit_s):
            await self._elector.run(self._lead)

    async def _lead(self) -> None:
        try:
            await self._reign()
        except asyncio.CancelledError:
            if not self._settings.guards.fencing and not self._elector.is_leader:
                await self._reign()  # a leader that does not care
            raise

    async def _reign(self) -> None:
        reins = self._reins()
        loops = {
            "hosts": HostLoop(reins).run,
            "orphans": Sweeps(reins).run,
            "events": reins.events.run,
        }
        self._view = reins.view
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(reins.view.run(), name="view")
                await reins.view.wait_synced()
                log.info("the hosts are listed", hosts=len(reins.view.hosts()))
                await run_forever(loops, asyncio.Event())
        finally:
            self._view = None
            self._metrics.forget_all()

    def _reins(self) -> Reins:
        ports, settings = self._ports, self._settings
        fenced = settings.guards.fencing
        kube: Kube = FencedKube(ports.kube, self._elector) if fenced else ports.kube
        machines = ports.machines
        if machines is not None and fenced:
            machines = FencedMachines(machines, self._elector)
        clock, ids = ports.clock, ports.ids
        speaker = EventSettings(component=COMPONENT, instance=settings.identity)
        return Reins(
            kube=kube,
            machines=machines,
            adopter=None if machines is None else Adopter(machines, settings, clock=clock, ids=ids),
            converger=ports.converger,
            identities=ports.identities(kube),
            registrations=ports.registrations,
            view=HostsView(ports.kube, settings, clock=clock, ids=ids),
            status=StatusWriter(kube),
            events=EventRecorder(kube, speaker, clock=clock, ids=ids),
            settings=settings,
            clock=clock,
            ids=ids,
            metrics=self._metrics,
            health=self._health,
        )
