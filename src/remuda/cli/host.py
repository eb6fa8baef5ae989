"""``remuda host``: one Mac, by a person at a terminal: prepared by its password, or bootstrapped without Kubernetes."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock
from remuda.cli.fleet_config import fleet_config_options
from remuda.cli.helps import EXITS
from remuda.cli.host_steps import Lines, RefuseWithVms, shown
from remuda.cli.host_way import opened, reaching_options
from remuda.hosts.converge import Converger, HostHasProblems, StepFailed, look
from remuda.hosts.decide.parts.auto_login import NAME as AUTO_LOGIN
from remuda.hosts.decide.parts.sudo import SUDO
from remuda.hosts.decide.wanted import BuilderConfig, FleetConfig, OwnConfig, Wanted
from remuda.hosts.parts import PARTS
from remuda.kube.host import Role
from remuda.model.errors import BadInput
from remuda.model.secret import Secret
from remuda.ports.host_shell import Upload

if TYPE_CHECKING:
    from remuda.cli.host_way import Reaching
    from remuda.hosts.converge import Converged
    from remuda.hosts.decide.step import Part
    from remuda.model.errors import RemudaError

_PREPARED: Final = tuple(part for part in PARTS if part.name in {SUDO, AUTO_LOGIN})
_NO_FILE: Final = Upload(Path("/dev/null"), hashlib.sha256(b"").hexdigest(), 0)
_NO_FLEET: Final = FleetConfig(agent=_NO_FILE, tart=_NO_FILE, tart_version="", dispatch_url="")
"""What is prepared has nothing of the fleet's in it."""
_STDIN: Final = Path("-")
_TOKEN_BYTES_MAX: Final = 4096
_FILE_OR_STDIN: Final = click.Path(
    exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path
)
_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.group(epilog=EXITS)
def host() -> None:
    """
    Prepare or bootstrap one Mac, by hand.

    A fleet does the same by itself from its Host objects. This is for the first Mac, and for one that needs help.

    \b
    Examples:
      remuda host prepare m1@203.0.113.7         asks for the password, hidden
      remuda host bootstrap --help               everything a host needs, once
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped


@host.command(epilog=EXITS)
@reaching_options
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def prepare(*, reaching: Reaching, dry_run: bool) -> None:
    """
    Give a Mac passwordless sudo and an automatic login, by its account's password.

    The password is asked for, hidden, and goes to the host through stdin only. When macOS takes it for wrong it
    seals its file and never logs in again: that is looked for, too. Run it as often as you like: what is so already
    is left alone. It logs out whoever is at the screen, so it refuses while VMs run.

    \b
    Examples:
      remuda host prepare m1@203.0.113.7
      remuda host prepare 203.0.113.7 --key ~/.ssh/fleet --fingerprint SHA256:...
      pass mini-1 | remuda host prepare m1@mini-1 --password-stdin --trust-first
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    password = reaching.password()
    own = OwnConfig(node=reaching.address, user=reaching.user, fleet="", password=password)
    wanted = Wanted(fleet=_NO_FLEET, own=own)
    try:
        done = asyncio.run(_carried_out(reaching, wanted, _PREPARED, dry_run=dry_run))
    except (StepFailed, HostHasProblems) as error:
        raise _recovery(error, reaching) from None
    if done is not None:
        click.echo(
            f"{reaching.address} is prepared: sudo asks for no password and {reaching.user} is logged in at the screen."
            if done.changed
            else f"{reaching.address} was prepared already: nothing was changed."
        )


