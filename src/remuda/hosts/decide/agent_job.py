"""The agent's launchd job: which options it is started with, on which host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.launchd import Job
from remuda.hosts.decide.wanted import BuilderConfig, OwnConfig
from remuda.hosts.guards import ALL
from remuda.kube.host import Role
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from remuda.hosts.decide.wanted import FleetConfig
    from remuda.hosts.guards import Guards

LABEL: Final = "dev.remuda.agent"
PROGRAM: Final = "/usr/local/bin/remuda-agent"
KUBECONFIG: Final = "/etc/remuda/kubeconfig"
MARK: Final = "/etc/remuda/agent.proven"
LOG: Final = "/var/log/remuda/agent.log"
DATA: Final = "/var/lib/remuda/agent"
GC_OFF: Final = "--disable-vm-gc"
_FLAG: Final = re.compile(r"--[a-z][-a-z0-9]*")
_SEARCHED: Final = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def agent_job(fleet: FleetConfig, own: OwnConfig, guards: Guards = ALL) -> Job:
    """Return the job. Raises ``BadInput`` for an option of the fleet's that is not the fleet's to choose."""
    gc_off = own.role is Role.BUILDER and guards.builder_gc_off
    flags = _ours(fleet, own)
    if gc_off:
        flags[GC_OFF] = ""
    for name, value in fleet.agent_flags:
        _check(name, flags)
        flags[name] = value
    words = [f"{name}={value}" if value else name for name, value in sorted(flags.items())]
    # Once more, of what is really written: garbage collected on a builder takes the image that is being pushed.
    assert (GC_OFF in words) == gc_off
    assert ("--vms=0" in words) or own.role is not Role.BUILDER
    return Job(
        label=LABEL,
        program=(PROGRAM, "agent", *words),
        keys=(
            # Otherwise launchd would end the VMs together with the agent, at every update of it.
            ("AbandonProcessGroup", True),
            ("EnvironmentVariables", {"HOME": f"/Users/{own.user}", "PATH": _SEARCHED}),
            ("ExitTimeOut", 30),
            ("KeepAlive", True),
            # Background jobs get little of the disk and the CPU, and VMs are their children.
            ("ProcessType", "Interactive"),
            ("RunAtLoad", True),
            # launchd's own limit of 256 files is soon reached by a process with many connections.
            ("SoftResourceLimits", {"NumberOfFiles": 8192}),
            ("StandardErrorPath", LOG),
            ("StandardOutPath", LOG),
            ("ThrottleInterval", 10),
            ("UserName", own.user),
            ("WorkingDirectory", DATA),
        ),
    )


def any_host(role: Role) -> OwnConfig:
    """Return a host that is nobody's: with it, what is rendered is the same for every host of that role."""
    builder = BuilderConfig(github_url="", runner_name="", labels=(), runner_version="")
    return OwnConfig(
        node="any",
        user="any",
        fleet="any",
        role=role,
        builder=builder if role is Role.BUILDER else None,
    )


def _ours(fleet: FleetConfig, own: OwnConfig) -> dict[str, str]:
    builder = own.role is Role.BUILDER
    flags = {
        "--data": DATA,
        "--dispatch-url": fleet.dispatch_url,
        "--driver": "tart",
        "--fleet": own.fleet,
        "--kubeconfig": KUBECONFIG,
        "--log-format": "json",
        "--node-name": own.node,
        "--tart-program": "/usr/local/bin/tart",
        "--vms": "0" if builder else str(own.vms),
    }
    if own.provider_id:
        flags["--provider-id"] = own.provider_id
    if own.cpus is not None:
        flags["--cpus"] = str(own.cpus)
    if own.memory:
        flags["--memory"] = own.memory
    return flags


_PER_HOST: Final = frozenset({GC_OFF, "--provider-id", "--cpus", "--memory", "--vms"})


def _check(name: str, ours: dict[str, str]) -> None:
    if not _FLAG.fullmatch(name):
        raise BadInput(
            f"The agent's option {name!r} cannot be used",
            why="it is not written like one",
            fix="Write it like --resync, and its value beside it",
        )
    if name in ours or name in _PER_HOST:
        raise BadInput(
            f"The agent's option {name} cannot be set for the whole fleet",
            why="it follows from the Host (its name, its role, its capacity), and two answers would be one too many",
            fix="Leave it out, and set the Host's spec instead",
        )
