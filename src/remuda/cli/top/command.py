"""``remuda top``: a living screen of the fleet."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock
from remuda.cli.finding import fleet_options
from remuda.cli.listing import EVERY_S, is_live, room_of
from remuda.cli.top.decide.picture import Moment, once
from remuda.cli.top.reading import Reader
from remuda.model.errors import BadInput
from remuda.ports.api import ApiUnavailable

if TYPE_CHECKING:
    from remuda.cli.finding import Where

_PATIENCE_S: Final = 3.0
"""How long to wait for a first answer before the screen opens without one."""


@click.command(
    epilog="Exit codes: 0 told to quit, 1 failed (with --once: the server is away), 2 usage, 4 refused."
)
@click.option("--once", "is_once", is_flag=True, help="Print one look as plain text and return.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.5, max=3600),
    default=EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="How often to look at least; what happens in the fleet is seen at once.",
)
@fleet_options
def top(*, where: Where, is_once: bool, every_s: float) -> None:
    """
    Show the fleet as it lives: pools, runners, hosts, jobs, and what happens.

    Tab goes from pane to pane, the arrows from row to row, e says why the chosen thing is as it is, ? names all keys,
    q quits. Where no terminal watches, it prints one look, as with --once. The screen needs the extra tui.

    \b
    Examples:
      remuda top
      remuda top --data ./fleet --every 5
      remuda top --once | head -3
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    if is_once or not is_live(sys.stdout, os.environ):
        asyncio.run(_once(where))
        return
    sys.exit(asyncio.run(_live(where, every_s)))


async def _once(where: Where) -> None:
    clock = SystemClock()
    address = where.api_settings().base_url
    async with where.api() as api:
        reader = Reader(api, clock, address=address, every_s=EVERY_S)
        await reader.see()  # what is wrong here is an error, not a part of the picture
        await reader.begin()
    at = Moment(now=clock.now().astimezone(), now_s=clock.monotonic())
    click.echo("\n".join(once(reader.sight, at, width=room_of(sys.stdout))))


async def _live(where: Where, every_s: float) -> int:
    try:
        from remuda.cli.top.app import run  # noqa: PLC0415 - only the screen needs textual
    except ModuleNotFoundError as error:
        if (error.name or "remuda").startswith("remuda"):
            raise  # our own bug
        raise BadInput(
            "remuda top cannot draw its screen",
            why=f"the Python package {error.name} is not installed",
            fix="Install it with: pip install 'remuda[tui]'. remuda top --once needs nothing more",
        ) from error
    settings = where.api_settings()
    async with where.api() as api:
        # Who is refused is told at once. Who is away may come: the screen says so.
        with suppress(ApiUnavailable, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await api.pools()
        return await run(
            api, SystemClock(), where=where, address=settings.base_url, every_s=every_s
        )
