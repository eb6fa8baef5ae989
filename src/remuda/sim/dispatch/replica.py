"""
A replica of the real dispatch as a process of a world: all of it but HTTP, over lines that fail.

What is kept (``Database``) outlives all replicas; what a replica knows dies with it. With a guard switched off, a
replica is made without that part, or with one that makes the mistake of the field (``mistakes``).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry

from remuda.control.tasks import run_forever
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.process import Dispatch, Ports
from remuda.dispatch.sweep import SWEEP
from remuda.dispatch.workers import ALONE, missing_pods, stamped_pods
from remuda.model.job import Kind
from remuda.ports.database import DatabaseConflict, DatabaseError, DatabaseTimeout
from remuda.ports.forge import ForgeError, ForgeUnavailable
from remuda.sim.dispatch.lines import Served
from remuda.sim.dispatch.mistakes import (
    CredulousSearch,
    FirstCome,
    Generous,
    Lists,
    MistakenKube,
    NaiveReaper,
    Stamping,
    Unbelieving,
)
from remuda.sim.jobs.api_tokens import MemoryApiTokens
from remuda.sim.jobs.deliveries import MemoryDeliveries
from remuda.sim.jobs.local import MemoryLocalJobs
from remuda.sim.jobs.local_files import MemoryLocalFiles
from remuda.sim.jobs.locks import MemoryLocks
from remuda.sim.jobs.registrations import MemoryRegistrations
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from remuda.sim.jobs.wakeups import MemoryWakeups
from remuda.sim.port import PortFaults, faulty_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.dispatch.answers import Answer, Handed
    from remuda.dispatch.attempt import Step
    from remuda.dispatch.settings import DispatchSettings
    from remuda.dispatch.who import RunnerIdentity
    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Delivery
    from remuda.ports.dispatch import Signals, Stopped
    from remuda.sim.dispatch.lines import Balancer
    from remuda.sim.forge.github import FakeGithub
    from remuda.sim.link import Link
    from remuda.sim.world import Process

P = TypeVar("P")

DATABASE_S = 5.0
FORGE_S = 10.0
STORES = {
    "attribution": Unbelieving,
    "budgets": Generous,
    "fairness": FirstCome,
}
GUARDS = frozenset(
    {
        *STORES,
        *("sweep", "reaper", "recovery", "proof", "stamp", "unstamp", "second_look", "wakeups"),
    }
)
"""What a replica can be made without."""


class Database:
    """What PostgreSQL keeps. It has a clock of its own."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tables = Tables(clock)
        self.views = MemoryJobViews(self.tables)
        self.deliveries = MemoryDeliveries(clock)
        self.registrations = MemoryRegistrations(self.tables)
        self.local_jobs = MemoryLocalJobs(self.tables)
        self.local_files = MemoryLocalFiles(self.local_jobs.peek)
        self.tokens = MemoryApiTokens(self.tables)


class ReplicaMaker:
    """Makes replicas on one database and one forge, and does to them what stories ask for."""

    def __init__(
        self,
        settings: DispatchSettings,
        database: Database,
        forge: FakeGithub,
        balancer: Balancer,
        broken: frozenset[str] = frozenset(),
    ) -> None:
        self.settings, self.database, self.forge = settings, database, forge
        self.balancer, self.broken = balancer, broken
        self.stamping = Stamping(sticks="unstamp" in broken, slips="stamp" in broken)
        self.die: Callable[[str], None] = lambda _name: None
        """Kills a replica."""
        self._deaths: dict[Step, int] = {}
        self._stops: dict[str, asyncio.Event] = {}

    @property
    def is_honest(self) -> bool:
        """Whether the API server does for the replicas what it says."""
        stamping = self.stamping
        return not (stamping.sticks or stamping.slips) and stamping.lists is Lists.TRUE

    async def run(self, process: Process) -> None:
        """Be one life of a replica, until it is told to stop."""
        stop = self._stops[process.name] = asyncio.Event()
        replica = Replica(self, process)
        async with asyncio.TaskGroup() as group:
            parts = group.create_task(replica.run(), name="parts")
            await replica.dispatch.view.wait_synced()
            served = self.balancer.replicas[process.name] = Served(process, replica, group)
            try:
                await stop.wait()
                await self._say_goodbye(process, replica, served)
            finally:
                if self.balancer.replicas.get(process.name) is served:
                    del self.balancer.replicas[process.name]
            parts.cancel()

    async def _say_goodbye(self, process: Process, replica: Replica, served: Served) -> None:
        process.link.trace.note(process.name, "stop", "-", "told")
        self.balancer.replicas.pop(process.name, None)
        replica.dispatch.close()
        await served.drained(within_s=self.settings.shutdown_s)

    def stop(self, name: str) -> None:
        """Tell a replica to stop, as SIGTERM does: it finishes what it must and ends."""
        if name in self._stops:
            self._stops[name].set()

    def die_at(self, step: Step, *, times: int) -> None:
        """Let the next replicas that reach a step die there."""
        self._deaths[step] = times

    async def reached(self, name: str, step: Step) -> None:
        if self._deaths.get(step, 0) > 0:
            self._deaths[step] -= 1
            self.die(name)
            await asyncio.Event().wait()  # killed: it never comes back from here


