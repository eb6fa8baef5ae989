"""
An event loop whose time is virtual: it jumps to the next timer instead of waiting for it.

The code that runs on it cannot tell. It refuses what would make a run real or unrepeatable (sockets, threads,
subprocesses), says so when everything waits for ever, and can hold one actor's turns while time goes on. It must not
decide interleavings: those come from seeded delays in the fakes.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import selectors
import threading
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, Unpack

import msgspec

from remuda.sim.stuck import waiting_tasks

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from contextvars import Context

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

ACTOR: ContextVar[str] = ContextVar("actor", default="")
"""Whose code is running. Inherited by tasks and callbacks, so that one actor's turns can be held."""

COLLECT_EVERY_STEPS = 500_000
CLEAN_UP_STEPS_MAX = 100_000
TIMERS_MIN = 1_000

REFUSED = {
    "connect_accepted_socket": "accept a connection",
    "connect_read_pipe": "read from a pipe",
    "connect_write_pipe": "write to a pipe",
    "create_connection": "open a connection",
    "create_datagram_endpoint": "open a datagram socket",
    "create_server": "listen on a socket",
    "create_unix_connection": "open a connection",
    "create_unix_server": "listen on a socket",
    "add_signal_handler": "handle signals",
    "getaddrinfo": "look up a host name",
    "getnameinfo": "look up a host name",
    "run_in_executor": "run something in a thread",
    "sock_accept": "accept a connection",
    "sock_connect": "open a connection",
    "sock_recv": "read from a socket",
    "sock_sendall": "write to a socket",
    "subprocess_exec": "start a process",
    "subprocess_shell": "start a process",
}
"""Methods of a loop that reach the real world, and how the refusal names them."""


class SimError(RuntimeError):
    """The run cannot go on, or was not a fair simulation. Not an error that the simulated code may handle."""


class Deadlock(SimError):
    """Every task waits and no timer is set: nothing can ever happen again."""


class Livelock(SimError):
    """Tasks keep waking each other and virtual time stands still."""


class OutOfTime(SimError):
    """The run reached its bound on virtual time or on steps."""


class RealIo(SimError):
    """The simulated code tried to reach the real world."""


class Leak(SimError):
    """The run ended, but tasks or errors were left over that nobody owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a run may go before it is stopped."""

    until_s: float = 7 * 24 * 3600.0
    """Virtual seconds."""
    steps_max: int = 100_000_000
    """Turns of the loop, in all."""
    steps_at_one_instant_max: int = 200_000
    """Turns of the loop without any virtual time passing."""


