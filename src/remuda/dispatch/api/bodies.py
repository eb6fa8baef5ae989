"""The shapes of answers to people, and how each is made of what dispatch knows. None holds a secret."""

from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from remuda.dispatch.decide.wording import Explanation
from remuda.model.job import (
    AuditEntry,
    Job,
    JobState,
    Kind,
    LiveClaim,
    Os,
    Session,
    Standing,
)


class Body(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(frozen=True)


class JobBody(Body):
    """A job and how far it is."""

    id: str = Field(description="Unique over all forges", examples=["github.com/4711"])
    kind: Kind
    state: JobState
    tenant: str
    repository: str
    pool: str
    os: Os
    vcpus: int = Field(description="What it takes of its tenant's limit")
    memory_mib: int
    label: str = Field(description="The requested label that matched the pool")
    labels: tuple[str, ...]
    name: str
    workflow: str
    run_id: int | None
    run_attempt: int | None
    branch: str
    commit: str
    url: str
    queued_at: datetime = Field(description="Its place in the queue; kept when it comes back")
    started_at: datetime | None
    ended_at: datetime | None
    conclusion: str
    attempts: int = Field(description="How often it was claimed")
    hold_until: datetime | None = Field(description="Not handed out before then")
    pod: str | None = Field(description="The runner's Pod that has it, or had it last")
    runner_name: str = Field(description="The runner's name at the forge")

    @classmethod
    def of(cls, job: Job) -> Self:
        spec = job.spec
        return cls(
            id=spec.id,
            kind=spec.kind,
            state=job.state,
            tenant=spec.tenant,
            repository=spec.repository,
            pool=spec.pool,
            os=spec.os,
            vcpus=spec.size.vcpus,
            memory_mib=spec.size.memory_mib,
            label=spec.label,
            labels=spec.labels,
            name=spec.name,
            workflow=spec.workflow,
            run_id=spec.run_id,
            run_attempt=spec.run_attempt,
            branch=spec.branch,
            commit=spec.commit,
            url=spec.url,
            queued_at=spec.queued_at,
            started_at=job.started_at,
            ended_at=job.ended_at,
            conclusion=job.conclusion,
            attempts=job.attempts,
            hold_until=job.hold_until,
            pod=None if job.claim is None else job.claim.pod,
            runner_name=job.runner_name,
        )


class JobPage(Body):
    """Jobs, the newest first."""

    jobs: tuple[JobBody, ...]
    next: str | None = Field(description="The cursor of the next page; null: this was the last")


class ClaimBody(Body):
    """A Pod's hold of a job, and the room that it takes."""

    job_id: str
    pod: str
    pod_uid: str
    claimed_at: datetime
    tenant: str
    repository: str
    pool: str
    os: Os
    vcpus: int
    memory_mib: int
    runner_name: str
    delivered_at: datetime | None = Field(description="When the job config was handed over")
    executed_at: datetime | None = Field(description="When the forge said that it runs there")
    missing_since: datetime | None = Field(description="When its Pod was first not seen")

    @classmethod
    def of(cls, live: LiveClaim) -> Self:
        return cls(
            job_id=live.claim.job_id,
            pod=live.claim.pod,
            pod_uid=live.claim.pod_uid,
            claimed_at=live.claim.claimed_at,
            tenant=live.tenant,
            repository=live.repository,
            pool=live.pool,
            os=live.os,
            vcpus=live.size.vcpus,
            memory_mib=live.size.memory_mib,
            runner_name=live.runner_name,
            delivered_at=live.delivered_at,
            executed_at=live.executed_at,
            missing_since=live.missing_since,
        )


class ClaimList(Body):
    """The claims that stand, oldest first."""

    claims: tuple[ClaimBody, ...]


class SessionBody(Body):
    """What a Pod that got a job did with its one life."""

    job_id: str = Field(description="The job that it was claimed for")
    executed_job_id: str = Field(description="The job that the forge gave it; empty until proven")
    tenant: str
    repository: str
    runner_name: str
    started_at: datetime
    ended_at: datetime | None
    exit_code: int | None
    end_reason: str

    @classmethod
    def of(cls, session: Session) -> Self:
        return cls(
            job_id=session.job_id,
            executed_job_id=session.executed_job_id,
            tenant=session.tenant,
            repository=session.repository,
            runner_name=session.runner_name,
            started_at=session.started_at,
            ended_at=session.ended_at,
            exit_code=session.exit_code,
            end_reason=session.end_reason,
        )


class ExplanationBody(Body):
    """Why something is as it is."""

    subject: str = Field(description="What this is about")
    why: str = Field(description="The reason in one word, for programs", examples=["next"])
    sentence: str = Field(description="The reason for people")
    evidence: tuple[str, ...] = Field(description="The facts that it rests on")
    next_step: str = Field(description="What to do about it, if anything")

    @classmethod
    def of(cls, subject: str, explanation: Explanation) -> Self:
        return cls(
            subject=subject,
            why=explanation.why.value,
            sentence=explanation.sentence,
            evidence=explanation.evidence,
            next_step=explanation.next_step,
        )


class LimitBody(Body):
    """What a tenant may use at once on one OS, and what it uses."""

    tenant: str
    os: Os
    vcpus: int
    memory_mib: int
    used_vcpus: int
    used_memory_mib: int
    last_claimed_at: datetime | None

    @classmethod
    def of(cls, standing: Standing) -> Self:
        return cls(
            tenant=standing.tenant,
            os=standing.os,
            vcpus=standing.limit.vcpus,
            memory_mib=standing.limit.memory_mib,
            used_vcpus=standing.used.vcpus,
            used_memory_mib=standing.used.memory_mib,
            last_claimed_at=standing.last_claimed_at,
        )


class LimitList(Body):
    """All limits, or those of one tenant."""

    limits: tuple[LimitBody, ...]


class AuditBody(Body):
    """One control decision: who did what to which job or Pod, and why."""

    number: int
    at: datetime
    who: str
    what: str
    why: str
    job_id: str
    pod: str
    tenant: str
    pool: str

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        return cls(
            number=entry.number,
            at=entry.at,
            who=entry.who,
            what=entry.what,
            why=entry.why,
            job_id=entry.job_id,
            pod=entry.pod,
            tenant=entry.tenant,
            pool=entry.pool,
        )


class AuditPage(Body):
    """Audit entries by number."""

    entries: tuple[AuditBody, ...]
    next: int | None = Field(description="The `after` of the next page; null: these were the last")
    end: int = Field(description="The greatest number that there is")
