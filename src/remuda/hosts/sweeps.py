"""
Looks now and then for rented Macs that are paid for and serve nobody, and says so. It changes none of them.

A Mac that is claimed by name and has no Host may belong to another cluster, or to somebody who is looking at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remuda.hosts.adopter import claim_of
from remuda.hosts.decide.adoption import orphans
from remuda.kube.host import HOST
from remuda.ports.machines import MachinesError

if TYPE_CHECKING:
    from remuda.hosts.reins import Reins
    from remuda.kube.host import Host

log = structlog.get_logger(__name__)

LOOP: Final = "orphans"


class Sweeps:
    """``run`` it. Without an account it sleeps."""

    def __init__(self, reins: Reins) -> None:
        self._reins = reins
        self._told: set[str] = set()

    async def run(self) -> None:
        every_s = self._reins.settings.orphans_s
        with self._reins.health.watched(LOOP, every_s + 120.0):
            while True:
                self._reins.health.beat(LOOP)
                await self.sweep()
                await self._reins.health.pause(LOOP, every_s)

    async def sweep(self) -> None:
        """Look at every zone that a Host names."""
        if self._reins.machines is None:
            return
        rented = [host for host in self._reins.view.hosts() if host.spec.provider.scaleway]
        zones: dict[str, list[Host]] = {}
        for host in rented:
            zones.setdefault(claim_of(host, self._reins.settings).zone, []).append(host)
        for zone, hosts in sorted(zones.items()):
            try:
                await self._look(zone, hosts)
            except MachinesError as error:
                log.warning("zone not looked at", zone=zone, error=str(error))

    async def _look(self, zone: str, hosts: list[Host]) -> None:
        reins = self._reins
        assert reins.machines is not None, "there is an account"
        found = await reins.machines.list(zone)
        claims = [claim_of(reins.status.newest(host), reins.settings) for host in hosts]
        lost = orphans(found, claims, reins.settings.claim_prefix)
        reins.metrics.orphans(zone, len(lost))
        for machine in lost:
            if machine.id in self._told:
                continue
            self._told.add(machine.id)
            text = (
                f"The Mac {machine.name} ({machine.id}) in zone {zone} is claimed and belongs to no Host. Nothing is"
                f" done to it. If nobody needs it, rename it to begin with the pool's prefix, or cancel it."
            )
            log.warning("orphan", zone=zone, machine=machine.id, name=machine.name)
            reins.events.record(HOST, hosts[0], "OrphanedMac", text, warning=True)
