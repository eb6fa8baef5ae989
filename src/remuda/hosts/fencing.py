"""Machines that are changed only while we lead: of two operators that think so, the one whose Lease ran out is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.control.fencing import NotLeading

if TYPE_CHECKING:
    from remuda.control.fencing import Reign
    from remuda.ports.machines import Image, Machine, Machines


class FencedMachines:
    """Passes looks on always, and changes while we lead. What is under way then is held off by the names."""

    def __init__(self, inner: Machines, reign: Reign) -> None:
        self._inner, self._reign = inner, reign

    async def list(self, zone: str) -> tuple[Machine, ...]:
        return await self._inner.list(zone)

    async def get(self, zone: str, machine: str) -> Machine:
        return await self._inner.get(zone, machine)

    async def images(self, zone: str, type: str) -> tuple[Image, ...]:  # noqa: A002 - the provider's own word
        return await self._inner.images(zone, type)

    async def rename(self, zone: str, machine: str, name: str) -> Machine:
        self._check(f"The rename of {machine}")
        return await self._inner.rename(zone, machine, name)

    async def reboot(self, zone: str, machine: str) -> None:
        self._check(f"The reboot of {machine}")
        await self._inner.reboot(zone, machine)

    async def reinstall(self, zone: str, machine: str, image: str) -> None:
        self._check(f"The installation of {machine}")
        await self._inner.reinstall(zone, machine, image)

    def _check(self, what: str) -> None:
        if self._reign.left_s <= 0:
            raise NotLeading(
                f"{what} was not sent",
                why="another replica may be the leader by now",
                fix="Nothing to do: the leader looks at it",
            )
