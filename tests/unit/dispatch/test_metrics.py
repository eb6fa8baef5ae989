"""What dispatch counts is there from the start: an alert that waits for a series to appear is no alert."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

import remuda.adapters.github
from remuda.dispatch.local_tidying import WORKER
from remuda.dispatch.metrics import WORKERS, DispatchMetrics
from remuda.dispatch.stops import NAME
from remuda.dispatch.sweep import REDELIVERY, SWEEP
from remuda.dispatch.workers import ALONE, gauges


def test_every_worker_counts_its_failures_from_0() -> None:
    assert set(WORKERS) == {*ALONE, gauges.NAME, NAME, SWEEP, REDELIVERY, "intake", WORKER}
    registry = DispatchMetrics(CollectorRegistry()).registry
    name = "remuda_worker_failures_total"
    assert {registry.get_sample_value(name, {"worker": worker}) for worker in WORKERS} == {0}


def test_every_reason_to_pass_a_message_over_is_counted_from_0() -> None:
    folder = Path(remuda.adapters.github.__path__[0])
    said = "".join(
        re.findall(r"Ignored\([^)]*\)", "".join(f.read_text() for f in folder.glob("*.py")))
    )
    reasons = set(re.findall(r'"(\w+)"', said))
    assert len(reasons) > 5, "else this shows nothing"
    registry = DispatchMetrics(CollectorRegistry()).registry
    name = "remuda_webhooks_total"
    assert {registry.get_sample_value(name, {"outcome": reason}) for reason in reasons} == {0}
