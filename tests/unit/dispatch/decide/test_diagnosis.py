"""What a running fleet can see of what should never be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from remuda.dispatch.decide.diagnosis import (
    Graces,
    PodFact,
    caps,
    cut_short,
    not_handed_out,
    not_requeued,
    single_use,
    stamped_alone,
)
from remuda.model.job import Job, Os, Size, Standing
from tests.support.jobs import SMALL, a_job
from tests.unit.dispatch.decide.test_pods_gone import a_live, a_session

if TYPE_CHECKING:
    from remuda.model.job import LiveClaim

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GRACES = Graces(handed_s=15.0, requeued_s=70.0, pod_gone_s=60.0, stamped_s=340.0)


def a_pod(name: str = "p", **changes: Any) -> PodFact:  # noqa: ANN401 - fields of what it builds
    return replace(PodFact(name=name, uid=f"uid-{name}", pool="linux"), **changes)


def handed(*, proven: bool = False, **changes: Any) -> LiveClaim:  # noqa: ANN401 - fields of a claim
    live = replace(a_live(), runner_name="r", delivered_at=NOON)
    return replace(live, executed_at=NOON if proven else None, **changes)


def test_one_job_executed_by_two_pods_is_told() -> None:
    twice = [a_session("a", executed="forge/1"), a_session("b", executed="forge/1")]

    assert [f.invariant for f in single_use([], twice)] == ["S1"]
    assert list(single_use([], twice[:1])) == []


def test_one_runner_on_two_claims_of_a_tenant_is_told() -> None:
    two = [handed(), replace(handed(), claim=a_live("q").claim)]

    assert [f.invariant for f in single_use(two, [])] == ["S1"]
    assert list(single_use([two[0], replace(two[1], tenant="other")], [])) == []


@pytest.mark.parametrize(
    ("live", "pod", "found"),
    [
        pytest.param(
            handed(proven=True), a_pod(deleting=True), 1, id="deleted while it runs a job"
        ),
        pytest.param(handed(proven=True), a_pod(), 0, id="not deleted"),
        pytest.param(handed(), a_pod(deleting=True), 0, id="nobody said that it runs one"),
        pytest.param(
            handed(proven=True), a_pod(deleting=True, ended=True), 0, id="it ended by itself"
        ),
        pytest.param(
            handed(proven=True), a_pod(deleting=True, uid="other"), 0, id="that is a namesake"
        ),
    ],
)
def test_a_kill(live: LiveClaim, pod: PodFact, found: int) -> None:
    assert len(list(cut_short([live], {"p": pod}))) == found


LIMIT = Size(4, 8192)


def standing(used: Size, limit: Size = LIMIT) -> Standing:
    return Standing(tenant="acme", os=Os.LINUX, limit=limit, used=used)


@pytest.mark.parametrize(
    ("before", "now", "claims", "found"),
    [
        pytest.param(None, standing(SMALL), [a_live()], 0, id="within its limit"),
        pytest.param(
            standing(LIMIT),
            standing(LIMIT.plus(SMALL)),
            [a_live(str(n)) for n in range(3)],
            1,
            id="it took more while at its limit",
        ),
        pytest.param(
            standing(LIMIT),
            standing(LIMIT, limit=SMALL),
            [a_live(str(n)) for n in range(2)],
            0,
            id="its limit was set below what it uses",
        ),
        pytest.param(None, standing(LIMIT), [a_live()], 1, id="its books do not add up"),
        pytest.param(None, standing(Size(0, 0)), [a_live()], 1, id="a claim is not on its books"),
    ],
)
def test_caps(before: Standing | None, now: Standing, claims: list[LiveClaim], found: int) -> None:
    old = {(before.tenant, before.os): before} if before else {}

    assert len(list(caps([now], old, claims, grace_s=70.0))) == found


@pytest.mark.parametrize(
    ("job", "pods", "found"),
    [
        pytest.param(Job(spec=a_job(1)), [a_pod(fit=True)], 1, id="a job and a warm runner"),
        pytest.param(Job(spec=a_job(1)), [a_pod()], 0, id="no warm runner"),
        pytest.param(Job(spec=a_job(1)), [a_pod(fit=True, pool="mac")], 0, id="of another pool"),
        pytest.param(Job(spec=a_job(1)), [a_pod(fit=True, stamped=True)], 0, id="it has a job"),
        pytest.param(
            Job(spec=a_job(1), hold_until=NOON + timedelta(seconds=1)),
            [a_pod(fit=True)],
            0,
            id="the job is held back",
        ),
        pytest.param(
            Job(spec=a_job(1, size=Size(99, 1))), [a_pod(fit=True)], 0, id="no room for its tenant"
        ),
        pytest.param(
            Job(spec=a_job(1, tenant="other")), [a_pod(fit=True)], 0, id="a tenant without a limit"
        ),
    ],
)
def test_not_handed_out(job: Job, pods: list[PodFact], found: int) -> None:
    rooms = [standing(Size(0, 0))]

    assert len(list(not_handed_out([job], rooms, pods, now=NOON, grace_s=15.0))) == found


@pytest.mark.parametrize(
    ("live", "pods", "found"),
    [
        pytest.param(a_live(), {"p": a_pod()}, ["V2"], id="not handed over"),
        pytest.param(a_live(), {}, ["V2", "V3"], id="not handed over, and its Pod is gone"),
        pytest.param(handed(), {"p": a_pod()}, [], id="handed over to a Pod that lives"),
        pytest.param(handed(), {"p": a_pod(ended=True)}, ["V2"], id="its Pod ended, nobody ran it"),
        pytest.param(handed(), {"p": a_pod(uid="x")}, ["V2", "V3"], id="only a namesake is there"),
        pytest.param(handed(proven=True), {}, ["V3"], id="it ran, and its Pod is gone"),
    ],
)
def test_not_requeued(live: LiveClaim, pods: dict[str, PodFact], found: list[str]) -> None:
    assert [f.invariant for f in not_requeued([live], pods, GRACES)] == found


@pytest.mark.parametrize(
    ("pod", "occupied", "found"),
    [
        pytest.param(a_pod(stamped=True), frozenset(), 1, id="a stamp and nothing behind it"),
        pytest.param(a_pod(stamped=True), frozenset({"p"}), 0, id="with a claim or session"),
        pytest.param(a_pod(), frozenset(), 0, id="no stamp"),
        pytest.param(a_pod(stamped=True, ended=True), frozenset(), 0, id="it ended"),
        pytest.param(a_pod(stamped=True, deleting=True), frozenset(), 0, id="it goes already"),
    ],
)
def test_stamped_alone(pod: PodFact, occupied: frozenset[str], found: int) -> None:
    assert len(list(stamped_alone([pod], occupied, 340.0))) == found
