"""``remuda doctor``: the command. Gathers, judges, and says; with ``--fix`` mends what is safe, and looks again."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from remuda.adapters.system import SystemClock
from remuda.cli.doctor import render
from remuda.cli.doctor.decide.mending import mends
from remuda.cli.doctor.decide.report import (
    CHECKS,
    Mended,
    Outcome,
    agreed,
    findings,
    needs_second_look,
    report,
)
from remuda.cli.doctor.gather import gather
from remuda.cli.doctor.mend import a_hand, mend
from remuda.cli.exits import FAILED, INTERRUPTED, OK
from remuda.cli.finding import fleet_options
from remuda.cli.listing import as_yaml, has_colour, room_of
from remuda.cli.run import Duration

if TYPE_CHECKING:
    from collections.abc import Collection

    from click.shell_completion import CompletionItem

    from remuda.cli.doctor.decide.facts import Facts
    from remuda.cli.doctor.decide.findings import Finding
    from remuda.cli.doctor.decide.report import Report
    from remuda.cli.finding import Where

SECOND_LOOK_S: Final = 2.0
STUCK_AFTER_S: Final = 300.0


class _CheckName(click.ParamType[str]):
    """The name of a check."""

    name = "check"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        names = [check.name for check in CHECKS]
        if value not in names:
            self.fail(f"{value!r} is no check. There are: {', '.join(names)}.", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only shells ask for it

        del ctx, param
        return [
            CompletionItem(check.name, help=check.about)
            for check in CHECKS
            if check.name.startswith(incomplete)
        ]


@click.command(epilog="Exit codes: 0 no check failed (warnings are none), 1 some did, 2 usage.")
@click.option(
    "--only",
    multiple=True,
    type=_CheckName(),
    metavar="CHECK",
    help="Say what this check finds, and no other. Can be given again.",
)
@click.option(
    "--fix",
    is_flag=True,
    help="Mend what is safe to mend, say what was done, and look again.",
)
@click.option("--dry-run", is_flag=True, help="With --fix: say what would be done, and do nothing.")
@click.option(
    "--stuck-after",
    "stuck_after_s",
    type=Duration(),
    default=f"{STUCK_AFTER_S / 60:.0f}m",
    show_default=True,
    help="How long past its grace a runner may be Terminating before it counts as stuck.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "yaml")),
    default="table",
    show_default=True,
    help="How to print.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@fleet_options
def doctor(  # noqa: PLR0913 - one for each option
    *,
    where: Where,
    only: tuple[str, ...],
    fix: bool,
    dry_run: bool,
    stuck_after_s: float,
    output: str,
    as_json: bool,
) -> None:
    """
    Look at a fleet and this machine for what is wrong, and say what to do about it.

    Each check is ok, warn, fail, or skip: what it needs could not be read. With --fix, Pods that are stuck in
    Terminating are let go if their host is gone and dispatch holds no job for them, ServiceAccounts of runners that are
    long gone are deleted, and half-written files of a remuda up that does not run are removed. Nothing else is changed.

    \b
    Examples:
      remuda doctor                                      the remuda up of this machine
      remuda doctor --json | jq '.checks[] | select(.level == "fail")'
      remuda doctor --only runners-terminating           one check
      remuda doctor --fix --dry-run                      what would be mended?
      remuda doctor --server https://dispatch.example --kubeconfig ~/.kube/config --namespace ci
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    if dry_run and not fix:
        raise click.UsageError("--dry-run says what --fix would do: give --fix too.")
    output = "json" if as_json else output
    try:
        said = asyncio.run(_examined(where, only, stuck_after_s, fix=fix, dry_run=dry_run))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    _print(said, output)
    sys.exit(OK if said.ok else FAILED)


async def _examined(
    where: Where, only: tuple[str, ...], stuck_after_s: float, *, fix: bool, dry_run: bool
) -> Report:
    clock = SystemClock()
    facts, found = await _looked(where, only, stuck_after_s)
    if not fix:
        return report(found)
    acts = tuple(act for act in mends(facts) if not only or act.check in only)
    if not acts:
        click.echo("remuda: there is nothing that can be mended safely.", err=True)
    if dry_run or not acts:
        planned = tuple(Mended(what=act.says, outcome=Outcome.PLANNED) for act in acts)
        return report(found, planned)
    for act in acts:
        click.echo(f"remuda: going to {act.says}", err=True)
    async with a_hand(where, facts, clock) as hand:
        done = await mend(acts, hand)
    _, found = await _looked(where, only, stuck_after_s)
    return report(found, done)


async def _looked(
    where: Where, only: Collection[str], stuck_after_s: float
) -> tuple[Facts, dict[str, Finding]]:
    """Look; and again, if something looks wrong that may be two reads of different moments."""
    clock = SystemClock()
    facts = await gather(where, clock, stuck_after_s=stuck_after_s)
    found = findings(facts, only)
    if not needs_second_look(found):
        return facts, found
    await clock.sleep(SECOND_LOOK_S)
    facts = await gather(where, clock, stuck_after_s=stuck_after_s)
    return facts, agreed(found, findings(facts, only))


def _print(said: Report, output: str) -> None:
    match output:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(said), indent=2).decode())
        case "yaml":
            click.echo(as_yaml(said))
        case _:
            out = sys.stdout
            colour = has_colour(out, os.environ)
            for line in render.lines(said, room=room_of(out), colour=colour):
                click.echo(line, color=colour)
