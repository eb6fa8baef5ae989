"""
The agent as one process: its parts, put together, and what it says about itself.

The records are opened first, and only by one agent at a time. Until the Pods of this host were listed once, nothing is
made and nothing is removed. Told to stop, everything ends where it is: VMs go on, and the next agent takes them up.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.decide.node_shown import NodeAbout
from remuda.agent.disks import Disks, DisksParts
from remuda.agent.facts import read_facts
from remuda.agent.garbage import GarbageCollector, GarbageParts
from remuda.agent.held_jobs import HeldJobs
from remuda.agent.images import Goldens
from remuda.agent.jobs import DispatchJobs
from remuda.agent.keeper import Keeper, KeeperParts
from remuda.agent.lease import LeaseSettings, LeaseThread
from remuda.agent.ledger import Ledger, OneThread
from remuda.agent.log_reading import LogReading, LogSources
from remuda.agent.log_store import DiskLogStore
from remuda.agent.machine import disk_space
from remuda.agent.measured import MeasuredVms
from remuda.agent.node import NodeApi, NodeKeeper
from remuda.agent.parts import HostState
from remuda.agent.permissions import check_identity
from remuda.agent.record import RecordFolder, make_private
from remuda.agent.shelf import HostShelf, ShelfParts
from remuda.agent.staging import Staging
from remuda.control.backoff import Backoff
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.reflector import Reflector
from remuda.control.tasks import run_forever
from remuda.kube.core import NODE
from remuda.ports.kube import KubeError, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from pathlib import Path

    from remuda.agent.decide.disk import DiskSpace
    from remuda.agent.metrics import AgentMetrics
    from remuda.agent.settings import AgentSettings
    from remuda.control.health import Health
    from remuda.ports.clock import Clock
    from remuda.ports.desk import Desks
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube
    from remuda.ports.vms import TimedOut, Vms

log = structlog.get_logger(__name__)

COMPONENT: Final = "remuda-agent"
SILENT_MAX_S: Final = 120.0
"""How long a loop that waits for nothing but the clock may be silent."""
SLOW_MAX_S: Final = 1800.0
"""The same for one that waits for the driver: its calls have deadlines of their own, one after the other."""
_BACKOFF: Final = Backoff(first_s=0.5, longest_s=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPorts:
    """The outside world."""

    kube: Kube
    lease_kube: Callable[[], AbstractAsyncContextManager[Kube]]
    """Opens a connection of its own, for the thread that renews the Lease."""
    vms: Vms
    vm_folders: tuple[Path, ...]
    """Where VMs and images are, beside the data folder: whose disks are measured."""
    desks: Desks
    clock: Clock
    ids: Ids
    version: str


class Agent:
    """``run`` it. It has the records of its data folder from when it is made until ``close``."""

    def __init__(
        self, ports: AgentPorts, settings: AgentSettings, *, metrics: AgentMetrics, health: Health
    ) -> None:
        make_private(settings.data)
        self._ports, self._settings, self._metrics = ports, settings, metrics
        self._health = health
        self._opened = ExitStack()
        with ExitStack() as opening:
            folder = RecordFolder(settings.data / "records")
            opening.callback(folder.close)
            self._parts(folder, opening)
            self._opened = opening.pop_all()

    def close(self) -> None:
        """Let another process have the records."""
        self._opened.close()

    def _parts(self, folder: RecordFolder, opening: ExitStack) -> None:
        ports, settings, data = self._ports, self._settings, self._settings.data
        clock, ids = ports.clock, ports.ids
        names = ("records", "held-jobs", "logs", "mailboxes")
        self._threads = {name: OneThread(name) for name in names}
        for thread in self._threads.values():
            opening.callback(thread.close)
        self._ledger = Ledger(folder, self._threads["records"])
        self._vms = MeasuredVms(ports.vms, self._metrics, clock, host_stuck=self._host_stuck)
        self._goldens = Goldens(self._vms, self._ledger, clock)
        self._events = EventRecorder(
            ports.kube,
            EventSettings(component=COMPONENT, instance=settings.node),
            clock=clock,
            ids=ids,
        )
        mine = Query(fields=f"metadata.name={settings.node}")
        self._nodes = Reflector(ports.kube, NODE, mine, clock=clock, ids=ids)
        self._jobs = DispatchJobs(
            ports.desks,
            ports.kube,
            HeldJobs(data / "held-jobs"),
            threads=self._threads["held-jobs"],
            clock=clock,
            ids=ids,
        )
        self._log_store = DiskLogStore(data / "logs")
        self._disks = self._make_disks()
        room = _LaterRoom()
        self._shelf = self._make_shelf(room)
        self._keeper = self._make_keeper()
        self._staging = Staging(self._shelf, self._goldens, self._nodes, self._events, ids)
        room.collector = self._garbage = self._make_garbage()
        self._disks.on_change(self._garbage.poke)
        self.logs = LogReading(
            LogSources(records=self._ledger.vms, mailbox=self._vms.mailbox, store=self._log_store),
            self._threads["logs"],
            clock,
        )
        self._node: NodeKeeper | None = None

    def _make_disks(self) -> Disks:
        return Disks(
            DisksParts(
                vms=self._vms,
                ledger=self._ledger,
                goldens=self._goldens,
                space=self._space,
                marks=self._settings.disk,
                clock=self._beating("disks"),
                ids=self._ports.ids,
                metrics=self._metrics,
            )
        )

    def _make_shelf(self, room: _LaterRoom) -> HostShelf:
        return HostShelf(
            ShelfParts(
                vms=self._vms,
                ledger=self._ledger,
                goldens=self._goldens,
                room=room,
                space=self._space,
                marks=self._settings.disk,
                clock=self._ports.clock,
                metrics=self._metrics,
            )
        )

    def _make_keeper(self) -> Keeper:
        return Keeper(
            KeeperParts(
                vms=self._vms,
                kube=self._ports.kube,
                ledger=self._ledger,
                shelf=self._shelf,
                jobs=self._jobs,
                logs=self._log_store,
                events=self._events,
                clock=self._beating("keeper"),
                ids=self._ports.ids,
                metrics=self._metrics,
                settings=self._settings,
                threads=self._threads["mailboxes"],
            )
        )

    def _make_garbage(self) -> GarbageCollector:
        return GarbageCollector(
            GarbageParts(
                vms=self._vms,
                ledger=self._ledger,
                goldens=self._goldens,
                pods=self._keeper,
                keeping=self._keeper,
                disk=self._disks,
                more_wanted=(self._staging,),
                # Not that of the records: a hostile guest may have filled the mailbox that is removed there.
                threads=self._threads["mailboxes"],
                clock=self._beating("garbage"),
                ids=self._ports.ids,
                metrics=self._metrics,
            ),
            self._settings,
        )

    def _host_stuck(self, error: TimedOut) -> None:
        """Tell of it where people look who wonder about a host: it is about no Pod in particular."""
        for node in self._nodes.all():
            self._events.record(NODE, node, "DriverStuck", str(error), warning=True)

    def _beating(self, name: str) -> BeatingClock:
        return BeatingClock(self._ports.clock, self._health, name)

    # --- running ------------------------------------------------------------------------------------------------------

    async def run(self, kubelet_port: int = 0) -> None:
        """Keep VMs until cancelled; they go on. ``kubelet_port``: where logs are served, 0 if they are not."""
        uids = {record.pod_uid for record in self._ledger.vms()}
        uids |= {bad.pod_uid for bad in self._ledger.damaged}
        await self._jobs.forget_all_but(uids)
        await self._threads["logs"](lambda: self._log_store.sweep(uids))
        self._node = node = self._make_node(kubelet_port)
        self._disks.on_change(node.poke)
        self._ledger.on_image(node.poke)
        lease = LeaseThread(
            LeaseSettings(
                node=self._settings.node,
                heartbeat_s=self._settings.heartbeat_s,
                duration_s=self._settings.lease_duration_s,
            ),
            self._ports.lease_kube,
            lambda: node.uid,
            clock=self._ports.clock,
            ids=self._ports.ids,
        )
        with self._watched():
            await run_forever(
                {
                    "node": self._keep_node,
                    "lease": lease.run,
                    "nodes": self._nodes.run,
                    "events": self._events.run,
                    "keeper": self._keeper.run,
                    "shelf": self._shelf.run,
                    "staging": self._staging.run,
                    "garbage": self._garbage.run,
                    "disks": self._disks.run,
                },
                asyncio.Event(),
            )

    def _watched(self) -> ExitStack:
        stack = ExitStack()
        garbage_s = self._settings.garbage_s * 2 + SLOW_MAX_S
        limits = {"keeper": SILENT_MAX_S, "disks": SLOW_MAX_S, "garbage": garbage_s}
        for name, limit_s in limits.items():
            stack.enter_context(self._health.watched(name, limit_s))
        return stack

    def _make_node(self, kubelet_port: int) -> NodeKeeper:
        return NodeKeeper(
            NodeApi(kube=self._ports.kube, nodes=self._nodes, events=self._events),
            NodeAbout(
                settings=self._settings,
                abilities=self._vms.abilities,
                facts=read_facts(self._ports.version),
                port=kubelet_port,
            ),
            self._state,
            clock=self._ports.clock,
            ids=self._ports.ids,
            health=self._health,
        )

    async def _keep_node(self) -> None:
        assert self._node is not None, "it is made before the loops begin"
        await self._identify()
        await self._node.register()
        await self._node.run()

    async def _identify(self) -> None:
        """See that we are who we should be, once the API server answers. Raises WrongIdentity."""
        failures = 0
        while True:
            try:
                await check_identity(self._ports.kube, self._settings.node)
            except KubeError as error:
                failures += 1
                log.warning("the API server was not asked who we are yet", error=str(error))
                wait_s = _BACKOFF.wait_s(failures, self._ports.ids.fraction())
                await self._ports.clock.sleep(wait_s)
            else:
                return

    # --- what it says about itself ------------------------------------------------------------------------------------

    async def stage(self, image: str, say: Callable[[str], None]) -> None:
        """Fetch an image and start nothing. Raises VmsError."""
        await self._shelf.stage(image, say)

    def ready(self) -> tuple[bool, str]:
        """Say whether VMs can be made for new Pods, and if not, why."""
        if self._node is None or not self._node.uid:
            return False, "the Node is not registered yet"
        if not self._keeper.pods.synced:
            return False, "the Pods of this host are not listed yet"
        if self._keeper.unfit:
            return False, self._keeper.unfit
        if not self._keeper.slots.listed:
            return False, "the VMs of this host are not listed yet"
        return True, "ready"

    def _state(self) -> HostState:
        slots = self._keeper.slots.now()
        return HostState(
            offered_vms=slots.offered,
            most_vms=slots.most,
            images=self._goldens.ready_images(),
            disk=self._disks.state,
            disk_space=self._disks.space,
            unfit=self._keeper.unfit,
            troubles=self._keeper.troubles(),
        )

    def _space(self) -> DiskSpace | None:
        return disk_space(_each((self._settings.data, *self._ports.vm_folders)))


class _LaterRoom:
    """Garbage collection for the shelf, whose goldens it collects: there once both are."""

    collector: GarbageCollector

    async def make_room(self, enough: Callable[[], bool]) -> bool:
        return await self.collector.make_room(enough)


class BeatingClock:
    """The clock of one loop: it sleeps in every turn, so that is where its heart beats."""

    def __init__(self, clock: Clock, health: Health, name: str) -> None:
        self._clock, self._health, self._name = clock, health, name

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._health.pause(self._name, seconds)


def _each(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(folders))
