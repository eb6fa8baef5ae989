"""
Delays and faults at any other port: wrap a fake once, and every async method of it goes over the actor's link.

For a new port (VMs, jobs, forge, registry, host shell) write its fake as if nothing ever failed, then::

    faults = PortFaults(port="vms", timeout_s=30, unknown=vm_outcome_unknown, refused=vm_refused)
    vms = faulty_port(FakeVms(world), link, faults)

``vms`` has the type of the fake. Its calls are late, lost, applied but unacknowledged, hung, refused and cut off by
partitions, by the same plan as the Kubernetes wire: rates by chance, and scripts by method name
(``Scripted(Fault.UNACKNOWLEDGED, nth=3, actor="mac-1", verb="clone", resource="vms")``). Attributes that are not
coroutine functions pass through unharmed.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from remuda.sim.plan import Call, Fault, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.model.errors import RemudaError
    from remuda.sim.link import Link

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFaults:
    """How one port spells the faults of its line. Implements ``link.Spelling``."""

    port: str
    timeout_s: float
    unknown: Callable[[str], RemudaError]
    """The error for "no answer": it may or may not have been done."""
    refused: Callable[[str], RemudaError]
    """The error for "it said no": it was not done."""

    def timed_out(self, call: Call, timeout_s: float) -> Exception:
        return self.unknown(f"{call.verb} {call.object}: no answer within {timeout_s:g} s")

    def reset(self, call: Call) -> Exception:
        return self.unknown(f"{call.verb} {call.object}: the connection was reset")

    def refusal(self, call: Call, fault: Fault, _plan: Plan) -> object:
        raise self.refused(f"{call.verb} {call.object}: {fault.value}")

    def outcome(self, _answer: object) -> str:
        return "ok"


def faulty_port(inner: P, link: Link, faults: PortFaults) -> P:
    """Return ``inner`` with its async methods behind the actor's link."""
    return cast("P", _FaultyPort(inner, link, faults))


class _FaultyPort:
    def __init__(self, inner: object, link: Link, faults: PortFaults) -> None:
        self._inner = inner
        self._link = link
        self._faults = faults

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        found = getattr(self._inner, name)
        return partial(self._call, name, found) if inspect.iscoroutinefunction(found) else found

    async def _call(self, name: str, method: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 - as the port's
        first = args[0] if args and isinstance(args[0], str) else ""
        call = Call(name, self._faults.port, f"{self._faults.port}/{first}".rstrip("/"))
        return await self._link.exchange(
            call, lambda: method(*args, **kwargs), self._faults, self._faults.timeout_s
        )
