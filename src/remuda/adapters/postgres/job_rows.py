"""Rows of the store of jobs as the nouns of the model. NULL is "not known" here and empty text or None there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from remuda.model.job import (
    AuditEntry,
    Claim,
    Completion,
    Job,
    JobSpec,
    JobState,
    Kind,
    LiveClaim,
    Os,
    Session,
    Size,
    Standing,
)

if TYPE_CHECKING:
    from asyncpg import Record

    Row: TypeAlias = Record


def job_of(row: Row) -> Job:
    return Job(
        spec=_spec_of(row),
        state=JobState(row["state"]),
        claim=None if row["pod"] is None else _claim_of(row, row["id"]),
        runner_name=row["runner_name"] or "",
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        conclusion=row["conclusion"] or "",
        attempts=row["attempts"],
        hold_until=row["hold_until"],
    )


def _spec_of(row: Row) -> JobSpec:
    return JobSpec(
        id=row["id"],
        tenant=row["tenant"],
        repository=row["repository"],
        pool=row["pool"],
        os=Os(row["os"]),
        size=_size_of(row),
        queued_at=row["queued_at"],
        kind=Kind(row["kind"]),
        label=row["label"],
        labels=tuple(row["labels"]),
        name=row["name"],
        workflow=row["workflow"],
        run_id=row["run_id"],
        run_attempt=row["run_attempt"],
        branch=row["branch"],
        commit=row["commit"],
        url=row["url"],
        fork=row["fork"],
    )


def spec_values(spec: JobSpec) -> tuple[Any, ...]:
    """Return the columns of a job that its forge announced, in the order of ``insert_job``."""
    return (
        *(spec.id, spec.kind.value, spec.tenant, spec.repository, spec.pool, spec.os.value),
        *(spec.size.vcpus, spec.size.memory_mib, spec.label, list(spec.labels), spec.name),
        *(spec.workflow, spec.run_id, spec.run_attempt, spec.branch, spec.commit, spec.url),
        *(spec.fork, spec.queued_at),
    )


def live_claim_of(row: Row) -> LiveClaim:
    return LiveClaim(
        claim=_claim_of(row, row["job_id"]),
        tenant=row["tenant"],
        repository=row["repository"],
        pool=row["pool"],
        os=Os(row["os"]),
        size=_size_of(row),
        runner_name=row["runner_name"] or "",
        delivered_at=row["delivered_at"],
        executed_at=row["executed_at"],
        missing_since=row["pod_missing_since"],
    )


def session_of(row: Row) -> Session:
    return Session(
        pod=row["pod"],
        pod_uid=row["pod_uid"],
        job_id=row["job_id"],
        executed_job_id=row["executed_job_id"] or "",
        tenant=row["tenant"],
        repository=row["repository"],
        pool=row["pool"],
        os=Os(row["os"]),
        size=_size_of(row),
        runner_name=row["runner_name"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        job_started_at=row["job_started_at"],
        job_ended_at=row["job_ended_at"],
        exit_code=row["exit_code"],
        end_reason=row["end_reason"] or "",
    )


def standing_of(row: Row) -> Standing:
    return Standing(
        tenant=row["tenant"],
        os=Os(row["os"]),
        limit=_size_of(row),
        used=Size(row["used_vcpus"], row["used_memory_mib"]),
        last_claimed_at=row["last_claimed_at"],
    )


def completion_of(row: Row) -> Completion:
    return Completion(row["job_id"], row["conclusion"], row["ended_at"])


def audit_entry_of(row: Row) -> AuditEntry:
    return AuditEntry(**dict(row))


def _size_of(row: Row) -> Size:
    return Size(row["vcpus"], row["memory_mib"])


def _claim_of(row: Row, job_id: str) -> Claim:
    return Claim(job_id, row["pod"], row["pod_uid"], row["claimed_at"])
