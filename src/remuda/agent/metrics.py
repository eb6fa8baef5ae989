"""
The agent's metrics, on a registry that is handed in. No series is per Pod or per VM.

Gauges are written as 0, never skipped: a missing series looks like a dead agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

OPS: Final = (
    "list",
    "get",
    "pull",
    "golden",
    "clone",
    "set",
    "run",
    "stop",
    "delete",
    "drop",
    "exec",
)
"""The calls of a driver, as they are counted."""
PATHS: Final = ("warm", "cold")
"""Whether an image's golden was there when a Pod came."""
STUCK: Final = ("waiting", "pulling", "cloning", "booting", "unpublished", "terminating")
"""What a Pod may be stuck in."""
ENDS: Final = ("succeeded", "failed")
REMOVED: Final = ("vm", "image")
WHOSE: Final = ("ours", "others")
_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)


class AgentMetrics:
    """Everything the agent counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.provision_delay = self._histogram(
            "pod_provision_delay_seconds", "From a Pod's creation until its VM is being made"
        )
        self.boot = self._histogram("vm_boot_seconds", "From run until the guest is ready")
        self.provision = self._histogram(
            "vm_provision_seconds",
            "From the first step until the VM runs; warm: its image was there",
            "path",
        )
        self.op = self._histogram("op_seconds", "Calls of the driver", "op")
        self.timeouts = self._counter(
            "op_timeouts", "Calls that hung and were killed at their deadline", "op"
        )
        self.failures = self._counter("op_failures", "Calls that failed, time-outs too", "op")
        self.ends = self._counter("vms_ended", "VMs that ended, by verdict", "verdict")
        self.bugs = self._counter(
            "unexpected_errors", "Faults of the agent itself, each in the care of one Pod"
        )
        self.removed = self._counter(
            "garbage_removed", "What garbage collection removed, by kind", "kind"
        )
        self.stuck = self._gauge(
            "oldest_stuck_age_seconds",
            "Age of what has been waiting longest in a step, by step; 0: nothing waits",
            "step",
        )
        self.vms = self._gauge("vms", "VMs that run on this host, ours and others'", "whose")
        self.disk_free = self._gauge(
            "host_disk_free_ratio", "How much of the host's disk is free, from 0 to 1"
        )
        self.fetches = self._gauge("image_fetches", "Images that are being fetched now")
        self.fetch_done = self._gauge(
            "image_fetch_done_bytes",
            "Bytes that have come of the images that are being fetched now",
        )
        self.fetch_total = self._gauge(
            "image_fetch_total_bytes",
            "Bytes that the images have which are being fetched now; 0 while that is not known of each",
        )
        self.pulled_bytes = self._counter(
            "image_pulled_bytes",
            "Bytes of images that have come; its rate is the progress of pulls",
        )
        self.status_writes_pending = self._gauge(
            "status_writes_pending", "Verdicts that the API server has not got yet"
        )
        for path in PATHS:
            self.provision.labels(path)
        for op in OPS:
            self.op.labels(op)
            self.timeouts.labels(op)
            self.failures.labels(op)
        for step in STUCK:
            self.stuck.labels(step).set(0)
        for verdict in ENDS:
            self.ends.labels(verdict)
        for kind in REMOVED:
            self.removed.labels(kind)
        for whose in WHOSE:
            self.vms.labels(whose).set(0)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(
            f"remuda_agent_{name}", text, labels, buckets=_BUCKETS, registry=self.registry
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"remuda_agent_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"remuda_agent_{name}", text, labels, registry=self.registry)