class _SealedSelector(selectors.SelectSelector):
    """Stands where a loop waits for the network. It holds the loop's own wake-up pipe and refuses everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: Callable[[str], NoReturn] | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # noqa: ANN401 - as inherited
        if self.refuse is not None:
            self.refuse("wait for a file descriptor")
        return super().register(fileobj, events, data)


class _Handle(msgspec.Struct, eq=False):
    """
    A callback to be. It can what asyncio's own can that callers are given, but is made without a call into Python.

    Every turn of every simulated day makes one.
    """

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = None, ()  # as asyncio does: what will not be called is not kept

    def cancelled(self) -> bool:
        return self.is_cancelled


class _Timer(_Handle):
    """One that was given a time."""

    due: float = 0.0

    def when(self) -> float:
        return self.due


class _NumberedTask(asyncio.Task[T]):
    """A task whose place in a set depends on when it was made, not on its address in memory."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: Context | None,
    ) -> None:
        self._number = number  # before super(): making a task already puts it into a set
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A deterministic loop. ``time()`` starts at 0 and counts virtual seconds."""

    _ready: deque[_Handle]
    """What is to be called in the next turn. asyncio's own, under its own name."""

    _stopping: bool
    """Whether ``stop`` was called. Likewise."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.steps = 0
        """How many turns the loop has taken."""
        self.errors: list[str] = []
        """What nobody caught: reported when the run ends."""
        self.now = 0.0
        """What ``time()`` returns, for those who ask often."""
        self._still_until = self.limits.steps_at_one_instant_max
        self._instants: list[float] = []
        """When timers are due, as a heap; each instant is in it once."""
        self._due: dict[float, list[_Handle]] = {}
        """The timers of each instant, in the order they were set."""
        self._sweep_at = TIMERS_MIN
        self._thread = threading.get_ident()
        self._task_count = 0
        self._collect_at = COLLECT_EVERY_STEPS
        self._held: dict[str, list[_Handle]] = {}
        selector = _SealedSelector()
        super().__init__(selector)
        selector.refuse = self.refuse
        self.set_exception_handler(_note_error)

    # --- time ---------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _Timer(callback, args, copy_context() if context is None else context, due=when)
        self._push(when, handle)
        return handle  # type: ignore[return-value] # ours: see there

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def deliver_at(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        """Call back at a time, come what may: a timer that nobody can cancel, and that costs less."""
        self._push(when, _Handle(callback, args, context))

    def _push(self, when: float, handle: _Handle) -> None:
        timers = self._due.setdefault(when, [])
        timers.append(handle)
        if len(timers) == 1:
            heapq.heappush(self._instants, when)
            if len(self._instants) > self._sweep_at:
                self._sweep()

    def _sweep(self) -> None:
        """Forget cancelled timers: they are most of what long time-outs leave behind."""
        for when, timers in list(self._due.items()):
            if all(timer.is_cancelled for timer in timers):
                del self._due[when]
        self._instants[:] = sorted(self._due)  # sorted, so it is a heap
        self._sweep_at = 2 * len(self._instants) + TIMERS_MIN

    def _run_once(self) -> None:  # noqa: C901 - in one piece, because a call in it is a call per step
        """Take turns until told to stop: each is what is ready now, or else what is due next, however far that is."""
        ready, instants, due, heappop = self._ready, self._instants, self._due, heapq.heappop
        while True:
            self.steps += 1
            if not ready:
                self._jump()
            while instants and instants[0] <= self.now:
                ready.extend(due.pop(heappop(instants)))
            if self.steps > self._still_until:
                self._give_up()
            turns = len(ready)
            while turns:  # what these make ready is for the next step
                turns -= 1
                handle = ready.popleft()
                # What asyncio's ``Handle._run`` does, without its call: this is every step of every simulated day.
                if handle.is_cancelled:
                    continue
                try:
                    handle.context.run(handle.callback, *handle.args)  # type: ignore[arg-type] # not cancelled
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - reported, as asyncio does
                    self._report(handle, error)
            if self._stopping:  # asyncio's own: ``run_forever`` ends after this
                return

    def _report(self, handle: _Handle, error: BaseException) -> None:
        known = asyncio.Handle(handle.callback or _nothing, handle.args, self, handle.context)
        message = f"Exception in callback {known!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": known})

    def _jump(self) -> None:
        """Go to the next instant that has a timer, and make its timers ready: nothing can happen before it."""
        while True:
            if not self._instants:
                raise Deadlock(f"stuck at {self.now:.6f} s: every task waits and no timer is set")
            when = heapq.heappop(self._instants)
            timers = self._due.pop(when)
            if not (timers[0].is_cancelled and all(timer.is_cancelled for timer in timers)):
                break
        self._ready.extend(timers)
        steps, limits = self.steps, self.limits
        if when > self.now:
            self.now = when
            self._still_until = steps + limits.steps_at_one_instant_max
            if when > limits.until_s:
                raise OutOfTime(f"still running after {limits.until_s:.0f} virtual seconds")
        if steps > limits.steps_max:
            raise OutOfTime(f"still running after {limits.steps_max} steps")
        if steps >= self._collect_at:
            self._collect_at = (steps // COLLECT_EVERY_STEPS + 1) * COLLECT_EVERY_STEPS
            gc.collect(1)

    def _give_up(self) -> NoReturn:
        raise Livelock(
            f"stuck at {self.now:.6f} s: {self.limits.steps_at_one_instant_max} steps "
            "and no time passed; tasks keep waking each other"
        )

    def start_over(self) -> None:
        """Forget how far the run has come, so that a stopped one can still be cleaned up."""
        self.steps = 0
        self._collect_at = COLLECT_EVERY_STEPS
        self._still_until = CLEAN_UP_STEPS_MAX
        self.limits = Limits(until_s=self.now + self.limits.until_s)
        for actor in list(self._held):
            self.release(actor)

    # --- tasks and turns ----------------------------------------------------------------------------------------

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._task_count += 1
        name = str(name) if name else f"task-{self._task_count}"
        return _NumberedTask(coro, number=self._task_count, loop=self, name=name, context=context)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context)
        if self._held:
            self._held.get(handle.context.get(ACTOR, ""), self._ready).append(handle)
        else:
            self._ready.append(handle)
        return handle  # type: ignore[return-value] # ours: see there

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        # asyncio itself calls this to finish abandoned generators; only another thread is a breach.
        if threading.get_ident() != self._thread:
            self.refuse("be woken by another thread")
        return self.call_soon(callback, *args, context=context)

    def hold(self, actor: str) -> None:
        """Stop one actor's turns: what would wake it is kept, in order, until ``release``."""
        self._held.setdefault(actor, [])

    def release(self, actor: str) -> None:
        """Let a held actor go on: all that was kept happens now, as after a long pause of a process."""
        self._ready.extend(self._held.pop(actor, ()))

    def is_held(self, actor: str) -> bool:
        return actor in self._held

    def refuse(self, what: str) -> NoReturn:
        """Refuse the real world, and remember it: a loop's edge may swallow the error, the run must not."""
        self.errors.append(refusal(what))
        raise RealIo(refusal(what))


