"""
The goldens of this host: which are whole, which are in use, and how one is removed.

Whoever needs an image says so by ``held`` first, without waiting; from then on it is not removed. Whoever makes,
changes or removes a golden holds the lock of its image. A record that may promise too much is written before it does.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from remuda.agent.decide.images import next_step
from remuda.agent.decide.lifecycle import Observed
from remuda.agent.decide.recorded import ImageRecord, ImageState
from remuda.ports.vms import NotThere, Power, VmsError, golden_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from remuda.agent.decide.images import ImageAction
    from remuda.agent.ledger import Ledger
    from remuda.ports.clock import Clock
    from remuda.ports.vms import Inventory, SeenVm, Vms

WANTED_EVERY: Final = timedelta(minutes=10)
"""How often it is written down that an image is still wanted: each time is a wait for the disk."""
TRUSTED_S: Final = 120.0
"""For how long a golden that was seen whole is used without another look: that look is a process to start."""


@dataclass(slots=True)
class Place:
    """One image on the shelf."""

    image: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    holders: int = 0
    """How many need it now: wait for it, or clone from it."""
    usable_at: float | None = None
    """When its golden was last seen as it should be."""

    @property
    def golden(self) -> str:
        return golden_name(self.image)


class Goldens:
    """What this host has on its shelf, by record and by sight."""

    def __init__(self, vms: Vms, ledger: Ledger, clock: Clock) -> None:
        self._vms, self._ledger, self._clock = vms, ledger, clock
        self._places: dict[str, Place] = {}
        self._missing: frozenset[str] = frozenset()

    # --- reading ------------------------------------------------------------------------------------------------------

    def ready_images(self) -> frozenset[str]:
        """Return whose goldens are whole. While the host cannot be seen, that is what held before."""
        ready = {r.image for r in self._ledger.images() if r.state is ImageState.READY}
        return frozenset(ready - self._missing)

    def busy_images(self) -> frozenset[str]:
        """Return what is needed, fetched or cloned at this moment."""
        return frozenset(p.image for p in self._places.values() if p.holders or p.lock.locked())

    def is_trusted(self, place: Place) -> bool:
        """Say whether a clone may be made without another look."""
        record = self._ledger.image(place.image)
        return (
            record is not None
            and record.state is ImageState.READY
            and place.usable_at is not None
            and self._clock.monotonic() - place.usable_at < TRUSTED_S
            and not place.lock.locked()
        )

    def saw(self, seen: Inventory) -> None:
        """Take note of an inventory that somebody took."""
        powers = powers_of(seen)
        missing: set[str] = set()
        for record in self._ledger.images():
            observed = powers.get(record.golden, Observed.ABSENT)
            place = self._places.get(record.image)
            if place is not None and place.lock.locked():
                continue  # it changed while it was looked at
            if observed is Observed.ABSENT:
                missing.add(record.image)
            if place is None:
                place = self._places[record.image] = Place(record.image)
            place.usable_at = self._clock.monotonic() if observed is Observed.STOPPED else None
        self._missing = frozenset(missing)
        self._tidy()

    # --- holding ------------------------------------------------------------------------------------------------------

    @contextmanager
    def held(self, image: str) -> Iterator[Place]:
        """Need an image for a while, whether it is there or not."""
        place = self._places.setdefault(image, Place(image))
        place.holders += 1
        try:
            yield place
        except NotThere:
            # Perhaps the golden is what is not there: look before the next use.
            place.usable_at = None
            raise
        finally:
            place.holders -= 1

    async def note_wanted(self, images: Iterable[str]) -> None:
        """Write down that images are wanted now, unless that was done lately. Raises RecordFailed."""
        for image in sorted(images):
            place = self._places.get(image)
            if place is not None and place.lock.locked():
                continue  # whoever fetches it writes that down, too
            record = self._ledger.image(image)
            now = self._clock.now()
            if record is None or now < record.wanted_at + WANTED_EVERY:
                continue
            with self.held(image) as place:
                async with place.lock:
                    record = self._ledger.image(image)
                    if record is not None:
                        await self._ledger.write_image(replace(record, wanted_at=now))

    # --- under the lock of the image ----------------------------------------------------------------------------------

    async def look(self, place: Place) -> ImageAction:
        """Look at a golden and say what its image needs. What cannot be seen is said by the action, not raised."""
        assert place.lock.locked(), "what is looked at must not change"
        place.usable_at = None
        try:
            seen = await self._vms.observe(place.golden)
        except VmsError:
            observed = Observed.UNKNOWN
        else:
            observed = observed_of(seen)
        record = self._ledger.image(place.image)
        return next_step(record.state if record else None, observed)

    def usable(self, place: Place) -> None:
        """Take note that a golden was just seen whole, or made."""
        place.usable_at = self._clock.monotonic()
        self._missing -= {place.image}

    async def write(self, place: Place, state: ImageState, *, found: bool = False) -> None:
        """Write down how far an image is. ``found`` counts only where nothing is written down about it yet."""
        known = self._ledger.image(place.image)
        if known is not None:
            found = known.found
        now = self._clock.now()
        await self._ledger.write_image(
            ImageRecord(image=place.image, state=state, wanted_at=now, found=found)
        )

    async def discard(self, place: Place) -> None:
        """Delete a golden that may be half of one."""
        with suppress(NotThere):
            await self._vms.delete(place.golden)

    # --- removing -----------------------------------------------------------------------------------------------------

    async def drop(self, image: str) -> bool:
        """
        Remove golden, pulled image and record. Whether it was done: not if it is needed, or not ours.

        What somebody else had pulled before us stays. Golden and pulled image share their blocks, so one alone would
        free nothing. To be killed in between is no harm: the record goes last, and says from before the first step that
        the golden may be half of one.
        """
        place = self._places.setdefault(image, Place(image))
        if place.holders or place.lock.locked():
            return False
        async with place.lock:  # taken at once: nobody came since it was found open
            record = self._ledger.image(image)
            if record is None:
                return False
            place.usable_at = None
            if record.state is not ImageState.FETCHING:
                await self._ledger.write_image(replace(record, state=ImageState.FETCHING))
            await self.discard(place)
            if not record.found:
                with suppress(NotThere):
                    await self._vms.drop_image(image)
            await self._ledger.forget_image(image)
        self._tidy()
        return True

    def _tidy(self) -> None:
        for image, place in list(self._places.items()):
            idle = not place.holders and not place.lock.locked()
            if idle and self._ledger.image(image) is None:
                del self._places[image]


def observed_of(seen: SeenVm | None) -> Observed:
    if seen is None:
        return Observed.ABSENT
    return Observed.RUNNING if seen.power is Power.RUNNING else Observed.STOPPED


def powers_of(seen: Inventory) -> Mapping[str, Observed]:
    return {vm.name: observed_of(vm) for vm in seen.vms}
