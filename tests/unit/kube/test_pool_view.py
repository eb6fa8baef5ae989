from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from remuda.kube.pool_view import pool_of
from remuda.kube.runner_pool import RunnerPool
from remuda.model.pool import Pool
from tests.support.runner_pods import a_runner_pool

NOON = "2026-11-16T12:00:00Z"


def test_a_plain_pool_is_read_with_its_defaults() -> None:
    assert pool_of(a_runner_pool(), "h") == Pool(
        name="mac",
        fleet="barn",
        replicas=1,
        template="h",
        roll_percent=5,
        paused=False,
        progress_deadline=timedelta(minutes=10),
        start_timeout=timedelta(minutes=5),
        deleting=False,
        roll_waiting_since=None,
    )


def test_everything_that_a_decision_needs_is_read() -> None:
    rollout = {"maxConcurrentPercent": 20, "paused": True, "progressDeadlineSeconds": 60}
    body: dict[str, Any] = {
        "metadata": {"name": "p", "deletionTimestamp": NOON},
        "spec": {"image": "i", "fleet": "f", "labels": ["a"], "replicas": 7, "rollout": rollout},
        "status": {"rollWaitingSince": NOON, "templateHash": "h"},
    }

    pool = pool_of(msgspec.convert(body, RunnerPool), "h")
    rolled_on = pool_of(msgspec.convert(body, RunnerPool), "i", "h")

    assert (pool.replicas, pool.roll_percent, pool.paused, pool.deleting) == (7, 20, True, True)
    assert pool.progress_deadline == timedelta(minutes=1)
    assert pool.roll_waiting_since == datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert rolled_on.roll_waiting_since is None, "it waited for another template"
    assert (pool.proven, rolled_on.proven) == ("", "h")


@pytest.mark.parametrize(
    ("autoscaling", "replicas"),
    [
        pytest.param({}, 9, id="a person decides"),
        pytest.param({"maxReplicas": 4}, 9, id="the maximum is the autoscaler's, which is off"),
        pytest.param({"enabled": True, "maxReplicas": 4}, 4, id="never above the maximum"),
        pytest.param({"enabled": True, "maxReplicas": 20}, 9, id="below it as asked"),
        pytest.param({"enabled": True}, 9, id="no maximum was given"),
    ],
)
def test_replicas_wanted(autoscaling: dict[str, Any], replicas: int) -> None:
    assert pool_of(a_runner_pool(replicas=9, autoscaling=autoscaling), "h").replicas == replicas


def test_a_start_timeout_of_zero_means_none() -> None:
    pool = a_runner_pool(provisioning={"startTimeoutSeconds": 0})

    assert pool_of(pool, "h").start_timeout is None
