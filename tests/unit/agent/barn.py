"""
The keeper at work on virtual time: VMs in memory, an API server in the same process, guests that act by themselves.

What is a host's or a cluster's outlives the keeper; every call that it makes is a point at which it may be killed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.agent.decide.capacity import HostOffer
from remuda.agent.decide.recorded import ImageRecord, ImageState
from remuda.agent.keeper import Keeper, KeeperParts
from remuda.agent.ledger import Ledger
from remuda.agent.metrics import AgentMetrics
from remuda.agent.parts import ToldToStop
from remuda.agent.record import RecordFolder
from remuda.agent.settings import AgentSettings
from remuda.agent.tending import IDLE_TIMEOUT
from remuda.control.events import EventRecorder, EventSettings
from remuda.kube.core import EVENT, NAMESPACE, POD, SERVICE_ACCOUNT, Namespace, ServiceAccount
from remuda.kube.decoding import Decoding
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import VM
from remuda.model.mailbox import ENDED, EXIT, FILES_IN, FILES_OUT, JOB, READY, STARTED, STOP
from remuda.ports.desk import HandedJob, JobKind
from remuda.ports.kube import Manifest, NotFound, Query
from remuda.ports.vms import GOLDEN_PREFIX, NameTaken, golden_name, vm_name
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane
from tests.support.memory_vms import Disk
from tests.unit.agent.mortal import CountingVms, Life, MortalMailbox, MortalVms, MortalWire
from tests.unit.pools.ranch import Tap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from remuda.agent.decide.recorded import Verdict, VmRecord
    from remuda.agent.mailbox import HostMailbox
    from remuda.agent.parts import Denied, RunnerRef
    from remuda.kube.core import Pod
    from remuda.ports.desk import GoHome

T = TypeVar("T")

SPACE = "ci"
NODE = "mini-1"
DECODING = Decoding()
"""Shared by all: to make it takes longer than most plays."""
IMAGE = "registry.test/mac@sha256:" + "a" * 64


# --- what outlives the agent ------------------------------------------------------------------------------------------


@dataclass
class Guest:
    """What one guest does, and did."""

    booted_at: float
    job_at: float | None = None
    done_at: float | None = None
    jobs: list[bytes] = field(default_factory=list)
    files: bytes = b""
    """What was there with its job."""


@dataclass
class Guests:
    """All guests of the host. They act by themselves, whether or not an agent is there."""

    vms: CountingVms
    disk: Disk
    boot_s: float = 5.0
    job_s: float = 20.0
    code: int = 0
    silent: bool = False
    """Whether they never say that they are ready."""
    knows: str = ""
    """What they say that they know when they are ready."""
    leaves: bytes = b""
    """The archive that their jobs leave."""
    packs_s: float | None = None
    """How long they pack that; None: as guests of older images do, which say nothing before they have."""
    dies_packing: bool = False
    leaves_early: bool = False
    """Their archive is there before they die."""
    seen: dict[str, Guest] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            for name, vm in tuple(self.disk.vms.items()):
                if vm.running and not name.startswith(GOLDEN_PREFIX):
                    self._act(name, self.vms.clock.monotonic())
            await self.vms.clock.sleep(0.1)

    def _act(self, name: str, now: float) -> None:
        box = self.vms.mailbox(name)
        guest = self.seen.setdefault(name, Guest(booted_at=now))
        if not box.is_dir():
            return
        if (box / STOP).exists():
            self.vms.halt(name)
        elif guest.job_at is not None:
            self._work(name, guest, now)
        elif (box / JOB).exists():
            guest.jobs.append((box / JOB).read_bytes())
            guest.files = (box / FILES_IN).read_bytes() if (box / FILES_IN).exists() else b""
            (box / STARTED).touch()
            guest.job_at = now
        elif now >= guest.booted_at + self.boot_s and not self.silent:
            (box / READY).write_text(self.knows)

    def _work(self, name: str, guest: Guest, now: float) -> None:
        if guest.done_at is not None and now >= guest.done_at + 0.3:
            self.vms.halt(name)
        elif (
            guest.done_at is None and guest.job_at is not None and now >= guest.job_at + self.job_s
        ):
            box, said = self.vms.mailbox(name), {"code": self.code, "reason": "done"}
            if self.packs_s is not None:
                (box / ENDED).write_text(json.dumps(said))
                if self.leaves_early:
                    (box / FILES_OUT).write_bytes(self.leaves)
                if self.dies_packing:
                    self.vms.halt(name)
            if now < guest.job_at + self.job_s + (self.packs_s or 0.0):
                return
            if self.leaves:
                (box / FILES_OUT).write_bytes(self.leaves)
            (box / EXIT).write_text(json.dumps(said))
            guest.done_at = now


class Dispatch:
    """A dispatch with a queue of local jobs, and what each host keeps of what it was handed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[HandedJob | GoHome | Denied] = asyncio.Queue()
        self.held: dict[str, HandedJob] = {}
        self.begun: Counter[str] = Counter()
        self.ended: dict[str, Verdict] = {}
        self.stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.overdue = False
        self.deaf = False

    def add(self, job_id: str = "job-1", **more: Any) -> None:  # noqa: ANN401 - JSON
        document = json.dumps({"job_id": job_id, "script": "true", **more}).encode()
        self.queue.put_nowait(
            HandedJob(job_id=job_id, kind=JobKind.LOCAL, runner_name="r", document=document)
        )


