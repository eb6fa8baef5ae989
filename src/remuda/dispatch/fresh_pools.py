"""
A look at the server itself for a pool that our view does not show: it may have been made a moment ago.

Who posts jobs decides how often this is asked for, so the API server is protected from that: one look at a time, each
bounded, a no is remembered for a moment, and while too many are, there is no look at all. Whoever asks then is told to
come back: a pool that nobody looked for may be there.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import NotFound, Unavailable

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

LOOK_S: Final = 3.0
"""How long the API server may take to answer."""
ABSENT_S: Final = 1.0
"""For how long a pool that is not there is not asked for again."""
ABSENT_MAX: Final = 20
"""How many are remembered. Beyond that nobody looks for a pool that is not in our view."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class FreshPools:
    """For one namespace."""

    def __init__(self, kube: Kube, namespace: str, *, clock: Clock) -> None:
        self._kube, self._namespace, self._clock = kube.within(LOOK_S), namespace, clock
        self._one = asyncio.Lock()
        self._absent: dict[str, float] = {}
        """Until when these pools are not asked for."""

    async def get(self, name: str) -> RunnerPool | None:
        """Return a pool as it is now; None if there is none. Raises KubeError if the server does not say."""
        if _NAME.fullmatch(name) is None:
            return None  # no pool can have it, and it would become part of a path
        try:
            async with asyncio.timeout(LOOK_S), self._one:
                return await self._look(name)
        except TimeoutError:
            raise _unanswered(name, "the API server did not come to it in time") from None

    async def _look(self, name: str) -> RunnerPool | None:
        now = self._clock.monotonic()
        self._absent = {key: until for key, until in self._absent.items() if now < until}
        if name in self._absent:
            return None
        if len(self._absent) >= ABSENT_MAX:
            raise _unanswered(name, "too many pools that are not there were asked for just now")
        try:
            return await self._kube.get(RUNNER_POOL, name, namespace=self._namespace)
        except NotFound:
            self._absent[name] = self._clock.monotonic() + ABSENT_S
            return None


def _unanswered(name: str, why: str) -> Unavailable:
    return Unavailable(f"The pool {name} was not looked for", why=why, fix="Ask again in a moment")