@host.command(epilog=EXITS)
@reaching_options
@click.option("--node", required=True, metavar="NAME", help="The name of the Node, and the host's.")
@click.option("--fleet", required=True, help="The fleet that its Node belongs to.")
@fleet_config_options
@click.option(
    "--kubeconfig", type=_FILE, help="The agent's credential. By default the one on the host stays."
)
@click.option("--vms", type=click.IntRange(0, 2), default=2, show_default=True, help="VMs at once.")
@click.option("--cpus", type=click.IntRange(min=1), help="CPUs for VMs. By default all.")
@click.option("--memory", default="", help="Memory for VMs, such as 14Gi. By default all.")
@click.option("--provider-id", default="", help="The Node's providerID.")
@click.option(
    "--ask-password",
    is_flag=True,
    help="Ask for the account's password: for a host that was not prepared.",
)
@click.option(
    "--builder",
    "github_url",
    default="",
    metavar="URL",
    help="Make it a builder of this GitHub organisation.",
)
@click.option("--builder-label", "labels", multiple=True, help="A label of the builder's runner.")
@click.option(
    "--runner-version",
    default="2.330.0",
    show_default=True,
    help="Of GitHub's runner on a builder.",
)
@click.option(
    "--registration-token",
    "token_file",
    type=_FILE_OR_STDIN,
    help="A file with GitHub's token for a new builder, or - for stdin. It is good for an hour.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def bootstrap(  # noqa: PLR0913 - one per option
    *,
    reaching: Reaching,
    config: FleetConfig,
    node: str,
    fleet: str,
    kubeconfig: Path | None,
    vms: int,
    cpus: int | None,
    memory: str,
    provider_id: str,
    ask_password: bool,
    github_url: str,
    labels: tuple[str, ...],
    runner_version: str,
    token_file: Path | None,
    dry_run: bool,
) -> None:
    """
    Make a Mac a host of a fleet: the whole plan, once, without Kubernetes.

    It looks, does what is missing, and looks again until nothing is left. Killed or failed at any moment, it is run
    again. A second run changes nothing.

    \b
    Examples:
      remuda host bootstrap m1@203.0.113.7 --key ~/.ssh/fleet --node mini-1 --fleet minis \\
        --agent remuda-agent --tart tart.tar.gz --tart-version 2.32.1 \\
        --dispatch-url https://dispatch.example.com --kubeconfig mini-1.kubeconfig
      ... --dry-run                              what would change
      ... --builder https://github.com/acme      a builder: it has no VMs for jobs
      gh api -X POST orgs/acme/actions/runners/registration-token --jq .token |
        remuda host bootstrap ... --builder https://github.com/acme --registration-token -
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    builder = None
    if token_file is not None and not github_url:
        raise BadInput(
            "A registration token was given for a host that is no builder",
            why="--registration-token is there and --builder is not",
            fix="Add --builder https://github.com/ORGANISATION, or leave the token out",
        )
    if github_url:
        builder = BuilderConfig(
            github_url=github_url,
            runner_name=node,
            labels=labels,
            runner_version=runner_version,
            registration_token=_token(token_file, reaching),
        )
    own = OwnConfig(
        node=node,
        user=reaching.user,
        fleet=fleet,
        role=Role.BUILDER if builder else Role.RUNNER,
        password=reaching.password() if _asks(reaching, ask_password=ask_password) else None,
        kubeconfig=_secret(kubeconfig),
        provider_id=provider_id,
        cpus=cpus,
        memory=memory,
        vms=vms,
        builder=builder,
    )
    wanted = Wanted(fleet=config, own=own)
    done = asyncio.run(_carried_out(reaching, wanted, PARTS, dry_run=dry_run))
    if done is not None:
        said = f"changed: {', '.join(done.changed)}" if done.changed else "nothing was to do"
        click.echo(f"{node} is as it should be: {said}.")


def _asks(reaching: Reaching, *, ask_password: bool) -> bool:
    return ask_password or reaching.password_stdin or reaching.key_file is None


def _token(path: Path | None, reaching: Reaching) -> Secret | None:
    """Return the registration token. It is never an argument: those are seen by everybody."""
    if path != _STDIN:
        found = _secret(path)
        return found and Secret(found.reveal().strip())
    if reaching.password_stdin:
        raise BadInput(
            "The password and the registration token cannot both come from stdin",
            why="--password-stdin and --registration-token - were given",
            fix="Put the token into a file that only you can read, and name that",
        )
    if not (given := sys.stdin.buffer.read(_TOKEN_BYTES_MAX).strip()):
        raise BadInput("The registration token is empty", why="stdin held none", fix="Give it one")
    return Secret(given)


def _secret(path: Path | None) -> Secret | None:
    if path is None:
        return None
    held = path.read_bytes()
    if not held.strip():
        raise BadInput(
            f"{path} is empty", why="a credential was expected in it", fix="Give another file"
        )
    return Secret(held)


async def _carried_out(
    reaching: Reaching, wanted: Wanted, parts: tuple[Part, ...], *, dry_run: bool
) -> Converged | None:
    """Do what is to do and say it. None: it was only shown."""
    async with opened(reaching.target(wanted.own.password)) as shell:
        if dry_run:
            click.echo(shown(await look(shell, wanted, parts)), nl=False)
            return None
        return await Converger(
            host=wanted.own.node,
            shell=shell,
            wanted=wanted,
            parts=parts,
            clock=SystemClock(),
            drain=RefuseWithVms(shell, wanted.own.node),
            progress=Lines(),
        ).run()


def _recovery(error: RemudaError, reaching: Reaching) -> RemudaError:
    """Say what a person at a terminal does next: the operator's advice is for somebody else."""
    again = f"remuda host prepare {reaching.user}@{reaching.address}"
    fix = (
        "If the password is wrong: find the right one (a provider may show it for some hours only; else set a new one"
        f" in System Settings, Users), wait until sudo takes tries again, and run {again} once more. "
        "If it is right and nobody is logged in: look at the screen by VNC, answer what waits there, or restart the"
        " host, and run it once more"
    )
    if isinstance(error, HostHasProblems):
        return HostHasProblems(error.what, why=error.why, fix=error.fix, problems=error.problems)
    assert isinstance(error, StepFailed)
    return type(error)(error.what, why=error.why, fix=fix, step=error.step)
