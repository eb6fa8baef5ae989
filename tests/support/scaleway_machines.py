"""The account of ``scaleway_server`` without HTTP: for races on virtual time, with answers that are late or lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from scaleway.applesilicon.v1alpha1 import ServerStatus  # type: ignore[import-untyped] # it has types and no marker

from remuda.adapters.scaleway.client import _machine, _Os  # the wire's shapes are read as over HTTP
from remuda.ports.machines import MachineGone, MachinesUnavailable
from tests.support.scaleway_server import ZONE, spelled

if TYPE_CHECKING:
    import random

    from remuda.ports.clock import Clock
    from remuda.ports.machines import Image, Machine
    from tests.support.scaleway_server import FakeScaleway


class SlowMachines:
    """
    One operator's way to the account. ``lose`` of its changes are carried out and not answered.

    Each way takes up to ``late_s``, there and back again.
    """

    def __init__(
        self,
        fake: FakeScaleway,
        clock: Clock,
        chance: random.Random,
        *,
        lose: float = 0.0,
        late_s: float = 1.0,
    ) -> None:
        self._fake, self._clock, self._chance, self._lose = fake, clock, chance, lose
        self._late_s = late_s
        self.next_rename_after_s = 0.0
        """How much later than others the next rename arrives."""
        self.writes: list[tuple[str, str]] = []
        self.gets_fail = 0
        """How many of the next looks at one Mac get no answer."""

    async def list(self, zone: str) -> tuple[Machine, ...]:
        await self._wait()
        found = [self._read(id_) for id_ in sorted(self._fake.servers)]
        await self._wait()
        assert zone == ZONE
        return tuple(found)

    async def get(self, zone: str, machine: str) -> Machine:
        assert zone == ZONE
        if self.gets_fail:
            self.gets_fail -= 1
            raise MachinesUnavailable("No answer", why="a storm", fix="Nothing to do")
        await self._wait()
        found = self._read(machine)
        await self._wait()
        return found

    async def rename(self, zone: str, machine: str, name: str) -> Machine:
        assert zone == ZONE
        late_s, self.next_rename_after_s = self.next_rename_after_s, 0.0
        await self._clock.sleep(late_s)
        await self._wait()
        self._server(machine).name = name
        self._server(machine).updated_at = self._clock.now()
        self.writes.append((machine, name))
        if self._fake.on_rename is not None:
            self._fake.on_rename(self._server(machine), name)
        found = self._read(machine)
        await self._answer()
        return found

    async def reboot(self, zone: str, machine: str) -> None:
        assert zone == ZONE
        self._server(machine)
        self.writes.append((machine, "reboot"))
        await self._answer()

    async def reinstall(self, zone: str, machine: str, image: str) -> None:
        assert zone == ZONE
        await self._wait()
        self._server(machine).status = ServerStatus.REINSTALLING
        self.writes.append((machine, f"reinstall {image}"))
        await self._answer()

    async def images(self, zone: str, type: str) -> tuple[Image, ...]:  # noqa: A002 - the port's own word
        del zone, type
        await self._wait()
        shapes = [msgspec.convert(spelled(image), _Os) for image in self._fake.images]
        return tuple(image for shape in shapes if (image := shape.image()) is not None)

    def _read(self, id_: str) -> Machine:
        return _machine("It", ZONE, json.dumps(spelled(self._server(id_))).encode())

    def _server(self, id_: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - the SDK's Server
        if id_ not in self._fake.servers:
            raise MachineGone("It is gone", why="the test wants it so", fix="Nothing")
        return self._fake.servers[id_]

    async def _wait(self) -> None:
        await self._clock.sleep(self._chance.uniform(0.01, self._late_s))

    async def _answer(self) -> None:
        await self._wait()
        if self._chance.random() < self._lose:
            raise MachinesUnavailable("No answer", why="the test wants it so", fix="Nothing")
