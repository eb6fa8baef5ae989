"""The stories that can be run, by name."""

from __future__ import annotations

from remuda.sim.scenarios.keep_n.story import KEEP_N
from remuda.sim.scenarios.pools.roll_pull_wave import ROLL_PULL_WAVE

SCENARIOS = {scenario.name: scenario for scenario in (KEEP_N, ROLL_PULL_WAVE)}
