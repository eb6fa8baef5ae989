"""The stories that can be run, by name."""

from __future__ import annotations

from remuda.sim.scenarios.keep_n.story import KEEP_N

SCENARIOS = {scenario.name: scenario for scenario in (KEEP_N,)}
