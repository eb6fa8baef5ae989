"""``remuda hosts operate``: run the host operator until told to stop. The options; what they start is next door."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from prometheus_client import disable_created_metrics

from remuda.adapters.github.manifest import DOTCOM, Site
from remuda.adapters.kube_client import kubeconfig
from remuda.adapters.scaleway.wire import API_URL, ScalewaySettings
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemIds
from remuda.cli.fleet_config import fleet_config_options
from remuda.cli.logs import set_up_logs
from remuda.hosts.decide.lifecycle import Limits
from remuda.hosts.settings import HostSettings
from remuda.model.errors import BadInput
from remuda.model.secret import Secret

if TYPE_CHECKING:
    from remuda.adapters.kube_client import Connection
    from remuda.cli.logs import LogFormat
    from remuda.hosts.decide.wanted import FleetConfig

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_DEFAULTS: Final = Limits()
_SETTINGS: Final = HostSettings(namespace="", identity="")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsCommand:
    """Everything the command was told, read and checked."""

    connection: Connection
    hosts: HostSettings
    config: FleetConfig
    listen: Listen
    scaleway: ScalewaySettings | None
    github: Site
    """Where builders are registered."""
    node_server: str
    """Where hosts find the API server."""
    pki: Path | None
    """The folder of an authority that signs for hosts; None: the cluster signs."""


@click.command(
    "operate", epilog="Exit codes: 0 told to stop, 1 failed, 2 a setting cannot be used."
)
@click.option(
    "--namespace",
    envvar="REMUDA_NAMESPACE",
    show_envvar=True,
    help="The namespace whose Hosts are served. Default: the kubeconfig's, or the Pod's own.",
)
@click.option(
    "--kubeconfig",
    "kubeconfig_file",
    type=_FILE,
    envvar="REMUDA_KUBECONFIG",
    show_envvar=True,
    help="How to reach the API server. Default: what kubectl would use, else the Pod's own ServiceAccount.",
)
@click.option(
    "--node-server",
    envvar="REMUDA_NODE_SERVER",
    show_envvar=True,
    default="",
    metavar="URL",
    help="Where the Macs reach the API server. Default: where this command does.",
)
@click.option(
    "--pki",
    type=_FOLDER,
    envvar="REMUDA_PKI",
    show_envvar=True,
    help="Sign the agents' credentials with the authority in this folder (control-plane/pki of remuda up), instead of"
    " having the cluster sign them.",
)
@click.option(
    "--credential-days",
    type=click.IntRange(1, 365),
    envvar="REMUDA_CREDENTIAL_DAYS",
    show_envvar=True,
    default=_SETTINGS.credential_life.days,
    show_default=True,
    metavar="DAYS",
    help="How long a credential that the cluster signs for an agent is good. It is replaced when a third of that is"
    " left; a Mac that is lost can use it to its end.",
)
@fleet_config_options
@click.option(
    "--roll-percent",
    type=click.IntRange(1, 100),
    envvar="REMUDA_ROLL_PERCENT",
    show_envvar=True,
    default=5,
    show_default=True,
    help="How many hosts of a fleet, in a hundred, may have a new configuration that is not proven yet. At least one.",
)
@click.option(
    "--trust-first-key",
    is_flag=True,
    envvar="REMUDA_TRUST_FIRST_KEY",
    show_envvar=True,
    help="Take the first host key that a Mac shows for its own, and pin it. Else a person says which key is right.",
)
@click.option(
    "--scaleway-token-file",
    type=_FILE,
    envvar="REMUDA_SCALEWAY_TOKEN_FILE",
    show_envvar=True,
    help="A file with the secret key of a Scaleway API key. Needed for Hosts of the provider scaleway.",
)
@click.option(
    "--scaleway-project",
    envvar="REMUDA_SCALEWAY_PROJECT",
    show_envvar=True,
    default="",
    help="See the Macs of this Scaleway project only.",
)
@click.option(
    "--scaleway-url",
    envvar="REMUDA_SCALEWAY_URL",
    show_envvar=True,
    default=API_URL,
    show_default=True,
    metavar="URL",
    help="Where Scaleway's API is.",
)
@click.option(
    "--github-url",
    envvar="REMUDA_GITHUB_URL",
    show_envvar=True,
    default=DOTCOM,
    show_default=True,
    metavar="URL",
    help="Where the organisations of builders are: github.com, or the start page of an Enterprise Server.",
)
@click.option(
    "--claim-prefix",
    envvar="REMUDA_CLAIM_PREFIX",
    show_envvar=True,
    default="remuda-",
    show_default=True,
    help="Names of rented Macs that are some Host's begin with this. Two clusters of one account need two.",
)
@click.option(
    "--retry-after",
    type=click.IntRange(min=1),
    envvar="REMUDA_RETRY_AFTER",
    show_envvar=True,
    default=int(_DEFAULTS.retry_after.total_seconds() // 60),
    show_default=True,
    metavar="MINUTES",
    help="After how long a host that was given up is tried once more.",
)
@click.option(
    "--listen",
    envvar="REMUDA_LISTEN",
    show_envvar=True,
    default="127.0.0.1:9466",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve /metrics, /healthz and /readyz. Port 0 means any free port.",
)
@click.option(
    "--identity",
    envvar="REMUDA_IDENTITY",
    show_envvar=True,
    help="Who this replica is in the election. Never use one twice. Default: the host's name and something random.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="REMUDA_LOG_FORMAT",
    show_envvar=True,
    help="How to log, to standard error. Default: text on a terminal, else JSON.",
)
def operate(  # noqa: PLR0913 - one parameter per option is how click works
    *,
    config: FleetConfig,
    namespace: str | None,
    kubeconfig_file: Path | None,
    node_server: str,
    pki: Path | None,
    credential_days: int,
    roll_percent: int,
    trust_first_key: bool,
    scaleway_token_file: Path | None,
    scaleway_project: str,
    scaleway_url: str,
    github_url: str,
    claim_prefix: str,
    retry_after: int,
    listen: str,
    identity: str | None,
    log_format: LogFormat | None,
) -> None:
    """
    Run the host operator: Macs from Host objects, bootstrapped over SSH and kept as they should be.

    It runs until SIGTERM or SIGINT. Start two or more: one leads, the others take over when it is gone. A new agent or
    rule is given by starting it anew with that; it goes over the fleet a few hosts at a time. A new Tart is given so to
    new hosts, and to others when they are annotated with remuda.dev/retry=true.

    \b
    Examples:
      remuda hosts operate --namespace ci --agent remuda-agent --tart tart.tar.gz --tart-version 2.32.1 \\
          --dispatch-url https://dispatch.example.com --trust-first-key
      remuda hosts operate ... --scaleway-token-file /var/run/secrets/scaleway/token
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    set_up_logs(log_format)
    disable_created_metrics()  # type: ignore[no-untyped-call] # a second series per counter that nobody reads
    try:
        connection = kubeconfig.discover(kubeconfig_file)
        github = Site.at(github_url)
        hosts = HostSettings(
            namespace=namespace or connection.namespace,
            identity=identity or f"{socket.gethostname()}_{SystemIds().suffix(8)}",
            limits=Limits(retry_after=timedelta(minutes=retry_after)),
            credential_life=timedelta(days=credential_days),
            roll_percent=roll_percent,
            trust_first=trust_first_key,
            github_url=github.web_url,
            claim_prefix=_claim_prefix(claim_prefix),
        )
        command = HostsCommand(
            connection=connection,
            hosts=hosts,
            config=config,
            listen=Listen.parse(listen),
            scaleway=_scaleway(scaleway_token_file, scaleway_url, scaleway_project),
            github=github,
            node_server=node_server or connection.server,
            pki=pki,
        )
    except BadInput as error:
        raise click.UsageError(f"{error.what}\n  why: {error.why}\n  fix: {error.fix}") from None
    _start(command)


