"""A VM that runs: its guest becomes ready, gets its one job, and is watched until it is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from remuda.agent.collecting import CANCELLED, OVERFULL, TOO_LATE
from remuda.agent.decide.recorded import State, Verdict
from remuda.agent.decide.verdict import failed, sent_home, settle, without_files
from remuda.agent.known_pods import vm_container
from remuda.agent.mailbox import LOOK_S, HostMailboxError, take_back_once_read
from remuda.agent.parts import Denied, ToldToStop
from remuda.agent.racing import first_of
from remuda.model.mailbox import Holds
from remuda.ports.desk import GoHome, HandedJob
from remuda.ports.vms import Power, TimedOut, VmsError

if TYPE_CHECKING:
    from remuda.agent.care import Care, Sight, Tools
    from remuda.agent.decide.recorded import VmRecord
    from remuda.agent.mailbox import HostMailbox, Signs
    from remuda.agent.parts import RunnerRef
    from remuda.kube.core import Pod

log = structlog.get_logger(__name__)

FOREVER_S: Final = 3600.0
IDLE_TIMEOUT: Final = "REMUDA_IDLE_TIMEOUT_SECONDS"
"""Variable of a runner's container: after how long without work its runner goes."""


class _Timed(msgspec.Struct, frozen=True):
    deadline: object = None


