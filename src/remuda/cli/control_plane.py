"""``remuda control-plane``: serve a Kubernetes API on this machine until told to stop."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import click

from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.helps import SERVED_EXITS
from remuda.cli.stopping import until_told_to_stop
from remuda.standalone.http import LOOPBACK, HttpSettings
from remuda.standalone.plane import ControlPlane, DurableControlPlane

PORT = 6443
OPEN_FILES = 10_240
"""How many connections may be open at once, more or less: the most that macOS grants."""


@click.command("control-plane", epilog=SERVED_EXITS)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Directory that holds everything. It is made if it is not there.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to serve on, on this machine only. 0 takes any that is free.",
)
@click.option(
    "--print-kubeconfig",
    is_flag=True,
    help="Print the administrator's kubeconfig, credentials included, once it serves.",
)
def control_plane(data: Path, port: int, *, print_kubeconfig: bool) -> None:
    """
    Serve a Kubernetes API on one machine.

    It runs until SIGTERM or SIGINT, and keeps everything in the data directory.

    \b
    Examples:
      remuda control-plane --data ./data
      KUBECONFIG=./data/kubeconfig kubectl get nodes
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    _allow_many_connections()
    asyncio.run(_serve(data.absolute(), port, print_kubeconfig=print_kubeconfig))


def _allow_many_connections() -> None:
    """Ask for more open files: many systems grant 256 at first, and every agent holds several watches."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _serve(data: Path, port: int, *, print_kubeconfig: bool) -> None:
    plane = ControlPlane.durable(data, SystemClock(), SystemIds())

    def say_ready(address: str) -> None:
        _say_ready(plane, address, print_kubeconfig=print_kubeconfig)

    try:
        work = plane.serve(HttpSettings(host=LOOPBACK, port=port), say_ready)
        if await until_told_to_stop(work):
            click.echo("Stopped.", err=True)
    finally:
        await plane.close()


def _say_ready(plane: DurableControlPlane, address: str, *, print_kubeconfig: bool) -> None:
    click.echo(f"Serving a Kubernetes API at {address}", err=print_kubeconfig)
    click.echo(f"export KUBECONFIG={plane.kubeconfig}", err=print_kubeconfig)
    if print_kubeconfig:
        click.echo(plane.kubeconfig.read_text(), nl=False)
