"""
The keeper: one task per Pod, each looking, taking one step of the table, and looking again.

A step that hangs or fails holds up its own Pod and no other. Nothing here remembers what must not be forgotten: that is
in the records, so the keeper may be ended at any await and begun again. What it started runs on meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.care import Care, KeeperParts, Sight, Tools, key_of_record
from remuda.agent.decide.lifecycle import Action, Observed, Recorded, Wanted, next_step, recorded_as
from remuda.agent.decide.recorded import OVER
from remuda.agent.decide.shown import shown
from remuda.agent.ending import EndSteps
from remuda.agent.known_pods import KnownPods, vm_container, wanted_of
from remuda.agent.making import Making
from remuda.agent.metrics import STUCK
from remuda.agent.publishing import Publisher
from remuda.agent.racing import first_of
from remuda.agent.slots import SlotBook
from remuda.agent.tending import Tending
from remuda.control.backoff import Backoff, spread
from remuda.control.cache import Key
from remuda.model.errors import RemudaError
from remuda.ports import vms as driver
from remuda.ports.kube import Invalid, KubeError, Refused, Throttled
from remuda.ports.vms import Power, SeenVm, VmsError, vm_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from datetime import datetime

    from remuda.kube.core import Pod, PodStatus

    StepDone = Callable[[Care, Sight], Coroutine[object, object, None]]

__all__ = ["Keeper", "KeeperParts"]

log = structlog.get_logger(__name__)

BACKOFF: Final = Backoff(first_s=0.5, longest_s=60.0)
MEASURE_S: Final = 5.0
_AT_ONCE: Final = 0.0
_LONG: Final = frozenset({Action.CLONE, Action.START, Action.SERVE, Action.WATCH, Action.REAP})
"""Steps that may last: news of their Pod end them, and the next look decides."""
_LAST: Final = frozenset({Action.STOP, Action.DELETE, Action.CLEAR, Action.RELEASE})
_QUIET: Final = frozenset({Action.WAIT, Action.REST, Action.LEAVE, Action.LEAVE_UNREADABLE})


class Keeper:
    """Turns the Pods of this host into VMs, and lets go of both."""

    def __init__(self, parts: KeeperParts) -> None:
        settings = parts.settings
        self._parts = parts
        self.pods = KnownPods(
            parts.kube,
            settings.node,
            clock=parts.clock,
            ids=parts.ids,
            resync_s=settings.resync.total_seconds(),
        )
        self.slots = SlotBook(
            parts.vms,
            parts.ledger,
            settings.offer,
            clock=parts.clock,
            ids=parts.ids,
            metrics=parts.metrics,
        )
        self._publisher = Publisher(parts.kube, self.pods)
        self._tools = Tools(parts, self.pods, self.slots, self._publisher)
        self._steps = _steps(self._tools)
        self._cares: dict[str, Care] = {}
        self._group: asyncio.TaskGroup | None = None
        self._left: dict[str, str] = {}
        self.pods.on_change(self.wake)

    async def run(self) -> None:
        """Keep VMs until cancelled. Then every step ends where it is; VMs go on."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self.pods.run(), name="pods")
                group.create_task(self.slots.run(), name="slots")
                group.create_task(self._measure(), name="ages")
                for uid in self._recorded_uids():
                    self.wake(uid)
                await self.pods.wait_synced()
                for uid in tuple(self._cares):
                    self.wake(uid)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None

    def wake(self, pod_uid: str) -> None:
        """Have a Pod looked at now."""
        care = self._cares.get(pod_uid)
        if care is not None:
            care.news.set()
            care.to_show.set()
        elif self._group is not None:
            care = self._cares[pod_uid] = Care(uid=pod_uid)
            self._group.create_task(self._life(care), name=f"vm of {pod_uid}")

    # --- what others ask ----------------------------------------------------------------------------------------------

    @property
    def actions(self) -> frozenset[Action]:
        """What of the table is carried out: all of it."""
        return frozenset(self._steps) | _QUIET | {Action.LOOK_AGAIN}

    @property
    def unfit(self) -> str:
        """Why no VM can run here, as a sentence; empty: nothing is known against it."""
        return self.slots.unfit

    def troubles(self) -> tuple[str, ...]:
        """Return what a person should look at, as sentences."""
        damaged = (
            f"The record {bad.file} cannot be read: {bad.why}" for bad in self._parts.ledger.damaged
        )
        return (*damaged, *(self._left[uid] for uid in sorted(self._left)))

    def wanted_images(self) -> frozenset[str]:
        """Return the images of Pods that are alive."""
        found = (
            vm_container(pod)
            for pod in self.pods.all()
            if wanted_of(pod) in {Wanted.NEW, Wanted.LIVE}
        )
        return frozenset(container.image for container in found if container is not None)

    @property
    def synced(self) -> bool:
        """Whether all Pods of this host were listed once."""
        return self.pods.synced

    def gone_since(self) -> Mapping[str, datetime]:
        """Return the UIDs of Pods that are proven gone, and since when."""
        return self.pods.gone_since

    @asynccontextmanager
    async def exclusively(self, pod_uid: str) -> AsyncIterator[None]:
        """Have no step taken for this Pod while the block lasts. Waits for one that is being taken."""
        care = self._cares.get(pod_uid)
        if care is None:
            yield  # nobody works on it; what comes now is told by the Pod, and it is gone
            return
        async with care.working:
            yield

    def forgotten(self, pod_uid: str) -> None:
        """Take note that VM, mailbox and record are gone: nothing else is kept of the Pod either."""
        self._parts.jobs.forget(pod_uid)
        self._parts.logs.forget(pod_uid)
        self.slots.release(vm_name(pod_uid))
        self.pods.forget(pod_uid)
        if pod_uid in self._cares:
            self.wake(pod_uid)  # its task looks, finds nothing, and ends

    def _recorded_uids(self) -> tuple[str, ...]:
        ledger = self._parts.ledger
        return (
            *(record.pod_uid for record in ledger.vms()),
            *(bad.pod_uid for bad in ledger.damaged if bad.pod_uid),
        )

    # --- one Pod's task -----------------------------------------------------------------------------------------------

    async def _life(self, care: Care) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                showing = group.create_task(self._showing(care))
                await self._turns(care)
                showing.cancel()
        finally:
            del self._cares[care.uid]
            self._left.pop(care.uid, None)
        if self.pods.get(care.uid) is not None:
            self.wake(care.uid)  # it was heard of while its task ended

    async def _turns(self, care: Care) -> None:
        """Look and step until nothing is left of a Pod. What goes wrong here is this Pod's alone."""
        while True:
            try:
                pause_s = await self._turn(care)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling() > 0:
                    raise
                pause_s = self._failed(care, None)  # it awaited what somebody else had given up
            except RemudaError as error:
                pause_s = self._failed(care, error)
            except Exception:  # the loop's edge: one Pod's bug must not end the others
                log.exception("the care of a Pod failed", uid=care.uid, action=str(care.action))
                self._parts.metrics.bugs.inc()
                pause_s = self._failed(care, None)
            if pause_s is None:
                return
            if pause_s > 0:
                await self._pause(care, pause_s)

    async def _turn(self, care: Care) -> float | None:
        """Take one step. Returns how long to wait for news before the next look; None: nothing is left to do."""
        care.news.clear()
        sight = await self._look(care)
        if sight.recorded is Recorded.NOTHING:
            if sight.pod is None:
                self.pods.forget(care.uid)
                return None
            if vm_container(sight.pod) is None:
                return await self._foreign(care, sight.pod)
        return await self._step(care, sight)

    async def _step(self, care: Care, sight: Sight) -> float | None:
        step = next_step(sight.wanted, sight.recorded, sight.observed)
        self._enter(care, sight, step.action)
        if step.action in _QUIET:
            care.failures = 0
            return self._rest_s(care, sight)
        if step.action is Action.LOOK_AGAIN:
            return self._failed(care, None)
        log.info("step", uid=care.uid, action=step.action.value, why=step.why)
        if step.action is Action.REAP:  # garbage collection may have it meanwhile
            await self._take(care, sight, step.action)
            return self._resync_s()
        async with care.working:
            await self._take(care, sight, step.action)
        if step.action is Action.FORGET:
            return None
        return self._after(care, sight, step.action)

    async def _take(self, care: Care, sight: Sight, action: Action) -> None:
        take = self._steps[action]
        if action not in _LONG:
            await take(care, sight)
            return
        await first_of(lambda: take(care, sight), lambda: self._until_other(care, sight.wanted))

    async def _until_other(self, care: Care, wanted: Wanted) -> None:
        """Return when the Pod wants something else than it did. A server that cannot be asked says nothing."""
        while True:
            care.news.clear()
            now, _ = await self._wanted(care)
            if now not in {wanted, Wanted.UNREAD}:
                return
            unproven = now is Wanted.UNREAD and self.pods.synced
            await self._news(care, BACKOFF.longest_s / 2 if unproven else self._resync_s())

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _look(self, care: Care) -> Sight:
        wanted, pod = await self._wanted(care)
        if pod is not None:
            care.pod = pod
            self._tools.say_unsaid(care)
        care.wanted = wanted
        record = self._parts.ledger.get(care.uid)
        recorded = recorded_as(record.state) if record is not None else Recorded.NOTHING
        if record is None and self._parts.ledger.unreadable(care.uid) is not None:
            recorded = Recorded.UNREADABLE
        observed, seen = Observed.UNKNOWN, None
        if _matters(wanted, recorded):
            observed, seen = await self._observe(care)
        return Sight(
            wanted=wanted, recorded=recorded, observed=observed, pod=pod, record=record, seen=seen
        )

    async def _wanted(self, care: Care) -> tuple[Wanted, Pod | None]:
        key = key_of_record(self._parts.ledger.get(care.uid))
        if key is None and care.pod is not None:
            key = Key(care.pod.namespace, care.pod.name)
        if key is None and self._parts.ledger.unreadable(care.uid) is None and self.pods.synced:
            pod = self.pods.get(care.uid)
            return (wanted_of(pod), pod) if pod is not None else (Wanted.GONE, None)
        return await self.pods.wanted(care.uid, key)

    async def _observe(self, care: Care) -> tuple[Observed, SeenVm | None]:
        seen, care.just_seen = care.just_seen, None
        if seen is None:
            try:
                seen = await self._parts.vms.observe(care.vm)
            except VmsError as error:
                self._note(care, error)
                return Observed.UNKNOWN, None
        if seen is not None and seen.power is Power.RUNNING:
            return Observed.RUNNING, seen
        self.slots.release(care.vm)
        return (Observed.STOPPED if seen is not None else Observed.ABSENT), seen

    # --- between steps ------------------------------------------------------------------------------------------------

    def _enter(self, care: Care, sight: Sight, action: Action) -> None:
        now = self._parts.clock.monotonic()
        if action is not care.action:
            care.told = {told for told in care.told if told[0] == str(action)}
            care.action = action
        if action not in {Action.LEAVE, Action.LEAVE_UNREADABLE}:
            self._left.pop(care.uid, None)
        if sight.wanted is Wanted.DELETING or action in _LAST:
            care.is_in("terminating", now)
        elif action in _QUIET:
            care.is_in("", now)
        if action is Action.LEAVE:
            self._leave(
                care, f"The VM {care.vm} bears a name of ours and was not made by this agent"
            )
        elif action is Action.LEAVE_UNREADABLE:
            bad = self._parts.ledger.unreadable(care.uid)
            file = bad.file if bad is not None else "that would name it"
            self._leave(care, f"The VM {care.vm} may be ours, but the record {file} cannot be read")

    def _leave(self, care: Care, why: str) -> None:
        self._left[care.uid] = why
        self._tools.say(care, "NotOurs", why, warning=True)

    def _after(self, care: Care, sight: Sight, action: Action) -> float:
        """Go on at once; but what went well and changed nothing is not taken again before the world had a moment."""
        version = sight.pod.resource_version if sight.pod is not None else ""
        now = (sight.wanted, sight.record, sight.observed, action, version)
        care.repeats = care.repeats + 1 if now == care.last else 0
        care.last = now
        care.failures = 0
        if care.repeats == 0:
            return _AT_ONCE
        return BACKOFF.wait_s(care.repeats, self._parts.ids.fraction())

    def _failed(self, care: Care, error: RemudaError | None) -> float:
        care.failures += 1
        wait_s = BACKOFF.wait_s(care.failures, self._parts.ids.fraction())
        if isinstance(error, Throttled):
            wait_s = max(wait_s, error.retry_after_s)
        if error is not None:
            say = log.warning if care.failures > 1 else log.info
            say("step failed", uid=care.uid, action=str(care.action), error=str(error))
            self._note(care, error)
        return wait_s

    def _note(self, care: Care, error: RemudaError) -> None:
        """Tell people what a driver said; a server that cannot be reached cannot be told so either."""
        match error:
            case Refused() | Invalid():
                reason = "ApiRefused"
            case KubeError():
                return
            case driver.HostUnfit():
                self.slots.cannot_run(error)
                reason = "HostUnfit"
            case driver.TimedOut():
                reason = "VMStuck"
            case driver.NoSpace():
                reason = "NoSpace"
            case VmsError() if care.action in {Action.CLONE, Action.CLONE_AGAIN, Action.START}:
                reason = "StartFailed"
            case _:
                reason = "StepFailed"
        self._tools.say(care, reason, str(error), warning=True)

    def _rest_s(self, care: Care, sight: Sight) -> float:
        if sight.wanted is Wanted.UNREAD and self.pods.synced:
            return self._failed(care, None)  # it is not listed, and could not be asked for
        return self._resync_s()

    def _resync_s(self) -> float:
        return spread(self._parts.settings.resync.total_seconds(), self._parts.ids.fraction())

    async def _pause(self, care: Care, seconds: float) -> None:
        """Wait for news. After a failure only news that change what is wanted cut the wait short."""
        ends_at = self._parts.clock.monotonic() + seconds
        while (left_s := ends_at - self._parts.clock.monotonic()) > 0:
            if not await self._news(care, left_s):
                return
            if care.failures == 0 and care.repeats == 0:
                return
            pod = self.pods.get(care.uid)
            if pod is None or wanted_of(pod) is not care.wanted:
                return
            care.news.clear()

    async def _news(self, care: Care, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await care.news.wait()
        except TimeoutError:
            return False
        return True

    async def _foreign(self, care: Care, pod: Pod) -> float:
        """Leave a Pod alone that asks for no VM; but nobody else can confirm its deletion here."""
        if pod.metadata.deletion_timestamp is None:
            return self._resync_s()
        await self._publisher.confirm_deletion(pod)
        care.repeats += 1
        return BACKOFF.wait_s(care.repeats, self._parts.ids.fraction())

    # --- telling ------------------------------------------------------------------------------------------------------

    async def _showing(self, care: Care) -> None:
        """Write the Pod's status beside what goes on, until it is there. The verdict is a step of its own."""
        failures = 0
        while True:
            await care.to_show.wait()
            care.to_show.clear()
            try:
                await self._show(care)
                failures = 0
                continue
            except KubeError as error:
                log.info("a status was not written", uid=care.uid, error=str(error))
            except Exception:  # the loop's edge: a bug in a status must not end the care
                log.exception("a status could not be made", uid=care.uid)
                self._parts.metrics.bugs.inc()
            failures += 1
            await self._parts.clock.sleep(BACKOFF.wait_s(failures, self._parts.ids.fraction()))
            care.to_show.set()

    async def _show(self, care: Care) -> None:
        pod, record = self.pods.get(care.uid), self._parts.ledger.get(care.uid)
        if pod is None or record is None or record.state in OVER:
            return
        waits, host_ip = care.waits, self._parts.settings.address

        def change(live: Pod) -> PodStatus:
            known = self._parts.ledger.get(care.uid)
            if known is None or known.state in OVER:
                return live.status
            return shown(live, known, waits, host_ip, self._parts.clock.now())

        await self._publisher.status(pod, change)

    async def _measure(self) -> None:
        while True:
            self.measure()
            await self._parts.clock.sleep(MEASURE_S)

    def measure(self) -> None:
        """Set the gauges of what is stuck now."""
        now, metrics = self._parts.clock.monotonic(), self._parts.metrics
        oldest = dict.fromkeys(STUCK, 0.0)
        for care in self._cares.values():
            if care.stuck:
                oldest[care.stuck] = max(oldest[care.stuck], now - care.stuck_since)
        for step, age_s in oldest.items():
            metrics.stuck.labels(step).set(age_s)
        pending = sum(
            record.state in OVER and self._lacks_verdict(record.pod_uid)
            for record in self._parts.ledger.vms()
        )
        metrics.status_writes_pending.set(pending)

    def _lacks_verdict(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        return pod is not None and pod.status.phase not in {"Succeeded", "Failed"}


def _steps(tools: Tools) -> dict[Action, StepDone]:
    making, tending, ending = Making(tools), Tending(tools), EndSteps(tools)
    return {
        Action.HOLD: making.hold,
        Action.CLONE: making.clone,
        Action.CLONE_AGAIN: making.clone_again,
        Action.START: making.start,
        Action.SERVE: tending.serve,
        Action.CHECK_DELIVERY: tending.check_delivery,
        Action.WATCH: tending.watch,
        Action.SETTLE: ending.settle,
        Action.GIVE_UP: ending.give_up,
        Action.REFUSE: ending.refuse,
        Action.PUBLISH: ending.publish,
        Action.FAIL_UNREADABLE: ending.fail_unreadable,
        Action.STOP: ending.stop,
        Action.DELETE: ending.delete,
        Action.CLEAR: ending.clear,
        Action.RELEASE: ending.release,
        Action.REAP: ending.reap,
        Action.FORGET: ending.forget,
    }


def _matters(wanted: Wanted, recorded: Recorded) -> bool:
    """Say whether the VM must be looked at: where every column of the table says the same, it need not be."""
    return len({next_step(wanted, recorded, observed).action for observed in Observed}) > 1
