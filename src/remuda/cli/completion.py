"""``remuda completion``: what a shell needs to complete commands, options, and the names of what the fleet has."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import TYPE_CHECKING, Final

import click

from remuda.cli.finding import Where
from remuda.cli.helps import PLAIN_EXITS
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from remuda.ports.api import Api

PATIENCE_S: Final = 1.0
"""Who pressed Tab waits no longer than this for names."""
NAMES_MAX: Final = 200
_SHELLS: Final = ("bash", "zsh", "fish")
_TOLD: Final = frozenset(field.name for field in fields(Where))


@click.command(epilog=PLAIN_EXITS)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """
    Print a script that teaches a shell to complete remuda.

    Names of jobs, runners, pools and hosts are asked of the fleet, if it answers within a second.

    \b
    Examples:
      source <(remuda completion bash)                                      in ~/.bashrc
      remuda completion zsh > "${fpath[1]}/_remuda"                         once
      remuda completion fish > ~/.config/fish/completions/remuda.fish       once
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only this needs it

    from remuda.cli.main import remuda  # noqa: PLC0415 - it imports this module by name

    maker = get_completion_class(shell)
    assert maker is not None
    # Not ``source()`` of click's: for bash it runs bash to see how old it is.
    made = maker(remuda, {}, "remuda", "_REMUDA_COMPLETE")
    script = made.source_template % made.source_vars()
    # Click's script for fish cuts a summary at its first comma.
    click.echo(script.replace('string split ","', 'string split --max 1 ","'))


def names_of(
    read: Callable[[Api], Awaitable[Iterable[str]]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what completes an argument with names. A fleet that is away or slow has none: nobody is shown an error."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        del param
        try:
            return asyncio.run(_names(ctx, read, incomplete))
        except (RemudaError, TimeoutError, OSError):
            return []

    return complete


async def _names(
    ctx: click.Context, read: Callable[[Api], Awaitable[Iterable[str]]], incomplete: str
) -> list[str]:
    told = {name: given for name, given in ctx.params.items() if name in _TOLD}
    async with asyncio.timeout(PATIENCE_S), Where(**told).api() as api:
        names = sorted({name for name in await read(api) if name.startswith(incomplete)})
    return names[:NAMES_MAX]


async def job_names(api: Api) -> Iterable[str]:
    return [job.id for job in await api.jobs(limit=NAMES_MAX)]


async def runner_names(api: Api) -> Iterable[str]:
    return [runner.name for runner in await api.runners(limit=NAMES_MAX)]


async def pool_names(api: Api) -> Iterable[str]:
    return [pool.name for pool in await api.pools()]


async def host_names(api: Api) -> Iterable[str]:
    return [host.name for host in await api.hosts()]
