"""``remuda sim``: run a scenario on virtual time, show what happened, and say whether the invariants held."""

from __future__ import annotations

import difflib
import json
import re
import textwrap
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Literal

import click

from remuda.cli.timeline import Timeline, clock_text, count_text
from remuda.sim.loop import SimError
from remuda.sim.scenario import Options, Report, Scenario, replay_command, run_scenario
from remuda.sim.scenarios import SCENARIOS
from remuda.sim.trace import VERSION, TraceEvent, header

if TYPE_CHECKING:
    from collections.abc import Callable

Output = Literal["text", "json"]

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """Virtual time as a person writes it: ``90s``, ``30m``, ``24h``, ``1h30m``."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value)
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            self.fail(
                f"{text!r} is not a duration. Write it like 90s, 30m, 24h or 1h30m", param, ctx
            )
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _find_scenario(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> Scenario | None:
    if value is None:
        return None
    if value not in SCENARIOS:
        near = difflib.get_close_matches(value, SCENARIOS, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise click.BadParameter(
            f"there is no scenario {value!r}. {hint}See: remuda sim --list", ctx, param
        )
    return SCENARIOS[value]


@click.command(epilog="Exit codes: 0 every invariant held, 1 one was violated, 2 usage.")
@click.option("--list", "list_", is_flag=True, help="List the scenarios and end.")
@click.option("--scenario", callback=_find_scenario, metavar="NAME", help="Which scenario to run.")
@click.option("--seed", type=int, default=1, show_default=True, help="What decides all chance.")
@click.option(
    "--seeds", type=click.IntRange(min=1), metavar="N", help="Run N seeds, from --seed on."
)
@click.option(
    "--until",
    type=Duration(),
    help="How long the faults go on, in virtual time (30m, 24h). Each scenario has its own default.",
)
@click.option(
    "--break",
    "broken",
    multiple=True,
    metavar="GUARD",
    help="Switch a guard off, to see a checker notice. May be repeated; --list names them.",
)
@click.option(
    "--trace",
    type=click.File("w", encoding="utf-8"),
    metavar="FILE",
    help="Write every event there (- for standard output).",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to write the report and the trace.",
)
@click.pass_context
def sim(  # noqa: PLR0913 - one parameter per option is how click works
    ctx: click.Context,
    *,
    list_: bool,
    scenario: Scenario | None,
    seed: int,
    seeds: int | None,
    until: float | None,
    broken: tuple[str, ...],
    trace: IO[str] | None,
    output: Output,
) -> None:
    """
    Run the real code on virtual time, in a world that fails on purpose.

    The same seed gives the same run, byte for byte. A run that goes wrong prints the command that repeats it.

    \b
    Examples:
      remuda sim --list                                    what there is to run
      remuda sim --scenario keep-n --seed 7                one run, with its timeline
      remuda sim --scenario keep-n --seeds 100             a sweep; the first bad seed is told
      remuda sim --scenario keep-n --until 24h             a virtual day of faults
      remuda sim --scenario keep-n --break fencing         see a checker catch a missing guard
      remuda sim --scenario keep-n --trace run.txt         every event, for diff
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    if list_:
        _print_list(output)
        return
    if scenario is None:
        raise click.UsageError("Say what to run: --scenario NAME. What there is: remuda sim --list")
    if unknown := sorted(set(broken) - set(scenario.breaks)):
        known = ", ".join(sorted(scenario.breaks)) or "none"
        raise click.BadParameter(f"{scenario.name} has no guard {unknown[0]!r}. It has: {known}",
                                 param_hint="--break")  # fmt: skip
    if trace is not None and seeds is not None:
        raise click.UsageError("--trace is for one seed: leave out --seeds")
    until_s = scenario.until_s if until is None else until
    options = Options(until_s=until_s, broken=frozenset(broken))
    one_run = _OneRun(scenario, options, output)
    ok = one_run.run(seed, trace) if seeds is None else one_run.sweep(range(seed, seed + seeds))
    ctx.exit(0 if ok else 1)


def _print_list(output: Output) -> None:
    for scenario in sorted(SCENARIOS.values(), key=lambda s: s.name):
        if output == "json":
            shown = {
                "name": scenario.name,
                "summary": scenario.summary,
                "description": scenario.description,
                "invariants": scenario.invariants,
                "breaks": dict(scenario.breaks),
                "until_s": scenario.until_s,
            }
            click.echo(json.dumps(shown))
            continue
        click.secho(scenario.name, bold=True, nl=False)
        click.echo(f"  {scenario.summary}")
        click.echo(textwrap.indent(textwrap.fill(scenario.description, 96), "  "))
        click.echo(f"  checked: {', '.join(scenario.invariants)}")
        for guard, what in sorted(scenario.breaks.items()):
            click.echo(f"  --break {guard:<14} {what}")