class Tending:
    """The steps while a VM runs."""

    def __init__(self, tools: Tools) -> None:
        self._tools, self._parts = tools, tools.parts

    async def serve(self, care: Care, sight: Sight) -> None:
        """Wait for the guest, ask dispatch for its one job, and hand it over."""
        record = sight.known_record()
        care.run_end = None  # it runs after all
        self._tools.show(care)
        if record.ready_at is None:
            ready = await self._ready(care, record)
            if ready is None:
                return
            record = ready
        care.is_in("", self._parts.clock.monotonic())
        runner = self._tools.runner(care, record)
        warm = record
        answer = await first_of(
            lambda: self._parts.jobs.next(runner), lambda: self._until_over(care, warm)
        )
        match answer:
            case HandedJob():
                await self._deliver(care, record, answer)
            case GoHome(reason):
                # Only the word counts here; the next step stops the guest. So one that dies now asks again.
                await self._tools.over(care, record, sent_home(reason, self._parts.clock.now()))
            case Denied(reason, why):
                verdict = failed(reason, why, self._parts.clock.now())
                await self._tools.over(care, record, verdict)
            case Verdict():
                await self._tools.over(care, record, answer)
            case None:
                return  # it stopped: the next look settles it

    async def check_delivery(self, care: Care, sight: Sight) -> None:
        """Look whether a job is or was in the mailbox, and write down which."""
        record = sight.known_record()
        if not self._parts.vms.mailbox(care.vm).is_dir():
            why = "The mailbox of its VM was removed, so nobody knows whether it was given its job"
            await self._tools.over(
                care, record, failed("MailboxLost", why, self._parts.clock.now())
            )
            return
        signs = self._tools.mailbox(care.uid).look()
        if signs.holds in {Holds.JOB, Holds.SPENT}:
            at = record.delivered_at or self._parts.clock.now()
            record = replace(record, state=State.DELIVERED, delivered_at=at)
            await self._tools.write(care, record)
            await self._parts.jobs.delivered(self._tools.runner(care, record))
            return
        record = replace(
            record,
            state=State.STARTED,
            job_id="",
            job_kind="",
            job_deadline=None,
            job_files=False,
        )
        await self._tools.write(care, record)

    async def watch(self, care: Care, sight: Sight) -> None:
        """Take the job back once it was read, tell dispatch how it goes, and watch for the end."""
        record = sight.known_record()
        care.is_in("", self._parts.clock.monotonic())
        self._tools.show(care)
        runner, mailbox = self._tools.runner(care, record), self._tools.mailbox(care.uid)
        # An agent that ended right after it wrote DELIVERED may not have said so.
        await self._parts.jobs.delivered(runner)
        end = await first_of(
            lambda: self._until_over(care, record),
            lambda: first_of(
                lambda: self._until_told(care, record, runner, mailbox),
                lambda: self._take_back(care),
            ),
        )
        if isinstance(end, ToldToStop):
            end = self._told_to_stop(care, record, end)
        if end is not None:
            await self._tools.over(care, record, await self._tools.collected(care, record, end))

    async def _until_told(
        self, care: Care, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox
    ) -> ToldToStop:
        """Tell dispatch how the job goes until it must stop. That its time is over is no matter once it packs."""
        while True:
            told = await self._parts.jobs.follow(record, runner, mailbox)
            packs = record.job_files and self._tools.signs(care).ended is not None
            if not (told.overdue and packs):
                return told
            await self._parts.clock.sleep(self._parts.settings.look_s)

    def _told_to_stop(self, care: Care, record: VmRecord, told: ToldToStop) -> Verdict | None:
        """End a job that dispatch wants no more of. One that ended before that keeps its exit code."""
        now, signs = self._parts.clock.now(), self._tools.signs(care)
        ended = signs.ended if record.job_files else None
        if ended is None:
            message = "Dispatch wants it to stop"
            return failed("Cancelled", f"{message}: {told.why}" if told.why else message, now)
        if told.overdue:
            return None  # it ended at that moment, and packs: the next look watches on
        said = signs.exit or without_files(ended, CANCELLED)
        return settle(record, said, None, now, deleting=False)

    # --- until ready --------------------------------------------------------------------------------------------------

    async def _ready(self, care: Care, record: VmRecord) -> VmRecord | None:
        """Wait for the guest. None: it is over, or it was given up."""
        clock, settings = self._parts.clock, self._parts.settings
        care.is_in("booting", clock.monotonic())
        ends_at = self._ran_at(care, record) + settings.ready_timeout_s
        look_at = clock.monotonic() + settings.look_s
        while True:
            signs = self._tools.signs(care)
            if signs.ready:
                return await self._warm(care, record)
            verdict = self._told(record, signs.overfull)
            if clock.monotonic() >= ends_at:
                why = f"Its guest was not ready {settings.ready_timeout_s:g} s after its boot"
                verdict = failed("GuestNotReady", why, clock.now())
            if verdict is not None:
                await self._tools.over(care, record, verdict)
                return None
            if signs.exit is not None:
                await self._tools.over(
                    care, record, settle(record, signs.exit, None, clock.now(), deleting=False)
                )
                return None
            if clock.monotonic() >= look_at:
                if await self._stopped(care):
                    return None
                look_at = clock.monotonic() + settings.look_s
            await clock.sleep(LOOK_S)

    def _ran_at(self, care: Care, record: VmRecord) -> float:
        if care.ran_at is None:  # another agent started it: only the wall clock can tell when
            gone = self._parts.clock.now() - (record.started_at or record.accepted_at)
            care.ran_at = self._parts.clock.monotonic() - max(0.0, gone.total_seconds())
        return care.ran_at

    async def _warm(self, care: Care, record: VmRecord) -> VmRecord:
        clock = self._parts.clock
        record = await self._tools.write(care, replace(record, ready_at=clock.now()))
        self._parts.metrics.boot.observe(clock.monotonic() - self._ran_at(care, record))
        self._tools.say(care, "RunnerWarm", "Its guest is ready and waits for a job")
        return record

    # --- one job ------------------------------------------------------------------------------------------------------

    async def _deliver(self, care: Care, record: VmRecord, job: HandedJob) -> None:
        clock = self._parts.clock
        record = replace(
            record,
            state=State.DELIVERING,
            job_id=job.job_id,
            job_kind=job.kind.value,
            job_deadline=_deadline(job.document),
            job_files=job.wants_files,
        )
        if job.upload is not None and not self._tools.signs(care).takes_files:
            await self._cannot_take(care, record)
            return
        await self._tools.write(care, record)
        if job.files is not None:
            source = job.files
            await self._parts.threads(lambda: self._tools.mailbox(care.uid).put_files(source))
        # What cannot be put in leaves DELIVERING behind: the next look finds out whether a job is in there.
        self._tools.mailbox(care.uid).put_job(_for_guest(job.document, care.pod))
        record = replace(record, state=State.DELIVERED, delivered_at=clock.now())
        await self._tools.write(care, record)
        self._tools.say(care, "JobDelivered", f"The job {job.job_id} was handed to its guest")
        await self._parts.jobs.delivered(self._tools.runner(care, record))

    async def _cannot_take(self, care: Care, record: VmRecord) -> None:
        """End a runner whose guest would run its job without the files that it needs."""
        why = "Its job needs files, and the guest of its image is too old to unpack any: build it anew"
        verdict = failed("GuestTooOld", why, self._parts.clock.now())
        await self._tools.over(care, record, verdict)
        await self._parts.jobs.delivered(self._tools.runner(care, record))

    async def _take_back(self, care: Care) -> ToldToStop:
        """Remove the job once the guest has it. Never ends by itself: the watch goes on."""
        taken = False
        while True:
            try:
                if not taken:
                    await take_back_once_read(self._tools.mailbox(care.uid), self._parts.clock)
                    taken = True
            except HostMailboxError as error:
                self._tools.say(care, "MailboxBroken", str(error), warning=True)
            await self._parts.clock.sleep(FOREVER_S if taken else self._parts.settings.look_s)

    # --- watching -----------------------------------------------------------------------------------------------------

    async def _until_over(self, care: Care, record: VmRecord) -> Verdict | None:
        """Return how it ended, by the mailbox; None: the VM does not run any more, so look again."""
        clock, settings = self._parts.clock, self._parts.settings
        look_at, ended_at = clock.monotonic() + settings.look_s, clock.monotonic()
        while True:
            signs = self._tools.signs(care)
            if signs.exit is not None:
                return settle(record, signs.exit, None, clock.now(), deleting=False)
            if record.job_files and signs.ended is not None:
                verdict = self._packs(record, signs, clock.monotonic() - ended_at)
            else:
                ended_at = clock.monotonic()
                verdict = self._told(record, signs.overfull)
            if verdict is not None:
                return verdict
            if clock.monotonic() >= look_at:
                if await self._stopped(care):
                    return None
                look_at = clock.monotonic() + settings.look_s
            await clock.sleep(LOOK_S)

    def _packs(self, record: VmRecord, signs: Signs, packs_s: float) -> Verdict | None:
        """Say how a job ended whose files do not come; None: they may. Its deadline is no matter any more."""
        if not signs.overfull and packs_s < self._parts.settings.packed_within_s:
            return None
        said = without_files(signs.ended, OVERFULL if signs.overfull else TOO_LATE)
        return settle(record, said, None, self._parts.clock.now(), deleting=False)

    def _told(self, record: VmRecord, overfull: str) -> Verdict | None:
        now = self._parts.clock.now()
        if overfull:
            return failed("MailboxOverfull", f"Its guest filled its mailbox: {overfull}", now)
        if record.job_deadline is not None and now >= record.job_deadline:
            return failed("DeadlineExceeded", "Its job took longer than it may", now)
        return None

    async def _stopped(self, care: Care) -> bool:
        try:
            seen = await self._parts.vms.observe(care.vm)
        except VmsError as error:
            # A job is not ended because nobody can see it. Its mailbox speaks, too.
            log.info("a VM cannot be seen", vm=care.vm, error=str(error))
            if isinstance(error, TimedOut):
                self._tools.say(care, "VMStuck", str(error), warning=True)
            return False
        return seen is None or seen.power is not Power.RUNNING


def _for_guest(document: bytes, pod: Pod | None) -> bytes:
    """Add to a job what the Pod says to its runner: a guest does not see the environment of its Pod."""
    container = vm_container(pod) if pod is not None else None
    given = {one.name: one.value for one in container.env} if container is not None else {}
    idle_s = given.get(IDLE_TIMEOUT, "")
    if not idle_s.isascii() or not idle_s.isdecimal():
        return document
    try:
        fields = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return document
    return msgspec.json.encode({**fields, "idle_timeout_seconds": int(idle_s)})


def _deadline(document: bytes) -> datetime | None:
    """Return when dispatch says that the job must be over. What cannot be read sets no deadline."""
    try:
        said = msgspec.json.decode(document, type=_Timed).deadline
        at = msgspec.convert(said, datetime) if said is not None else None
    except msgspec.MsgspecError:
        return None
    return at if at is not None and at.tzinfo is not None else None
