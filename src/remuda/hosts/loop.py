"""
The loop over Hosts: woken by news, it looks, decides and carries out, one pass of one Host at a time.

A pass may be an attempt that takes most of an hour; passes of other Hosts go on beside it. Who may change in a roll is
decided in one turn from everything that is known, so two hosts never take the same place.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.queue import QueueSettings, WorkQueue
from remuda.hosts.carrying import Carrier
from remuda.hosts.decide.lifecycle import Do, NodeState, Phase, decide, node_is_gone
from remuda.hosts.decide.lifecycle import Seen as Look
from remuda.hosts.decide.roll import Member, Stand, roll, stand
from remuda.hosts.saying import telling, with_telling
from remuda.hosts.seeing import seen_of
from remuda.hosts.status import CONVERGED, condition
from remuda.hosts.view import vm_pods_on
from remuda.kube.host import HOST
from remuda.kube.names import HOST_KEY, HOST_RELEASE, RETRY
from remuda.kube.patches import MergePatch

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.hosts.decide.roll import Roll
    from remuda.hosts.reins import Reins
    from remuda.hosts.saying import Telling
    from remuda.kube.host import Host
    from remuda.kube.patches import JsonValue

log = structlog.get_logger(__name__)

LOOP: Final = "hosts"
_TICK: Final = ""  # no Host has this name
_TICK_S: Final = 15.0
_SILENT_MAX_S: Final = 120.0
_SOONEST: Final = timedelta(seconds=1)
_WAITS: Final = frozenset({Do.REST, Do.DRAIN, Do.ADOPT, Do.RELEASE})
"""Deeds after which there is nothing to do for a while; what follows of them is news, and wakes us."""


class HostLoop:
    """Carries out what ``decide`` decided. No policy lives here."""

    def __init__(self, reins: Reins) -> None:
        self._reins, self._view = reins, reins.view
        self._carrier = Carrier(reins)
        self._missing: dict[str, datetime] = {}
        self._begun: set[str] = set()
        self._halts: dict[str, str] = {}
        self._news = 0
        self._rolls: dict[str, tuple[tuple[object, ...], Roll]] = {}
        """Worked out anew only when something of it may have changed."""
        settings = QueueSettings(workers_max=reins.settings.workers_max)
        self._queue: WorkQueue[str] = WorkQueue(LOOP, self._look, reins.ids, settings)
        self._view.on_news(self._heard)

    async def run(self) -> None:
        """Look at Hosts until cancelled. The view must be synced."""
        assert self._view.synced, "a Host must not be looked at before everything was listed"
        with self._reins.health.watched(LOOP, _SILENT_MAX_S):
            for host in self._view.hosts():
                self._queue.add(host.name)
            async with asyncio.TaskGroup() as group:
                # Beside the queue: an attempt on every worker at once is work, not silence.
                group.create_task(self._tick(), name="hosts: tick")
                await self._queue.run()

    def _heard(self, name: str) -> None:
        self._news += 1
        self._wake(name)

    def _wake(self, name: str) -> None:
        self._queue.add_after(name, self._reins.settings.coalesce_s)

    async def _tick(self) -> None:
        while True:
            self._reins.health.beat(LOOP)
            await self._reins.clock.sleep(_TICK_S)

    # --- One pass ----------------------------------------------------------------------------------------------------

    async def _look(self, name: str) -> timedelta | None:
        if (host := self._view.host(name)) is None:
            self._forget(name)
            return None
        host = self._reins.status.newest(host)
        if not await self._prepare(host):
            return _SOONEST
        pods = await vm_pods_on(self._reins.kube, name)
        # From here to the deed nothing is awaited but writes that say what is done; what could end VMs asks once more.
        host = self._reins.status.newest(self._view.host(name) or host)
        seen = self._seen(host, len(pods))
        fleet = self._roll(host.spec.fleet)
        if name not in fleet.granted:
            seen = replace(seen, granted=False, held_back=fleet.held_back(name))
        decision = decide(seen, self._reins.settings.limits, self._reins.clock.now())
        if decision.do in (Do.BOOTSTRAP, Do.UPDATE, Do.DRAIN):
            self._begun.add(name)
        try:
            host = await self._say(host, seen, telling(decision, host, pods, fleet))
            await self._carrier.carry_out(host, decision)
        finally:
            self._begun.discard(name)
        self._wake_waiting(host.spec.fleet, before=fleet)
        return max(_SOONEST, decision.look_again) if decision.do in _WAITS else _SOONEST

    async def _prepare(self, host: Host) -> bool:
        """Hold a new Host, and take what a person said by annotations. Says whether nothing was to do."""
        if host.metadata.deletion_timestamp is not None:
            return True
        metadata = host.metadata
        if HOST_RELEASE not in metadata.finalizers:
            finalizers = [*metadata.finalizers, HOST_RELEASE]
            await self._patch(host, {"finalizers": list(finalizers)})
            return False
        if key := metadata.annotations.get(HOST_KEY):
            await self._carrier.trust(host, key)
            await self._patch(host, {"annotations": {HOST_KEY: None}})
            return False
        if RETRY in metadata.annotations:
            await self._carrier.retry(host)
            await self._patch(host, {"annotations": {RETRY: None}})
            return False
        return True

    async def _patch(self, host: Host, metadata: dict[str, JsonValue]) -> None:
        newest = self._reins.status.newest(host)
        changes = MergePatch({"metadata": {**metadata, "resourceVersion": newest.resource_version}})
        after = await self._reins.kube.patch(HOST, host.name, changes, namespace=host.namespace)
        self._reins.status.wrote(newest, after)

    def _seen(self, host: Host, vm_pods: int = 0) -> Look:
        now, node = self._reins.clock.now(), self._view.node(host.name)
        if node is None:
            self._missing.setdefault(host.name, now)
        else:
            self._missing.pop(host.name, None)
        return seen_of(
            host,
            node,
            wanted_hash=self._reins.converger.config_hash,
            missing_since=self._missing.get(host.name),
            now=now,
            vm_pods=vm_pods,
        )

    # --- The roll ----------------------------------------------------------------------------------------------------

    def _roll(self, fleet: str) -> Roll:
        """Say where the fleet's roll stands, from the newest that is known of each host."""
        settings, now = self._reins.settings, self._reins.clock.now()
        long_ago = now - settings.limits.node_missing
        gone = frozenset(name for name, since in self._missing.items() if since <= long_ago)
        stamp = (self._news, self._reins.status.writes, frozenset(self._begun), gone)
        known = self._rolls.get(fleet)
        if known is not None and known[0] == stamp:
            return known[1]
        members = [self._member(host) for host in self._view.hosts() if host.spec.fleet == fleet]
        percent = settings.roll_percent if settings.guards.roll_cap else 10_000
        found = roll(members, percent)
        self._rolls[fleet] = (stamp, found)
        self._reins.metrics.roll(fleet, found)
        return found

    def _member(self, host: Host) -> Member:
        host = self._reins.status.newest(host)
        seen = self._seen(host)
        limits = self._reins.settings.limits
        gone = node_is_gone(seen, limits, self._reins.clock.now()) and not seen.changed
        where = stand(seen, limits, begun=host.name in self._begun, gone=gone)
        failed = condition(host.status, CONVERGED) if where is Stand.FAILED else None
        why = failed.message.rstrip(".") if failed and failed.status == "False" else ""
        if where is Stand.FAILED and not why and seen.node is not NodeState.READY:
            why = "its Node did not become Ready"
        return Member(host.name, where, why, gone)

    def _wake_waiting(self, fleet: str, before: Roll) -> None:
        """Have those looked at for whom a place may be free now, and all who wait when the roll halts or goes on."""
        after = self._roll(fleet)
        self._tell_halt(fleet, after)
        fresh = after.granted - before.granted
        whom = after.waiting if after.halted != before.halted else sorted(fresh)
        for name in whom:
            self._wake(name)

    def _tell_halt(self, fleet: str, now: Roll) -> None:
        """Say once, on the hosts that failed, that the roll stands still."""
        if self._halts.get(fleet, "") == now.halted:
            return
        self._halts[fleet] = now.halted
        if not now.halted:
            log.info("roll goes on", fleet=fleet)
            return
        log.error("roll halted", fleet=fleet, why=now.halted, waiting=len(now.waiting))
        text = (
            f"{now.halted[0].upper()}{now.halted[1:]}. {len(now.waiting)} hosts keep what they have. Mend the"
            f" configuration, or look at the host and annotate it with {RETRY}=true."
        )
        for name in now.failed:
            if (host := self._view.host(name)) is not None:
                self._reins.events.record(HOST, host, "RollHalted", text, warning=True)

    # --- Saying ------------------------------------------------------------------------------------------------------

    async def _say(self, host: Host, seen: Look, said: Telling) -> Host:
        """Write down what is about to be done, before it is."""
        now = self._reins.clock.now()
        host = await self._reins.status.change(host, lambda s: with_telling(s, said, now))
        failures = host.status.attempts or 0
        self._reins.metrics.host(host.name, host.spec.fleet, said.phase.value, failures)
        if seen.phase is not said.phase:
            phase, was = said.phase.value, seen.phase.value
            log.info("host", host=host.name, phase=phase, was=was, why=said.text)
            bad = said.phase in (Phase.FAILED, Phase.NOT_READY)
            self._reins.events.record(HOST, host, said.reason, said.text, warning=bad)
        return host

    def _forget(self, name: str) -> None:
        self._missing.pop(name, None)
        self._reins.status.forget(name)
        self._reins.metrics.forget(name)
