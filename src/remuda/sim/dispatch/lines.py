"""
How the world reaches the replicas of dispatch: a load balancer, and a line for each kind of caller.

A request runs on the replica's side as a task of that replica: it is held while the replica is paused and dies with it.
The server hears that a client is gone when the client closes its end, and not before. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from remuda.dispatch.answers import AlreadyDelivered, ComeBack, Handed, Leave, NothingYet, Refused
from remuda.dispatch.hub import Gone
from remuda.dispatch.who import RunnerIdentity
from remuda.model.errors import RemudaError
from remuda.ports.dispatch import DispatchError
from remuda.sim.dispatch.guests import GuestRun
from remuda.sim.fleet.desk import Deliver, Exit
from remuda.sim.link import Direction
from remuda.sim.plan import Call
from remuda.sim.port import PortFaults, faulty_port

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from remuda.dispatch.answers import Answer
    from remuda.kube.core import Pod
    from remuda.ports.deliveries import Delivery
    from remuda.ports.dispatch import Signals, Stopped
    from remuda.sim.dispatch.guests import Guests
    from remuda.sim.fleet.desk import Told
    from remuda.sim.forge.github import FakeGithub
    from remuda.sim.ids import SeededIds
    from remuda.sim.link import Link, Spelling
    from remuda.sim.world import Process

T = TypeVar("T")

WAIT_S = 20.0
"""How long a runner asks dispatch to hold its poll open."""
POLL_TIMEOUT_S = 60.0
"""When a runner gives a poll up: later than its wait and an attempt together."""
CALL_TIMEOUT_S = 10.0


class Serves(Protocol):
    """What one life of a replica answers."""

    async def poll(self, who: RunnerIdentity, *, wait_s: float, gone: asyncio.Event) -> Answer: ...

    async def answered(self, handed: Handed) -> None:
        """Take in that the answer to a poll has left."""
        ...

    async def signals(self, pool: str) -> Signals: ...

    async def stopped(self, pod: str, report: Stopped) -> None: ...

    async def receive(self, delivery: Delivery) -> None: ...


class Served:
    """One life of a replica that takes requests, from ``open`` on until it ends."""

    def __init__(self, process: Process, serves: Serves, group: asyncio.TaskGroup) -> None:
        self._process, self.serves, self._group = process, serves, group
        self._context: Context = copy_context()
        self._asking: set[asyncio.Task[Any]] = set()

    @property
    def is_dead(self) -> bool:
        return self._process.link.severed

    async def ask(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Carry out a request inside the replica; nobody hears what a dead one says."""
        answering = _answered(work)
        task = None if self.is_dead else self.begin(answering, what)
        if task is None:
            answering.close()
            work.close()
            raise unreached("the connection was refused")
        await asyncio.wait({task})
        if task.cancelled() or self.is_dead:
            work.close()  # it may have ended before it took the first step
            raise unreached("the connection was reset")
        answer = task.result()
        if isinstance(answer, RemudaError):
            raise unreached(f"it answered 503: {answer.why}")
        return answer

    def begin(self, work: Coroutine[Any, Any, T], what: str) -> asyncio.Task[T] | None:
        """Begin something inside the replica; None if it ends just now, and takes nothing new."""
        try:
            task = self._group.create_task(work, name=what, context=self._context.copy())
        except RuntimeError:
            work.close()
            return None
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return task

    async def drained(self, *, within_s: float) -> None:
        """Wait until every request is answered, at most for so long; then cut the rest off."""
        if self._asking:
            await asyncio.wait(set(self._asking), timeout=within_s)
        for task in tuple(self._asking):
            task.cancel()


async def _answered(work: Coroutine[Any, Any, T]) -> T | RemudaError:
    """Catch what a request runs into, as a web server does: it ends the request, not the server."""
    try:
        return await work
    except RemudaError as error:
        return error


class Balancer:
    """Sends each request to a replica that is there, by chance."""

    def __init__(self, ids: SeededIds) -> None:
        self._ids = ids
        self.replicas: dict[str, Served] = {}
        """By the name of their actor; those that take requests."""

    def pick(self) -> Served:
        names = sorted(name for name, one in self.replicas.items() if not one.is_dead)
        if not names:
            raise unreached("no replica is there")
        return self.replicas[names[int(self._ids.fraction() * len(names))]]

    async def receive(self, delivery: Delivery) -> None:
        """Take a message of the forge in."""
        served = self.pick()
        await served.ask(served.serves.receive(delivery), f"message {delivery.guid}")

    async def signals(self, pool: str) -> Signals:
        served = self.pick()
        return await served.ask(served.serves.signals(pool), f"signals {pool}")

    async def stopped(self, pod: str, report: Stopped) -> None:
        served = self.pick()
        await served.ask(served.serves.stopped(pod, report), f"stopped {pod}")


class PollLine:
    """A host's line to dispatch. Implements ``fleet.desk.Desk``."""

    def __init__(
        self,
        link: Link,
        balancer: Balancer,
        forge: FakeGithub,
        guests: Guests,
    ) -> None:
        self._link, self._balancer, self._forge = link, balancer, forge
        self._guests = guests
        self._spelling = PortFaults(
            port="dispatch", timeout_s=POLL_TIMEOUT_S, unknown=unreached, refused=unreached
        )

    async def poll(self, pod: Pod) -> Told:
        gone = Gone()
        try:
            answer: Answer = await self._link.exchange(
                Call("poll", "dispatch", f"dispatch/{pod.name}"),
                lambda: self._serve(pod, gone),
                cast("Spelling[Answer]", self._spelling),
                POLL_TIMEOUT_S,
            )
        finally:
            # The end of a connection is heard at once, unless the line to the server is cut.
            if not self._link.partition & Direction.REQUESTS:
                gone.set()
        return self._told(pod, answer)

    async def _serve(self, pod: Pod, gone: asyncio.Event) -> Answer:
        served = self._balancer.pick()
        who = RunnerIdentity(pod.name, pod.uid)
        poll = served.serves.poll(who, wait_s=WAIT_S, gone=gone)
        answer = await served.ask(poll, f"poll of {pod.name}")
        if isinstance(answer, Handed):
            served.begin(served.serves.answered(answer), f"answered {pod.name}")
        return answer

    def _told(self, pod: Pod, answer: Answer) -> Told:
        match answer:
            case Handed(job, runner_name, minted):
                return Deliver(
                    GuestRun(
                        name=runner_name,
                        pool=job.spec.pool,
                        lasts_s=0.0,
                        owner=job.spec.tenant,
                        config=minted.encoded_jit_config,
                        vm=pod.uid,
                        pod=pod.name,
                        job_id=job.spec.id,
                        forge=self._forge,
                        guests=self._guests,
                    )
                )
            case Leave(reason):
                return Exit(reason)
            case NothingYet():
                return None
            case AlreadyDelivered() | Refused() | ComeBack():
                raise unreached(f"it answered {type(answer).__name__}")


def behind(link: Link, balancer: Balancer) -> Balancer:
    """Return dispatch as the operator reaches it."""
    faults = PortFaults(
        port="dispatch", timeout_s=CALL_TIMEOUT_S, unknown=unreached, refused=unreached
    )
    return faulty_port(balancer, link, faults)


def unreached(why: str) -> DispatchError:
    return DispatchError("Dispatch was not reached", why=why, fix="Try again")
