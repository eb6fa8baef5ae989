"""
What a host should be: what is the same on every host of the fleet, and what is this host's own.

Only ``FleetConfig`` is hashed: a host drifts when the fleet's configuration moved, not when its own password did. Each
field stands in exactly one of the two classes, and nothing of ``OwnConfig`` reaches ``Part.fleet_state``. Of
``FleetConfig``, Tart alone is not in the hash: another one is put on a host when all of that host is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING

from remuda.kube.host import Role

if TYPE_CHECKING:
    from remuda.model.secret import Secret
    from remuda.ports.host_shell import Upload

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """One place that guests may reach although it is private."""

    network: Network
    protocol: str
    """``tcp`` or ``udp``."""
    ports: tuple[int, int]
    """From and to, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderTools:
    """What builders have beside Tart."""

    packer_version: str = "1.14.2"
    packer_tart_plugin: str = "1.16.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """The same on every host. All but Tart is in the hash, through the parts that use it."""

    agent: Upload
    """One executable file: the agent with all it needs (docs/howto, "Build the agent")."""
    tart: Upload
    """Tart's own release archive. Not in the hash, as its version: it cannot be replaced under VMs."""
    tart_version: str
    dispatch_url: str
    agent_flags: tuple[tuple[str, str], ...] = ()
    """More options of the agent, sorted by name when they are written."""
    guests_may_reach: tuple[Allowed, ...] = ()
    ssh_from: tuple[Network, ...] = ()
    """Who may open SSH to hosts. Empty: anybody who can reach the port, but never a guest."""
    dhcp_lease_s: int = 600
    """macOS leases a day by default: a host that starts 253 VMs in one runs out of addresses."""
    log_bytes_max: int = 64 * 1024 * 1024
    """Of each log file on a host."""
    builder_tools: BuilderTools = field(default_factory=BuilderTools)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderConfig:
    """How a builder registers with GitHub."""

    github_url: str
    """Of the organisation, such as https://github.com/acme."""
    runner_name: str
    labels: tuple[str, ...]
    runner_version: str
    registration_token: Secret | None = None
    """Minted when it is needed. None: a healthy registration is left alone, and a missing one is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnConfig:
    """One host's own. In no hash."""

    node: str
    """The Node's name, and the host's."""
    user: str
    fleet: str
    role: Role = Role.RUNNER
    password: Secret | None = None
    """The account's. None: sudo is never tried, and automatic login is left as it is."""
    kubeconfig: Secret | None = None
    """The agent's own credential. None: the one on the host stays, and a missing one is an error."""
    provider_id: str = ""
    cpus: int | None = None
    memory: str = ""
    vms: int = 2
    builder: BuilderConfig | None = None

    def __post_init__(self) -> None:
        assert (self.role is Role.BUILDER) == (self.builder is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Everything one host should be."""

    fleet: FleetConfig
    own: OwnConfig
