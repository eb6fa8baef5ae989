"""What the steps of the keeper share: the parts of the agent, what was seen of one Pod, what is known of its care."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from remuda.agent.collecting import CUT_SHORT, TOO_OLD, UNFINISHED
from remuda.agent.decide.recorded import State
from remuda.agent.decide.shown import Waits
from remuda.agent.decide.verdict import is_reported
from remuda.agent.ledger import Threads, on_the_spot
from remuda.agent.mailbox import HostMailbox, HostMailboxError, Signs
from remuda.agent.parts import RunnerRef
from remuda.control.cache import Key
from remuda.kube.core import POD
from remuda.ports.vms import vm_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.agent.decide.lifecycle import Action, Observed, Recorded, Wanted
    from remuda.agent.decide.recorded import Verdict, VmRecord
    from remuda.agent.known_pods import KnownPods
    from remuda.agent.ledger import Ledger
    from remuda.agent.metrics import AgentMetrics
    from remuda.agent.parts import Jobs, LogStore, Shelf
    from remuda.agent.publishing import Publisher
    from remuda.agent.settings import AgentSettings
    from remuda.agent.slots import SlotBook
    from remuda.control.events import EventRecorder
    from remuda.kube.core import Pod
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube
    from remuda.ports.vms import RunEnd, SeenVm, Vms

GUESTS_OWN: Final = frozenset({"Completed", "Error"})
"""Reasons of verdicts that are a job's own end: nobody needs to be warned of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperParts:
    """What the keeper is given."""

    vms: Vms
    kube: Kube
    ledger: Ledger
    shelf: Shelf
    jobs: Jobs
    logs: LogStore
    events: EventRecorder
    clock: Clock
    ids: Ids
    metrics: AgentMetrics
    settings: AgentSettings
    mailbox: Callable[[Path], HostMailbox] = HostMailbox
    threads: Threads = on_the_spot
    """Removes mailboxes: a hostile guest may have filled one with more files than the loop has time for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one look showed."""

    wanted: Wanted
    recorded: Recorded
    observed: Observed
    pod: Pod | None
    record: VmRecord | None
    seen: SeenVm | None

    def known_record(self) -> VmRecord:
        assert self.record is not None, "the table asks for this step only where there is a record"
        return self.record

    def known_pod(self) -> Pod:
        assert self.pod is not None, "the table asks for this step only where there is a Pod"
        return self.pod


@dataclass(frozen=True, slots=True)
class Saying:
    """What people are told about a Pod."""

    reason: str
    message: str
    warning: bool


@dataclass(slots=True, kw_only=True)
class Care:
    """What is known about one Pod's VM beside its record. All of it may be lost at any time."""

    uid: str
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the Pod may have changed."""
    to_show: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the Pod's status may have to be written."""
    working: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during every step that may touch the VM."""
    pod: Pod | None = None
    wanted: Wanted | None = None
    action: Action | None = None
    failures: int = 0
    repeats: int = 0
    last: tuple[object, ...] = ()
    waits: Waits = field(default_factory=Waits)
    told: set[tuple[str, str]] = field(default_factory=set)
    unsaid: list[Saying] = field(default_factory=list)
    """What happened before its Pod was read: said as soon as it is."""
    just_seen: SeenVm | None = None
    """What a call that went well has shown of the VM, for the next look alone."""
    run_end: RunEnd | None = None
    """What a start that failed said."""
    ran_at: float | None = None
    began_at: float | None = None
    warm: bool = False
    """Whether its image was there when it came."""
    stuck: str = ""
    stuck_since: float = 0.0
    heard: bool = False
    """Whether dispatch has heard how its job ended."""
    untold_since: float | None = None
    """Since when its mailbox has waited for that."""

    @property
    def vm(self) -> str:
        return vm_name(self.uid)

    def is_in(self, step: str, now: float) -> None:
        """Note what it is in, for the ages of what is stuck; empty: nothing is waited for."""
        if step != self.stuck:
            self.stuck, self.stuck_since = step, now


class Tools:
    """The parts, and what every step does with them."""

    def __init__(
        self, parts: KeeperParts, pods: KnownPods, slots: SlotBook, publisher: Publisher
    ) -> None:
        self.parts, self.pods, self.slots, self.publisher = parts, pods, slots, publisher

    def mailbox(self, uid: str) -> HostMailbox:
        return self.parts.mailbox(self.parts.vms.mailbox(vm_name(uid)))

    def signs(self, care: Care) -> Signs:
        """Look into the mailbox. One that cannot be looked at shows nothing."""
        try:
            return self.mailbox(care.uid).look()
        except HostMailboxError as error:
            self.say(care, "MailboxBroken", str(error), warning=True)
            return Signs()

    def runner(self, care: Care, record: VmRecord) -> RunnerRef:
        # A runner's ServiceAccount bears its Pod's name; the Pod itself may not be readable now.
        account = care.pod.spec.service_account_name if care.pod is not None else ""
        return RunnerRef(
            namespace=record.namespace,
            pod=record.pod,
            pod_uid=record.pod_uid,
            service_account=account or record.pod,
        )

    def say(self, care: Care, reason: str, message: str, *, warning: bool = False) -> None:
        """Tell people about a Pod, once per step: what is tried again is not said again."""
        told = (str(care.action), reason)
        if told in care.told:
            return
        care.told.add(told)
        care.unsaid.append(Saying(reason, message, warning))
        self.say_unsaid(care)

    def say_unsaid(self, care: Care) -> None:
        """Tell people what happened while the Pod could not be read."""
        if care.pod is None:
            return
        for it in care.unsaid:
            self.parts.events.record(POD, care.pod, it.reason, it.message, warning=it.warning)
        care.unsaid.clear()

    def show(self, care: Care, waits: Waits | None = None) -> None:
        """Have the Pod's status written beside what goes on."""
        if waits is not None:
            care.waits = waits
        care.to_show.set()

    async def write(self, care: Care, record: VmRecord) -> VmRecord:
        await self.parts.ledger.write(record)
        self.show(care)
        return record

    async def collected(self, care: Care, record: VmRecord, verdict: Verdict) -> Verdict:
        """Have the files sent on that its job left, while the VM's place is still its own."""
        if not record.job_files:
            return verdict
        note, came = CUT_SHORT, False
        if is_reported(verdict):
            runner, mailbox = self.runner(care, record), self.mailbox(care.uid)
            sent = await self.parts.jobs.collect(record, runner, mailbox)
            if sent and not self.signs(care).takes_files:
                sent = TOO_OLD
            came = not sent
            note = verdict.files_note or sent
            if came and note in UNFINISHED:
                note = f"some may be missing: {note}"
        if note:
            how = "Of the files that were to come back" if came else "No files came back"
            self.say(care, "FilesNotCollected", f"{how}: {note}", warning=True)
        return replace(verdict, files_note=note)

    async def over(
        self, care: Care, record: VmRecord, verdict: Verdict, state: State = State.EXITED
    ) -> None:
        """Write down how it ended, once and for all. Its log is kept first: then it is there when the end is."""
        self.parts.logs.keep(care.uid, self.mailbox(care.uid), verdict)
        await self.parts.ledger.write(replace(record, state=state, verdict=verdict))
        self.parts.metrics.ends.labels("succeeded" if verdict.succeeded else "failed").inc()
        if verdict.reason not in GUESTS_OWN:
            self.say(care, verdict.reason, verdict.message or verdict.reason, warning=True)


def key_of_record(record: VmRecord | None) -> Key | None:
    return Key(record.namespace, record.pod) if record is not None else None
