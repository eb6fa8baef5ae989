"""
What goes wrong, and when: fault rates drawn from a seeded stream, and scripted faults that strike one exact call.

Rates sample; scripts enumerate ("the 3rd patch of leases by ctl-a: applied, but the answer is lost"). This module only
plans. Carrying a plan out is the business of ``link`` (calls) and ``streams`` (watches).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import log
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.sim.ids import SeededIds


Thresholds = tuple[tuple[float, "Fault"], ...]


class Fault(StrEnum):
    """One way in which a call or a watch goes wrong."""

    # Calls
    LOST = "lost"  # never applied; the caller times out
    UNACKNOWLEDGED = "unacknowledged"  # applied; the caller times out
    HANG = "hang"  # applied only as the caller gives up
    CONFLICT = "conflict"  # 409, not applied
    EXPIRED = "expired"  # 410, on a list or a watch
    THROTTLED = "throttled"  # 429 with a time to wait
    SERVER_ERROR = "server-error"  # 500, not applied
    RESET = "reset"  # connection reset before it was applied
    RESET_AFTER = "reset-after"  # connection reset after it was applied
    CRASH_BEFORE = "crash-before"  # the caller dies, not applied
    CRASH_UNACKNOWLEDGED = "crash-unacknowledged"  # applied, the caller dies before the answer
    CRASH_AFTER = "crash-after"  # applied and answered, then the caller dies
    # Events of a watch
    DROP = "drop"  # this event is never seen
    COALESCE = "coalesce"  # held back; lost if a newer one of the same object comes
    DELAY = "delay"  # this and all later events come late
    CUT = "cut"  # the stream ends before this event
    EXPIRE = "expire"  # the stream ends in a 410 before this event
    FREEZE_1 = "freeze-1"  # this event is held until the next one
    FREEZE_10 = "freeze-10"  # this event and nine more are held
    FREEZE_ALL = "freeze-all"  # nothing more comes on this stream, but it stays open


READS = frozenset({"get", "list", "watch"})
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_ANY_CALL = (Fault.LOST, Fault.RESET, Fault.THROTTLED, Fault.SERVER_ERROR, Fault.HANG)
_APPLIED = (Fault.UNACKNOWLEDGED, Fault.RESET_AFTER)
OF_A_PORT = _ANY_CALL + _APPLIED
OF_VERB: dict[str, tuple[Fault, ...]] = {
    "get": _ANY_CALL,
    "list": (*_ANY_CALL, Fault.EXPIRED),
    "watch": (*_ANY_CALL, Fault.EXPIRED),
    # A create is never told 409 by chance: a server that says "exists" of what does not exist is no fair fault.
    "create": OF_A_PORT,
    "update": (*OF_A_PORT, Fault.CONFLICT),
    "patch": (*OF_A_PORT, Fault.CONFLICT),
    "delete": (*OF_A_PORT, Fault.CONFLICT),
}
OF_EVENT = (
    Fault.DROP,
    Fault.COALESCE,
    Fault.DELAY,
    Fault.CUT,
    Fault.EXPIRE,
    Fault.FREEZE_1,
    Fault.FREEZE_10,
    Fault.FREEZE_ALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """All rates in one place. A rate is the chance, from 0 to 1, that one call (or one watch event) is struck."""

    latency_min_ms: float = 0.5
    latency_mean_ms: float = 4.0
    """Beyond the least: exponential, so that a few calls are slow and overtake nothing."""
    late_s: float = 20.0
    """The longest that a delayed or coalesced event is held back."""
    retry_after_s: float = 2.0
    """What a 429 asks for."""

    lost: float = 0.0
    unacknowledged: float = 0.0
    hang: float = 0.0
    conflict: float = 0.0
    expired: float = 0.0
    throttled: float = 0.0
    server_error: float = 0.0
    reset: float = 0.0
    reset_after: float = 0.0

    drop: float = 0.0
    coalesce: float = 0.0
    delay: float = 0.0
    cut: float = 0.0
    expire: float = 0.0
    freeze_1: float = 0.0
    freeze_10: float = 0.0
    freeze_all: float = 0.0
    torn: float = 0.1
    """The chance that a chunk of a stream is torn in two, in the middle of an event. Not a fault: TCP may."""

    def thresholds(self, possible: Iterable[Fault]) -> Thresholds:
        """Return, for a draw from [0, 1), below which number it means which fault."""
        below = 0.0
        found: list[tuple[float, Fault]] = []
        for fault in possible:
            rate = float(getattr(self, fault.value.replace("-", "_")))
            below += rate
            if rate > 0:
                found.append((below, fault))
        return tuple(found)


CALM = Faults()
ROUGH = Faults(
    latency_mean_ms=30.0,
    lost=0.01,
    unacknowledged=0.01,
    hang=0.005,
    conflict=0.02,
    expired=0.05,
    throttled=0.02,
    server_error=0.02,
    reset=0.01,
    reset_after=0.01,
    drop=0.02,
    coalesce=0.05,
    delay=0.05,
    cut=0.02,
    expire=0.01,
    freeze_1=0.02,
    freeze_10=0.01,
    freeze_all=0.005,
)


@dataclass(frozen=True, slots=True)
class Scripted:
    """
    Strike one exact call: the ``nth`` (from 1) that matches. An empty field matches anything.

    ``verb`` is that of the API (``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``), a port's
    method, ``write`` for any write, or ``event`` for an event of a watch (only named so, never by being empty).
    """

    fault: Fault
    nth: int = 1
    actor: str = ""
    verb: str = ""
    resource: str = ""

    def matches(self, call: Call) -> bool:
        if self.resource not in ("", call.resource):
            return False
        if self.verb == "write":
            return call.writes
        return self.verb == call.verb or (self.verb == "" and call.verb != "event")


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked of the outside world, in the words of the trace."""

    verb: str
    resource: str
    object: str = ""
    routine: bool = False
    """Done all the time and told only when it fails: the renewal of a lease."""

    @property
    def writes(self) -> bool:
        return self.verb in WRITES


