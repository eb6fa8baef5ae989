"""
What runs on a host that a harmful step would end. The host itself is asked: no Pod stands for a builder's VMs.

"I cannot tell" is never "nothing": what cannot be read is an error, and whoever asked leaves the host alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import unreadable
from remuda.hosts.decide.parts.tart import PROGRAM
from remuda.hosts.decide.running import said
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from remuda.ports.host_shell import Ran

_NOT_THERE: Final = 127
_NONE_FOUND: Final = 1


def _vms(ran: Ran) -> tuple[str, ...]:
    """Return the names of the VMs that run. Where there is no Tart there is no list, and no VM."""
    if ran.code == _NOT_THERE:
        return ()
    try:
        listed = json.loads(ran.stdout) if ran.code == 0 and not ran.cut else None
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(vm, dict) for vm in listed):
        raise unreadable("Tart's list of VMs", said(ran))
    return tuple(f"the VM {vm.get('Name')}" for vm in listed if vm.get("Running"))


def _builds(ran: Ran) -> tuple[str, ...]:
    """Return that a job of GitHub's runner is under way, if one is: it may be between two VMs just now."""
    if ran.code == 0:
        return ("a job of GitHub's runner",)
    if ran.code != _NONE_FOUND:
        raise unreadable("the list of processes", said(ran))
    return ()


# By env: a program that is not there is code 127 with it, whoever runs the command.
VMS: Final = Fact(
    name="vms",
    command=Command(words=("/usr/bin/env", PROGRAM, "list", "--format", "json")),
    parse=_vms,
)
BUILDS: Final = Fact(
    name="builds", command=Command(words=("/usr/bin/pgrep", "-x", "Runner.Worker")), parse=_builds
)
