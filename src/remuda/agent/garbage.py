"""
Removes from the host what ``decide.garbage`` says may go, in its order. No policy lives here.

A plan is made from one look at everything. Before each step the same decision is taken again on what is known then: the
world moves meanwhile. What fails is tried again with the next pass, and holds up nothing else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from remuda.agent.decide.garbage import (
    DeleteOrphan,
    DropImage,
    Garbage,
    Host,
    Need,
    StopOrphan,
    collect,
)
from remuda.agent.decide.lifecycle import Observed
from remuda.agent.decide.recorded import State
from remuda.agent.images import observed_of, powers_of
from remuda.agent.mailbox import HostMailbox
from remuda.control.backoff import spread
from remuda.model.errors import RemudaError
from remuda.ports.vms import NotThere

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from remuda.agent.decide.disk import DiskSpace, DiskState
    from remuda.agent.decide.recorded import VmRecord
    from remuda.agent.images import Goldens
    from remuda.agent.ledger import Ledger, Threads
    from remuda.agent.metrics import AgentMetrics
    from remuda.agent.settings import AgentSettings
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.vms import Vms

log = structlog.get_logger(__name__)

_WAIT_FOR_KEEPER_S: Final = 10.0
"""How long to wait for whoever works on a VM. Then it is not idle, and is left for the next pass."""
_POKE_S: Final = 5.0
_STEPS_MAX: Final = 3
"""Of one VM in one pass: stop, delete, and see that it is gone."""


class Wanting(Protocol):
    """Whoever wants images to stay."""

    @property
    def synced(self) -> bool:
        """Whether it knows. Before that, what it does not name may be wanted all the same."""
        ...

    def wanted_images(self) -> frozenset[str]: ...


class KnownPods(Wanting, Protocol):
    """The Pods of this host, and those that were."""

    def gone_since(self) -> Mapping[str, datetime]:
        """Return the UIDs of Pods that are proven gone, and since when."""
        ...


class Keeping(Protocol):
    """Whoever works on the VMs of Pods."""

    def exclusively(self, pod_uid: str) -> AbstractAsyncContextManager[None]:
        """Have nobody else work on this Pod's VM while the block lasts. Waits for whoever does."""
        ...

    def forgotten(self, pod_uid: str) -> None:
        """Take note that VM, mailbox and record are gone: whatever else is kept of the Pod may go."""
        ...


