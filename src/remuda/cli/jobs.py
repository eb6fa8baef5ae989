"""``remuda jobs``: which jobs there are and how far each is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from remuda.cli.completion import job_names, names_of, pool_names
from remuda.cli.finding import api_options
from remuda.cli.helps import ENDLESS_EXITS
from remuda.cli.listing import How, Listing, listing_options, show
from remuda.cli.tables import Column, age, duration
from remuda.model.job import JobState
from remuda.ports.api import JobRow, JobsWanted

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.cli.finding import Where
    from remuda.ports.api import Api

NEWEST: Final = 50


def _took(job: JobRow, now: datetime) -> str:
    if job.started_at is None:
        return ""
    return duration(((job.ended_at or now) - job.started_at).total_seconds())


def _waited(job: JobRow, now: datetime) -> str:
    until = job.started_at or job.ended_at or now
    return duration((until - job.queued_at).total_seconds())


JOBS: Final[Listing[JobRow]] = Listing(
    one="job",
    many="jobs",
    key=lambda job: job.id,
    columns=(
        Column("ID", lambda job, _: job.id, whole=True),
        Column("STATE", lambda job, _: job.state.value, is_state=True, whole=True),
        Column("RESULT", lambda job, _: job.conclusion, gives_way=1),
        Column("POOL", lambda job, _: job.pool, gives_way=3),
        Column("RUNNER", lambda job, _: job.pod or "", told_by_end=True, gives_way=6),
        Column("NAME", lambda job, _: job.name, gives_way=2),
        Column("WAITED", _waited, gives_way=7),
        Column("TOOK", _took, gives_way=5),
        Column("AGE", lambda job, now: age(job.queued_at, now), gives_way=4),
        Column("TENANT", lambda job, _: job.tenant, wide=True),
        Column("REPOSITORY", lambda job, _: job.repository, wide=True),
        Column("WORKFLOW", lambda job, _: job.workflow, wide=True),
        Column("BRANCH", lambda job, _: job.branch, wide=True),
        Column("LABEL", lambda job, _: job.label, wide=True),
        Column("CLAIMS", lambda job, _: str(job.attempts), wide=True),
    ),
)


@click.command(epilog=ENDLESS_EXITS)
@click.argument("job", default="", metavar="[JOB]", shell_complete=names_of(job_names))
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in JobState]),
    help="Only jobs in this state; may be given again.",
)
@click.option(
    "--pool", default="", help="Only jobs of this pool.", shell_complete=names_of(pool_names)
)
@click.option("--tenant", default="", help="Only jobs of this tenant.")
@click.option("--repository", default="", help="Only jobs of this repository.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=NEWEST,
    show_default=True,
    help="How many at most, the newest.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@listing_options
@api_options
def jobs(  # noqa: PLR0913 - one parameter for each option
    *,
    where: Where,
    job: str,
    states: tuple[str, ...],
    pool: str,
    tenant: str,
    repository: str,
    limit: int,
    everything: bool,
    output: str,
    watch: bool,
    every_s: float,
) -> None:
    """
    List jobs, the newest first, or show one.

    WAITED is how long a job was queued, TOOK how long it has run. Why one waits: remuda explain job JOB.

    \b
    Examples:
      remuda jobs                                  the newest
      remuda jobs --state queued --state running   those that are not over
      remuda jobs --pool mac --watch               follow a pool's
      remuda jobs JOB -o json                      one, with everything that is known
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    wanted = JobsWanted(
        states=tuple(map(JobState, states)), pool=pool, tenant=tenant, repository=repository
    )
    most = None if job or everything else limit

    async def read(api: Api) -> tuple[JobRow, ...]:
        if job:
            return (await api.job(job),)
        return await api.jobs(wanted, limit=most)

    how = How(output=output, watch=watch, every_s=every_s, single=bool(job), most=most)
    show(where, JOBS, read, how)
