"""
One actor's line to the outside world, on which calls are slow, get lost, fail, or are cut off by a partition.

Every port of an actor goes through its link: the Kubernetes wire (``faults.FaultyWire``) and any other port
(``port.faulty_port``). What has left the actor is the network's business: it is carried out even if the actor is paused
or dies meanwhile. A link must not know what it carries.
"""

from __future__ import annotations

import asyncio
import types
from contextvars import Context, ContextVar
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from remuda.model.errors import RemudaError
from remuda.sim.loop import VirtualTimeLoop
from remuda.sim.plan import Call, CallPlan, Fault
from remuda.sim.trace import WHY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from remuda.sim.plan import Plan
    from remuda.sim.trace import Trace

R = TypeVar("R")

WRITER: ContextVar[str] = ContextVar("writer", default="")
"""Whose call the outside world is carrying out right now. Checkers that watch a store read it."""

LINK: ContextVar[Link | None] = ContextVar("link", default=None)
"""The line of the process whose code is running: tells the last words of a dead one from a live one's."""

CRASH_AFTER_S = 0.001
"""How long a process lives on after an answer that it dies of: long enough to have read it."""

_BEFORE = frozenset({Fault.LOST, Fault.RESET, Fault.CONFLICT, Fault.EXPIRED, Fault.THROTTLED,
                     Fault.SERVER_ERROR, Fault.CRASH_BEFORE})  # fmt: skip


class Direction(Flag):
    """What a partition stops: requests on their way out, answers on their way back, or both."""

    REQUESTS = auto()
    ANSWERS = auto()
    BOTH = REQUESTS | ANSWERS


NO_DIRECTION = Direction(0)


class Spelling(Protocol[R]):
    """How one port spells what goes wrong on the line."""

    def timed_out(self, call: Call, timeout_s: float) -> Exception: ...

    def reset(self, call: Call) -> Exception: ...

    def refusal(self, call: Call, fault: Fault, plan: Plan) -> R:
        """Return the answer that says 409, 410, 429 or 500; or raise the port's error for it."""
        ...

    def outcome(self, answer: R) -> str:
        """Say in a word what was answered, for the trace."""
        ...


class _Exchange(msgspec.Struct, Generic[R]):
    call: Call
    operation: Callable[[], Coroutine[Any, Any, R]]
    spelling: Spelling[R]
    plan: CallPlan
    deadline: float
    timeout_s: float
    answer: asyncio.Future[R]
    why: str
    at_once: bool


