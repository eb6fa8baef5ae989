"""A scenario: a story with a seed. What it is, how it is run, and the report that is left of a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.sim.checkers import VIOLATIONS_MAX, Verdict
from remuda.sim.logs import captured
from remuda.sim.loop import Limits, VirtualTimeLoop
from remuda.sim.loop import run as run_on_virtual_time
from remuda.sim.trace import Trace
from remuda.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from remuda.sim.checkers import Violation
    from remuda.sim.plan import Faults, Scripted
    from remuda.sim.trace import TraceEvent

CALM_MAX_S = 24 * 3600.0
"""How much virtual time a run may take beyond what was asked: time to converge, and to be quiet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is given besides its seed."""

    until_s: float
    """How long the faults go on, in virtual seconds. What liveness demands comes after."""
    broken: frozenset[str] = frozenset()
    """Guards that are switched off, to see that a checker notices."""
    scripted: tuple[Scripted, ...] = ()
    """Faults at exact points, instead of chance."""
    faults: Faults | None = None
    """Other rates than the scenario's own."""
    violations_max: int = VIOLATIONS_MAX
    """After so many violations the run ends: one is enough where only the first counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One story. ``run`` plays it in a fresh world and returns when liveness has been demanded."""

    name: str
    summary: str
    """One line, for a list."""
    description: str
    """One paragraph: who acts, what goes wrong, what must hold."""
    invariants: tuple[str, ...]
    breaks: Mapping[str, str] = field(default_factory=dict)
    """Guards that can be switched off, and what each guards against."""
    until_s: float = 1800.0
    run: Callable[[World, Options], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is left of a run."""

    scenario: str
    seed: int
    replay: str
    virtual_s: float
    steps: int
    events: int
    checks: int
    faults: Mapping[str, int]
    disturbances: Mapping[str, int]
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        return not self.violations


async def _play(world: World, story: Coroutine[None, None, None]) -> None:
    """Play a story to its end, or until there are so many violations that there is no point in going on."""
    task = world.group.create_task(story, name="the story")
    world.verdict.on_enough = task.cancel
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def replay_command(scenario: Scenario, seed: int, options: Options) -> str:
    """Return the command line that runs exactly this again."""
    words = ["remuda sim", f"--scenario {scenario.name}", f"--seed {seed}"]
    if options.until_s != scenario.until_s:
        seconds = f"{options.until_s:f}".rstrip("0").rstrip(
            "."
        )  # never 1e+06, which is no duration
        words.append(f"--until {seconds}s")
    words += [f"--break {name}" for name in sorted(options.broken)]
    return " ".join(words)


def run_scenario(
    scenario: Scenario,
    seed: int,
    options: Options | None = None,
    *sinks: Callable[[TraceEvent], None],
) -> Report:
    """Run a scenario once. A run that gets stuck raises a SimError; a violated invariant is in the report."""
    options = options or Options(until_s=scenario.until_s)

    async def main() -> Report:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        trace = Trace(loop.time, *sinks)
        replay = replay_command(scenario, seed, options)
        verdict = Verdict(seed, replay, trace, enough=options.violations_max)
        with captured(verdict, loop.time):
            async with World.open(verdict) as world:
                world.script(options.scripted)
                await _play(world, scenario.run(world, options))
        return Report(
            scenario=scenario.name,
            seed=seed,
            replay=verdict.replay,
            virtual_s=loop.time(),
            steps=loop.steps,
            events=trace.event_count,
            checks=verdict.checks,
            faults=dict(sorted(trace.faults.items())),
            disturbances=dict(sorted(world.disturbances.items())),
            violations=tuple(verdict.violations),
        )

    limits = Limits(until_s=options.until_s + CALM_MAX_S)
    return run_on_virtual_time(main, seed=seed, limits=limits)
