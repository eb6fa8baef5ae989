"""
The world of one run: a control plane in memory, and processes that reach it over failing lines.

A process here is the real code: its real client over a ``FaultyWire`` to the real API server, on its own clock and its
own stream of chance. The world can kill, pause and cut off each one. It must not know what a process is for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import ClientSettings, KubeClient
from remuda.kube.decoding import Decoding
from remuda.model.errors import RemudaError
from remuda.sim.checkers import WORLD, Checkers, Verdict
from remuda.sim.clock import SimClock
from remuda.sim.faults import FaultyWire
from remuda.sim.ids import SeededIds
from remuda.sim.link import LINK, NO_DIRECTION, Direction, Link
from remuda.sim.loop import ACTOR, VirtualTimeLoop
from remuda.sim.plan import CALM, Faults, Plan, Scripted
from remuda.standalone.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from remuda.ports.wire import Wire

RESTART_S = 5.0
"""How long a dead process takes to come back, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Process:
    """One life of an actor: what its code is given. All of it is lost in a crash."""

    name: str
    life: int
    """Counts from 1; a restart is a new life."""
    clock: SimClock
    ids: SeededIds
    link: Link
    wire: Wire
    kube: KubeClient


Main = Callable[[Process], Awaitable[None]]
"""The code of a process, from its start to its end."""


