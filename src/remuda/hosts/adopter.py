"""
Takes rented Macs for Hosts and gives them back, one at a time. What is whose is decided in ``decide.adoption``.

Before anything is done to a Mac it is looked at, and only if it still has the name that we gave it is it touched.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from remuda.hosts.decide.adoption import (
    Claim,
    NoneFree,
    Owned,
    choose,
    claim_name,
    free_name,
    is_returned,
    newest_image,
    overlap,
    pending_name,
    returning_name,
)
from remuda.ports.machines import MachineBusy, MachineGone, MachinesError, MachinesUnavailable

if TYPE_CHECKING:
    from remuda.hosts.settings import HostSettings
    from remuda.kube.host import Host, ScalewayProvider
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.machines import Machine, Machines

log = structlog.get_logger(__name__)

_REINSTALLING: Final = "reinstalling"


class NotOurs(MachinesError):
    """The Mac has another name than the one that we gave it: it is somebody else's now. It is not touched."""


class NoImage(MachinesError):
    """There is nothing to install on a Mac that goes back. It stays where it is."""


class NoPool(MachinesError):
    """There is no pool that a Mac could go back to. It stays where it is."""


def claim_of(host: Host, settings: HostSettings) -> Claim:
    """Return what a Host is after. Only for rented Macs."""
    rented = rented_of(host)
    return Claim(
        name=claim_name(settings.claim_prefix, host.name, host.uid),
        zone=rented.zone,
        type=rented.type,
        family=rented.os,
        pool_prefix=rented.adopt_prefix or "",
        claim_prefix=settings.claim_prefix,
        machine=host.status.machine_id,
    )


def rented_of(host: Host) -> ScalewayProvider:
    assert host.spec.provider.scaleway, "only rented Macs are adopted"
    return host.spec.provider.scaleway