class Host:
    """What the barn's agents meet, one after the other."""

    def __init__(self, folder: Path, clock: SimClock) -> None:
        self.folder, self.clock = folder, clock
        self.disk = Disk(registry={IMAGE: 10}, free_bytes=10_000)
        self.vms = CountingVms(self.disk, folder / "vms", clock)
        self.guests = Guests(self.vms, self.disk)
        self.dispatch = Dispatch()
        self.kept: dict[str, Verdict] = {}


# --- what the agent holds ---------------------------------------------------------------------------------------------


class PlainShelf:
    """Goldens, made on demand: one at a time per image."""

    def __init__(self, vms: MortalVms, ledger: Ledger, clock: SimClock) -> None:
        self._vms, self._ledger, self._clock = vms, ledger, clock
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def using(self, image: str, say: Callable[[str], None]) -> AsyncIterator[str]:
        golden = golden_name(image)
        async with self._locks.setdefault(image, asyncio.Lock()):
            held = self._ledger.image(image)
            if held is None or held.state is not ImageState.READY:
                say(f"Pulling {image}")
                await self._vms.pull(image, lambda _: None)
                with suppress(NameTaken):
                    await self._vms.make_golden(image, golden)
                ready = ImageRecord(
                    image=image, state=ImageState.READY, wanted_at=self._clock.now()
                )
                await self._ledger.write_image(ready)
        yield golden


