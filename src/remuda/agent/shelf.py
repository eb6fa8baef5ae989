"""
Has the images that VMs are cloned from: fetched once per host however many ask, whoever of them gives up meanwhile.

A fetch is a task of the shelf, not of who asked first: who is cancelled takes nothing from the others. A fetch that
nobody waits for any more goes on, for what has come is worth keeping and the next Pod wants it most likely; if it
hangs, its deadline ends it, and until then it takes nobody's turn (``turns``).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from remuda.agent.decide.disk import DiskSpace, admit
from remuda.agent.decide.images import ImageAction
from remuda.agent.decide.recorded import ImageState
from remuda.agent.turns import Turn, Turns
from remuda.model.errors import RemudaError
from remuda.ports.vms import NameTaken, NoSpace, PullProgress, VmsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from remuda.agent.decide.disk import DiskMarks
    from remuda.agent.images import Goldens, Place
    from remuda.agent.ledger import Ledger
    from remuda.agent.metrics import AgentMetrics
    from remuda.ports.clock import Clock
    from remuda.ports.vms import Vms

log = structlog.get_logger(__name__)

SAY_S: Final = 10.0
"""How often those who wait are told how far it is."""
LOG_S: Final = 60.0
"""And how often the log is, at least; a tenth more is told sooner, but no sooner than those who wait."""
_TENTH: Final = 0.1
_STEPS_MAX: Final = 6
"""Look, discard, fetch, make room, discard, fetch: what takes more changes under our hands, and is left for later."""
_GIB: Final = 1024**3


class RoomMaker(Protocol):
    """Removes what nobody uses."""

    async def make_room(self, enough: Callable[[], bool]) -> bool:
        """Remove what nobody uses until there is enough. Whether it may: a builder's host is left as it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfParts:
    """What the shelf works with."""

    vms: Vms
    ledger: Ledger
    goldens: Goldens
    room: RoomMaker
    space: Callable[[], DiskSpace | None]
    """Measures the disk now."""
    marks: DiskMarks
    clock: Clock
    metrics: AgentMetrics


@dataclass(slots=True, eq=False)
class _Waiter:
    say: Callable[[str], None]
    is_pod: bool
    told_at: float = float("-inf")


@dataclass(slots=True, eq=False)
class _Fetch:
    """One image that is being brought, and who waits for it."""

    image: str
    waiters: list[_Waiter] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    fetching: bool = False
    """Whether it is more than a look."""
    progress: PullProgress | None = None
    reserved_bytes: int = 0
    """What it will take of the disk in all, if that is known."""
    room_made: bool = False
    logged_at: float = float("-inf")
    logged_ratio: float = 0.0

    @property
    def ratio(self) -> float:
        """How much of it has come, from 0 to 1; 0 if nobody knows."""
        come = self.progress
        if come is None or not come.total_bytes:
            return 0.0
        return min(1.0, come.done_bytes / come.total_bytes)

    def is_urgent(self) -> bool:
        return any(waiter.is_pod for waiter in self.waiters)

    def left_bytes(self) -> int:
        """Return what it will still take of the disk."""
        return int(self.reserved_bytes * (1 - self.ratio))


def _quietly(_: str) -> None:
    """Tell nobody."""


