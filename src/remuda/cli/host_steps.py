"""What a person sees of a plan that is carried out on one host, and what is asked before VMs could end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from remuda.cli.exits import Declined
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from remuda.hosts.decide.plan import Plan
    from remuda.hosts.decide.step import Step
    from remuda.ports.host_shell import HostShell

_VMS: Final = Command(words=("/usr/bin/env", "/usr/local/bin/tart", "list", "--format", "json"))


class Lines:
    """Says each step in a line. On stderr: what a command is asked for goes to stdout."""

    def planned(self, planned: Plan) -> None:
        if planned.steps:
            click.echo(f"to do: {', '.join(step.name for step in planned.steps)}", err=True)

    def begun(self, step: Step) -> None:
        click.echo(f"{step.name}: {step.reason}", err=True)

    def done(self, step: Step, *, changed: bool) -> None:
        click.echo(f"{step.name}: {'done' if changed else 'it was so already'}", err=True)


def shown(planned: Plan) -> str:
    """Return a plan for a dry run: what would change, why, and what is wrong without a remedy."""
    if planned.empty:
        return "Nothing is to do.\n"
    lines: list[str] = []
    for step in planned.steps:
        lines += [f"{step.name}: {step.reason}", *(f"  {line}" for line in step.diff), ""]
    for problem in planned.problems:
        lines += [
            f"{problem.name}: {problem.what}",
            f"  why: {problem.why}",
            f"  fix: {problem.fix}",
            "",
        ]
    return "\n".join(lines)


class RefuseWithVms:
    """Asked before a step that could end VMs: it goes on only where none runs."""

    def __init__(self, shell: HostShell, host: str) -> None:
        self._shell = shell
        self._host = host

    async def __call__(self, step: Step) -> None:
        running = vms_of((await self._shell.run(_VMS)).stdout)
        if running:
            raise Declined(
                f"The step {step.name} was not begun on {self._host}",
                why=f"it ends the session that VMs live in, and these run: {', '.join(running)}",
                fix=f"Wait for their jobs or drain it (remuda hosts drain {self._host} --wait), then run it again",
            )


def vms_of(listed: bytes) -> list[str]:
    """Return the names of VMs that run, from Tart's list. Where there is no Tart there is no list, and no VM."""
    try:
        found = json.loads(listed)
    except ValueError:
        return []
    return [str(vm.get("Name")) for vm in found if isinstance(vm, dict) and vm.get("Running")]