def _start(command: HostsCommand) -> None:
    try:
        from remuda.cli.hosts_operating import run  # noqa: PLC0415 - SSH is an extra; listing hosts works without
    except ModuleNotFoundError as error:
        if (error.name or "remuda").startswith("remuda"):
            raise
        raise BadInput(
            "remuda hosts operate cannot start",
            why=f"the Python package {error.name} is not installed",
            fix="Install it with: pip install 'remuda[hosts]'",
        ) from error
    run(command)


def _claim_prefix(text: str) -> str:
    if text.strip() != text or not text:
        raise BadInput(
            "The claim prefix cannot be used",
            why="it is empty or has blanks at its ends, so every Mac would look like ours, or none",
            fix="Give --claim-prefix a short name and a hyphen, such as remuda-",
        )
    return text


def _scaleway(token_file: Path | None, url: str, project: str) -> ScalewaySettings | None:
    if token_file is None:
        return None
    try:
        token = token_file.read_bytes().strip()
        token.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{token_file} cannot be used",
            why=str(error) if isinstance(error, OSError) else "it holds no token but other bytes",
            fix="Give --scaleway-token-file a file with the secret key alone",
        ) from None
    if not token:
        raise BadInput(f"{token_file} is empty", why="a token was expected", fix="Put it in")
    return ScalewaySettings(token=Secret(token), api_url=url, project=project)