class HostShelf:
    """Implements ``parts.Shelf``. ``run`` must run: fetches are its tasks."""

    def __init__(self, parts: ShelfParts, turns: Turns | None = None) -> None:
        self._parts = parts
        self._turns = turns or Turns(parts.clock)
        self._fetches: dict[str, _Fetch] = {}
        self._group: asyncio.TaskGroup | None = None
        self._running = asyncio.Event()

    async def run(self) -> None:
        """Fetch what is asked for, until cancelled. Then half fetches are left to the next process to discard."""
        assert self._group is None, "the shelf runs already"
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._running.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:  # from here on no task can begin: who asks waits for the next run, or is cancelled, too
                self._group = None
                self._running.clear()

    @asynccontextmanager
    async def using(self, image: str, say: Callable[[str], None]) -> AsyncIterator[str]:
        """See ``parts.Shelf.using``."""
        with self._parts.goldens.held(image) as place:
            await self._have(place, _Waiter(say, is_pod=True))
            await self._parts.goldens.note_wanted([image])
            try:
                yield place.golden
            except NoSpace as error:
                log.warning("making room for a VM", image=image, error=str(error))
                await self._parts.room.make_room(
                    lambda: False
                )  # whatever was measured, it ran full
                raise

    async def stage(self, image: str, say: Callable[[str], None] = _quietly) -> None:
        """Fetch an image and start nothing; returns when its golden is whole. Raises as ``using`` does."""
        with self._parts.goldens.held(image) as place:
            await self._have(place, _Waiter(say, is_pod=False))
            await self._parts.goldens.note_wanted([image])

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _have(self, place: Place, waiter: _Waiter) -> None:
        while not self._parts.goldens.is_trusted(place):
            fetch = self._fetches.get(place.image)
            if fetch is None:
                await self._running.wait()
                # Somebody else may have begun it while this one waited.
                fetch = self._fetches.get(place.image) or self._begin(place)
            fetch.waiters.append(waiter)
            self._turns.look()
            if fetch.fetching:
                self._tell(fetch)
            try:
                await fetch.ended.wait()
            finally:
                fetch.waiters.remove(waiter)
            if fetch.error is not None:
                raise fetch.error

    def _begin(self, place: Place) -> _Fetch:
        assert self._group is not None, "fetches are tasks of a shelf that runs"
        fetch = self._fetches[place.image] = _Fetch(place.image)
        self._group.create_task(self._bring(place, fetch), name=f"image:{place.golden}")
        return fetch

    def _tell(self, fetch: _Fetch) -> None:
        """Tell those how far it is who were not told lately."""
        now = self._parts.clock.monotonic()
        for waiter in fetch.waiters:
            if now - waiter.told_at >= SAY_S:
                waiter.told_at = now
                waiter.say(_how_far(fetch.image, fetch.progress))

    # --- fetching -----------------------------------------------------------------------------------------------------

    async def _bring(self, place: Place, fetch: _Fetch) -> None:
        """Bring an image as far as it can be used, and let those know who wait. One task per image."""
        try:
            # Held also when nobody waits any more: it must not be removed while it is being made.
            with self._parts.goldens.held(place.image) as held:
                async with held.lock:
                    await self._step_by_step(held, fetch)
        except RemudaError as error:
            fetch.error = error
            log.warning("image not ready", image=place.image, error=str(error))
        except Exception as error:  # the loop's edge: one image's bug must not stop the others
            fetch.error = error
            log.exception("image not ready", image=place.image)
        finally:
            del self._fetches[place.image]
            self._count()
            fetch.ended.set()

    async def _step_by_step(self, place: Place, fetch: _Fetch) -> None:
        goldens = self._parts.goldens
        for _ in range(_STEPS_MAX):
            match await goldens.look(place):
                case ImageAction.USE:
                    goldens.usable(place)
                    return
                case ImageAction.DISCARD:
                    await goldens.discard(place)
                case ImageAction.FETCH:
                    await self._fetch_or_make_room(place, fetch)
                case ImageAction.REFUSE:
                    raise _not_ours(place)
                case ImageAction.LOOK_AGAIN:
                    raise _look_again(place)
        raise _look_again(place)

    async def _fetch_or_make_room(self, place: Place, fetch: _Fetch) -> None:
        """Fetch it; or, once, make room for another try. Either is followed by a fresh look."""
        try:
            await self._fetch(place, fetch)
        except NoSpace as error:
            if fetch.room_made or not await self._make_room(fetch, error):
                raise
            fetch.room_made = True

    async def _fetch(self, place: Place, fetch: _Fetch) -> None:
        vms, goldens = self._parts.vms, self._parts.goldens
        fetch.fetching, fetch.progress = True, None
        self._tell(fetch)
        self._log(fetch)
        self._count()
        pulled = await self._is_pulled(place.image)
        # What cannot be seen may be somebody else's.
        await goldens.write(place, ImageState.FETCHING, found=pulled is not False)
        turn = Turn(fetch.is_urgent)
        async with self._turns.taken(turn):
            if not pulled:
                await self._admit(fetch)
            await vms.pull(place.image, lambda come: self._came(fetch, turn, come))
        fetch.reserved_bytes = 0
        try:
            await vms.make_golden(place.image, place.golden)
        except NameTaken:
            # It was not there when we began, so this one is somebody else's, and the record must not say otherwise.
            await self._parts.ledger.forget_image(place.image)
            raise
        await goldens.write(place, ImageState.READY)
        log.info("image ready", image=place.image, golden=place.golden)

    def _came(self, fetch: _Fetch, turn: Turn, come: PullProgress) -> None:
        before = fetch.progress.done_bytes if fetch.progress is not None else 0
        self._parts.metrics.pulled_bytes.inc(max(0, come.done_bytes - before))
        fetch.progress = come
        self._turns.moved(turn)
        self._tell(fetch)
        self._log(fetch)
        self._count()

    def _log(self, fetch: _Fetch) -> None:
        """Say in the log that it goes on: a first image of many GiB takes so long that it looks hung."""
        since = self._parts.clock.monotonic() - fetch.logged_at
        much = fetch.ratio - fetch.logged_ratio >= _TENTH
        if since >= LOG_S or (much and since >= SAY_S):
            fetch.logged_at, fetch.logged_ratio = self._parts.clock.monotonic(), fetch.ratio
            how_far = "it begins" if fetch.progress is None else come_words(fetch.progress)
            log.info("fetching an image", image=fetch.image, how_far=how_far)

    def _count(self) -> None:
        under_way = [fetch for fetch in self._fetches.values() if fetch.fetching]
        come = [fetch.progress for fetch in under_way if fetch.progress is not None]
        metrics = self._parts.metrics
        metrics.fetches.set(len(under_way))
        metrics.fetch_done.set(sum(each.done_bytes for each in come))
        sizes = [each.total_bytes for each in come if each.total_bytes]
        # A sum that lacks one would call it all but done while hours are left.
        metrics.fetch_total.set(sum(sizes) if len(sizes) == len(under_way) else 0)

    # --- room ---------------------------------------------------------------------------------------------------------

    async def _admit(self, fetch: _Fetch) -> None:
        """Raise NoSpace if it does not fit beside what others are fetching."""
        size = await self._size(fetch.image)
        short = admit(size, self._space_beside(fetch), self._parts.marks)
        if short is not None:
            raise _DoesNotFit(fetch.image, short.why, size)
        fetch.reserved_bytes = size or 0

    async def _is_pulled(self, image: str) -> bool | None:
        """Say whether somebody pulled it already; None: it cannot be seen."""
        try:
            seen = await self._parts.vms.inventory()
        except VmsError:
            return None
        return any(pulled.ref == image for pulled in seen.images)

    async def _size(self, image: str) -> int | None:
        try:
            return await self._parts.vms.image_bytes(image)
        except VmsError as error:
            # The pull itself will say what is wrong, and better.
            log.info("size of image unknown", image=image, error=str(error))
            return None

    def _space_beside(self, fetch: _Fetch) -> DiskSpace | None:
        """Return what is free beyond what the other fetches will still take."""
        space = self._parts.space()
        if space is None:
            return None
        taken = sum(f.left_bytes() for f in self._fetches.values() if f is not fetch)
        return DiskSpace(max(0, space.free_bytes - taken), space.total_bytes)

    async def _make_room(self, fetch: _Fetch, error: NoSpace) -> bool:
        fetch.reserved_bytes = 0

        def enough() -> bool:
            if not isinstance(error, _DoesNotFit):
                return False  # the disk ran full whatever was measured: all that nobody uses goes
            space = self._space_beside(fetch)
            return admit(error.size_bytes, space, self._parts.marks) is None

        log.warning("making room", image=fetch.image, error=str(error))
        return await self._parts.room.make_room(enough)


