"""
The host operator's metrics, on a registry that is handed in.

A host has exactly one series of its phase, which is how an alert counts them. A host's series go with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from remuda.hosts.decide.roll import Roll

ATTEMPTS: Final = ("converged", "needs_drain", "failed")
STANDS: Final = ("changing", "failed", "waiting")


class HostMetrics:
    """Everything the operator counts. One per process: it outlives reigns."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry: Final = registry
        self._phase = Gauge(
            "remuda_host_phase",
            "1 for the phase that a host is in; exactly one series per host",
            ["host", "fleet", "phase"],
            registry=registry,
        )
        self._failures = Gauge(
            "remuda_host_attempts_failed",
            "How often the wanted configuration has failed on a host",
            ["host", "fleet"],
            registry=registry,
        )
        self._attempts = Counter(
            "remuda_host_attempts",
            "Bootstraps and updates of hosts, by outcome",
            ["fleet", "outcome"],
            registry=registry,
        )
        self._cap = self._fleet_gauge("roll_cap", "Hosts that a roll may change at once")
        self._halted = self._fleet_gauge("roll_halted", "1 if a roll stands still, 0 if not")
        self._roll = Gauge(
            "remuda_hosts_roll",
            "Hosts by where they stand in a roll",
            ["fleet", "stand"],
            registry=registry,
        )
        self._orphans = Gauge(
            "remuda_hosts_orphans",
            "Rented Macs that are claimed by name and belong to no Host",
            ["zone"],
            registry=registry,
        )
        self._known: dict[str, tuple[str, str]] = {}
        self._fleets: set[str] = set()

    def host(self, name: str, fleet: str, phase: str, failures: int) -> None:
        """Publish the phase of a host, in place of the one before."""
        known = self._known.get(name)
        if known is not None and known != (fleet, phase):
            self.forget(name)
        self._known[name] = (fleet, phase)
        self._phase.labels(name, fleet, phase).set(1)
        self._failures.labels(name, fleet).set(failures)

    def attempted(self, fleet: str, outcome: str) -> None:
        self._introduce(fleet)
        self._attempts.labels(fleet, outcome).inc()

    def roll(self, fleet: str, roll: Roll) -> None:
        self._introduce(fleet)
        self._cap.labels(fleet).set(roll.cap)
        self._halted.labels(fleet).set(1 if roll.halted else 0)
        for stand, names in zip(STANDS, (roll.changing, roll.failed, roll.waiting), strict=True):
            self._roll.labels(fleet, stand).set(len(names))

    def orphans(self, zone: str, count: int) -> None:
        self._orphans.labels(zone).set(count)

    def forget(self, name: str) -> None:
        """Drop a host's series: it is gone, or no longer what they say."""
        self._known.pop(name, None)
        for metric in (self._phase, self._failures):
            metric.remove_by_labels({"host": name})

    def forget_all(self) -> None:
        """Drop every series of hosts: another replica leads now, and two must not tell two truths."""
        for name in sorted(self._known):
            self.forget(name)
        for metric in (self._cap, self._halted, self._roll, self._orphans):
            metric.clear()

    def _introduce(self, fleet: str) -> None:
        """Write the counts of a new fleet as 0, so that the first one is an increase and not an appearance."""
        if fleet in self._fleets:
            return
        self._fleets.add(fleet)
        for outcome in ATTEMPTS:
            self._attempts.labels(fleet, outcome)

    def _fleet_gauge(self, name: str, what: str) -> Gauge:
        return Gauge(f"remuda_hosts_{name}", what, ["fleet"], registry=self.registry)