class HostDisk(Protocol):
    """The disk of this host."""

    @property
    def state(self) -> DiskState: ...

    def measure(self) -> DiskSpace | None:
        """Measure now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageParts:
    """What garbage collection works with."""

    vms: Vms
    ledger: Ledger
    goldens: Goldens
    pods: KnownPods
    keeping: Keeping
    disk: HostDisk
    more_wanted: Sequence[Wanting] = ()
    """Who wants images beside Pods: what is staged."""
    threads: Threads
    clock: Clock
    ids: Ids
    metrics: AgentMetrics


class GarbageCollector:
    """Collects now and then, and when there is no room. One pass at a time."""

    def __init__(self, parts: GarbageParts, settings: AgentSettings) -> None:
        self._parts, self._settings = parts, settings
        self._policy = settings.garbage
        self._poked = False
        self._passing = asyncio.Lock()

    async def run(self) -> None:
        """Collect every so often until cancelled."""
        while True:
            await self._until_due()
            self._poked = False  # before the pass: a poke during it is for the next
            await self.collect_once()

    async def _until_due(self) -> None:
        """Sleep in short pieces: each is a beat of this loop's heart, and the longest that a poke waits."""
        clock = self._parts.clock
        every_s = spread(self._settings.garbage_s, self._parts.ids.fraction())
        due_at = clock.monotonic() + every_s
        while not self._poked and (left_s := due_at - clock.monotonic()) > 0:
            await clock.sleep(min(left_s, _POKE_S))

    def poke(self) -> None:
        """Have a pass soon: the disk is filling up."""
        self._poked = True

    async def make_room(self, enough: Callable[[], bool]) -> bool:
        """Remove what nobody uses until there is enough. Whether it may: a builder's host is left as it is."""
        if not self._policy.enabled:
            return False
        await self._pass(Need.NO_SPACE, enough)
        return True

    async def collect_once(self) -> None:
        """Have one pass. Nothing but cancellation is raised."""
        if not self._policy.enabled:
            return
        state = self._parts.disk.state
        need = Need.ROOM if state.reclaiming or state.host_low else Need.NONE
        await self._pass(need, self._has_room)

    def _has_room(self) -> bool:
        space = self._parts.disk.measure()
        free = space.free_ratio if space is not None else None
        return free is not None and free >= self._settings.disk.reclaim_until

    # --- one pass -----------------------------------------------------------------------------------------------------

    async def _pass(self, need: Need, enough: Callable[[], bool]) -> None:
        async with self._passing:
            try:
                seen = await self._parts.vms.inventory()
            except RemudaError as error:
                log.warning("no garbage collected: the host cannot be seen", error=str(error))
                return
            self._parts.goldens.saw(seen)
            vms = dict(powers_of(seen))
            plan = self._plan(vms, need)
            for spared in plan.spared:
                log.debug("spared", name=spared.name, why=spared.why)
            await self._remove_vms(plan, vms)
            await self._note_wanted()
            if self._knows_what_is_wanted():
                await self._drop_images(vms, need, enough)

    def _plan(self, vms: Mapping[str, Observed], need: Need) -> Garbage:
        parts = self._parts
        host = Host(
            vms=vms,
            records=parts.ledger.vms(),
            images=parts.ledger.images(),
            gone_since=parts.pods.gone_since(),
            wanted_images=self._wanted(),
            busy_images=parts.goldens.busy_images(),
            unreadable=bool(parts.ledger.damaged),
        )
        return collect(host, self._policy, need, parts.clock.now())

    def _wanting(self) -> tuple[Wanting, ...]:
        return (self._parts.pods, *self._parts.more_wanted)

    def _wanted(self) -> frozenset[str]:
        return frozenset().union(*(wanting.wanted_images() for wanting in self._wanting()))

    def _knows_what_is_wanted(self) -> bool:
        return all(wanting.synced for wanting in self._wanting())

    async def _note_wanted(self) -> None:
        """Begin the time for which an image is kept anew, for all that are used or wanted."""
        records = self._parts.ledger.vms()
        used = {r.image for r in records if r.state not in {State.CLEARED, State.REFUSED}}
        try:
            await self._parts.goldens.note_wanted(used | self._wanted())
        except RemudaError as error:
            log.warning("not noted what images are wanted", error=str(error))

    # --- VMs ----------------------------------------------------------------------------------------------------------

    async def _remove_vms(self, plan: Garbage, vms: dict[str, Observed]) -> None:
        """Remove orphans, side by side: one that hangs holds up none of the others."""
        for foreign in plan.foreign:
            await self._parts.vms.delete(foreign)
        orphans = [r.record for r in plan.removals if not isinstance(r, DropImage)]
        async with asyncio.TaskGroup() as group:
            for record in orphans:
                group.create_task(self._remove_vm(record, vms), name=f"orphan:{record.vm}")

    async def _remove_vm(self, record: VmRecord, vms: dict[str, Observed]) -> None:
        keeping = self._parts.keeping.exclusively(record.pod_uid)
        try:
            async with asyncio.timeout(_WAIT_FOR_KEEPER_S) as waiting, keeping:
                waiting.reschedule(None)
                vms[record.vm] = await self._remove_step_by_step(record.pod_uid)
        except TimeoutError:
            log.info("orphan not removed: somebody works on it", vm=record.vm)
        except RemudaError as error:
            log.warning("orphan not removed", vm=record.vm, error=str(error))

    async def _remove_step_by_step(self, pod_uid: str) -> Observed:
        """Look, decide, do, until it is gone or is to stay. Returns what was seen last."""
        observed = Observed.UNKNOWN
        for _ in range(_STEPS_MAX):
            record = self._parts.ledger.get(pod_uid)
            if record is None:
                break
            observed = observed_of(await self._parts.vms.observe(record.vm))
            if observed is Observed.ABSENT:
                await self._forget(record)
                break
            if not await self._remove_one(record, observed):
                break
        return observed

    async def _remove_one(self, record: VmRecord, observed: Observed) -> bool:
        """Take the one step that may be taken now. Whether there was one."""
        parts = self._parts
        plan = collect(
            Host(vms={record.vm: observed}, records=(record,), gone_since=parts.pods.gone_since()),
            self._policy,
            Need.NONE,
            parts.clock.now(),
        )
        match plan.removals:
            case (StopOrphan(why=why),):
                log.info("orphan stopped", vm=record.vm, pod=record.pod, why=why)
                await parts.vms.stop(record.vm, grace_s=self._settings.stop_grace_s)
            case (DeleteOrphan(why=why),):
                log.info("orphan deleted", vm=record.vm, pod=record.pod, why=why)
                try:
                    await parts.vms.delete(record.vm)
                except NotThere:
                    return True
                parts.metrics.removed.labels("vm").inc()
            case _:
                return False
        return True

    async def _forget(self, record: VmRecord) -> None:
        """Remove what is left of a VM that was seen gone; last its record: while it is there, this is tried again."""
        parts = self._parts
        if record.pod_uid not in parts.pods.gone_since() or record.state is State.REFUSED:
            return
        await parts.threads(HostMailbox(parts.vms.mailbox(record.vm)).remove)
        await parts.ledger.forget(record.pod_uid)
        parts.keeping.forgotten(record.pod_uid)

    # --- images -------------------------------------------------------------------------------------------------------

    async def _drop_images(
        self, vms: dict[str, Observed], need: Need, enough: Callable[[], bool]
    ) -> None:
        """Drop images one by one, as long as they are to go; after each it is measured whether that is enough."""
        tried: set[str] = set()
        while True:
            if need is not Need.NONE and enough():
                need = Need.NONE  # what is old goes all the same
            following = self._next_image(vms, need, tried)
            if following is None:
                return
            record = following.record
            tried.add(record.image)
            try:
                dropped = await self._parts.goldens.drop(record.image)
            except RemudaError as error:
                log.warning("image not dropped", image=record.image, error=str(error))
                continue
            if dropped:
                vms.pop(record.golden, None)
                self._parts.metrics.removed.labels("image").inc()
                log.info("image dropped", image=record.image, why=following.why)

    def _next_image(
        self, vms: Mapping[str, Observed], need: Need, tried: set[str]
    ) -> DropImage | None:
        plan = self._plan(vms, need)
        drops = (r for r in plan.removals if isinstance(r, DropImage))
        return next((drop for drop in drops if drop.record.image not in tried), None)
