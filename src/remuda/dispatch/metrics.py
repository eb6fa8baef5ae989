"""
Dispatch's metrics, on a registry that is handed in. No series is per Pod, per job or per tenant.

Counters begin at 0 for every value that they can have (but for what a forge answers), and gauges are written as 0: an
alert that waits for a series to appear, or to go, is no alert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

from remuda.dispatch.announcements import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import CollectorRegistry

SECONDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0),
    *(120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0),
)
HANDED: Final = ("first", "again")
"""Whether a job was handed over for the first time or its answer had been lost."""
POLLS: Final = (
    *("handed", "nothing", "left", "already_delivered", "refused", "come_back", "client_gone"),
)
MINTS: Final = ("ok", "unavailable", "throttled", "refused")
RECOVERIES: Final = (
    *("stale_claim", "completed_claim", "orphan_requeued", "orphan_completed", "pod_missing_claim"),
    *(
        "orphaned_session",
        "orphaned_stamped_pod",
        "queued_completed",
        "queued_found",
        "redelivered",
    ),
    *("unused_registration",),
)
WEBHOOKS: Final = (
    *("kept", "duplicate", "not_kept", "client_gone", "put_back", "given_up", "forge_refused"),
    *("rejected_400", "rejected_401", "rejected_403", "rejected_408", "rejected_413"),
    *("ping", "other_event", "other_action", "no_guid", "malformed"),
    *("no_installation", "installation_not_served", "repository_not_served"),
    *OUTCOMES,
)
"""How a message can end, with why one was passed over."""
WORKERS: Final = (
    *("intake", "sweep", "redelivery", "local_jobs", "stops", "gauges", "retention"),
    *("stale-claims", "completed-claims", "orphaned-runners", "missing-pods", "stamped-pods"),
    *("stale-queued", "unused-registrations"),
)
INVARIANTS: Final = ("S1", "S2", "S3", "S8", "V1", "V2", "V3", "V7")


class DispatchMetrics:
    """Everything that a replica of dispatch counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._handed = Histogram(
            "remuda_dispatch_seconds",
            "From a job's place in the queue to its hand-over",
            ["outcome"],
            buckets=SECONDS,
            registry=registry,
        )
        self.polls_waiting = self._gauge("dispatch_polls_waiting", "Polls that are held open")
        self._polls = self._counter("dispatch_polls", "Polls by how they ended", "outcome")
        self._mint = Histogram(
            "remuda_jit_mint_seconds",
            "How long the forge takes to register a runner",
            ["outcome"],
            buckets=SECONDS,
            registry=registry,
        )
        self._recoveries = self._counter("recoveries", "What workers mended, by kind", "kind")
        self._stranded = Histogram(
            "remuda_recovery_stranded_seconds",
            "How long a job sat on a runner that did not run it, before it was queued again",
            buckets=SECONDS,
            registry=registry,
        )
        self._violations = Gauge(
            "remuda_invariant_violations",
            "What should never be, as seen now",
            ["invariant"],
            registry=registry,
        )
        self._forge_requests = self._counter(
            "forge_requests", "Requests to forges", "operation", "status"
        )
        self.forge_remaining = self._gauge(
            "forge_rate_limit_remaining",
            "The least that any installation has left of its rate limit",
        )
        self._webhooks = self._counter("webhooks", "Messages of forges by outcome", "outcome")
        self.deliveries_waiting = self._gauge("deliveries_waiting", "Messages not worked off yet")
        self._worker_failures = self._counter(
            "worker_failures", "Turns of a worker that failed", "worker"
        )
        self._queued = self._gauge("jobs_queued", "Jobs that wait", "pool")
        self._oldest = self._gauge(
            "jobs_oldest_queued_age_seconds", "Age of the job that has waited for longest", "pool"
        )
        # Kept, because looking one up takes longer than counting: these are on the way of every hand-over.
        self._of_hand = {outcome: self._handed.labels(outcome) for outcome in HANDED}
        self._of_poll = {outcome: self._polls.labels(outcome) for outcome in POLLS}
        self._of_mint = {outcome: self._mint.labels(outcome) for outcome in MINTS}
        self._pools: set[str] = set()
        self._begin()

    def handed(self, seconds: float, *, again: bool = False) -> None:
        self._of_hand["again" if again else "first"].observe(max(0.0, seconds))

    def polled(self, outcome: str) -> None:
        assert outcome in POLLS, f"no poll ends with {outcome}"
        self._of_poll[outcome].inc()

    def minted(self, seconds: float, outcome: str = "ok") -> None:
        assert outcome in MINTS, f"no mint ends with {outcome}"
        self._of_mint[outcome].observe(seconds)

    def recovered(self, kind: str, count: int = 1) -> None:
        assert kind in RECOVERIES, f"no worker mends {kind}"
        self._recoveries.labels(kind).inc(count)

    def stranded(self, seconds: float) -> None:
        self._stranded.observe(max(0.0, seconds))

    def violations(self, invariant: str, count: int) -> None:
        assert invariant in INVARIANTS, f"nobody watches {invariant}"
        self._violations.labels(invariant).set(count)

    def forge_request(self, operation: str, status: str) -> None:
        """Count a request by what it was for and its status (``201``, or ``timeout`` where there was none)."""
        self._forge_requests.labels(operation, status).inc()

    def webhook(self, outcome: str) -> None:
        self._webhooks.labels(outcome).inc()

    def worker_failed(self, worker: str) -> None:
        self._worker_failures.labels(worker).inc()

    def queues(self, queued: Mapping[str, tuple[int, float]], pools: Iterable[str]) -> None:
        """Publish how many wait in each pool and for how long; a pool that is gone is dropped."""
        known = set(pools) | set(queued)
        for gone in self._pools - known:
            for gauge in (self._queued, self._oldest):
                gauge.remove(gone)
        self._pools = known
        for pool in sorted(known):
            count, oldest_s = queued.get(pool, (0, 0.0))
            self._queued.labels(pool).set(count)
            self._oldest.labels(pool).set(max(0.0, oldest_s))

    def _begin(self) -> None:
        for kind in RECOVERIES:
            self._recoveries.labels(kind)
        for outcome in WEBHOOKS:
            self._webhooks.labels(outcome)
        for worker in WORKERS:
            self._worker_failures.labels(worker)
        for invariant in INVARIANTS:
            self._violations.labels(invariant).set(0)

    def _gauge(self, name: str, says: str, *labels: str) -> Gauge:
        return Gauge(f"remuda_{name}", says, labels, registry=self.registry)

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"remuda_{name}", says, labels, registry=self.registry)
