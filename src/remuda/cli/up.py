"""``remuda up``: a whole fleet on this machine, until told to stop."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.finding import default_home
from remuda.cli.progress import Screen, beside, is_watched
from remuda.cli.tree.decide.driver import choose_driver, offer_of, runner_size, vms_of
from remuda.cli.tree.decide.last_words import last_words
from remuda.cli.tree.decide.pool import PoolWish
from remuda.cli.tree.folder import (
    AlreadyUp,
    Folder,
    Kept,
    data_folder,
    held,
    holder,
    prepare,
    usable,
)
from remuda.cli.tree.machine import look_at_machine, node_name
from remuda.cli.tree.parts import CONTROL_PLANE, FLEET, NAMESPACE, SERVER, Layout, environment
from remuda.cli.tree.ports import settle
from remuda.cli.tree.progress import show_start
from remuda.cli.tree.state import read_state
from remuda.cli.tree.supervisor import Plan, Supervisor, sweep
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Mapping

DRIVERS: Final = ("auto", "tart", "qemu", "process")
_DETACH_S: Final = 300.0
_POLL_S: Final = 0.1
_NAME_MAX: Final = 40
"""Of a pool that runs on one machine: names of runners begin with it."""


class NotUp(RemudaError):
    """The tree that was started in the background did not come up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the command was told."""

    driver: str | None
    image: str
    vms: int | None
    pool: str | None
    qemu_accel: str | None
    ports: Mapping[str, int | None]


@click.command(epilog="Exit codes: 0 told to stop (with --detach: up), 1 failed, 2 usage.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder that holds everything; it is made if it is not there. Variable: REMUDA_DATA.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Return once all is up; it goes on in the background until remuda down.",
)
@click.option(
    "--driver",
    type=click.Choice(DRIVERS),
    help="What runs the VMs. auto: Tart on a Mac that has it and is told an image, QEMU on Linux that has it and an"
    " image, else process, which is without isolation. Default: as at the last start, else auto.",
)
@click.option(
    "--image",
    default="",
    metavar="REF",
    help="The image of the default pool, when it is made. Later, edit the pool.",
)
@click.option(
    "--vms",
    type=click.IntRange(min=1, max=1000),
    help="VMs at once. Default: as at the last start, else 2 with Tart, as macOS allows, and 2 to 4 with others.",
)
@click.option(
    "--qemu-accel",
    type=click.Choice(["auto", "kvm", "tcg"]),
    help="What runs QEMU's guests. auto: KVM where it truly works, else TCG. Default: as at the last start, else auto.",
)
@click.option(
    "--pool",
    metavar="NAME",
    help="The pool that is made if it is not there. Default: as at the last start, else default.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the API. Default: as at the last start, else any that is free. 0: any other.",
)
@click.option(
    "--kube-port",
    type=click.IntRange(0, 65535),
    help="Port of the Kubernetes API. Default: likewise.",
)
def up(  # noqa: PLR0913 - one parameter per option is how click works
    *,
    data: Path | None,
    detach: bool,
    driver: str | None,
    image: str,
    vms: int | None,
    qemu_accel: str | None,
    pool: str | None,
    port: int | None,
    kube_port: int | None,
) -> None:
    """
    Run a whole fleet on this machine: one command, single-use runners, nothing to install beside it.

    It starts a Kubernetes API, dispatch with a PostgreSQL of its own, the operator and an agent, makes a pool, and
    looks after all of them until SIGTERM, SIGINT or remuda down. Everything is in the data folder: killed in any way,
    the next start goes on where it was. Jobs that run when it stops go on in their VMs, and the next start takes
    them up.

    \b
    Examples:
      remuda up
      remuda up --detach --driver process --vms 2
      remuda up --data ./fleet --port 8080
      KUBECONFIG=./fleet/kubeconfig kubectl get runnerpools,pods,nodes
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    folder = data_folder(data)
    told = Told(
        driver=driver,
        image=image,
        vms=vms,
        pool=pool,
        qemu_accel=qemu_accel,
        ports={SERVER: port, CONTROL_PLANE: kube_port},
    )
    if detach:
        _detach(folder, told)
        click.echo(report(folder))
        return
    prepare(folder)
    with held(folder):
        asyncio.run(_run(folder, told))


async def _run(folder: Folder, told: Told) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    clock, ids = SystemClock(), SystemIds()
    before = folder.kept()
    if left := await sweep(folder):
        _say(f"Ended what an earlier remuda up left: {', '.join(left)}")
    plan = make_plan(folder, told, before)
    # What is said into a log, as of one in the background, is for those who look for its end.
    screen = Screen(sys.stderr, quiet=not is_watched(sys.stderr, os.environ))

    def say(line: str) -> None:
        screen.clear()
        _say(line)

    supervisor = Supervisor(plan, clock=clock, ids=ids, say=say)
    async with beside(show_start(folder, screen, clock)) as showing:

        def tell() -> None:
            showing.cancel()
            screen.clear()
            with suppress(OSError):
                click.echo(report(folder))

        await supervisor.run(stop, tell)
    _say(
        "Stopped. What the fleet knows is kept; jobs that run go on, and the next remuda up takes them up."
    )


def _say(line: str) -> None:
    with suppress(
        OSError
    ):  # a full disk, where this goes to a log, or nobody who listens: it tends the tree all the same
        click.echo(line, err=True)