class CallPlan(msgspec.Struct):
    """How one call goes: how long each way takes, and what goes wrong."""

    request_s: float
    answer_s: float
    fault: Fault | None = None


class Plan:
    """One actor's luck. Lives as long as the world: a restarted process does not start its luck afresh."""

    def __init__(self, actor: str, ids: SeededIds, *, spared: Iterable[str] = ()) -> None:
        """Make a calm plan. ``spared`` names resources that chance does not strike; scripts still do."""
        self.actor = actor
        self._ids = ids
        self._random = ids.random.random
        self._spared = frozenset(spared)
        self._scripted: tuple[Scripted, ...] = ()
        self._matched: list[int] = []
        self.write_calls = 0
        """How many writes were tried, routine ones aside."""
        self.set_faults(CALM)

    def set_faults(self, faults: Faults) -> None:
        """Change the rates from now on."""
        self.faults = faults
        self._of_verb = {verb: faults.thresholds(kinds) for verb, kinds in OF_VERB.items()}
        self._of_port = faults.thresholds(OF_A_PORT)
        self._of_event = faults.thresholds(OF_EVENT)
        self._latency_min_s = faults.latency_min_ms / 1000.0
        self._latency_mean_s = faults.latency_mean_ms / 1000.0

    def script(self, scripted: Iterable[Scripted]) -> None:
        """Set the scripted faults, and start counting what they match."""
        self._scripted = tuple(s for s in scripted if s.actor in ("", self.actor))
        self._matched = [0] * len(self._scripted)

    def call(self, call: Call) -> CallPlan:
        if not call.routine and call.writes:
            self.write_calls += 1
        # Twice ``latency_s``, written out: this is asked for every call of a simulated day.
        least_s, mean_s, random = self._latency_min_s, self._latency_mean_s, self._random
        request_s = least_s - log(1.0 - random()) * mean_s
        answer_s = least_s - log(1.0 - random()) * mean_s
        fault = self._script_of(call) if self._scripted else None
        if fault is None and call.resource not in self._spared:
            fault = self._chance(self._of_verb.get(call.verb, self._of_port))
        return CallPlan(request_s, answer_s, fault)

    def event(self, resource: str) -> Fault | None:
        fault = self._script_of(Call("event", resource))
        if fault is None and resource not in self._spared:
            fault = self._chance(self._of_event)
        return fault

    def latency_s(self) -> float:
        return self._latency_min_s - log(1.0 - self._random()) * self._latency_mean_s

    def late_s(self) -> float:
        return self._ids.fraction() * self.faults.late_s

    def torn(self) -> bool:
        return self._ids.fraction() < self.faults.torn

    def _script_of(self, call: Call) -> Fault | None:
        struck = None
        for index, scripted in enumerate(self._scripted):
            if scripted.matches(call):
                self._matched[index] += 1
                if self._matched[index] == scripted.nth:
                    struck = scripted.fault
        return struck

    def _chance(self, thresholds: Thresholds) -> Fault | None:
        draw = self._random()  # one per call, whatever the rates: changing one shifts no other call
        for below, fault in thresholds:
            if draw < below:
                return fault
        return None
