"""``remuda server``: dispatch. What is here so far: its database."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from remuda.adapters.postgres.migrate import migrate as run_migrations
from remuda.adapters.postgres.migrate import pending
from remuda.adapters.postgres.pool import URL_VARIABLE
from remuda.adapters.postgres.source import open_source


@click.group()
def server() -> None:
    """Dispatch jobs to runners. For now this brings up the database that it will stand on; it serves nothing yet."""


@server.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data/postgres"),
    show_default=True,
    help=f"Directory of the embedded PostgreSQL. Not used when {URL_VARIABLE} names a server.",
)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a migration is pending.")
def migrate(data: Path, *, check: bool) -> None:
    """
    Bring the database's schema up to date.

    It may be run by several at once: one does the work, the others find it done.

    \b
    Examples:
      remuda server migrate --data ./data/postgres
      REMUDA_DATABASE_URL=postgresql://remuda:…@db/remuda remuda server migrate --check
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    left = asyncio.run(_migrate(data.absolute(), check=check))
    if left:
        raise SystemExit(1)


async def _migrate(data: Path, *, check: bool) -> bool:
    """Migrate, or only look; return whether anything is still to be done."""
    async with open_source(os.environ, data) as source:
        if check:
            steps = await pending(source.settings)
            told = "is pending"
        else:
            steps = await run_migrations(source.settings)
            told = "was run"
    for step in steps:
        click.echo(f"{step} {told}")
    if not steps:
        click.echo("The database is up to date.")
    return check and bool(steps)
