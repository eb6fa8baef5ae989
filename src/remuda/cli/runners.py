"""``remuda runners``: which runners there are, where, and with which job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from remuda.cli.completion import names_of, pool_names, runner_names
from remuda.cli.finding import api_options
from remuda.cli.helps import ENDLESS_EXITS
from remuda.cli.listing import How, Listing, listing_options, show
from remuda.cli.states import runner_job, runner_note, runner_state
from remuda.cli.tables import Column, age

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.cli.finding import Where
    from remuda.ports.api import Api, RunnerRow


def _tenant(runner: RunnerRow, _: datetime) -> str:
    if runner.claim is not None:
        return runner.claim.tenant
    return "" if runner.session is None else runner.session.tenant


def _age(runner: RunnerRow, now: datetime) -> str:
    return "" if runner.pod is None else age(runner.pod.created_at, now)


def _warm(runner: RunnerRow, now: datetime) -> str:
    return "" if runner.pod is None else age(runner.pod.warm_at, now)


RUNNERS: Final[Listing[RunnerRow]] = Listing(
    one="runner",
    many="runners",
    key=lambda runner: runner.name,
    columns=(
        Column("NAME", lambda runner, _: runner.name, whole=True),
        Column("POOL", lambda runner, _: runner.pool, gives_way=3),
        Column("STATE", lambda runner, _: runner_state(runner), is_state=True, whole=True),
        Column("HOST", lambda runner, _: runner.pod.node if runner.pod else "", gives_way=2),
        Column("JOB", lambda runner, _: runner_job(runner), told_by_end=True, gives_way=1),
        Column("AGE", _age, gives_way=4),
        Column("WARM", _warm, wide=True),
        Column("TENANT", _tenant, wide=True),
        Column("TEMPLATE", lambda runner, _: runner.pod.template if runner.pod else "", wide=True),
        Column("NOTE", lambda runner, _: runner_note(runner), wide=True),
    ),
)


@click.command(epilog=ENDLESS_EXITS)
@click.argument("runner", default="", metavar="[RUNNER]", shell_complete=names_of(runner_names))
@click.option(
    "--pool", default="", help="Only runners of this pool.", shell_complete=names_of(pool_names)
)
@listing_options
@api_options
def runners(
    *, where: Where, runner: str, pool: str, output: str, watch: bool, every_s: float
) -> None:
    """
    List runners by name, or show one: also one that is gone, if it had a job.

    \b
    Examples:
      remuda runners                     all of them
      remuda runners --pool mac -w       follow those of a pool
      remuda runners -o name             names only, one on each line
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped

    async def read(api: Api) -> tuple[RunnerRow, ...]:
        return (await api.runner(runner),) if runner else await api.runners(pool=pool)

    how = How(output=output, watch=watch, every_s=every_s, single=bool(runner))
    show(where, RUNNERS, read, how)
