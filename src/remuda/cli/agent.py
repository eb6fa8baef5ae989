"""``remuda agent``: one host's VMs, one for each Pod that is bound to it, until told to stop."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click
import structlog
from prometheus_client import disable_created_metrics

from remuda.adapters.kube_client import kubeconfig
from remuda.adapters.poll_client import PollSettings
from remuda.adapters.stage_socket import ask_to_stage
from remuda.adapters.status_server import Listen
from remuda.cli.agent_options import DATA, Told, agent_options, agent_settings, deadlines
from remuda.cli.drivers import DriverSettings
from remuda.cli.helps import PLAIN_EXITS
from remuda.cli.hosting import AgentCommand, host
from remuda.cli.logs import set_up_logs
from remuda.cli.stopping import until_told_to_stop
from remuda.model.errors import BadInput

log = structlog.get_logger(__name__)


@click.group(
    invoke_without_command=True,
    epilog="Exit codes: 0 told to stop, 1 failed, 2 a setting cannot be used.",
)
@agent_options
@click.pass_context
def agent(ctx: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - one field of Told for each option
    """
    Run VMs for the Pods that are bound to this host, one job each.

    It poses as the kubelet of a Node: it registers the Node and renews its Lease, makes a VM for each Pod that asks for
    one, waits for a job at dispatch, hands it to the guest, and ends Pod and VM with it. It needs no root. It runs
    until SIGTERM or SIGINT; its VMs go on meanwhile, and the next start takes them up where they are.

    \b
    Examples:
      remuda agent --fleet minis --dispatch-url https://dispatch.example.org --kubeconfig /etc/remuda/kubeconfig
      remuda agent --fleet linux --driver qemu --vms 8 --dispatch-url http://10.0.0.5:8080 --data /var/lib/remuda
      remuda agent --fleet minis --disable-vm-gc --deadline pull_idle=3600 --dispatch-url http://10.0.0.5:8080
      remuda agent stage ghcr.io/example/macos@sha256:…
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    if ctx.invoked_subcommand is not None:
        return
    told = Told(**options)
    set_up_logs(told.log_format)
    disable_created_metrics()  # type: ignore[no-untyped-call] # a second series per counter that nobody reads
    try:
        command = _command(told)
    except BadInput as error:
        raise _usage(error) from None
    if asyncio.run(until_told_to_stop(host(command))):
        log.info("stopped")


@agent.command(epilog=PLAIN_EXITS)
@click.argument("image")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    envvar="REMUDA_DATA",
    show_envvar=True,
    show_default=str(DATA),
    help="The running agent's data directory.",
)
@click.pass_context
def stage(ctx: click.Context, image: str, data: Path | None) -> None:
    """
    Fetch an image on this host without starting anything.

    It asks the agent that runs on this host, as the same user, and shows how far it is. When it ends with 0, a VM of
    this image starts without a pull. Ended early, the agent goes on.

    \b
    Examples:
      remuda agent stage ghcr.io/example/macos@sha256:…
      remuda agent stage --data /var/lib/remuda ghcr.io/example/linux:24.04
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    above = ctx.parent.params.get("data") if ctx.parent is not None else None
    folder = data or (above if isinstance(above, Path) else DATA)
    asyncio.run(ask_to_stage(folder.absolute(), image, lambda line: click.echo(line, err=True)))
    click.echo(f"{image} is on this host")


def _command(told: Told) -> AgentCommand:
    if told.runs == "tart" and sys.platform == "darwin" and os.geteuid() == 0:
        raise BadInput(
            "Tart's VMs cannot be run by root",
            why="macOS starts VMs only for the user who is logged in at the screen",
            fix="Run the agent as that user; in a launchd daemon, with UserName",
        )
    connection = kubeconfig.discover(told.kubeconfig)
    settings = agent_settings(told, connection.server)
    return AgentCommand(
        connection=connection,
        lease_connection=kubeconfig.discover(told.kubeconfig),
        agent=settings,
        driver=DriverSettings(
            name=told.runs,
            folder=settings.data,
            deadlines=deadlines(told.deadline),
            images=(told.images or settings.data / "images").absolute(),
            insecure_registry=told.insecure_registry,
            tart_program=told.tart_program,
            softnet=told.tart_network == "softnet",
            qemu_accel=told.qemu_accel,
            qemu_network=told.qemu_network,
        ),
        dispatch=_dispatch(told.dispatch_url),
        listen=Listen.parse(told.listen),
        kubelet=Listen.parse(told.kubelet_listen),
        kubelet_client_ca=told.kubelet_client_ca,
    )


def _dispatch(url: str) -> PollSettings:
    if not url:
        raise BadInput(
            "Nobody could be asked for jobs",
            why="it is not said where dispatch is",
            fix="Give --dispatch-url",
        )
    return PollSettings(base_url=url)


def _usage(error: BadInput) -> click.UsageError:
    return click.UsageError(f"{error.what}\n  why: {error.why}\n  fix: {error.fix}")
