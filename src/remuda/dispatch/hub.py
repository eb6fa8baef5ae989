"""
Who is told that there may be work: polls that wait stand in line, and a turn is a reason to ask the database.

Each pool has a line, in order of arrival. A wake-up is one turn, for one waiter; without waiters it is kept for the
next. Whoever found nothing goes back to its old place, and a pool that was found empty has no turns left but those
heard of since: so a poll of an idle pool costs the database nothing. Wake-ups are hints, and get lost. Once a beat the
database is asked for all pools at once how much there is, and lines are given as many turns. Nothing here hands out
jobs: a turn that was wrong costs one question, one that is missing at most a beat.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.backoff import spread
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.wakeups import Wakeups

log = structlog.get_logger(__name__)

COUNTED_MAX: Final = 100
"""Up to this many jobs of a pool are counted (``JobViews.claimable``): there may be more."""
SPARE_MAX: Final = 1000
"""How many turns are kept for waiters to come: more would only be questions about an empty pool."""
_STALE_MIN: Final = 64


class Bell:
    """Wakes one task. Rung before anybody waits, it is heard at once by who waits next."""

    __slots__ = ("_rung", "_waiting")

    def __init__(self) -> None:
        self._rung = False
        self._waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, until: float | None = None) -> None:
        """Wait for a ring, at most until then on the loop's clock. No task and no timeout context: polls are many."""
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = None if until is None else loop.call_at(until, self.ring)
            try:
                await self._waiting
            finally:
                if timer is not None:
                    timer.cancel()
                self._waiting = None
        self._rung = False


class Gone(asyncio.Event):
    """That a poll's client went away. It rings the poll's bell: so nobody needs a task to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.bell: Bell | None = None

    def set(self) -> None:
        super().set()
        if self.bell is not None:
            self.bell.ring()


@dataclass(eq=False, slots=True)
class Waiter:
    """One poll's place in the line of its pool."""

    pool: str
    place: int
    bell: Bell
    has_turn: bool = False
    left: bool = False
    heard: int = 0
    """How many wake-ups its line had heard of when its turn began."""
    beat: int = 0
    """How many beats there had been then."""


@dataclass(slots=True)
class _Line:
    """The waiters of one pool, and the turns that nobody has yet. No turn is spare while somebody waits."""

    heard: int = 0
    """Wake-ups so far."""
    spare: int = 0
    out: int = 0
    """Turns of which nobody knows yet what came of them."""
    counted: int = 0
    """How many jobs there were at the last beat."""
    beats: int = 0
    doubtful: bool = False
    """The last one with a turn found nothing, whatever was counted: the next beat sends one to look, not a herd."""
    waiting: dict[int, Waiter] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)
    """A heap of places; some of those who had them have left."""

    def stand(self, waiter: Waiter) -> None:
        self.waiting[waiter.place] = waiter
        heapq.heappush(self.places, waiter.place)
        if len(self.places) > 2 * len(self.waiting) + _STALE_MIN:
            self.places = sorted(self.waiting)

    def first(self, *, after: int = -1) -> Waiter | None:
        """Take the first out of the line, or the first that stands behind a place."""
        if after >= 0:
            behind = min((place for place in self.waiting if place > after), default=None)
            return None if behind is None else self.waiting.pop(behind)
        while self.places:
            waiter = self.waiting.pop(heapq.heappop(self.places), None)
            if waiter is not None:
                return waiter
        return None

    def deal(self) -> None:
        """Give turns to those who stand first."""
        while self.spare > 0 and self.waiting:
            waiter = self.first()
            if waiter is None:
                return
            self.spare -= 1
            self.give(waiter)

    def was_counted_since(self, waiter: Waiter) -> bool:
        """Say whether a beat came while a waiter asked: what it counted may be there beside what the waiter got."""
        return waiter.beat != self.beats

    def give(self, waiter: Waiter) -> None:
        self.out += 1
        waiter.has_turn = True
        waiter.bell.ring()


