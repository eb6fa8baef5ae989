"""``remuda pools``: which pools there are, and what people change about them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock
from remuda.cli import pool_changes
from remuda.cli.changing import WaitedInVain, kube_of, until
from remuda.cli.completion import names_of, pool_names
from remuda.cli.finding import api_options, fleet_options
from remuda.cli.helps import ENDLESS_EXITS, EXITS
from remuda.cli.listing import How, Listing, listing_options, show
from remuda.cli.listing_group import ListingGroup
from remuda.cli.run import Duration
from remuda.cli.states import pool_state
from remuda.cli.tables import Column, age
from remuda.kube.runner_pool import REPLICAS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from remuda.cli.finding import Where
    from remuda.cli.pool_changes import Decision
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.api import Api, PoolRow
    from remuda.ports.kube import Kube


def _scaling(pool: PoolRow, _: datetime) -> str:
    return f"up to {pool.max_replicas}" if pool.autoscaled else "by hand"


POOLS: Final[Listing[PoolRow]] = Listing(
    one="pool",
    many="pools",
    key=lambda pool: pool.name,
    columns=(
        Column("NAME", lambda pool, _: pool.name, whole=True),
        Column("STATE", lambda pool, _: pool_state(pool), is_state=True, whole=True),
        Column("WANTED", lambda pool, _: str(pool.replicas), gives_way=1),
        Column("WARM", lambda pool, _: str(pool.runners.warm)),
        Column("BUSY", lambda pool, _: str(pool.runners.busy)),
        Column("STARTING", lambda pool, _: str(pool.runners.starting), gives_way=2),
        Column(
            "LEAVING",
            lambda pool, _: str(pool.runners.terminating + pool.runners.ended),
            gives_way=3,
        ),
        Column("LABELS", lambda pool, _: ",".join(pool.labels), gives_way=4),
        Column("AGE", lambda pool, now: age(pool.created_at, now), gives_way=5),
        Column("OS", lambda pool, _: pool.os, wide=True),
        Column("FLEET", lambda pool, _: pool.fleet, wide=True),
        Column("SCALED", _scaling, wide=True),
        Column("FORKS", lambda pool, _: pool.forks, wide=True),
        Column("IMAGE", lambda pool, _: pool.image, wide=True),
    ),
)


@click.group(cls=ListingGroup, epilog=ENDLESS_EXITS)
def pools() -> None:
    """
    List pools by name, show one, or change one.

    \b
    Examples:
      remuda pools                     all of them
      remuda pools mac -o yaml         one, with everything that is known
      remuda pools scale mac 4         have four runners
      remuda pools roll mac --wait     replace every runner, and see it done
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped


_POOL = click.argument("pool", shell_complete=names_of(pool_names))
_WAIT = click.option("--wait", is_flag=True, help="Return once all runners are as wanted.")
_TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    help="With --wait: give up after so long, such as 10m. The change stays.",
)


@pools.command("list", epilog=ENDLESS_EXITS)
@click.argument("pool", default="", metavar="[POOL]", shell_complete=names_of(pool_names))
@listing_options
@api_options
def list_pools(*, where: Where, pool: str, output: str, watch: bool, every_s: float) -> None:
    """
    List pools, or show one. This is what remuda pools does by itself.

    \b
    Examples:
      remuda pools list
      remuda pools list mac -o yaml
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped

    async def read(api: Api) -> tuple[PoolRow, ...]:
        return ((await api.pool(pool)).pool,) if pool else await api.pools()

    how = How(output=output, watch=watch, every_s=every_s, single=bool(pool))
    show(where, POOLS, read, how)


@pools.command(epilog=EXITS)
@_POOL
@fleet_options
def pause(*, where: Where, pool: str) -> None:
    """
    Stop a roll where it is: mark no further runner for replacement.

    Those already marked are still replaced, and runners that end get successors.

    \b
    Example:
      remuda pools pause mac
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    asyncio.run(_change(where, pool, pool_changes.pause))


@pools.command(epilog=EXITS)
@_POOL
@fleet_options
def resume(*, where: Where, pool: str) -> None:
    """
    Let a paused roll go on.

    \b
    Example:
      remuda pools resume mac
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    asyncio.run(_change(where, pool, pool_changes.resume))


@pools.command(epilog=EXITS)
@_POOL
@click.argument("replicas", type=click.IntRange(0, REPLICAS_MAX))
@_WAIT
@_TIMEOUT
@fleet_options
def scale(*, where: Where, pool: str, replicas: int, wait: bool, timeout_s: int | None) -> None:
    """
    Set how many runners a pool wants, busy ones included. Refused where an autoscaler does that.

    No job is ended: a pool that has more busy runners than it wants waits for them.

    \b
    Examples:
      remuda pools scale mac 4 --wait
      remuda pools scale mac 0
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    decide = pool_changes.scale(replicas)
    asyncio.run(_change(where, pool, decide, wait=wait, timeout_s=timeout_s))


@pools.command(epilog=EXITS)
@_POOL
@_WAIT
@_TIMEOUT
@fleet_options
def roll(*, where: Where, pool: str, wait: bool, timeout_s: int | None) -> None:
    """
    Replace every runner of a pool, a few at a time, the busy ones after their jobs.

    How many at a time is the pool's spec.rollout. A changed image rolls the pool by itself.

    \b
    Example:
      remuda pools roll mac --wait --timeout 30m
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    decide = pool_changes.roll(SystemClock().now())
    asyncio.run(_change(where, pool, decide, wait=wait, timeout_s=timeout_s))


async def _change(
    where: Where,
    name: str,
    decide: Callable[[RunnerPool], Decision],
    *,
    wait: bool = False,
    timeout_s: float | None = None,
) -> None:
    namespace = where.namespace()
    async with kube_of(where) as kube:
        changed = await pool_changes.change(kube, namespace, name, decide)
        click.echo(changed.sentence)
        if wait:
            await _wait(kube, changed.pool, timeout_s)
            click.echo(f"Pool {name} is as wanted.")


async def _wait(kube: Kube, pool: RunnerPool, timeout_s: float | None) -> None:
    generation = pool.metadata.generation or 0

    share = 0, pool.spec.replicas

    async def probe() -> tuple[bool, str]:
        nonlocal share
        fresh = await pool_changes.read_pool(kube, pool.namespace, pool.name)
        seen = pool_changes.progress(fresh, generation)
        share = seen.done, seen.total
        return seen.over, seen.text

    def in_vain(last: str) -> WaitedInVain:
        return WaitedInVain(
            f"Pool {pool.name} is not as wanted yet",
            why=f"the time is over, and {last}",
            fix=f"The change stays. See why with: remuda explain pool {pool.name}",
        )

    await until(probe, SystemClock(), timeout_s=timeout_s, in_vain=in_vain, share=lambda: share)
