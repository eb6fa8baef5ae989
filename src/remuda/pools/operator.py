"""
The RunnerPool operator as one process: campaigns for the Lease, and leads while it holds it.

A standby does nothing but campaign. Each reign begins with an empty memory and a fresh, consistent list, waits until
all of it is there before anything acts, and writes through a fence that closes when the reign ends. Losing the Lease
cancels everything of the reign.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.election import LeaderElector
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.fencing import FencedKube
from remuda.control.health import BeatingClock
from remuda.control.tasks import run_forever
from remuda.pools.accounts import Accounts
from remuda.pools.apply import Applier
from remuda.pools.autoscaler import Autoscaler
from remuda.pools.expectations import Expectations
from remuda.pools.hosts import Hosts
from remuda.pools.loop import PoolLoop
from remuda.pools.reins import Reins
from remuda.pools.reports import Reports
from remuda.pools.status import StatusWriter
from remuda.pools.sweeps import Sweeps
from remuda.pools.turn import Turns
from remuda.pools.view import FleetView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.control.health import Health
    from remuda.pools.metrics import PoolMetrics
    from remuda.pools.settings import PoolSettings
    from remuda.ports.clock import Clock
    from remuda.ports.dispatch import Dispatch
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

ELECTION: Final = "election"
COMPONENT: Final = "remuda-controller"


class PoolOperator:
    """``run`` it; it leads when it may. ``election_kube`` is its own, so that work never starves a renewal."""

    def __init__(  # noqa: PLR0913 - the composition root's one call
        self,
        kube: Kube,
        election_kube: Kube,
        dispatch: Dispatch | None,
        settings: PoolSettings,
        *,
        clock: Clock,
        ids: Ids,
        metrics: PoolMetrics,
        health: Health,
    ) -> None:
        self._kube, self._dispatch, self._settings = kube, dispatch, settings
        self._clock, self._ids, self._metrics, self._health = clock, ids, metrics, health
        beating = BeatingClock(clock, health, ELECTION)
        self._elector = LeaderElector(election_kube, settings.election(), clock=beating, ids=ids)
        self._limit_s = settings.renew_deadline_s * 3
        self._view: FleetView | None = None

    def ready(self) -> tuple[bool, str]:
        """Say whether this replica does its part: it stands by, or it leads and has seen the whole fleet."""
        if not self._elector.is_leader:
            if trouble := self._elector.trouble:
                return False, f"cannot take part in the election: {trouble}"
            return True, "standing by: another replica leads, or will in a moment"
        if self._view is None or not self._view.synced:
            return False, "leading, but the fleet is not listed yet"
        return True, "leading"

    async def run(self) -> None:
        """Campaign and lead until cancelled."""
        with self._health.watched(ELECTION, self._limit_s):
            await self._elector.run(self._lead)

    async def _lead(self) -> None:
        try:
            await self._reign()
        except asyncio.CancelledError:
            if not self._settings.guards.fencing and not self._elector.is_leader:
                await self._reign()  # a leader that does not care
            raise

    async def _reign(self) -> None:
        guards = self._settings.guards
        kube = FencedKube(self._kube, self._elector) if guards.fencing else self._kube
        view = FleetView(self._kube, self._settings, clock=self._clock, ids=self._ids)
        reins = Reins(
            kube=kube,
            dispatch=self._dispatch,
            view=view,
            expectations=Expectations(),
            events=EventRecorder(
                kube,
                EventSettings(component=COMPONENT, instance=self._settings.identity),
                clock=self._clock,
                ids=self._ids,
            ),
            settings=self._settings,
            clock=self._clock,
            ids=self._ids,
            metrics=self._metrics,
            health=self._health,
        )
        loops = _loops(reins)
        self._view = view
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(view.run(), name="view")
                await view.wait_synced()
                log.info("the fleet is listed", pools=len(view.runner_pools), pods=len(view.pods))
                await run_forever(loops, asyncio.Event())
        finally:
            self._view = None
            self._metrics.forget_all()


def _loops(reins: Reins) -> dict[str, Callable[[], Awaitable[None]]]:
    """Wire the loops of a reign. They subscribe to the view now, and act once it is synced."""
    applier = Applier(reins, Reports(reins))
    hosts = Hosts(reins)
    pools = PoolLoop(reins, applier, StatusWriter(reins), Turns(reins, hosts), hosts)
    return {
        "pools": pools.run,
        "hosts": hosts.run,
        "accounts": Accounts(reins).run,
        "sweeps": Sweeps(reins, applier).run,
        "autoscaler": Autoscaler(reins).run,
        "events": reins.events.run,
    }