class _OneRun:
    """Runs a scenario with one seed or many and prints what a person, or a program, wants to know."""

    def __init__(self, scenario: Scenario, options: Options, output: Output) -> None:
        self._scenario = scenario
        self._options = options
        self._output = output

    def run(self, seed: int, trace: IO[str] | None) -> bool:
        with ExitStack() as stack:
            timeline = Timeline()
            sinks: list[Callable[[TraceEvent], None]] = [timeline.take]
            if trace is not None:
                stack.callback(trace.flush)
                sinks.append(self._writer(seed, trace))
            report, wall_s = self._timed(seed, *sinks)
        if report is None:
            return False
        if self._output == "json":
            self._print_json(report, wall_s)
        else:
            self._print_story(report, timeline, wall_s)
        return report.ok

    def sweep(self, seeds: range) -> bool:
        bad: list[Report | None] = []
        for seed in seeds:
            report, wall_s = self._timed(seed)
            if report is None or not report.ok:
                bad.append(report)
            if report is None:
                continue
            if self._output == "json":
                self._print_json(report, wall_s)
            else:
                self._print_seed(report, wall_s)
        if self._output == "text":
            verdict = f"{len(seeds) - len(bad)} of {len(seeds)} seeds held every invariant"
            click.secho(verdict, fg="red" if bad else "green")
        return not bad

    def _timed(
        self, seed: int, *sinks: Callable[[TraceEvent], None]
    ) -> tuple[Report | None, float]:
        started = time.perf_counter()
        try:
            report = run_scenario(self._scenario, seed, self._options, *sinks)
        except SimError as error:
            click.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
            replay = replay_command(self._scenario, seed, self._options)
            click.echo(f"  replay: {replay}", err=True)
            return None, time.perf_counter() - started
        return report, time.perf_counter() - started

    def _writer(self, seed: int, file: IO[str]) -> Callable[[TraceEvent], None]:
        replay = replay_command(self._scenario, seed, self._options)
        if self._output == "json":
            head = {
                "trace": VERSION,
                "scenario": self._scenario.name,
                "seed": seed,
                "replay": replay,
            }
            file.write(json.dumps(head) + "\n")
            return lambda event: _write_line(file, event.json())
        file.write(header(self._scenario.name, seed, f"replay: {replay}") + "\n")
        return lambda event: _write_line(file, event.text())

    def _print_json(self, report: Report, wall_s: float) -> None:
        click.echo(json.dumps(asdict(report) | {"ok": report.ok, "wall_s": round(wall_s, 3)}))

    def _print_seed(self, report: Report, wall_s: float) -> None:
        said = "ok" if report.ok else f"{len(report.violations)} violations"
        click.echo(
            f"seed {report.seed:<6} {said:<14} {clock_text(report.virtual_s)} in {wall_s:.1f} s"
        )
        for violation in report.violations[:1]:
            click.secho(textwrap.indent(str(violation), "  "), fg="red")

    def _print_story(self, report: Report, timeline: Timeline, wall_s: float) -> None:
        click.secho(f"{report.scenario}, seed {report.seed}", bold=True)
        click.echo(textwrap.indent(textwrap.fill(self._scenario.description, 98), "  "))
        click.echo()
        for line in timeline.lines():
            click.echo(line)
        click.echo()
        for violation in report.violations:
            click.secho(str(violation), fg="red")
        held = f"ok: {', '.join(self._scenario.invariants)} held"
        broke = f"{len(report.violations)} violations"
        click.secho(held if report.ok else broke, fg="green" if report.ok else "red", bold=True)
        speed = f"{report.virtual_s / wall_s:,.0f} x real time"
        click.echo(
            f"  time         {clock_text(report.virtual_s)} of virtual time in {wall_s:.1f} s ({speed})"
        )
        click.echo(f"  events       {report.events:,} traced, {report.checks:,} checks")
        click.echo(f"  faults       {count_text(report.faults)}")
        click.echo(f"  processes    {count_text(report.disturbances)}")
        click.echo(f"  replay       {report.replay}")


def _write_line(file: IO[str], line: str) -> None:
    file.write(line + "\n")
