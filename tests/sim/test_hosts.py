"""The real host operator and fifty simulated Macs: a bad agent reaches a few of them; with each guard off, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.sim.scenario import Options, Report, run_scenario
from remuda.sim.scenarios.hosts.bad_agent import HOSTS_BAD_AGENT
from remuda.sim.trace import TraceEvent, header

GOLDEN = Path(__file__).parent / "golden" / "hosts-bad-agent.txt"
Played = tuple[Report, list[TraceEvent]]


@pytest.fixture(scope="module")
def played() -> Played:
    events: list[TraceEvent] = []
    return run_scenario(HOSTS_BAD_AGENT, 1, None, events.append), events


def test_a_bad_agent_reaches_no_more_than_the_cap_and_ends_no_job(played: Played) -> None:
    report, _ = played

    assert report.violations == ()


@pytest.mark.parametrize(
    ("guard", "invariant"),
    [
        ("roll_cap", "S5 blast radius"),
        ("drain", "S2 no kill"),
        ("vms_outlive_agent", "S2 no kill"),
    ],
)
def test_it_does_without_its_guard(guard: str, invariant: str) -> None:
    until_s = HOSTS_BAD_AGENT.until_s
    options = Options(until_s=until_s, broken=frozenset({guard}), violations_max=1)

    report = run_scenario(HOSTS_BAD_AGENT, 1, options)

    assert [violation.invariant for violation in report.violations] == [invariant]


def test_every_guard_that_can_be_switched_off_is_tested() -> None:
    assert set(HOSTS_BAD_AGENT.breaks) == {"roll_cap", "drain", "vms_outlive_agent"}


def test_the_roll_goes_as_it_went_when_someone_last_looked_at_it(played: Played) -> None:
    """Run with UPDATE_GOLDEN=1 to write the trace anew; then read the diff before you commit it."""
    _, events = played
    head = header("hosts-bad-agent", 1, "golden: the timeline, and the phases of hosts")
    shown = [event.text() for event in events if event.notable or event.verb == "phase"]
    actual = "\n".join([head, *shown]) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(actual, encoding="utf-8")

    assert actual == GOLDEN.read_text(encoding="utf-8")
