"""
What this replica has learned the hard way: who is passed over for now, and what is out of order.

Kept in memory only: a replica that starts anew learns it again, at the cost of a few attempts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.control.backoff import Backoff

if TYPE_CHECKING:
    from remuda.dispatch.settings import PollSettings
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

KUBE: Final = "kube"
"""The API server, beside the kinds of forges: without it no Pod can be stamped."""
_PASSED_MAX = 10_000


@dataclass(slots=True)
class _Circuit:
    """Failures in a row of one outside thing."""

    failures: int = 0
    until: float = 0.0
    probing: bool = False


@dataclass(slots=True)
class Troubles:
    """After several failures in a row a thing is left alone, then tried by one at a time until it works again."""

    settings: PollSettings
    clock: Clock
    ids: Ids
    _circuits: dict[str, _Circuit] = field(default_factory=dict)
    _tenants: dict[str, float] = field(default_factory=dict)

    def pause_s(self, thing: str) -> float:
        """Return how long a thing is left alone from now on; 0: it may be tried."""
        circuit = self._circuits.get(thing)
        if circuit is None or circuit.failures < self.settings.outage_failures:
            return 0.0
        left_s = circuit.until - self.clock.monotonic()
        return max(left_s, self.settings.outage_pause_s if circuit.probing else 0.0, 0.0)

    def begin(self, thing: str) -> bool:
        """Ask to try a thing. In an outage one at a time may; ``end`` or an outcome makes room for the next."""
        if self.pause_s(thing) > 0:
            return False
        circuit = self._circuits.get(thing)
        if circuit is not None and circuit.failures >= self.settings.outage_failures:
            circuit.probing = True
        return True

    def end(self, thing: str) -> None:
        """End a try that says nothing about the thing."""
        if (circuit := self._circuits.get(thing)) is not None:
            circuit.probing = False

    def worked(self, thing: str) -> None:
        self._circuits.pop(thing, None)

    def failed(self, thing: str) -> None:
        circuit = self._circuits.setdefault(thing, _Circuit())
        circuit.failures += 1
        circuit.probing = False
        beyond = circuit.failures - self.settings.outage_failures + 1
        if beyond > 0:
            pause = Backoff(self.settings.outage_pause_s, self.settings.outage_pause_max_s)
            wait_s = pause.wait_s(beyond, self.ids.fraction())
            circuit.until = max(circuit.until, self.clock.monotonic() + wait_s)

    def pass_over(self, tenant: str, seconds: float) -> None:
        if len(self._tenants) < _PASSED_MAX:
            until = self.clock.monotonic() + seconds
            self._tenants[tenant] = max(until, self._tenants.get(tenant, until))

    def passed_over(self) -> frozenset[str]:
        """Return the tenants that are given nothing for now."""
        if not self._tenants:
            return frozenset()
        now = self.clock.monotonic()
        for tenant in [tenant for tenant, until in self._tenants.items() if until <= now]:
            del self._tenants[tenant]
        return frozenset(self._tenants)