def make_plan(folder: Folder, told: Told, before: Kept | None) -> Plan:
    """Choose what is not said, and keep it for the next start. Raises BadInput and PortTaken."""
    with usable(folder.root):
        machine = look_at_machine(folder.images, told.image)
    if before is not None and told.driver in {None, before.driver}:
        chosen = choose_driver(before.driver, told.image, machine, kept_image=before.image)
        why = "as at the last start"
    else:
        chosen = choose_driver(told.driver or "auto", told.image, machine)
        why = chosen.why
    vms = vms_of(told.vms or (before.vms if before else None), chosen.driver, machine)
    kept = Kept(
        node=before.node if before else node_name(),
        driver=chosen.driver,
        image=chosen.image,
        vms=vms,
        pool=pool_name(told.pool or (before.pool if before else "default")),
        qemu_accel=told.qemu_accel or (before.qemu_accel if before else ""),
        ports=settle(told.ports, before.ports if before else {}),
    )
    with usable(folder.root):
        folder.keep(kept)
    return Plan(
        layout=Layout(folder, kept),
        offer=offer_of(kept.driver, vms, machine),
        pool=PoolWish(
            name=kept.pool,
            namespace=NAMESPACE,
            fleet=FLEET,
            os="darwin" if machine.platform == "darwin" else "linux",
            image=kept.image,
            replicas=vms,
            size=runner_size(kept.driver, vms, machine),
        ),
        why_driver=why,
        isolated=kept.driver != "process",
        env=environment(os.environ, kept.driver),
        image=told.image,
    )


def pool_name(name: str) -> str:
    """Check the name of a pool."""
    plain = name.replace("-", "a")
    if not (plain.isascii() and plain.isalnum() and plain.islower() and len(name) <= _NAME_MAX):
        raise click.UsageError(
            f"The pool cannot be called {name!r}\n  why: a name has small letters, digits and dashes, at most"
            f" {_NAME_MAX}\n  fix: Write it like linux or default"
        )
    return name


# --- In the background ------------------------------------------------------------------------------------------------


def _detach(folder: Folder, told: Told) -> None:
    """Start the same command in the background and wait until all is up. What it says goes to a log."""
    prepare(folder)
    if holder(folder) is not None:
        with held(folder):  # says who it is
            raise AlreadyUp("Another remuda up has just ended", why="it was there", fix="Try again")
    log = folder.log("up")
    with usable(folder.root), log.open("ab") as out:  # appended to, so that it can be bounded
        out.truncate(0)
        process = subprocess.Popen(  # noqa: S603 - this very command
            [sys.executable, "-P", "-m", "remuda.cli.main", "up", *_again(folder, told)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder.root,
            start_new_session=True,
        )
    try:
        asyncio.run(_shown_until_up(folder, process))
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def _again(folder: Folder, told: Told) -> list[str]:
    options = {
        "--driver": told.driver,
        "--image": told.image or None,
        "--vms": told.vms,
        "--pool": told.pool,
        "--qemu-accel": told.qemu_accel,
        "--port": told.ports.get(SERVER),
        "--kube-port": told.ports.get(CONTROL_PLANE),
    }
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [f"--data={folder.root}", *given]


async def _shown_until_up(folder: Folder, process: subprocess.Popen[bytes]) -> None:
    screen = Screen(sys.stderr)
    try:
        async with beside(show_start(folder, screen, SystemClock())):
            await _until_up(folder, process)
    finally:
        screen.clear()


async def _until_up(folder: Folder, process: subprocess.Popen[bytes]) -> None:
    deadline = asyncio.get_running_loop().time() + _DETACH_S
    while True:
        state = read_state(folder)
        if state is not None and state.pid == process.pid and state.ready:
            return
        if process.poll() is not None:
            words = last_words("tree", folder.tail("up"), path=str(folder.log("up")))
            raise NotUp(words.what, why=words.why, fix=words.fix)
        if asyncio.get_running_loop().time() > deadline:
            raise NotUp(
                "Not all is up yet",
                why=f"it takes longer than {_DETACH_S:.0f} s",
                fix=f"See remuda status and {folder.log('up')}; it goes on in the background",
            )
        await asyncio.sleep(_POLL_S)


# --- What it says -----------------------------------------------------------------------------------------------------


def report(folder: Folder) -> str:
    """Say what is up and where, in words."""
    state, addresses = read_state(folder), folder.home.addresses()
    if state is None or addresses is None:  # a full disk, or somebody who removed them
        return f"Remuda is up. What is known of it could not be read in {folder.root}: see remuda status."
    is_default = folder.root == default_home().folder.absolute()
    option = "" if is_default else f" --data {shlex.quote(str(folder.root))}"
    lines = [
        "Remuda is up.",
        f"  API          {addresses.server}  (token: {folder.home.token_file})",
        f"  Kubernetes   {addresses.kubernetes}  (kubeconfig: {folder.home.kubeconfig})",
        *(f"  Metrics      {url}  ({part})" for part, url in addresses.metrics.items()),
        f"  Pool         {state.pool}, {state.vms} {'runner' if state.vms == 1 else 'runners'} at once",
        f"  Driver       {state.driver}: {state.why_driver}",
        f"  GitHub       {state.github or f'none (remuda setup github{option} connects one)'}",
        f"  Data, logs   {folder.root}, {folder.logs}",
        "",
    ]
    if state.remark:
        lines += [f"{state.remark}.", ""]
    if not state.isolated:
        who = "root" if os.geteuid() == 0 else "you"
        lines += [
            f"The driver {state.driver} is WITHOUT ISOLATION: a job can do all that {who} can. Run what you trust.",
            "",
        ]
    lines += [
        f"Run something:  remuda run{option} -- uname -a",
        f"Look:           remuda status{option}",
        f"Watch it live:  remuda top{option}",
        f"Stop:           remuda down{option}",
    ]
    return "\n".join(lines)
