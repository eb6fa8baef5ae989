"""Why a job waits, as a table: each case is one world and the one reason that it must give."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from remuda.dispatch.decide.explain import JobFacts, JobWhy, explain_job
from remuda.dispatch.decide.explain_pool import PoolWhy, explain_pool
from remuda.dispatch.decide.explain_runner import (
    LabelsWhy,
    RunnerFacts,
    RunnerWhy,
    explain_labels,
    explain_runner,
)
from remuda.dispatch.decide.labels import Unmatched
from remuda.kube.core import Pod
from remuda.kube.runner_pool import RunnerPool
from remuda.model.job import (
    AuditEntry,
    Claim,
    Job,
    JobState,
    LiveClaim,
    Os,
    Session,
    Size,
    Standing,
)
from remuda.ports.dispatch import Signals
from remuda.ports.job_views import Turn, Waiting
from tests.support.jobs import a_job

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
AGO = NOW - timedelta(minutes=5)
SPEC = a_job(1, queued_at=AGO)
JOB = Job(spec=SPEC)
LIMIT = Size(8, 16 * 1024)
TAKEN = "2026-03-01T12:20:00Z"


def a_pool(**spec: Any) -> RunnerPool:  # noqa: ANN401 - a pool's spec
    meta = spec.pop("metadata", {})
    status = spec.pop("status", {})
    body = {
        "metadata": {"name": "linux", "namespace": "runners", "uid": "u", **meta},
        "spec": {
            "image": "i",
            "fleet": "barn",
            "labels": ["self-hosted", "fast"],
            "replicas": 2,
            **spec,
        },
        "status": {"templateHash": "t1", **status},
    }
    return msgspec.convert(body, RunnerPool)


def a_pod(name: str = "p1", kind: str = "warm", **labels: str) -> Pod:
    """Return a runner: ``warm``, ``starting``, ``homeless``, ``ended`` or ``deleted``."""
    ours = {"remuda.dev/runner": "true", "remuda.dev/template": "t1"}
    ours |= {f"remuda.dev/{k.replace('_', '-')}": v for k, v in labels.items()}
    meta: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": TAKEN,
        "labels": ours,
    }
    if kind == "deleted":
        meta |= {"deletionTimestamp": TAKEN}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": TAKEN}
    homeless = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.",
        "lastTransitionTime": TAKEN,
    }
    states: dict[str, dict[str, Any]] = {
        "warm": {"phase": "Running", "conditions": [ready]},
        "deleted": {"phase": "Running", "conditions": [ready]},
        "homeless": {"phase": "Pending", "conditions": [homeless]},
        "starting": {"phase": "Pending"},
        "ended": {"phase": "Succeeded"},
    }
    spec = {"nodeName": "" if kind == "homeless" else "mini-1"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": states[kind]}, Pod)


BUSY = a_pod("p9", owner="acme")


def a_claim(job_id: str = "forge/7", pod: str = "p7", **more: Any) -> LiveClaim:  # noqa: ANN401 - fields
    return LiveClaim(
        claim=Claim(job_id, pod, f"uid-{pod}", AGO),
        tenant="acme",
        repository="acme/app",
        pool="linux",
        os=Os.LINUX,
        size=Size(2, 4096),
        **more,
    )


def standing(tenant: str = "acme", used: Size = Size(0, 0), limit: Size = LIMIT) -> Standing:  # noqa: B008 - frozen
    return Standing(tenant=tenant, os=Os.LINUX, limit=limit, used=used)


def waiting(job: Job = JOB, **changes: Any) -> Waiting:  # noqa: ANN401 - fields
    given: dict[str, Any] = {
        "standing": standing(),
        "ahead": 0,
        "turns": (Turn(standing(), AGO),),
        "claims": (),
        **changes,
    }
    return Waiting(job=job, **given)


def facts(job: Job = JOB, **changes: Any) -> JobFacts:  # noqa: ANN401 - fields
    given: dict[str, Any] = {
        "waiting": waiting(job),
        "pool": a_pool(),
        "pods": (a_pod(),),
        **changes,
    }
    return JobFacts(job=job, **given)


HELD = replace(JOB, hold_until=NOW + timedelta(seconds=15), attempts=2)
GIVEN_BACK = AuditEntry(
    number=7,
    at=AGO,
    who="dispatch",
    what="released",
    why="GitHub answered 502",
    job_id=SPEC.id,
)
CLAIMED = replace(JOB, state=JobState.CLAIMED, claim=Claim(SPEC.id, "p1", "uid-p1", AGO))
RUNNING = replace(CLAIMED, state=JobState.RUNNING, started_at=AGO, runner_name="p1-abc")
ENDED = Session(
    pod="p1",
    pod_uid="uid-p1",
    job_id=SPEC.id,
    tenant=SPEC.tenant,
    repository=SPEC.repository,
    pool=SPEC.pool,
    os=SPEC.os,
    size=SPEC.size,
    runner_name="p1-abc",
    started_at=AGO,
    exit_code=7,
    end_reason="Its time was over",
)
OVER = replace(RUNNING, state=JobState.COMPLETED, ended_at=NOW, conclusion="success")
FULL = standing(used=Size(7, 8192))
OTHER = Turn(standing("zoo"), AGO)
SCALED = {"enabled": True, "maxReplicas": 2}
CONFLICT = {"type": "LabelsConflict", "status": "True", "message": "pool old is older"}
DELETED = {"deletionTimestamp": TAKEN}


def test_a_job_that_is_over_says_with_which_code_if_its_own_runner_told_it() -> None:
    said = explain_job(facts(OVER, session=ENDED), NOW).evidence
    assert said == (
        "It ran on p1",
        "It ended with exit code 7",
        "Its runner said: Its time was over",
    )
    by_itself = replace(ENDED, end_reason="Error")
    said = explain_job(facts(OVER, session=by_itself), NOW).evidence
    assert said == ("It ran on p1", "It ended with exit code 7")
    of_another = replace(ENDED, job_id="another")
    assert explain_job(facts(OVER, session=of_another), NOW).evidence == ("It ran on p1",)
    mute = replace(ENDED, exit_code=None, end_reason="")
    assert explain_job(facts(OVER, session=mute), NOW).evidence == ("It ran on p1",)


@pytest.mark.parametrize(
    ("world", "why", "says"),
    [
        pytest.param(
            facts(OVER), JobWhy.OVER, "success", id="a job that is over says how it ended"
        ),
        pytest.param(facts(CLAIMED), JobWhy.CLAIMED, "p1", id="a claimed job says whose it is"),
        pytest.param(
            facts(RUNNING, claim=a_claim(SPEC.id, "p1", delivered_at=AGO)),
            JobWhy.HANDED_OVER,
            "the forge has not said yet",
            id="a job that was handed over is a guess until the forge speaks",
        ),
        pytest.param(
            facts(RUNNING, claim=a_claim(SPEC.id, "p1", delivered_at=AGO, executed_at=AGO)),
            JobWhy.RUNNING,
            "runs on p1",
            id="a running job says where",
        ),
        pytest.param(
            facts(RUNNING),
            JobWhy.RUNNING,
            "runs on p1",
            id="a running job without a claim says where",
        ),
        pytest.param(
            facts(waiting=None),
            JobWhy.CHANGING,
            "very moment",
            id="a job that just changed says so",
        ),
        pytest.param(
            facts(pool=None, pods=()),
            JobWhy.POOL_GONE,
            "is gone",
            id="a pool that is gone is named first",
        ),
        pytest.param(
            facts(pool=a_pool(metadata=DELETED), pods=(BUSY,)),
            JobWhy.POOL_DELETED,
            "being deleted",
            id="a pool that is being deleted makes no runner any more",
        ),
        pytest.param(
            facts(pool=a_pool(metadata=DELETED)),
            JobWhy.NEXT,
            "next",
            id="a warm runner of a pool that is being deleted still takes a job",
        ),
        pytest.param(
            facts(pool=a_pool(status={"conditions": [CONFLICT]})),
            JobWhy.LABELS_CONFLICT,
            "same labels",
            id="a younger pool with the same labels gets no jobs",
        ),
        pytest.param(
            facts(HELD, history=(GIVEN_BACK,)),
            JobWhy.HELD,
            "12:30:15 UTC, because handing it over failed: GitHub answered 502",
            id="a job that is held back says until when and why",
        ),
        pytest.param(
            facts(HELD),
            JobWhy.HELD,
            "held back until",
            id="a job that is held back for an unknown reason",
        ),
        pytest.param(
            facts(replace(HELD, hold_until=NOW)),
            JobWhy.NEXT,
            "next",
            id="a hold that is over holds nothing",
        ),
        pytest.param(
            facts(waiting=waiting(standing=None, turns=())),
            JobWhy.NO_LIMITS,
            "no limit for linux",
            id="a tenant without limits may take nothing",
        ),
        pytest.param(
            facts(waiting=waiting(standing=standing(limit=Size(1, 99999)))),
            JobWhy.TOO_LARGE,
            "can never start",
            id="a job larger than the limit never starts",
        ),
        pytest.param(
            facts(waiting=waiting(standing=FULL, claims=(a_claim(),))),
            JobWhy.AT_LIMIT,
            "7 vCPU and 8 GiB of 8 vCPU and 16 GiB",
            id="a tenant at its limit waits for itself",
        ),
        pytest.param(
            facts(waiting=waiting(standing=standing(used=Size(0, 13 * 1024)))),
            JobWhy.AT_LIMIT,
            "13 GiB",
            id="memory alone can be the limit",
        ),
        pytest.param(
            facts(waiting=waiting(standing=standing(used=Size(6, 12 * 1024)))),
            JobWhy.NEXT,
            "next",
            id="a job that fits exactly into what is left is not withheld",
        ),
        pytest.param(
            facts(pods=(), pool=a_pool(replicas=0)),
            PoolWhy.SCALED_TO_ZERO,
            "scaled to zero",
            id="a pool of no runners is said to be so",
        ),
        pytest.param(
            facts(pods=(a_pod(kind="starting"), BUSY)),
            PoolWhy.STARTING,
            "1 runner of it",
            id="a runner that starts is waited for",
        ),
        pytest.param(
            facts(pods=(a_pod(kind="homeless"), BUSY)),
            PoolWhy.UNSCHEDULABLE,
            "3 Insufficient memory",
            id="runners without a host say what the scheduler says",
        ),
        pytest.param(
            facts(pods=(BUSY, a_pod("p8", owner="acme"))),
            PoolWhy.AT_MAXIMUM,
            "All 2 runners",
            id="a pool of busy runners is full",
        ),
        pytest.param(
            facts(pods=(BUSY, a_pod("p8", owner="")), pool=a_pool(autoscaling=SCALED)),
            PoolWhy.AT_MAXIMUM,
            "All 2 runners",
            id="a scaled pool at its maximum is full",
        ),
        pytest.param(
            facts(
                pods=(BUSY, a_pod("p8", owner="")),
                pool=a_pool(autoscaling=SCALED | {"maxReplicas": 5}),
            ),
            PoolWhy.MISSING,
            "All 2 runners",
            id="a scaled pool below its maximum will get more",
        ),
        pytest.param(
            facts(pods=(a_pod(drain="true"),)),
            PoolWhy.LEAVING,
            "1 because a person asked it to drain",
            id="runners that drain take nothing",
        ),
        pytest.param(
            facts(pods=(a_pod(template="t0", drain_eligible="t1"),)),
            PoolWhy.LEAVING,
            "newer template",
            id="runners that a roll replaces take nothing",
        ),
        pytest.param(
            facts(pods=(a_pod(template="t0", drain_eligible="t9"),)),
            JobWhy.NEXT,
            "next",
            id="a mark for another template is void",
        ),
        pytest.param(
            facts(pods=()),
            PoolWhy.MISSING,
            "wants 2 runners",
            id="runners that are not there are missed",
        ),
        pytest.param(
            facts(waiting=waiting(ahead=3)),
            JobWhy.OTHERS_FIRST,
            "3 older jobs of its own tenant",
            id="older jobs of the same tenant go first",
        ),
        pytest.param(
            facts(waiting=waiting(turns=(OTHER, Turn(standing(), AGO)))),
            JobWhy.OTHERS_FIRST,
            "tenant zoo",
            id="a tenant that was served less goes first",
        ),
        pytest.param(
            facts(
                waiting=waiting(
                    turns=(
                        replace(OTHER, standing=standing("zoo", used=LIMIT)),
                        Turn(standing(), AGO),
                    )
                )
            ),
            JobWhy.NEXT,
            "next",
            id="a tenant at its limit is passed over",
        ),
        pytest.param(
            facts(
                waiting=waiting(
                    turns=(
                        replace(OTHER, standing=standing("zoo", used=Size(7, 4096))),
                        Turn(standing(), AGO),
                    )
                )
            ),
            JobWhy.NEXT,
            "next",
            id="a tenant whose last room is too small for a job of this pool is passed over too",
        ),
        pytest.param(
            facts(waiting=waiting(ahead=1)),
            JobWhy.OTHERS_FIRST,
            "the repository that was served least goes first",
            id="an older job of another repository need not go first",
        ),
        pytest.param(facts(), JobWhy.NEXT, "next", id="nothing stands before it"),
    ],
)
def test_a_job_says_why_it_waits(world: JobFacts, why: str, says: str) -> None:
    explanation = explain_job(world, NOW)

    assert (explanation.why, says in explanation.sentence) == (why, True), explanation
    assert explanation.next_step.endswith(".")
    assert explanation.sentence.endswith(".")


def test_who_holds_a_limit_is_named() -> None:
    holders = tuple(a_claim(f"forge/{n}", f"p{n}") for n in range(10, 17))
    world = facts(waiting=waiting(standing=FULL, claims=holders))

    evidence = " / ".join(explain_job(world, NOW).evidence)

    assert "forge/10 on p10 (2 vCPU and 4 GiB)" in evidence
    assert "and 2 more" in evidence


def test_a_job_that_came_back_says_how_often() -> None:
    evidence = explain_job(facts(HELD, history=(GIVEN_BACK,)), NOW).evidence

    assert "It was claimed 2 times before and came back" in evidence
    assert any(fact.startswith("dispatch gave it back") for fact in evidence)


@pytest.mark.parametrize(
    ("world", "why"),
    [
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod()), RunnerWhy.TAKES_JOBS, id="a warm runner takes jobs"
        ),
        pytest.param(RunnerFacts(name="p1"), RunnerWhy.GONE, id="a Pod that is gone"),
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod(kind="ended")), RunnerWhy.ENDED, id="a Pod that ended"
        ),
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod(kind="deleted")),
            RunnerWhy.LEAVING,
            id="a Pod that is deleted",
        ),
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod(drain="true")),
            RunnerWhy.LEAVING,
            id="a Pod that drains",
        ),
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod(kind="starting")),
            RunnerWhy.STARTING,
            id="a Pod that starts",
        ),
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod(kind="homeless")),
            RunnerWhy.UNSCHEDULABLE,
            id="a Pod without a host",
        ),
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod(owner="acme"), claim=a_claim(pod="p1")),
            RunnerWhy.HAS_JOB,
            id="a Pod that holds a job",
        ),
        pytest.param(
            RunnerFacts(name="p9", pod=BUSY),
            RunnerWhy.CLEANING,
            id="a stamp that nothing stands behind",
        ),
        pytest.param(
            RunnerFacts(
                name="p1",
                pod=a_pod(),
                claim=replace(a_claim(), claim=Claim("forge/7", "p1", "uid-of-before", AGO)),
            ),
            RunnerWhy.TAKES_JOBS,
            id="a claim of an earlier Pod of that name is not its own",
        ),
        pytest.param(
            RunnerFacts(
                name="p1",
                pod=a_pod(),
                session=Session(
                    pod="p1",
                    pod_uid="uid-p1",
                    job_id="forge/7",
                    tenant="acme",
                    repository="acme/app",
                    pool="linux",
                    os=Os.LINUX,
                    size=Size(2, 4096),
                    runner_name="r",
                    started_at=AGO,
                ),
            ),
            RunnerWhy.SPENT,
            id="a Pod that has had its one job",
        ),
        pytest.param(
            RunnerFacts(name="p1", pod=a_pod(), pool=a_pool(status={"conditions": [CONFLICT]})),
            RunnerWhy.WAITS,
            id="a Pod of a pool that gets no jobs",
        ),
    ],
)
def test_a_runner_says_why_it_takes_jobs_or_not(world: RunnerFacts, why: str) -> None:
    explanation = explain_runner(world)

    assert explanation.why == why, explanation
    assert world.name in explanation.sentence


@pytest.mark.parametrize(
    ("pool", "pods", "why"),
    [
        pytest.param(a_pool(), (a_pod(),), PoolWhy.WARM, id="a warm pool"),
        pytest.param(a_pool(), (BUSY,), PoolWhy.MISSING, id="a pool that is short"),
        pytest.param(a_pool(metadata=DELETED), (a_pod(),), PoolWhy.DELETED, id="a pool that goes"),
        pytest.param(
            a_pool(status={"conditions": [CONFLICT]}),
            (a_pod(),),
            PoolWhy.LABELS_CONFLICT,
            id="a younger pool with the same labels",
        ),
    ],
)
def test_a_pool_says_what_it_can_do(pool: RunnerPool, pods: tuple[Pod, ...], why: str) -> None:
    explanation = explain_pool(pool, pods, Signals(queued=3, withheld=2, occupied=1), NOW)

    assert explanation.why == why, explanation
    assert "Jobs that could start now: 3; that wait for their tenants' limits: 2" in (
        explanation.evidence
    )


def test_a_paused_roll_is_told_where_nobody_is_warm() -> None:
    world = facts(pods=(BUSY,), pool=a_pool(replicas=1, rollout={"paused": True}))

    assert "Its rollout is paused" in explain_job(world, NOW).evidence


@pytest.mark.parametrize(
    ("labels", "fork", "why"),
    [
        pytest.param(["self-hosted", "FAST"], False, LabelsWhy.SERVED, id="a pool serves it"),
        pytest.param(["fast"], True, Unmatched.FORK_DENIED, id="a fork is denied"),
        pytest.param(["slow"], False, Unmatched.UNKNOWN_LABEL, id="no pool has the label"),
    ],
)
def test_labels_say_which_pool_serves_them(labels: list[str], fork: bool, why: str) -> None:  # noqa: FBT001 - a row
    assert explain_labels(labels, (a_pool(),), fork=fork).why == why
