"""
The operator's metrics, on a registry that is handed in. No series is per Pod.

Gauges are written as 0, never skipped: a missing series looks like a dead operator. A pool's series go with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from remuda.kube.node_view import UNHEALTHY_REASONS
from remuda.pools.decide.actions import Cause
from remuda.pools.scaling_metrics import ScalingMetrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

    from remuda.pools.decide.counts import Counts

BLOCKED_REASONS: Final = ("fleet_cap", "no_healthy_node", "fleet_view_error")
TIMEOUT_REASONS: Final = {Cause.START_TIMEOUT: "not_warm", Cause.UNSCHEDULABLE: "unschedulable"}
STATES: Final = ("warm", "busy", "starting", "stale", "terminating")


class PoolMetrics:
    """Everything the operator counts. One per process: it outlives reigns."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.scaling = ScalingMetrics(registry)
        self._rolling = self._gauge("rolling_pods", "Runners that count against the roll cap")
        self._stale = self._gauge("stale_pods", "Runners made from an older template")
        self._cap = self._gauge("roll_concurrency_cap", "Runners a roll may take away at once")
        self._desired = self._gauge("desired_replicas", "Runners wanted, busy ones included")
        self._oldest_starting = self._gauge(
            "oldest_starting_age_seconds", "Age of the runner that has been starting for longest"
        )
        self._oldest_terminating = self._gauge(
            "oldest_terminating_age_seconds",
            "Age of the deletion that has been waiting for longest",
        )
        self._runners = self._gauge("runners", "Runners by state", "state")
        self._timeouts = self._counter("start_timeouts", "Starts given up, by reason", "reason")
        self._blocked = self._counter(
            "admission_blocked", "Looks at a pool in which the start-rate brake held", "reason"
        )
        self._reaped = self._counter("reaped", "Runners removed, by cause", "cause")
        self._refused = self._counter("template_refused", "Looks at a pool whose template is bad")
        self._report_failures = Counter(
            "remuda_pool_report_failures",
            "Ends of runners that dispatch did not hear of in time",
            registry=registry,
        )
        self._avoided = Gauge(
            "remuda_fleet_avoided_hosts",
            "Hosts that new runners avoid because starts fail there",
            ["fleet"],
            registry=registry,
        )
        self._filtered = Gauge(
            "remuda_fleet_filtered_nodes",
            "Hosts that take no new runner, by reason",
            ["fleet", "reason"],
            registry=registry,
        )
        self._per_pool: tuple[Gauge | Counter, ...] = (
            *(self._rolling, self._stale, self._cap, self._desired, self._oldest_starting),
            *(self._oldest_terminating, self._runners, self._timeouts, self._blocked),
            *(self._reaped, self._refused),
        )
        self._known: set[str] = set()

    @property
    def registry(self) -> CollectorRegistry:
        return self._registry

    def pool(self, pool: str, counts: Counts, desired: int) -> None:
        """Publish what one look at a pool counted."""
        self._introduce(pool)
        self._rolling.labels(pool).set(counts.unavailable)
        self._stale.labels(pool).set(counts.stale)
        self._cap.labels(pool).set(counts.roll_cap)
        self._desired.labels(pool).set(desired)
        self._oldest_starting.labels(pool).set(max(0.0, counts.oldest_starting_age_s))
        self._oldest_terminating.labels(pool).set(max(0.0, counts.oldest_terminating_age_s))
        for state in STATES:
            self._runners.labels(pool, state).set(getattr(counts, state))

    def reaped(self, pool: str, cause: Cause) -> None:
        self._introduce(pool)
        self._reaped.labels(pool, cause.value).inc()
        if reason := TIMEOUT_REASONS.get(cause):
            self._timeouts.labels(pool, reason).inc()

    def blocked(self, pool: str, reason: str) -> None:
        self._introduce(pool)
        self._blocked.labels(pool, reason).inc()

    def template_refused(self, pool: str) -> None:
        self._introduce(pool)
        self._refused.labels(pool).inc()

    def report_failed(self) -> None:
        self._report_failures.inc()

    def fleet(self, fleet: str, filtered: Mapping[str, int]) -> None:
        """Publish how many hosts of a fleet take no new runner, by reason; every reason is there."""
        self._avoided.labels(fleet)  # hosts are judged a little later: until then there is none
        for reason in UNHEALTHY_REASONS:
            self._filtered.labels(fleet, reason).set(filtered.get(reason, 0))

    def avoided(self, fleet: str, hosts: int) -> None:
        self._avoided.labels(fleet).set(hosts)

    def forget(self, pool: str) -> None:
        """Drop a pool's series: it is gone, and its last numbers are nobody's."""
        self._known.discard(pool)
        self.scaling.forget(pool)
        for metric in self._per_pool:
            metric.remove_by_labels({"pool": pool})

    def forget_fleet(self, fleet: str) -> None:
        for metric in (self._avoided, self._filtered):
            metric.remove_by_labels({"fleet": fleet})

    def forget_all(self) -> None:
        """Drop every series of pools and fleets: another replica leads now, and two must not tell two truths."""
        for pool in sorted(self._known):
            self.forget(pool)
        for metric in (self._avoided, self._filtered):
            metric.clear()

    def _introduce(self, pool: str) -> None:
        """Write every series of a new pool as 0, so that the first event is an increase and not an appearance."""
        if pool in self._known:
            return
        self._known.add(pool)
        for reason in BLOCKED_REASONS:
            self._blocked.labels(pool, reason)
        for reason in TIMEOUT_REASONS.values():
            self._timeouts.labels(pool, reason)
        for cause in Cause:
            self._reaped.labels(pool, cause.value)
        self._refused.labels(pool)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"remuda_pool_{name}", what, ["pool", *labels], registry=self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"remuda_pool_{name}", what, ["pool", *labels], registry=self._registry)
