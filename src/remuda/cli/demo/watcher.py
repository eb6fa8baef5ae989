"""Follows every version of the fleet's runners, so that the account at the end rests on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.cli.demo.decide.roll import Sight
from remuda.cli.demo.fleet import DemoFailed
from remuda.cli.tree.parts import NAMESPACE
from remuda.kube.core import POD
from remuda.kube.names import RUNNER
from remuda.kube.runner_view import runner_of
from remuda.ports.kube import Bookmark, Change, Expired, Query, Unavailable

if TYPE_CHECKING:
    from remuda.kube.core import Pod
    from remuda.model.runner import Phase, Runner
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

_AGAIN_S = 0.2


class Watcher:
    """What was seen of all runners since the beginning, and how they are now."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock
        self._query = Query(namespace=NAMESPACE, labels=f"{RUNNER}=true")
        self._there: dict[str, Runner] = {}
        self._sights: list[Sight] = []
        self._since = ""
        self.images: dict[str, str] = {}
        """The image of each runner that was ever seen, by its name."""

    @property
    def sights(self) -> tuple[Sight, ...]:
        return tuple(self._sights)

    @property
    def alive(self) -> tuple[Runner, ...]:
        """The runners that count, by name."""
        there = (runner for runner in self._there.values() if runner.is_alive)
        return tuple(sorted(there, key=lambda r: r.name))

    def in_phase(self, phase: Phase) -> tuple[Runner, ...]:
        return tuple(runner for runner in self.alive if runner.phase is phase)

    def marked(self) -> tuple[str, ...]:
        """Return the names of all whom a roll ever asked to leave, in that order."""
        names = (sight.runner.name for sight in self._sights if sight.runner.mark is not None)
        return tuple(dict.fromkeys(names))

    async def run(self) -> None:
        """Follow without an end. Raises DemoFailed if something may have been missed."""
        listing = await self._kube.list(POD, self._query)
        for pod in listing.items:
            self._note(pod, Change.ADDED)
        self._since = listing.resource_version
        while True:
            try:
                await self._follow()
            except Expired as error:
                raise DemoFailed(
                    "Not all that the fleet did was seen",
                    why=error.why,
                    fix="Run the demo again, with less else to do for this machine",
                ) from None
            except Unavailable:
                await self._clock.sleep(_AGAIN_S)

    async def _follow(self) -> None:
        async with self._kube.watch(POD, self._query, since=self._since) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, Bookmark):
                        self._since = event.resource_version
                    else:
                        self._since = event.object.resource_version
                        self._note(event.object, event.change)

    def _note(self, pod: Pod, change: Change) -> None:
        runner, gone = runner_of(pod), change is Change.DELETED
        self.images[runner.name] = pod.spec.containers[0].image
        self._sights.append(Sight(int(pod.resource_version), runner, gone=gone))
        if gone:
            self._there.pop(runner.uid, None)
        else:
            self._there[runner.uid] = runner
