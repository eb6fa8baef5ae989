"""How the forge in memory writes its messages, and how they are read: JSON, so that an inbox can keep them."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING

import msgspec

from remuda.ports.deliveries import Delivery
from remuda.ports.forge import Action, Announcement, Ignored

if TYPE_CHECKING:
    from remuda.sim.forge.things import HubJob

EVENT = "workflow_job"


class _Words(msgspec.Struct, kw_only=True):
    action: Action
    job_id: str
    tenant: str
    repository: str
    labels: tuple[str, ...]
    queued_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    conclusion: str = ""
    runner_name: str = ""
    run_id: int = 0


def announce(job: HubJob, action: Action) -> Announcement:
    """Say what happened to a job."""
    return Announcement(
        action=action,
        job_id=job.id,
        tenant=job.organisation,
        repository=job.repository,
        labels=job.labels,
        queued_at=job.queued_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        conclusion=job.conclusion,
        runner_name=job.runner_name,
        name=f"job {job.number}",
        workflow="ci",
        run_id=job.run_id,
        run_attempt=1,
    )


def message(job: HubJob, action: Action, guid: str) -> Delivery:
    """Write a message about a job as it is now."""
    words = _Words(
        action=action,
        job_id=job.id,
        tenant=job.organisation,
        repository=job.repository,
        labels=job.labels,
        queued_at=job.queued_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        conclusion=job.conclusion,
        runner_name=job.runner_name,
        run_id=job.run_id,
    )
    return Delivery(guid=guid, event=EVENT, body=msgspec.json.encode(words), subject=job.id)


def read(delivery: Delivery) -> Announcement | Ignored:
    """Read a message."""
    if delivery.event != EVENT:
        return Ignored("event")
    words = msgspec.json.decode(delivery.body, type=_Words)
    return Announcement(
        action=words.action,
        job_id=words.job_id,
        tenant=words.tenant,
        repository=words.repository,
        labels=words.labels,
        queued_at=words.queued_at,
        started_at=words.started_at,
        ended_at=words.ended_at,
        conclusion=words.conclusion,
        runner_name=words.runner_name,
        workflow="ci",
        run_id=words.run_id,
        run_attempt=1,
    )
