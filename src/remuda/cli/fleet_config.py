"""The options that say what every Mac of a fleet is made into: its agent, Tart, and what guests may reach."""

from __future__ import annotations

import hashlib
import re
from functools import wraps
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.hosts.decide.wanted import Allowed, FleetConfig
from remuda.ports.host_shell import Upload

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.wanted import Network

PIECE_BYTES: Final = 1024 * 1024
_ALLOWED: Final = re.compile(r"(?P<network>.+),(?P<protocol>tcp|udp),(?P<low>\d+)(-(?P<high>\d+))?")
_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


class _AllowedType(click.ParamType[Allowed]):
    """One place that guests may reach: NETWORK,tcp|udp,PORT[-PORT]."""

    name = "network,protocol,ports"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Allowed:
        match = _ALLOWED.fullmatch(str(value))
        if not match:
            self.fail(
                f"{value!r} is not NETWORK,tcp|udp,PORT[-PORT], such as 10.1.2.3/32,tcp,443",
                param,
                ctx,
            )
        low = int(match["low"])
        network = network_of(match["network"], param, ctx)
        return Allowed(
            network=network, protocol=match["protocol"], ports=(low, int(match["high"] or low))
        )


class _NetworkType(click.ParamType["Network"]):
    name = "network"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Network:
        return network_of(str(value), param, ctx)


def network_of(text: str, param: click.Parameter | None, ctx: click.Context | None) -> Network:
    """Read a network. One with bits beside its mask is a slip of the hand, and is refused."""
    try:
        return ip_network(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx=ctx, param=param) from None


def upload_of(path: Path) -> Upload:
    """Return the file as what is sent to hosts. It is read once, in pieces."""
    judge, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            judge.update(piece)
            size += len(piece)
    return Upload(path, judge.hexdigest(), size)


_OPTIONS: Final = (
    click.option("--agent", "agent_file", type=_FILE, required=True, help="The agent, one executable file."),
    click.option("--tart", "tart_file", type=_FILE, required=True, help="Tart's release archive, tart.tar.gz."),
    click.option("--tart-version", required=True, help="The version in that archive, such as 2.32.1."),
    click.option("--dispatch-url", required=True, metavar="URL", help="Where the agent reaches dispatch."),
    click.option(
        "--agent-option", "agent_options", multiple=True, metavar="NAME=VALUE", help="Another option of the agent."
    ),
    click.option(
        "--guests-may-reach", multiple=True, type=_AllowedType(),
        metavar="NETWORK,tcp|udp,PORT[-PORT]", help="A private place that guests may reach. Else they reach none.",
    ),
    click.option(
        "--ssh-from", multiple=True, type=_NetworkType(), metavar="NETWORK",
        help="Who may open SSH to hosts. By default everybody but guests.",
    ),
    click.option(
        "--dhcp-lease", "dhcp_lease_s", type=int, default=600, show_default=True, metavar="SECONDS",
        help="How long a guest keeps its address.",
    ),
)  # fmt: skip


def fleet_config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options, and ``config``, what they say."""

    @wraps(command)
    def called(  # noqa: PLR0913 - one per option
        *,
        agent_file: Path,
        tart_file: Path,
        tart_version: str,
        dispatch_url: str,
        agent_options: tuple[str, ...],
        guests_may_reach: tuple[Allowed, ...],
        ssh_from: tuple[Network, ...],
        dhcp_lease_s: int,
        **others: object,
    ) -> object:
        config = FleetConfig(
            agent=upload_of(agent_file),
            tart=upload_of(tart_file),
            tart_version=tart_version,
            dispatch_url=dispatch_url,
            agent_flags=tuple(map(_flag, agent_options)),
            guests_may_reach=guests_may_reach,
            ssh_from=ssh_from,
            dhcp_lease_s=dhcp_lease_s,
        )
        return command(config=config, **others)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def _flag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(
            f"--agent-option {text!r} is not NAME=VALUE, such as log-level=debug."
        )
    return f"--{name.removeprefix('--')}", value