class Hub:
    """The lines of all pools in this replica. ``run`` hears of work; everything else is at once."""

    def __init__(
        self, views: JobViews, wakeups: Wakeups, *, beat_s: float, clock: Clock, ids: Ids
    ) -> None:
        self._views, self._wakeups = views, wakeups
        self._beat_s, self._clock, self._ids = beat_s, clock, ids
        self._lines: dict[str, _Line] = {}
        self._places = 0
        self._look = Bell()

    # --- Standing in line --------------------------------------------------------------------------------------------

    def join(self, pool: str, bell: Bell) -> Waiter:
        """Take a place at the end of a pool's line. The bell rings when it has a turn."""
        self._places += 1
        waiter = Waiter(pool, self._places, bell)
        line = self._line(pool)
        line.stand(waiter)
        line.deal()
        return waiter

    def begin(self, waiter: Waiter) -> None:
        """
        Use a turn, right before the database is asked: what is heard from now on may be news to the answer.

        Exactly one of ``won``, ``lost`` and ``unasked`` follows, also if the poll has left meanwhile.
        """
        assert waiter.has_turn, "only who has a turn asks"
        waiter.has_turn = False
        line = self._line(waiter.pool)
        waiter.heard, waiter.beat = line.heard, line.beats

    def won(self, waiter: Waiter) -> None:
        """There was a job. Its poll stands in no line until it comes ``back``."""
        line = self._line(waiter.pool)
        line.out -= 1
        # Where one was sent to look, the others are called now; where more is than was counted, one for each.
        more = line.counted - 1 - line.out if line.doubtful else 0
        line.doubtful = False
        if line.counted >= COUNTED_MAX:
            more = max(more, line.spare + 1)
        elif line.was_counted_since(waiter):
            more = max(more, line.counted - line.out)
        else:
            line.counted = max(0, line.counted - 1)
        line.spare = min(SPARE_MAX, max(line.spare, more))
        line.deal()

    def lost(self, waiter: Waiter, *, for_others: bool = False) -> None:
        """
        There was no job. The waiter goes back to its old place.

        ``for_others``: it must not be given some of what may be there, so the turn goes to who stands behind it.
        """
        line = self._line(waiter.pool)
        line.out -= 1
        if for_others:
            behind = line.first(after=waiter.place)
            if behind is not None:
                line.give(behind)
        else:
            news = line.heard - waiter.heard
            line.spare = min(line.spare, news)
            if line.was_counted_since(waiter):
                line.spare = max(line.spare, line.counted - line.out)
            elif not news:
                line.doubtful, line.counted = True, 0
        self.back(waiter)

    def unasked(self, waiter: Waiter, *, pass_on: bool) -> None:
        """Nobody knows whether there is a job. ``pass_on``: the next one may ask; else the beat finds it again."""
        line = self._line(waiter.pool)
        line.out -= 1
        line.spare = min(SPARE_MAX, line.spare + pass_on)
        self.back(waiter)

    def step_out(self, waiter: Waiter) -> None:
        """Leave the line for a while without a turn, to ask for another reason."""
        assert not waiter.has_turn, "who has a turn uses it"
        self._line(waiter.pool).waiting.pop(waiter.place, None)

    def back(self, waiter: Waiter) -> None:
        """Stand at the old place again, unless it has left."""
        line = self._line(waiter.pool)
        if not waiter.left:
            line.stand(waiter)
        line.deal()

    def leave(self, waiter: Waiter) -> None:
        """Go away for good. A turn that was not begun is the next one's."""
        waiter.left = True
        line = self._line(waiter.pool)
        line.waiting.pop(waiter.place, None)
        if waiter.has_turn:
            waiter.has_turn = False
            line.out -= 1
            line.spare = min(SPARE_MAX, line.spare + 1)
            line.deal()

    # --- Hearing of work ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Hear of work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name="hub: wake-ups")
            group.create_task(self._beat(), name="hub: beat")

    def told(self, pool: str) -> None:
        """Take a wake-up: one turn."""
        line = self._line(pool)
        line.heard += 1
        line.spare = min(SPARE_MAX, line.spare + 1)
        line.deal()

    async def look(self) -> None:
        """Ask how much there is in all pools, and give as many turns."""
        heard = {pool: line.heard for pool, line in self._lines.items()}
        try:
            counts = await self._views.claimable()
        except RemudaError as error:
            log.warning("nobody knows how much work there is", error=str(error))
            return
        self._counted(counts, heard)

    def _counted(self, counts: Mapping[str, int], heard: Mapping[str, int]) -> None:
        for pool in [*self._lines, *(pool for pool in counts if pool not in self._lines)]:
            line, count = self._line(pool), counts.get(pool, 0)
            line.counted = count
            line.beats += 1
            news = line.heard - heard.get(pool, 0)
            # Those with a turn are about to take some of what was counted.
            due = max(0, count - line.out)
            due = min(due, 1) if line.doubtful else due
            line.spare = min(SPARE_MAX, max(due, min(line.spare, news)))
            line.deal()
            if not count and not line.waiting and not line.out and not line.spare:
                del self._lines[pool]

    async def _listen(self) -> None:
        async with self._wakeups.listen() as heard:
            async for pool in heard:
                if pool is None:
                    self._look.ring()
                else:
                    self.told(pool)

    async def _beat(self) -> None:
        while True:
            wait_s = spread(self._beat_s, self._ids.fraction())
            await self._look.wait(self._clock.monotonic() + wait_s)
            await self.look()

    def _line(self, pool: str) -> _Line:
        line = self._lines.get(pool)
        if line is None:
            line = self._lines[pool] = _Line()
        return line
