"""
Lets old Events go, as a real cluster does after an hour; else a control plane that runs for months would only grow.

It knows nothing of what an Event says.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.kube.times import parse_time
from remuda.standalone.errors import StatusError
from remuda.standalone.objects import name_of, namespace_of, uid_of, version_of

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.ports.clock import Clock
    from remuda.standalone.objects import Obj
    from remuda.standalone.rest import Rest
    from remuda.standalone.store import Store

LIFE = timedelta(hours=1)
_SWEEP_EVERY_S = 600.0


class EventExpiry:
    """Deletes Events that nobody has touched for an hour."""

    def __init__(self, rest: Rest, store: Store, clock: Clock) -> None:
        self._rest, self._store, self._clock = rest, store, clock
        self._events = next(k for k in rest.kinds if (k.group, k.plural) == ("", "events"))

    async def run(self) -> None:
        while True:
            await self._sweep()
            await self._clock.sleep(_SWEEP_EVERY_S)

    async def _sweep(self) -> None:
        before = self._clock.now() - LIFE
        for event in self._store.objects(self._events):
            if _last_touched(event) >= before:
                continue
            try:
                await self._rest.delete(
                    self._events,
                    namespace_of(event),
                    name_of(event),
                    uid=uid_of(event),
                    resource_version=str(version_of(event)),
                )
            except StatusError:
                continue  # counted up or deleted meanwhile; the next sweep sees what is there


def _last_touched(event: Obj) -> datetime:
    """Return when an Event was last written down: a repeated one is counted up rather than made anew."""
    series = event.get("series") or {}
    times = (
        event["metadata"]["creationTimestamp"],
        event.get("lastTimestamp"),
        series.get("lastObservedTime"),
    )
    return max(parse_time(time) for time in times if time)
