"""What a person sees of a plan that is carried out on one host, and what is asked before VMs could end."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from remuda.cli.exits import Declined
from remuda.hosts.decide.facts import FactUnreadable
from remuda.hosts.decide.in_use import VMS
from remuda.hosts.in_use import what_runs

if TYPE_CHECKING:
    from remuda.hosts.decide.plan import Plan
    from remuda.hosts.decide.step import Step
    from remuda.ports.host_shell import HostShell


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
        what = f"The step {step.name} was not begun on {self._host}"
        try:
            running = await what_runs(self._shell)
        except FactUnreadable as error:
            raise Declined(
                what,
                why=f"it ends the session that VMs live in, and whether any run cannot be told: {error.why}",
                fix=f"Run `{shlex.join(VMS.command.words)}` on the host and mend what it says, then run this again",
            ) from None
        if running:
            raise Declined(
                what,
                why=f"it ends the session that VMs live in, and these run: {', '.join(running)}",
                fix=f"Wait for their jobs or drain it (remuda hosts drain {self._host} --wait), then run it again",
            )