class _DoesNotFit(NoSpace):
    """An image was not even begun to be fetched."""

    def __init__(self, image: str, why: str, size_bytes: int | None) -> None:
        super().__init__(
            f"The image {image} was not fetched",
            why=why,
            fix="Free disk space on the host, or use fewer images on it",
        )
        self.size_bytes = size_bytes


def _how_far(image: str, come: PullProgress | None) -> str:
    begins = f"The image {image} is being fetched"
    return f"{begins}: {come_words(come)}" if come is not None else begins


def come_words(come: PullProgress) -> str:
    """Say how much has come, of how much."""
    done = f"{come.done_bytes / _GIB:.1f}"
    if not come.total_bytes:
        return f"{done} GiB have come"
    ratio = min(1.0, come.done_bytes / come.total_bytes)
    return f"{done} of {come.total_bytes / _GIB:.1f} GiB have come ({ratio:.0%})"


def _not_ours(place: Place) -> NameTaken:
    return NameTaken(
        f"The image {place.image} cannot be used",
        why=f"there is a VM {place.golden} on this host that the agent did not make",
        fix="Rename or delete that VM, if nobody needs it",
    )


def _look_again(place: Place) -> VmsError:
    return VmsError(
        f"The image {place.image} cannot be used now",
        why=f"its golden {place.golden} runs, or cannot be seen",
        fix="Nothing, if this passes; else see whether somebody runs it, and whether the driver answers",
    )