def _nothing() -> None:
    """Stand for a callback that has cancelled itself."""


def _refusing(what: str) -> Callable[..., NoReturn]:
    def method(self: VirtualTimeLoop, *_args: object, **_kwargs: object) -> NoReturn:
        self.refuse(what)

    return method


for _name, _what in REFUSED.items():
    setattr(VirtualTimeLoop, _name, _refusing(_what))


def refusal(what: str) -> str:
    return (
        f"simulated code tried to {what}. On virtual time nothing real may happen: "
        "give it a fake port from remuda.sim instead"
    )


def _note_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualTimeLoop)
    error = context.get("exception")
    loop.errors.append(f"{context.get('message')}: {error!r}" if error else str(context["message"]))


def run(
    main: Callable[[], Coroutine[Any, Any, T]], *, seed: int = 0, limits: Limits | None = None
) -> T:
    """
    Run ``main`` to its end on virtual time and return its answer.

    A run that is stuck, endless, or leaves tasks behind raises a SimError that names the tasks and where they wait.
    The seed is only told in errors: randomness is drawn from ``SeededIds``.
    """
    loop = VirtualTimeLoop(limits)
    with _collected_at_fixed_steps():
        try:
            answer = loop.run_until_complete(main())
            left = waiting_tasks(loop)
        except SimError as error:
            raise type(error)(_explained(error, seed, waiting_tasks(loop))) from error
        finally:
            _clean_up(loop)
    if left:
        raise Leak(_explained("the run ended, but these tasks still run", seed, left))
    if loop.errors:
        raise Leak(_explained("the run ended with errors nobody caught", seed, loop.errors))
    return answer


def _explained(what: object, seed: int, lines: list[str]) -> str:
    return "\n  ".join([f"{what} (seed {seed}):", *lines])


def _clean_up(loop: VirtualTimeLoop) -> None:
    """Cancel what is left and let it end, within bounds: this must finish whatever the tasks do."""
    loop.start_over()
    try:
        tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(_all_done(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
    except SimError:
        loop.errors.append("some tasks did not end when they were cancelled")
    finally:
        loop.close()


async def _all_done(tasks: list[asyncio.Task[Any]]) -> None:
    for _ in range(CLEAN_UP_STEPS_MAX):
        if all(task.done() for task in tasks):
            break
        await asyncio.sleep(0.001)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # looked at, so that asyncio does not log it: the first error is told


@contextmanager
def _collected_at_fixed_steps() -> Iterator[None]:
    """Collect garbage at fixed steps only: when cycles go must not depend on what ran before this run."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