class Replica:
    """One life. Implements ``lines.Serves``."""

    def __init__(self, maker: ReplicaMaker, process: Process) -> None:
        async def reached(step: Step) -> None:
            await maker.reached(process.name, step)

        self._broken = maker.broken
        metrics = DispatchMetrics(CollectorRegistry())
        settings = _deaf(maker.settings) if "wakeups" in maker.broken else maker.settings
        self.dispatch = Dispatch(_ports(maker, process), settings, metrics, reached=reached)

    async def run(self) -> None:
        loops = dict(self.dispatch.loops())
        _switch_off(loops, self._broken)
        if "proof" in self._broken:
            loops[stamped_pods.NAME] = NaiveReaper(self.dispatch.recovery).run
        if "second_look" in self._broken:
            loops[missing_pods.NAME] = CredulousSearch(self.dispatch.recovery).run
        await run_forever(loops, asyncio.Event())

    async def poll(self, who: RunnerIdentity, *, wait_s: float, gone: asyncio.Event) -> Answer:
        return await self.dispatch.desk.poll(who, wait_s=wait_s, gone=gone)

    async def answered(self, handed: Handed) -> None:
        await self.dispatch.desk.answered(handed)

    async def signals(self, pool: str) -> Signals:
        return await self.dispatch.ports.views.signals(pool)

    async def stopped(self, pod: str, report: Stopped) -> None:
        await self.dispatch.stops.stopped(
            pod, ended_at=report.ended_at, exit_code=report.exit_code, reason=report.reason
        )

    async def receive(self, delivery: Delivery) -> None:
        """Keep a message, then answer. Its signature is not this world's concern."""
        await self.dispatch.ports.deliveries.record(delivery)
        if self.dispatch.inbox is not None:
            self.dispatch.inbox.workers.wake()


def _ports(maker: ReplicaMaker, process: Process) -> Ports:
    database, link = maker.database, process.link
    store = next((STORES[guard] for guard in STORES if guard in maker.broken), MemoryJobs)
    jobs, wakeups = store(database.tables), MemoryWakeups(database.tables)
    if "wakeups" in maker.broken:
        wakeups.cut()
    forge = faulty_port(maker.forge, link, _FORGE)
    return Ports(
        kube=MistakenKube(process.kube, maker.stamping),
        store=_over(link, jobs, "jobs"),
        views=_over(link, database.views, "views"),
        deliveries=_over(link, database.deliveries, "deliveries"),
        registrations=_over(link, database.registrations, "registrations"),
        local_jobs=_over(link, database.local_jobs, "local-jobs"),
        local_files=database.local_files,  # no story has files: nothing is tried on their way
        tokens=_over(link, database.tokens, "tokens"),
        wakeups=wakeups,
        locks=MemoryLocks(database.tables),
        clock=process.clock,
        ids=process.ids,
        forges={Kind.GITHUB: forge},
        announcer=forge,
    )


def _deaf(settings: DispatchSettings) -> DispatchSettings:
    """Look for work once in a minute, and not at each beat."""
    return replace(settings, polls=replace(settings.polls, beat_s=60.0))


def _switch_off(loops: dict[str, Callable[[], Awaitable[None]]], broken: frozenset[str]) -> None:
    if "sweep" in broken:
        del loops[SWEEP]
    if "reaper" in broken:
        del loops[stamped_pods.NAME]
    if "recovery" in broken:
        for name in ALONE:
            del loops[name]


# --- how lines fail ---


def _over(link: Link, port: P, name: str) -> P:
    faults = PortFaults(
        port=name, timeout_s=DATABASE_S, unknown=_no_answer, refused=_database_refused
    )
    return faulty_port(port, link, faults)


def _no_answer(why: str) -> DatabaseError:
    return DatabaseTimeout("The database did not answer", why=why, fix="Try again")


def _database_refused(why: str) -> DatabaseError:
    return DatabaseConflict("The database rolled it back", why=why, fix="Try again")


def _forge_failed(why: str) -> ForgeError:
    return ForgeUnavailable("The forge was not reached", why=why, fix="Try again")


_FORGE = PortFaults(port="forge", timeout_s=FORGE_S, unknown=_forge_failed, refused=_forge_failed)
