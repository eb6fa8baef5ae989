"""What hosts should be, for tests, and how a command is written in their tables."""

from __future__ import annotations

import shlex
from functools import cache
from hashlib import sha256
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from remuda.hosts.decide.agent_job import agent_job
from remuda.hosts.decide.parts import logs, watchdog
from remuda.hosts.decide.wanted import (
    Allowed,
    BuilderConfig,
    BuilderTools,
    FleetConfig,
    OwnConfig,
    Wanted,
)
from remuda.hosts.parts import PARTS
from remuda.hosts.scripts import script
from remuda.kube.host import Role
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command, Upload

PASSWORD: Final = 'it\'s a "canary" $(password) \\ `öé` 42'  # noqa: S105 - nobody's
KUBECONFIG: Final = b"a credential: canary-credential\n"
TOKEN: Final = b"canary-token"
CANARIES: Final = (PASSWORD.encode(), KUBECONFIG.strip(), TOKEN)
NETWORK: Final = frozenset({"firewall", "ssh-guard", "dhcp"})
CORE: Final = tuple(part for part in PARTS if part.name not in NETWORK)
"""The parts whose tables are here. Those of the network have their own."""


def an_upload(name: str) -> Upload:
    return Upload(path=Path("built") / name, sha256=sha256(name.encode()).hexdigest(), size=9)


def a_fleet() -> FleetConfig:
    return FleetConfig(
        agent=an_upload("agent"),
        tart=an_upload("tart.tar.gz"),
        tart_version="2.32.1",
        dispatch_url="https://dispatch.example.org",
        agent_flags=(("--resync", "120"),),
        guests_may_reach=(
            Allowed(network=ip_network("10.1.2.0/24"), protocol="tcp", ports=(443, 443)),
        ),
        ssh_from=(ip_network("198.51.100.0/24"),),
        builder_tools=BuilderTools(packer_version="1.14.2", packer_tart_plugin="1.16.0"),
    )


def an_own(
    role: Role = Role.RUNNER,
    *,
    password: str | None = PASSWORD,
    kubeconfig: bytes | None = KUBECONFIG,
    token: bytes | None = TOKEN,
) -> OwnConfig:
    builder = BuilderConfig(
        github_url="https://github.com/acme",
        runner_name="mini-7",
        labels=("image-builder", "tart"),
        runner_version="2.330.0",
        registration_token=None if token is None else Secret(token),
    )
    return OwnConfig(
        node="mini-7",
        user="m1",
        fleet="minis",
        role=role,
        password=None if password is None else Secret(password.encode()),
        kubeconfig=None if kubeconfig is None else Secret(kubeconfig),
        provider_id="scaleway://fr-par-1/7",
        memory="14Gi",
        builder=builder if role is Role.BUILDER else None,
    )


def a_wanted(own: OwnConfig | None = None) -> Wanted:
    return Wanted(fleet=a_fleet(), own=own or an_own())


@cache
def sums() -> dict[str, str]:
    """Return the checksums that tables call by a name, such as ``@agent``: what is generated is not repeated there."""
    fleet = a_fleet()
    return {
        "@agent-plist": _sum(agent_job(fleet, an_own()).plist()),
        "@builder-plist": _sum(agent_job(fleet, an_own(Role.BUILDER)).plist()),
        "@agent": fleet.agent.sha256,
        "@tart": fleet.tart.sha256,
        "@kubeconfig": _sum(KUBECONFIG),
        "@log-bound-plist": _sum(logs.job(fleet.log_bytes_max).plist()),
        "@log-bound": _sum(script("log-bound").encode()),
        "@ssh-reachability-plist": _sum(watchdog.JOB.plist()),
        "@ssh-reachability": _sum(script("ssh-reachability").encode()),
        "@other": _sum(b"other"),
    }


def filled(text: str) -> str:
    """Put the checksums in the place of their names."""
    for name, value in sums().items():
        text = text.replace(f"{{{name}}}", value)
    return text


def shown(command: Command) -> str:
    """Write a command as the tables do: scripts by their name, checksums by theirs, and stdin by its kind."""
    words = list(command.words)
    while "-c" in words and words[words.index("-c") - 1] == "/bin/sh":
        at = words.index("-c")
        del words[at - 1 : at + 2]
    line = shlex.join(words)
    for name, value in sums().items():
        line = line.replace(value, f"{{{name}}}")
    kind = type(command.stdin).__name__.lower() if command.stdin else ""
    return f"{'root: ' if command.root else ''}{line}{f' < {kind}' if kind else ''}"


def _sum(content: bytes) -> str:
    return sha256(content).hexdigest()
