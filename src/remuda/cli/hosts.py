"""``remuda hosts``: which hosts there are, and how one is taken out of service."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock
from remuda.cli.changing import WaitedInVain, kube_of, until
from remuda.cli.completion import host_names, names_of
from remuda.cli.finding import api_options, fleet_options
from remuda.cli.helps import ENDLESS_EXITS, EXITS
from remuda.cli.host_changes import drain_text, runners_on, set_drained
from remuda.cli.hosts_operate import operate
from remuda.cli.listing import How, Listing, listing_options, show
from remuda.cli.listing_group import ListingGroup
from remuda.cli.run import Duration
from remuda.cli.states import host_state
from remuda.cli.tables import Column, age
from remuda.kube.names import VM

if TYPE_CHECKING:
    from remuda.cli.finding import Where
    from remuda.ports.api import Api, HostRow
    from remuda.ports.kube import Kube


HOSTS: Final[Listing[HostRow]] = Listing(
    one="host",
    many="hosts",
    key=lambda host: host.name,
    columns=(
        Column("NAME", lambda host, _: host.name, whole=True),
        Column("STATE", lambda host, _: host_state(host), is_state=True, whole=True),
        Column("FLEET", lambda host, _: host.fleet, gives_way=2),
        Column("RUNTIME", lambda host, _: host.runtime, gives_way=3),
        Column("RUNNERS", lambda host, _: str(host.runners)),
        Column("VMS", lambda host, _: host.allocatable.get(VM, "")),
        Column("AGE", lambda host, now: age(host.created_at, now), gives_way=4),
        Column("OS", lambda host, _: host.os, wide=True),
        Column("ARCH", lambda host, _: host.architecture, wide=True),
        Column("CPU", lambda host, _: host.allocatable.get("cpu", ""), wide=True),
        Column("MEMORY", lambda host, _: host.allocatable.get("memory", ""), wide=True),
    ),
)


@click.group(cls=ListingGroup, epilog=ENDLESS_EXITS)
def hosts() -> None:
    """
    List hosts by name, show one, or take one out of service.

    VMS is how many runners a host may have at once. What is listed may be some seconds old.

    \b
    Examples:
      remuda hosts                        all of them
      remuda hosts mini-1 -o yaml         one, with everything that is known
      remuda hosts drain mini-1 --wait    before its maintenance
      remuda hosts undrain mini-1         after it
      remuda hosts operate --help         the process that looks after Macs
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped


hosts.add_command(operate)

_HOST = click.argument("host", shell_complete=names_of(host_names))


@hosts.command("list", epilog=ENDLESS_EXITS)
@click.argument("host", default="", metavar="[HOST]", shell_complete=names_of(host_names))
@listing_options
@api_options
def list_hosts(*, where: Where, host: str, output: str, watch: bool, every_s: float) -> None:
    """
    List hosts, or show one. This is what remuda hosts does by itself.

    \b
    Examples:
      remuda hosts list
      remuda hosts list mini-1 -o yaml
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped

    async def read(api: Api) -> tuple[HostRow, ...]:
        found = await api.hosts()
        return HOSTS.named(found, host) if host else found

    how = How(output=output, watch=watch, every_s=every_s, single=bool(host))
    show(where, HOSTS, read, how)


@hosts.command(epilog=EXITS)
@_HOST
@click.option("--wait", is_flag=True, help="Return once no runner is left there.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    help="With --wait: give up after so long, such as 1h. The host stays drained.",
)
@fleet_options
def drain(*, where: Where, host: str, wait: bool, timeout_s: int | None) -> None:
    """
    Take a host out of service: no new runner starts there, and idle ones are retired.

    Busy runners finish their jobs, however long these take. It is what kubectl cordon does to the host's Node.

    \b
    Examples:
      remuda hosts drain mini-1
      remuda hosts drain mini-1 --wait --timeout 2h
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    asyncio.run(_drain(where, host, wait=wait, timeout_s=timeout_s))


@hosts.command(epilog=EXITS)
@_HOST
@fleet_options
def undrain(*, where: Where, host: str) -> None:
    """
    Put a drained host back in service.

    \b
    Example:
      remuda hosts undrain mini-1
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    asyncio.run(_undrain(where, host))


async def _drain(where: Where, name: str, *, wait: bool, timeout_s: float | None) -> None:
    namespace = where.namespace()
    async with kube_of(where) as kube:
        changed = await set_drained(kube, name, drained=True)
        there = drain_text(await runners_on(kube, name, namespace))
        said = "takes no new runners now" if changed else "was drained already"
        click.echo(f"Host {name} {said}. Its runners: {there}.")
        if wait:
            await _wait(kube, name, namespace, timeout_s)
            click.echo(f"Host {name} is drained: no runner is left there.")


async def _wait(kube: Kube, name: str, namespace: str, timeout_s: float | None) -> None:
    most = gone = 0

    async def probe() -> tuple[bool, str]:
        nonlocal most, gone
        left = await runners_on(kube, name, namespace)
        most = max(most, left.count)
        gone = most - left.count
        return left.count == 0, f"still on {name}: {drain_text(left)}"

    def in_vain(last: str) -> WaitedInVain:
        return WaitedInVain(
            f"Host {name} is not empty yet",
            why=f"the time is over, and {last}",
            fix=f"Wait longer: it stays drained. See who is there with: remuda explain host {name}",
        )

    await until(
        probe,
        SystemClock(),
        timeout_s=timeout_s,
        in_vain=in_vain,
        share=lambda: (gone, most),
    )


async def _undrain(where: Where, name: str) -> None:
    async with kube_of(where) as kube:
        changed = await set_drained(kube, name, drained=False)
    said = "takes runners again" if changed else "was not drained"
    click.echo(f"Host {name} {said}.")
