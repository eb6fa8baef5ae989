"""
Keeps looking at a fleet: now and then, and whenever something happens there.

Events are followed as they come; where that is not possible they are asked for with each look. A server that is away,
slow or in another mood is asked again until it answers: looking never ends by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.cli.top.decide.sight import Fleet, Sight
from remuda.control.tasks import ungrouped
from remuda.model.job import JobState
from remuda.ports.api import ApiError, ApiUnavailable, EventsWanted, JobsWanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.ports.api import Api, Event
    from remuda.ports.clock import Clock

ACTIVE_MAX: Final = 1000
"""Jobs that are not over: more than these nobody reads."""
RECENT: Final = 50
EVENTS_MAX: Final = 300
BACK: Final = 100
"""How many events of the past to begin with."""
APART_S: Final = 0.3
"""How long to wait between two looks at least, however much happens."""
_ACTIVE: Final = JobsWanted(states=(JobState.QUEUED, JobState.CLAIMED, JobState.RUNNING))
_OVER: Final = JobsWanted(states=(JobState.COMPLETED, JobState.CANCELLED))


class Reader:
    """Looks at one fleet."""

    def __init__(self, api: Api, clock: Clock, *, address: str, every_s: float) -> None:
        self._api, self._clock = api, clock
        self._show: Callable[[Sight], None] = lambda _: None
        self._every_s = every_s
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._last: int | None = None
        self._happened = asyncio.Event()
        self.sight = Sight(address=address, every_s=every_s)

    def wake(self) -> None:
        """Look again soon."""
        self._happened.set()

    async def run(self, show: Callable[[Sight], None]) -> None:
        """Look until cancelled, and tell ``show`` what is seen."""
        self._show = show
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="events")
            group.create_task(self._looking(), name="looks")

    async def _looking(self) -> None:
        while True:
            self._happened.clear()
            await self.look()
            await self._clock.sleep(APART_S)
            try:
                async with asyncio.timeout(self._every_s):
                    await self._happened.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Look once. What goes wrong is part of the sight."""
        try:
            await self.see()
        except ApiError as error:
            self._tell(replace(self.sight, trouble=f"{error.what}: {error.why}"))

    async def see(self) -> None:
        """Look once. Raises ApiError."""
        fleet = await read(self._api)
        if self.sight.polls:
            await self._catch_up()
        seen_at = self._clock.monotonic()
        self._tell(replace(self.sight, fleet=fleet, seen_at=seen_at, trouble=""))

    def _tell(self, sight: Sight) -> None:
        self.sight = replace(sight, events=tuple(self._events))
        self._show(self.sight)

    # --- events ---

    async def begin(self) -> None:
        """Read the events of the near past, once."""
        if self._last is None:
            self._last = max(await self._api.newest_event() - BACK, 0)
            await self._catch_up()
            self._tell(self.sight)

    async def _catch_up(self) -> None:
        for event in await self._api.audit(after=self._last or 0, limit=EVENTS_MAX):
            self._take(event)

    def _take(self, event: Event) -> None:
        self._events.append(event)
        self._last = event.number

    async def _follow(self) -> None:
        while not self.sight.polls:
            try:
                await self.begin()
                await self._listen()
            except ApiUnavailable:
                pass  # the looks tell of it
            except ApiError:
                self._tell(replace(self.sight, polls=True))
            await self._clock.sleep(self._every_s)

    async def _listen(self) -> None:
        stream = self._api.events(EventsWanted(after=self._last))
        async with aclosing(stream) as events:
            async for event in events:
                self._take(event)
                self.wake()


async def read(api: Api) -> Fleet:
    """Ask for everything at once. Raises the first ApiError."""
    return await ungrouped(_read(api))


async def _read(api: Api) -> Fleet:
    async with asyncio.TaskGroup() as group:
        ready = group.create_task(api.ready())
        pools = group.create_task(api.pools())
        runners = group.create_task(api.runners())
        hosts = group.create_task(api.hosts())
        active = group.create_task(api.jobs(_ACTIVE, limit=ACTIVE_MAX))
        over = group.create_task(api.jobs(_OVER, limit=RECENT))
    # A job that ended between the two questions is in both answers: its end is the truth.
    jobs = {job.id: job for job in (*active.result(), *over.result())}
    return Fleet(
        not_ready=ready.result(),
        pools=pools.result(),
        runners=runners.result(),
        hosts=hosts.result(),
        jobs=tuple(jobs.values()),
        is_cut=len(active.result()) >= ACTIVE_MAX,
    )