class Link:
    """The line of one process. A crashed process's line is severed for good; its successor gets a new one."""

    def __init__(self, plan: Plan, trace: Trace, on_crash: Callable[[], None]) -> None:
        self.plan = plan
        self.trace = trace
        self.partition = NO_DIRECTION
        self.severed = False
        self._on_crash = on_crash
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop), "a link is of a simulated world"
        self._loop = loop
        self.network = Context()
        """Without an actor: pausing the actor does not pause the network."""
        self.network.run(WRITER.set, self.actor)
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def actor(self) -> str:
        return self.plan.actor

    def sever(self) -> None:
        """End the line: nothing leaves the process any more. What has left it is still carried out."""
        self.severed = True

    async def exchange(
        self,
        call: Call,
        operation: Callable[[], Coroutine[Any, Any, R]],
        spelling: Spelling[R],
        timeout_s: float,
        *,
        at_once: bool = False,
    ) -> R:
        """
        Carry out one call on the other side of the line, as the plan has it.

        ``at_once`` says that the operation asks for no task of its own (as ``asyncio.timeout`` would) before it first
        waits: it is then begun without one, which is much cheaper.
        """
        if self.severed:
            raise spelling.reset(call)
        loop = self._loop
        now, plan = loop.now, self.plan.call(call)
        answer: asyncio.Future[R] = asyncio.Future(loop=loop)
        exchange: _Exchange[R] = _Exchange(
            call,
            operation,
            spelling,
            plan,
            now + timeout_s,
            timeout_s,
            answer,
            WHY.get(),
            at_once,
        )
        # Nothing is applied after the caller's deadline: the server is told the deadline and honours it.
        arrives_in_s = plan.request_s
        if arrives_in_s > timeout_s or plan.fault is Fault.HANG:
            arrives_in_s = timeout_s
        loop.deliver_at(now + arrives_in_s, self._arrive, (exchange,), self.network)
        return await answer

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:  # noqa: ANN401 - a coroutine of any sort
        """Start work of the network: it belongs to no actor."""
        task: asyncio.Task[None] = self._loop.create_task(
            work, name=f"{self.actor}: {name}", context=self.network.copy()
        )
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def strike(self, call: Call, fault: Fault, outcome: str = "", why: str = "") -> None:
        """Record a fault, in the trace and in the count."""
        self.trace.faults[fault.value] += 1
        if self.trace.on:
            shown = f"{outcome}+{fault.value}" if outcome else fault.value
            self.trace.add(self.actor, call.verb, call.object or call.resource, shown, why)

    def _arrive(self, exchange: _Exchange[R]) -> None:
        fault = exchange.plan.fault
        if self.partition is not NO_DIRECTION and self.partition & Direction.REQUESTS:
            self._record(exchange, "partitioned")
            self._time_out(exchange)
        elif fault is not None and fault in _BEFORE:
            self.strike(exchange.call, fault, why=exchange.why)
            self._fail_before(exchange, fault)
        elif exchange.at_once:
            self._apply_at_once(exchange)
        else:
            self.spawn(self._apply(exchange.operation(), exchange), exchange.call.verb)

    def _apply_at_once(self, exchange: _Exchange[R]) -> None:
        """Carry out a call as far as it goes now, which is to its end if it never waits; else go on in a task."""
        operation = exchange.operation()
        try:
            waits_for = operation.send(None)
        except StopIteration as done:
            self._applied(exchange, done.value)
        except Exception as error:  # noqa: BLE001 - whatever the other side raises is the caller's answer
            self._refused(exchange, error)
        else:
            self.spawn(self._apply(_go_on(operation, waits_for), exchange), exchange.call.verb)

    def _fail_before(self, exchange: _Exchange[R], fault: Fault) -> None:
        if fault is Fault.CRASH_BEFORE:
            self._on_crash()
        elif fault is Fault.LOST:
            self._time_out(exchange)
        elif fault is Fault.RESET:
            _settle(exchange.answer, error=exchange.spelling.reset(exchange.call))
        else:
            try:
                refusal = exchange.spelling.refusal(exchange.call, fault, self.plan)
            except RemudaError as error:
                _settle(exchange.answer, error=error)
            else:
                self._answer_later(exchange, refusal)

    async def _apply(self, operation: Awaitable[R], exchange: _Exchange[R]) -> None:
        try:
            answer = await operation
        except Exception as error:  # noqa: BLE001 - whatever the other side raises is the caller's answer
            self._refused(exchange, error)
        else:
            self._applied(exchange, answer)

    def _refused(self, exchange: _Exchange[R], error: Exception) -> None:
        self._record(exchange, type(error).__name__)
        _settle(exchange.answer, error=error)

    def _applied(self, exchange: _Exchange[R], answer: R) -> None:
        fault = exchange.plan.fault
        if fault is None:
            if self.trace.on:
                self._record(exchange, exchange.spelling.outcome(answer))
            self._answer_later(exchange, answer)
        else:
            self.strike(exchange.call, fault, exchange.spelling.outcome(answer), exchange.why)
            self._fail_after(exchange, fault, answer)

    def _fail_after(self, exchange: _Exchange[R], fault: Fault, answer: R) -> None:
        if fault is Fault.RESET_AFTER:
            _settle(exchange.answer, error=exchange.spelling.reset(exchange.call))
        elif fault is Fault.CRASH_UNACKNOWLEDGED:
            self._on_crash()
        elif fault is Fault.CRASH_AFTER:
            _settle(exchange.answer, answer)
            self._loop.call_later(CRASH_AFTER_S, self._on_crash, context=self.network)
        else:
            self._time_out(exchange)

    def _answer_later(self, exchange: _Exchange[R], answer: R) -> None:
        back = self._loop.now + exchange.plan.answer_s
        if back >= exchange.deadline:
            self._time_out(exchange)
        else:
            self._loop.deliver_at(back, self._answer, (exchange, answer), self.network)

    def _answer(self, exchange: _Exchange[R], answer: R) -> None:
        if self.partition is not NO_DIRECTION and self.partition & Direction.ANSWERS:
            self._time_out(exchange)
        else:
            _settle(exchange.answer, answer)

    def _time_out(self, exchange: _Exchange[R]) -> None:
        error = exchange.spelling.timed_out(exchange.call, exchange.timeout_s)
        self._loop.call_at(exchange.deadline, _fail, exchange.answer, error, context=self.network)

    def _record(self, exchange: _Exchange[R], outcome: str) -> None:
        call = exchange.call
        if self.trace.on and not (call.routine and outcome.startswith("2")):
            self.trace.add(
                self.actor, call.verb, call.object or call.resource, outcome, exchange.why
            )


@types.coroutine
def _go_on(work: Coroutine[Any, Any, R], waits_for: object) -> Generator[Any, Any, R]:
    """Go on in a task with what was begun outside one, from the first thing it waits for."""
    while True:
        try:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - handed on: a cancellation is the work's to see
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
        except StopIteration as done:
            answer: R = done.value
            return answer


def _fail(waiting: asyncio.Future[R], error: Exception) -> None:
    _settle(waiting, error=error)


def _settle(
    waiting: asyncio.Future[R], answer: R | None = None, *, error: Exception | None = None
) -> None:
    """Give the caller its answer, if it still waits: it may have been cancelled or have died."""
    if waiting.done():
        return
    if error is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(answer)  # type: ignore[arg-type] # None is an answer like any other
