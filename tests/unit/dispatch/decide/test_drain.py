"""Who may have a job, who waits, and who goes home."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from remuda.dispatch.decide.drain import (
    ASKED_TO_DRAIN,
    BEING_DELETED,
    ENDED,
    SAME_LABELS,
    STALE,
    Leave,
    Serve,
    Verdict,
    Wait,
    drain,
)
from remuda.kube.core import Pod, PodStatus
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import DRAIN, MARK, OWNER, TEMPLATE
from remuda.kube.runner_pool import RunnerPool, RunnerPoolSpec, RunnerPoolStatus

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def a_pod(phase: str = "Running", deleting: bool = False, **labels: str) -> Pod:  # noqa: FBT001, FBT002 - a case
    keys = {"drain": DRAIN, "mark": MARK, "template": TEMPLATE, "owner": OWNER}
    meta = ObjectMeta(
        name="a",
        labels={keys[key]: value for key, value in {"template": "h1", **labels}.items()},
        deletion_timestamp=NOON if deleting else None,
    )
    return Pod(metadata=meta, status=PodStatus(phase=phase))


def a_pool(template: str = "h1", conflict: str = "False") -> RunnerPool:
    spec: dict[str, Any] = {"image": "i", "fleet": "f", "labels": ("fast",)}
    condition = Condition(type="LabelsConflict", status=conflict)
    status = RunnerPoolStatus(template_hash=template, conditions=(condition,))
    return RunnerPool(metadata=ObjectMeta(name="p"), spec=RunnerPoolSpec(**spec), status=status)


CONFLICT = "True"


@pytest.mark.parametrize(
    ("pod", "pool", "verdict"),
    [
        pytest.param(a_pod(), a_pool(), Serve(), id="a current runner is served"),
        pytest.param(a_pod(), a_pool("h2"), Serve(), id="a stale one without a mark is served"),
        pytest.param(
            a_pod(mark="h2"), a_pool("h2"), Leave(STALE), id="a stale one with a mark leaves"
        ),
        pytest.param(
            a_pod(mark="h2"), a_pool("h3"), Serve(), id="a mark for another template is void"
        ),
        pytest.param(
            a_pod(mark="h1"), a_pool("h1"), Serve(), id="a mark on a current runner is void"
        ),
        pytest.param(
            a_pod(mark="h2"), a_pool("h1"), Serve(), id="after a roll back the mark is void"
        ),
        pytest.param(a_pod(mark=""), a_pool(""), Serve(), id="a pool without a hash drains nobody"),
        pytest.param(a_pod(drain="true"), a_pool(), Leave(ASKED_TO_DRAIN), id="a person's label"),
        pytest.param(a_pod(drain="false"), a_pool(), Serve(), id="any other value is no wish"),
        pytest.param(
            a_pod(deleting=True), a_pool(), Leave(BEING_DELETED), id="one being deleted leaves"
        ),
        pytest.param(a_pod("Succeeded"), a_pool(), Leave(ENDED), id="one that ended leaves"),
        pytest.param(a_pod("Failed"), a_pool(), Leave(ENDED), id="one that failed leaves"),
        pytest.param(a_pod("Pending"), a_pool(), Serve(), id="a poller runs in a pending Pod"),
        pytest.param(None, a_pool(), Serve(), id="a Pod that is not seen drains nobody"),
        pytest.param(a_pod(mark="h2"), None, Serve(), id="a pool that is not seen drains nobody"),
        pytest.param(
            a_pod(drain="true"), None, Leave(ASKED_TO_DRAIN), id="but a person's wish needs no pool"
        ),
        pytest.param(None, None, Serve(), id="nothing seen drains nobody"),
        pytest.param(
            a_pod(), a_pool(conflict=CONFLICT), Wait(SAME_LABELS), id="a pool in conflict waits"
        ),
        pytest.param(
            a_pod(drain="true"),
            a_pool(conflict=CONFLICT),
            Leave(ASKED_TO_DRAIN),
            id="who is asked to leave a pool in conflict leaves",
        ),
        pytest.param(
            a_pod(), a_pool(conflict="Unknown"), Serve(), id="a conflict in doubt is none"
        ),
    ],
)
def test_drain(pod: Pod | None, pool: RunnerPool | None, verdict: Verdict) -> None:
    assert drain(pod, pool) == verdict