class Adopter:
    """One lock for taking and giving back: within this process nobody sees a Mac half-way."""

    def __init__(
        self, machines: Machines, settings: HostSettings, *, clock: Clock, ids: Ids
    ) -> None:
        self._machines, self._settings = machines, settings
        self._clock, self._ids = clock, ids
        self._lock = asyncio.Lock()
        self._wiped: set[str] = set()

    async def adopt(self, host: Host) -> Machine | NoneFree:
        """Return the Host's Mac: the one that it has by name, or one that it has just got."""
        claim, lost = claim_of(host, self._settings), set[str]()
        async with self._lock:
            while True:
                # Listed anew for each: a claim takes long enough for all others to have changed.
                listed = await self._machines.list(claim.zone)
                left = [machine for machine in listed if machine.id not in lost]
                choice = choose(left, claim, self._clock.now())
                if isinstance(choice, Owned):
                    return choice.machine
                if isinstance(choice, NoneFree):
                    return _outrun(len(lost)) if lost else choice
                machine = choice.machines[0]
                taken = await self._take(machine, claim)
                if taken is not None:
                    log.info("Mac taken", host=host.name, machine=taken.id, name=taken.name)
                    return taken
                lost.add(machine.id)

    async def find(self, host: Host) -> Machine | None:
        """Return the Mac that has the Host's name, if any: the write of its id may have been lost."""
        claim = claim_of(host, self._settings)
        found = await self._machines.list(claim.zone)
        return next((machine for machine in found if machine.name == claim.name), None)

    async def mine(self, host: Host) -> Machine:
        """Return the Host's Mac, as it is now. Raises ``NotOurs`` if the name is not the one that we gave it."""
        claim = claim_of(host, self._settings)
        machine = await self._machines.get(claim.zone, claim.machine)
        if machine.name != claim.name:
            raise _not_ours(host, machine)
        return machine

    async def reboot(self, host: Host) -> None:
        async with self._lock:
            machine = await self.mine(host)
            await self._machines.reboot(machine.zone, machine.id)

    async def release(self, host: Host) -> bool:
        """
        Give a Mac back: out of the claim, wiped, into the pool. Says whether it is there.

        Between the first and the last of these its name says that somebody is busy with it, so nobody takes it as it
        is. Each may be repeated after a crash; a Mac that is gone is given back.
        """
        claim = claim_of(host, self._settings)
        if overlap(claim):
            raise NoPool(
                f"The Mac of Host {host.name} cannot be returned",
                why=f"in a pool {claim.pool_prefix!r} nobody could tell it from the Macs of Hosts, whose names begin"
                f" with {claim.claim_prefix!r}",
                fix="Change spec.provider.scaleway.adoptPrefix; the Mac stays as it is until then",
            )
        parked = returning_name(claim.pool_prefix, claim.name)
        async with self._lock:
            try:
                machine = await self._machines.get(claim.zone, claim.machine)
                if is_returned(machine, claim):
                    return True  # the answer to its last rename was lost
                if machine.name not in {claim.name, parked}:
                    raise _not_ours(host, machine)
                if machine.name == claim.name:
                    # Resolved each time, and before anything is done: a family can be withdrawn.
                    await self._image(claim)
                    machine = await self._machines.rename(claim.zone, machine.id, parked)
                if machine.state != _REINSTALLING and machine.id not in self._wiped:
                    image = await self._image(claim)
                    await self._machines.reinstall(claim.zone, machine.id, image)
                    self._wiped.add(machine.id)
                free = free_name(claim.pool_prefix, self._ids.uid())
                await self._machines.rename(claim.zone, machine.id, free)
            except MachineGone:
                self._wiped.discard(claim.machine)
                return True
            except MachineBusy as error:
                log.info("Mac is busy", host=host.name, machine=claim.machine, why=error.why)
                return False
            self._wiped.discard(machine.id)
            log.info("Mac returned", host=host.name, machine=machine.id, name=free)
            return True

    async def _image(self, claim: Claim) -> str:
        images = await self._machines.images(claim.zone, claim.type)
        image = newest_image(images, claim.family, claim.type)
        if image is None:
            raise NoImage(
                f"The Mac of {claim.name} cannot be returned",
                why=f"the provider has no macOS {claim.family} for {claim.type} any more",
                fix="Change spec.provider.scaleway.os to a family that it has; the Mac stays as it is until then",
            )
        return image.id

    async def _take(self, machine: Machine, claim: Claim) -> Machine | None:
        """
        Try to claim one Mac. None if it is gone, or somebody else was faster; other errors are the caller's.

        Whoever saw the Mac as we did renames it within the deadline or not at all, and the pause is longer than that:
        whose name it has afterwards, that one alone goes on.
        """
        pending = pending_name(claim.pool_prefix, self._ids.uid())
        try:
            if not await self._rename(machine, machine.name, pending):
                return None
            await self._clock.sleep(self._settings.claim_settles_s)
            if not await self._rename(machine, pending, claim.name):
                return None
            taken = await self._machines.get(claim.zone, machine.id)
        except MachineGone:
            return None
        return taken if taken.name == claim.name else None

    async def _rename(self, machine: Machine, was: str, name: str) -> bool:
        """Look at a Mac and rename it, if it has the old name still. Takes no longer than others may wait for it."""
        within_s = self._settings.claim_within_s
        try:
            async with asyncio.timeout(within_s):
                if (await self._machines.get(machine.zone, machine.id)).name != was:
                    return False
                await self._machines.rename(machine.zone, machine.id, name)
                return True
        except TimeoutError:
            raise MachinesUnavailable(
                f"The Mac {machine.id} was not taken",
                why=f"the provider did not answer within {within_s:g} s, and later somebody else may have it",
                fix="Nothing to do: it is tried again",
            ) from None


def _outrun(count: int) -> NoneFree:
    return NoneFree(
        "NoMacFree",
        f"{count} Macs were free, and were taken by somebody else at the same time",
        "Nothing to do: it is tried again",
    )


def _not_ours(host: Host, machine: Machine) -> NotOurs:
    return NotOurs(
        f"The Mac of Host {host.name} is not ours any more",
        why=f"it is called {machine.name!r} now, which is not the name that it was given",
        fix="Nothing is done to it. Find out who renamed it",
    )