class PlainJobs:
    """Dispatch, as one life of an agent asks it; what it keeps is on the host's disk."""

    def __init__(self, dispatch: Dispatch, life: Life) -> None:
        self._dispatch, self._life = dispatch, life

    async def next(self, runner: RunnerRef) -> HandedJob | GoHome | Denied:
        dispatch = self._dispatch
        if runner.pod_uid in dispatch.held:
            return dispatch.held[runner.pod_uid]
        self._life.point("before poll")
        answer = await dispatch.queue.get()
        if isinstance(answer, HandedJob):
            dispatch.held[runner.pod_uid] = answer
            dispatch.begun[answer.job_id] += 1
        self._life.point("after poll")
        return answer

    async def delivered(self, runner: RunnerRef) -> None:
        self._life.point("before delivered")
        self._dispatch.held.pop(runner.pod_uid, None)
        self._life.point("after delivered")

    async def follow(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> ToldToStop:
        del record, runner, mailbox
        why = await asyncio.shield(self._dispatch.stop)
        return ToldToStop(why, overdue=self._dispatch.overdue)

    async def collect(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> str:
        del record, runner
        self._life.point("before collect")
        return "" if mailbox.files_measured() is not None else "there are none"

    async def finish(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> bool:
        del runner, mailbox
        if self._dispatch.deaf:
            await asyncio.sleep(3600.0)
        assert record.verdict is not None
        self._life.point("before finish")
        self._dispatch.ended[record.job_id] = record.verdict
        self._life.point("after finish")
        return True

    def forget(self, pod_uid: str) -> None:
        self._dispatch.held.pop(pod_uid, None)


class PlainLogs:
    """Keeps that something was kept."""

    def __init__(self, kept: dict[str, Verdict]) -> None:
        self._kept = kept

    def keep(self, pod_uid: str, mailbox: HostMailbox, verdict: Verdict) -> None:
        del mailbox
        self._kept[pod_uid] = verdict

    def forget(self, pod_uid: str) -> None:
        self._kept.pop(pod_uid, None)


# --- the barn ---------------------------------------------------------------------------------------------------------


def _at_once(_: int) -> None:
    """Take every disk at its word."""


@dataclass
class Barn:
    """Everything a test needs."""

    clock: SimClock
    plane: ControlPlane
    kube: KubeClient
    host: Host
    tap: Tap
    group: asyncio.TaskGroup
    settings: AgentSettings
    metrics: AgentMetrics
    life: Life = field(default_factory=Life)
    keeper: Keeper | None = None
    agent: asyncio.Task[None] | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    lives: int = 0
    sync: Callable[[int], None] = _at_once
    """What it takes to make a file or a folder durable."""
    aside: list[str] = field(default_factory=list)
    """What agents had done on another thread, by its name."""

    # --- people -------------------------------------------------------------------------------------------------------

    async def add_pod(
        self, name: str = "mac-1", *, image: str = IMAGE, vm: bool = True, idle_s: int = 0
    ) -> str:
        """Bind a Pod to the host. Returns its UID."""
        with suppress(Exception):
            account = ServiceAccount(metadata=ObjectMeta(name=name, namespace=SPACE))
            await self.kube.create(SERVICE_ACCOUNT, account)
        asked = {"cpu": "2", "memory": "2Gi", **({VM: "1"} if vm else {})}
        container = {
            "name": "runner",
            "image": image,
            "resources": {"requests": asked, "limits": asked},
            "env": [{"name": IDLE_TIMEOUT, "value": str(idle_s)}] if idle_s else [],
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {
                "nodeName": NODE,
                "restartPolicy": "Never",
                "serviceAccountName": name,
                "automountServiceAccountToken": False,
                "containers": [container],
            },
        }
        made = await self.kube.create(POD, Manifest(json.dumps(body).encode(), namespace=SPACE))
        return made.uid

    async def delete_pod(self, name: str = "mac-1") -> None:
        with suppress(NotFound):
            await self.kube.delete(POD, name, namespace=SPACE)

    async def pod(self, name: str = "mac-1") -> Pod | None:
        with suppress(NotFound):
            return await self.kube.get(POD, name, namespace=SPACE)
        return None

    async def phase(self, name: str = "mac-1") -> str:
        pod = await self.pod(name)
        return pod.status.phase if pod is not None else ""

    async def condition(self, kind: str, name: str = "mac-1") -> str:
        pod = await self.pod(name)
        found = pod.status.conditions if pod is not None else ()
        return next((c.status for c in found if c.type == kind), "")

    async def reasons(self) -> list[str]:
        return [event.reason for event in (await self.kube.list(EVENT, Query())).items]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"remuda_agent_{name}", labels)

    # --- agents -------------------------------------------------------------------------------------------------------

    def start(self, life: Life | None = None) -> None:
        """Start an agent; the one before must have ended."""
        assert self.agent is None or self.agent.done(), "one agent at a time"
        self.life = life or Life()
        self.lives += 1
        self.agent = self.group.create_task(self._live(self.life), name=f"agent {self.lives}")
        self.life.cancel = self.agent.cancel
        self.tasks.append(self.agent)

    async def stop(self) -> None:
        """End the agent as SIGTERM does."""
        assert self.agent is not None
        self.agent.cancel()
        await asyncio.wait({self.agent})

    async def _live(self, life: Life) -> None:
        folder = RecordFolder(self.host.folder / "records", sync=self.sync)

        async def on_the_spot(blocking: Callable[[], T], /) -> T:
            life.point("before record")
            answer = blocking()
            life.point("after record")
            return answer

        async def aside(blocking: Callable[[], T], /) -> T:
            self.aside.append(blocking.__qualname__)
            return blocking()

        ids = SeededIds(1, f"agent {self.lives}")
        ledger = Ledger(folder, on_the_spot)
        vms = MortalVms(self.host.vms, life)
        recorder = EventRecorder(
            self.kube, EventSettings(component="remuda-agent"), clock=self.clock, ids=ids
        )
        self.keeper = Keeper(
            KeeperParts(
                vms=vms,
                kube=KubeClient(MortalWire(self.tap, life), decoding=DECODING),
                ledger=ledger,
                shelf=PlainShelf(vms, ledger, self.clock),
                jobs=PlainJobs(self.host.dispatch, life),
                logs=PlainLogs(self.host.kept),
                events=recorder,
                clock=self.clock,
                ids=ids,
                metrics=self.metrics,
                settings=self.settings,
                mailbox=lambda folder: MortalMailbox(folder, life, self.sync),
                threads=aside,
            )
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(recorder.run())
                group.create_task(self.keeper.run())
        except BaseExceptionGroup:
            if not life.is_over:
                raise
        finally:
            folder.close()

    # --- time ---------------------------------------------------------------------------------------------------------

    async def later(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def until(
        self, what: Callable[[], Coroutine[Any, Any, bool]], within_s: float = 600.0
    ) -> None:
        ends_at = self.clock.monotonic() + within_s
        while not await what():
            assert self.clock.monotonic() < ends_at, f"not within {within_s} s"
            await self.clock.sleep(0.1)

    async def until_phase(self, phase: str, name: str = "mac-1", within_s: float = 600.0) -> None:
        async def there() -> bool:
            return await self.phase(name) == phase

        await self.until(there, within_s)

    async def until_condition(self, kind: str, name: str = "mac-1") -> None:
        async def there() -> bool:
            return await self.condition(kind, name) == "True"

        await self.until(there)

    async def until_gone(self, name: str = "mac-1", within_s: float = 600.0) -> None:
        async def gone() -> bool:
            return await self.pod(name) is None

        await self.until(gone, within_s)

    async def until_clean(self, within_s: float = 900.0) -> None:
        """Wait until nothing of any Pod is left on the host."""

        async def clean() -> bool:
            return not self.left()

        await self.until(clean, within_s)

    def left(self) -> list[str]:
        """Return what is on the host: VMs but for goldens, records, mailboxes."""
        vms = [name for name in self.host.disk.vms if not name.startswith(GOLDEN_PREFIX)]
        records = [file.name for file in (self.host.folder / "records/vms").glob("*.json")]
        boxes = [str(box) for box in (self.host.folder / "vms").glob("*/mailbox")]
        return [*vms, *records, *boxes]

    def guest(self, uid: str) -> Guest:
        return self.host.guests.seen[vm_name(uid)]


@asynccontextmanager
async def a_barn(**how: Any) -> AsyncIterator[Barn]:  # noqa: ANN401 - settings
    clock = SimClock(asyncio.get_running_loop())
    plane = ControlPlane.in_memory(clock, SeededIds(1, "plane"))
    kube = KubeClient(plane.wire(), decoding=DECODING)
    await kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=SPACE)))
    with TemporaryDirectory() as folder:
        host = Host(Path(folder), clock)
        settings = AgentSettings(
            node=NODE,
            data=Path(folder),
            offer=HostOffer(cpus=8, memory_mib=16384, vms=2, pods=10),
            fleet="barn",
            address="10.0.0.7",
            **how,
        )
        async with asyncio.TaskGroup() as group:
            barn = Barn(
                clock=clock,
                plane=plane,
                kube=kube,
                host=host,
                tap=Tap(plane.wire(), clock),
                group=group,
                settings=settings,
                metrics=AgentMetrics(CollectorRegistry()),
            )
            barn.tasks.append(group.create_task(host.guests.run(), name="guests"))
            yield barn
            for task in barn.tasks:
                task.cancel()


def played(play: Callable[[Barn], Coroutine[Any, Any, T]], **how: Any) -> T:  # noqa: ANN401 - settings
    """Play on virtual time, and return what the play returns."""

    async def main() -> T:
        async with a_barn(**how) as barn:
            return await play(barn)

    return run(main)


def scenario(
    **how: Any,  # noqa: ANN401 - settings
) -> Callable[[Callable[[Barn], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Turn a play in a barn into a test on virtual time."""

    def decorate(play: Callable[[Barn], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def test() -> None:
            played(play, **how)

        test.__name__, test.__doc__ = play.__name__, play.__doc__
        return test

    return decorate