@dataclass(slots=True)
class Actor:
    """A process that is started again whenever it ends, as a supervisor would."""

    name: str
    main: Main
    plan: Plan
    clock: SimClock
    ids: SeededIds
    life: int = 0
    process: Process | None = None
    task: asyncio.Task[None] | None = None
    restart_after_s: float = RESTART_S
    resuming: asyncio.TimerHandle | None = None
    """What ends its pause."""
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its present life is killed: whatever its last moments would still try, the next one begins."""


class World:
    """See the module's text. Made by ``World.open``."""

    def __init__(self, verdict: Verdict, plane: ControlPlane, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop), "a world runs on virtual time"
        self.loop = loop
        self.seed = verdict.seed
        self.verdict = verdict
        self.trace = verdict.trace
        self.plane = plane
        self.checkers = Checkers(verdict, self._write_calls)
        self.disturbances: Counter[str] = Counter()
        self.group = group
        self._actors: dict[str, Actor] = {}
        self._decoding = Decoding()
        self._faults = CALM
        self._scripted: tuple[Scripted, ...] = ()

    @classmethod
    @asynccontextmanager
    async def open(cls, verdict: Verdict) -> AsyncIterator[World]:
        """Start a control plane and give the world around it; everything ends with the block."""
        loop = asyncio.get_running_loop()
        plane = ControlPlane.in_memory(SimClock(loop), SeededIds(verdict.seed, "control-plane"))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(plane.run(), name="control plane")
            world = cls(verdict, plane, group)
            stop = plane.store.subscribe(world.checkers.on_change)
            try:
                yield world
            finally:
                stop()
                world._end()
                running.cancel()

    # --- actors -------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        main: Main,
        *,
        skew_s: float = 0.0,
        drift: float = 0.0,
        spared: Iterable[str] = (),
    ) -> Actor:
        """Start an actor. ``spared`` names resources on which chance strikes none of its calls."""
        ids = SeededIds(self.seed, name)
        plan = Plan(name, ids.stream("faults"), spared=spared)
        plan.set_faults(self._faults)
        plan.script(self._scripted)
        clock = SimClock(self.loop, skew_s=skew_s, drift=drift)
        actor = self._actors[name] = Actor(name, main, plan, clock, ids)
        self.group.create_task(self._supervise(actor), name=f"supervisor of {name}")
        return actor

    def crash(self, name: str, *, restart_after_s: float = RESTART_S, why: str = "") -> None:
        """Kill a process at whatever it awaits: nothing leaves it any more, and its memory is gone."""
        actor = self._actors[name]
        if actor.process is None or actor.task is None or actor.process.link.severed:
            return
        self.disturbances["crash"] += 1
        self.trace.note(name, "crash", "-", "killed", why)
        actor.restart_after_s = restart_after_s
        actor.process.link.sever()
        self._release(actor)  # a process that is killed while it is paused does not wake, it dies
        actor.task.cancel()
        actor.killed.set()

    def stop(self, name: str, *, restart_after_s: float = RESTART_S) -> None:
        """Tell a process to end, as SIGTERM would: it may still say goodbye. What it has sent is carried out."""
        actor = self._actors[name]
        if actor.process is None or actor.task is None or actor.process.link.severed:
            return
        self.disturbances["stop"] += 1
        self.trace.note(name, "stop", "-", "told")
        actor.restart_after_s = restart_after_s
        actor.task.cancel()

    def pause(self, name: str, seconds: float) -> None:
        """Stop a process's turns while time goes on, as a long garbage collection or a suspended VM would."""
        if self._actors[name].process is None or self.loop.is_held(name):
            return
        self.disturbances["pause"] += 1
        self.trace.note(name, "pause", "-", "stopped", f"for {seconds:g} s")
        self.loop.hold(name)
        self._actors[name].resuming = self.loop.call_later(seconds, self._resume, name)

    def partition(self, name: str, seconds: float, direction: Direction = Direction.BOTH) -> None:
        """Cut a process off, one way or both, for a while."""
        process = self._actors[name].process
        if process is None or process.link.partition:
            return
        self.disturbances["partition"] += 1
        which = str(direction.name).lower()
        self.trace.note(name, "partition", "-", which, f"for {seconds:g} s")
        process.link.partition = direction
        self.loop.call_later(seconds, self._heal, process.link)

    def skew(self, name: str, seconds: float) -> None:
        """Set by how much an actor's wall clock is ahead."""
        self.disturbances["skew"] += 1
        self.trace.note(name, "skew", "-", f"{seconds:+g}s", "its wall clock was moved")
        self._actors[name].clock.skew_s = seconds

    # --- faults -------------------------------------------------------------------------------------------------

    def set_faults(self, faults: Faults) -> None:
        """Set the rates for all actors from now on."""
        self._faults = faults
        for actor in self._actors.values():
            actor.plan.set_faults(faults)

    def script(self, scripted: Iterable[Scripted]) -> None:
        """Set the scripted faults for all actors. Call it before they start."""
        self._scripted = tuple(scripted)
        for actor in self._actors.values():
            actor.plan.script(self._scripted)

    def calm(self) -> None:
        """End all faults: rates, partitions, pauses and skew. What is dead comes back by itself."""
        self.set_faults(CALM)
        for actor in self._actors.values():
            actor.clock.skew_s = 0.0
            self._release(actor)
            if actor.process is not None:
                actor.process.link.partition = NO_DIRECTION
        self.trace.note(WORLD, "calm", "-", "ok", "the faults stop")

    @property
    def is_failing(self) -> bool:
        """Whether calls are struck by chance now, or somebody is paused, cut off or has a wrong clock."""
        return self._faults != CALM or any(
            actor.clock.skew_s != 0.0
            or self.loop.is_held(actor.name)
            or (actor.process is not None and bool(actor.process.link.partition))
            for actor in self._actors.values()
        )

    def write_calls(self, names: Iterable[str]) -> int:
        """Return how many writes these actors have tried, those of leases aside."""
        return sum(self._actors[name].plan.write_calls for name in names)

    # --- inside -------------------------------------------------------------------------------------------------

    def _write_calls(self) -> int:
        return self.write_calls(self._actors)

    def _resume(self, name: str) -> None:
        if self.loop.is_held(name):
            self.trace.note(name, "resume", "-", "ok")
            self._release(self._actors[name])

    def _release(self, actor: Actor) -> None:
        """End a pause, and the timer that would have ended it: it must not cut a later one short."""
        if actor.resuming is not None:
            actor.resuming.cancel()
        self.loop.release(actor.name)

    def _heal(self, link: Link) -> None:
        if link.partition:
            link.partition = NO_DIRECTION
            self.trace.note(link.actor, "heal", "-", "ok")

    def _boot(self, actor: Actor) -> Process:
        actor.life += 1
        link = Link(
            actor.plan, self.trace, lambda: self.crash(actor.name, why="at a scripted point")
        )
        wire = FaultyWire(self.plane.wire(), link, at_once=True)
        kube = KubeClient(wire, ClientSettings(call_timeout_s=10.0), self._decoding)
        ids = actor.ids.stream(f"life-{actor.life}")
        return Process(actor.name, actor.life, actor.clock, ids, link, wire, kube)

    async def _supervise(self, actor: Actor) -> None:
        while True:
            actor.restart_after_s = RESTART_S
            process = actor.process = self._boot(actor)
            self.trace.note(actor.name, "start", "-", f"life-{actor.life}")
            context = copy_context()
            context.run(ACTOR.set, actor.name)
            context.run(LINK.set, process.link)
            actor.task = self.group.create_task(
                self._live(actor, process), name=actor.name, context=context
            )
            await self._wait_for_end(actor)
            actor.process = None
            await asyncio.sleep(actor.restart_after_s)

    async def _wait_for_end(self, actor: Actor) -> None:
        """Wait until a life is over. One that is killed is over at once, even if its code would not have it so."""
        assert actor.task is not None
        actor.killed.clear()
        killed = self.group.create_task(actor.killed.wait(), name=f"death of {actor.name}")
        await asyncio.wait({actor.task, killed}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()

    async def _live(self, actor: Actor, process: Process) -> None:
        """Run one life to its end. How it ends is the world's to judge, so nothing is raised from here."""
        try:
            await actor.main(process)
        except asyncio.CancelledError:
            if not process.link.severed:
                raise
        except Exception as error:  # noqa: BLE001 - the edge: what kills a process must not kill the world
            self._died(actor, process, error)
        else:
            self.trace.note(actor.name, "exit", "-", "0")

    def _died(self, actor: Actor, process: Process, error: Exception) -> None:
        if process.link.severed:
            return  # killed; what its last moments raised reached nobody
        bug = _bug_in(error)
        self.trace.note(actor.name, "exit", "-", "1", str(bug or error))
        if bug is not None:
            what = f"{actor.name} died of a bug: {bug!r}"
            self.verdict.violated("no bugs", what, "-", self.loop.time())

    def _end(self) -> None:
        for actor in self._actors.values():
            if actor.process is not None:
                actor.process.link.sever()
            self.loop.release(actor.name)
        for task in sorted(asyncio.all_tasks(), key=lambda t: t.get_name()):
            if task is not asyncio.current_task():
                task.cancel()


def _bug_in(error: BaseException) -> BaseException | None:
    """Return what in an error is not a fault of the world, if anything."""
    if isinstance(error, BaseExceptionGroup):
        return next((bug for part in error.exceptions if (bug := _bug_in(part))), None)
    return None if isinstance(error, RemudaError) else error
