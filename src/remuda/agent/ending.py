"""The end of a Pod's VM: verdict, stop, delete, clear, release. Each may be repeated; "not there" is success."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.collecting import VM_ENDED
from remuda.agent.decide.lifecycle import Wanted
from remuda.agent.decide.recorded import State, VmRecord
from remuda.agent.decide.shown import Waits, ended, shown
from remuda.agent.decide.verdict import failed, settle, without_files
from remuda.agent.known_pods import TERMINAL, vm_container
from remuda.agent.mailbox import HostMailboxError, Signs, take_back_once_read
from remuda.model.errors import RemudaError
from remuda.model.mailbox import Holds
from remuda.ports.vms import NotThere, Power, RunEnd, SeenVm

if TYPE_CHECKING:
    from remuda.agent.care import Care, Sight, Tools

log = structlog.get_logger(__name__)

FINISH_S: Final = 15.0
"""How long one try may take to tell dispatch how a job ended."""
HEARD_WITHIN: Final = timedelta(seconds=60)
"""For how long, from the first try on, a mailbox is kept for dispatch to hear of an end. No longer: it is disk."""
PUBLISHED_WITHIN: Final = timedelta(seconds=60)
"""
For how long, before that, a Pod's end is not written, for dispatch to hear of it from us. Once it is written the Pod is
deleted, and a minute later nobody believes its token any more: the last of the output would be lost.
"""


class NotHeard(RemudaError):
    """Dispatch has not heard yet how a job ended."""


class EndSteps:
    """The steps from the end of a VM to the end of its Pod."""

    def __init__(self, tools: Tools) -> None:
        self._tools, self._parts = tools, tools.parts

    async def settle(self, care: Care, sight: Sight) -> None:
        record = sight.known_record()
        now = self._parts.clock.now()
        signs = Signs()
        if record.state not in {State.CLONING, State.CLONED}:
            signs = self._tools.signs(care)
        if record.state is State.DELIVERING and signs.holds in {Holds.JOB, Holds.SPENT}:
            record = replace(record, delivered_at=now)  # an agent died before it could write that
        end = sight.seen.end if sight.seen is not None else None
        if care.run_end is not None and (end is None or not end.why):
            end = RunEnd(how=care.run_end.how, at=end.at if end else None, why=care.run_end.why)
        deleting = sight.wanted is Wanted.DELETING
        said = signs.exit or without_files(signs.ended, VM_ENDED)
        verdict = settle(record, said, end, now, deleting=deleting)
        await self._tools.over(care, record, await self._tools.collected(care, record, verdict))

    async def give_up(self, care: Care, sight: Sight) -> None:
        why = "Its VM runs and this agent did not start it: its disk is spent"
        verdict = failed("DiskSpent", why, self._parts.clock.now())
        await self._tools.over(care, sight.known_record(), verdict)

    async def refuse(self, care: Care, sight: Sight) -> None:
        pod, now = sight.known_pod(), self._parts.clock.now()
        container = vm_container(pod)
        record = VmRecord(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            pod=pod.name,
            image=container.image if container else "",
            state=State.REFUSED,
            accepted_at=now,
            verdict=failed("NotOurs", _not_ours(care.vm), now),
        )
        assert record.verdict is not None, "it was just made"
        await self._tools.over(care, record, record.verdict, State.REFUSED)

    async def publish(self, care: Care, sight: Sight) -> None:
        """Write the verdict into the Pod. What fails is tried again by the next look."""
        record = sight.known_record()
        care.is_in("unpublished", self._parts.clock.monotonic())
        # First: then dispatch knows of an end from us before it can guess one from the Pod.
        heard = await self._finish(care, record)
        waited_s = self._parts.clock.monotonic() - care.stuck_since
        if not heard and waited_s < PUBLISHED_WITHIN.total_seconds():
            raise NotHeard(
                f"The end of {record.pod} is not written into its Pod yet",
                why="dispatch has not heard how its job ended, and takes nobody's word for a Pod that is gone",
                fix="It is tried again, and written after a minute",
            )
        await self._write_verdict(sight, record)

    async def fail_unreadable(self, care: Care, sight: Sight) -> None:
        bad = self._parts.ledger.unreadable(care.uid)
        file, why = (bad.file, bad.why) if bad is not None else ("its record", "nobody knows why")
        message = (
            f"The agent's record {file} cannot be read ({why}), so nobody knows whether its disk"
            " has booted: it never will"
        )
        now = self._parts.clock.now()
        verdict = failed("RecordUnreadable", message, now)
        self._tools.say(care, verdict.reason, verdict.message, warning=True)
        host_ip = self._parts.settings.address
        await self._tools.publisher.status(
            sight.known_pod(), lambda live: ended(live, verdict, None, host_ip, now)
        )

    async def stop(self, care: Care, _sight: Sight) -> None:
        """Tell the guest, give it its grace, end it."""
        try:
            self._tools.mailbox(care.uid).put_stop()
        except HostMailboxError as error:
            log.debug("a guest could not be told to stop", vm=care.vm, error=str(error))
        try:
            await self._parts.vms.stop(care.vm, grace_s=self._parts.settings.stop_grace_s)
        except NotThere:
            log.debug("a VM to be stopped was gone", vm=care.vm)

    async def delete(self, care: Care, sight: Sight) -> None:
        """Keep what people may ask for, delete the VM, remove its mailbox."""
        await self._save(care, sight.record)
        try:
            await self._parts.vms.delete(care.vm)
        except NotThere:
            log.debug("a VM to be deleted was gone", vm=care.vm)
        await self._parts.threads(self._tools.mailbox(care.uid).remove)

    async def clear(self, care: Care, sight: Sight) -> None:
        record = sight.known_record()
        await self._save(care, record)
        await self._parts.threads(self._tools.mailbox(care.uid).remove)
        await self._parts.ledger.write(replace(record, state=State.CLEARED))

    async def release(self, care: Care, sight: Sight) -> None:
        pod, record = sight.known_pod(), sight.record
        if record is not None and pod.status.phase not in TERMINAL:
            await self._write_verdict(sight, record)
        await self._tools.publisher.release(pod)
        care.is_in("", self._parts.clock.monotonic())

    async def reap(self, care: Care, sight: Sight) -> None:
        """Leave it to garbage collection; only a job that its guest has read is not left lying about."""
        record = sight.known_record()
        if record.state is not State.DELIVERED or not _runs(sight.seen):
            return
        try:
            async with asyncio.timeout(self._parts.settings.resync.total_seconds()):
                await take_back_once_read(self._tools.mailbox(care.uid), self._parts.clock)
        except (HostMailboxError, TimeoutError) as error:
            log.info("a job was not taken back", vm=care.vm, error=str(error))

    async def forget(self, care: Care, sight: Sight) -> None:
        """Neither a Pod nor a VM is left: nor is anything else."""
        record = sight.known_record()
        if record.state is not State.REFUSED:
            await self._parts.threads(self._tools.mailbox(care.uid).remove)
        self._parts.jobs.forget(care.uid)
        self._parts.logs.forget(care.uid)
        await self._parts.ledger.forget(care.uid)
        self._tools.slots.release(care.vm)
        self._tools.pods.forget(care.uid)

    # --- what several of them need ---

    async def _write_verdict(self, sight: Sight, record: VmRecord) -> None:
        now, host_ip = self._parts.clock.now(), self._parts.settings.address
        await self._tools.publisher.status(
            sight.known_pod(), lambda live: shown(live, record, Waits(), host_ip, now)
        )

    async def _save(self, care: Care, record: VmRecord | None) -> None:
        """Have the log kept and dispatch told, before the mailbox goes."""
        if record is None or record.verdict is None:
            return
        self._parts.logs.keep(care.uid, self._tools.mailbox(care.uid), record.verdict)
        if await self._finish(care, record):
            return
        # Not since its end: it may have ended while there was no agent, which is no fault of dispatch.
        now = self._parts.clock.monotonic()
        care.untold_since = now if care.untold_since is None else care.untold_since
        if now - care.untold_since < HEARD_WITHIN.total_seconds():
            raise NotHeard(
                f"The mailbox of {care.vm} is kept for a while",
                why="dispatch has not heard how its job ended",
                fix="It is tried again, and given up after a minute",
            )
        log.warning("dispatch was not told how a job ended", vm=care.vm, job=record.job_id)
        care.heard = True

    async def _finish(self, care: Care, record: VmRecord) -> bool:
        if care.heard or not record.job_id:
            return True
        runner, mailbox = self._tools.runner(care, record), self._tools.mailbox(care.uid)
        try:
            async with asyncio.timeout(FINISH_S):
                care.heard = await self._parts.jobs.finish(record, runner, mailbox)
        except TimeoutError:
            log.info("dispatch does not answer", vm=care.vm, job=record.job_id)
        return care.heard


def _not_ours(vm: str) -> str:
    return f"A VM of the name {vm} is on this host, and this agent did not make it"


def _runs(seen: SeenVm | None) -> bool:
    return seen is not None and seen.power is Power.RUNNING
