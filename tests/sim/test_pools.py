"""The real operator in the incidents that taught its rules, and in a storm; with each guard switched off, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.sim.plan import ROUGH, Fault, Scripted
from remuda.sim.scenario import Options, Report, Scenario, run_scenario
from remuda.sim.scenarios.pools.bad_image import BAD_IMAGE
from remuda.sim.scenarios.pools.capped_tenant import CAPPED_TENANT
from remuda.sim.scenarios.pools.poison_node import POISON_NODE
from remuda.sim.scenarios.pools.pool_renamed import POOL_RENAMED
from remuda.sim.scenarios.pools.roll_pull_wave import ROLL_PULL_WAVE
from remuda.sim.scenarios.pools.stage import CONTROLLERS
from remuda.sim.scenarios.pools.storm import POOLS_STORM
from remuda.sim.scenarios.pools.terminal_and_deleting import TERMINAL_AND_DELETING
from remuda.sim.trace import TraceEvent, header

GOLDEN = Path(__file__).parent / "golden"
INCIDENTS = (
    ROLL_PULL_WAVE,
    BAD_IMAGE,
    POOL_RENAMED,
    POISON_NODE,
    CAPPED_TENANT,
    TERMINAL_AND_DELETING,
)
STORM_S = 600.0


def traced(
    scenario: Scenario, seed: int, options: Options | None = None
) -> tuple[Report, list[TraceEvent]]:
    events: list[TraceEvent] = []
    return run_scenario(scenario, seed, options, events.append), events


def without(scenario: Scenario, guard: str, until_s: float | None = None) -> Options:
    until_s = until_s or scenario.until_s
    return Options(until_s=until_s, broken=frozenset({guard}), violations_max=1)


# --- the incidents ---


@pytest.mark.parametrize("scenario", INCIDENTS, ids=lambda scenario: scenario.name)
def test_the_incident_does_not_happen_again(scenario: Scenario) -> None:
    report, _ = traced(scenario, 1)

    assert report.violations == ()


def test_a_bad_image_does_not_make_the_host_suspect_that_alone_has_room() -> None:
    """Both slots of one host failed to start the bad image, and no start elsewhere could clear that host."""
    report, _ = traced(ROLL_PULL_WAVE, 3)

    assert report.violations == ()


def test_a_bad_image_makes_no_host_avoided() -> None:
    """Starts of it failed on some hosts while good ones started on others; without those hosts there was no room."""
    report, _ = traced(BAD_IMAGE, 23)

    assert report.violations == ()


@pytest.mark.parametrize(
    ("scenario", "guard", "invariant"),
    [
        (ROLL_PULL_WAVE, "roll_cap", "S4 warm through a roll"),
        (ROLL_PULL_WAVE, "void_marks", "V8 converged"),
        (BAD_IMAGE, "fallback", "S5 blast radius"),
        (POOL_RENAMED, "drain_finalizer", "V4 finalizers drain"),
        (POISON_NODE, "avoidance", "V6 no starving"),
        (CAPPED_TENANT, "hidden_demand", "V6 no starving"),
        (TERMINAL_AND_DELETING, "deletion_first", "V4 finalizers drain"),
    ],
    ids=lambda value: value.name if isinstance(value, Scenario) else str(value),
)
def test_the_incident_happens_again_without_its_guard(
    scenario: Scenario, guard: str, invariant: str
) -> None:
    report, _ = traced(scenario, 1, without(scenario, guard))

    assert [violation.invariant for violation in report.violations[:1]] == [invariant]


@pytest.mark.parametrize(
    "scenario",
    [ROLL_PULL_WAVE, POOL_RENAMED, TERMINAL_AND_DELETING],
    ids=lambda scenario: scenario.name,
)
def test_what_must_never_happen_does_not_on_a_bad_network_either(scenario: Scenario) -> None:
    report, _ = traced(scenario, 2, Options(until_s=scenario.until_s, faults=ROUGH))

    # How long things take is another matter: the stories' bounds are for a network that works.
    assert [v for v in report.violations if v.invariant.startswith("S")] == []
    assert sum(report.faults.values()) > 50


# --- enumerated ---


@pytest.mark.parametrize(
    ("fault", "resource", "nth"),
    [
        (Fault.CRASH_UNACKNOWLEDGED, "serviceaccounts", 2),
        (Fault.CRASH_UNACKNOWLEDGED, "pods", 3),
        (Fault.CRASH_BEFORE, "pods", 9),
        (Fault.UNACKNOWLEDGED, "pods", 4),
        (Fault.HANG, "pods", 10),
        (Fault.CRASH_UNACKNOWLEDGED, "runnerpools", 1),
    ],
)
def test_the_leader_may_die_or_lose_an_answer_at_a_write(
    fault: Fault, resource: str, nth: int
) -> None:
    script = Scripted(fault, nth, "ctl-a", "write", resource)

    report, _ = traced(POOL_RENAMED, 1, Options(until_s=POOL_RENAMED.until_s, scripted=(script,)))

    assert report.violations == ()
    assert report.faults == {fault.value: 1}, "it did not strike"


# --- the storm ---


@pytest.mark.parametrize("seed", range(1, 4))
def test_every_invariant_holds_through_a_storm(seed: int) -> None:
    report, _ = traced(POOLS_STORM, seed, Options(until_s=STORM_S))

    assert report.violations == ()
    assert sum(report.faults.values()) > 200
    assert sum(report.disturbances.values()) > 5


@pytest.mark.parametrize(
    ("guard", "invariant", "seed", "until_s"),
    [
        ("preconditions", "S2 no kill", 13, 600.0),
        ("fencing", "S8 fencing", 4, 300.0),
        ("expectations", "S3 caps", 1, 60.0),
        ("roll_cap", "S4 warm through a roll", 1, 300.0),
        ("drain_finalizer", "V4 finalizers drain", 1, 600.0),
        ("silence", "S9 fail static", 4, 600.0),
    ],
)
def test_a_checker_notices_a_missing_guard_in_a_storm(
    guard: str, invariant: str, seed: int, until_s: float
) -> None:
    report, _ = traced(POOLS_STORM, seed, without(POOLS_STORM, guard, until_s))

    assert [violation.invariant for violation in report.violations[:1]] == [invariant]


def test_every_guard_that_can_be_switched_off_is_tested() -> None:
    assert {s.name: set(s.breaks) for s in (*INCIDENTS, POOLS_STORM)} == {
        "roll-pull-wave": {"roll_cap", "void_marks"},
        "bad-image": {"fallback"},
        "pool-renamed": {"drain_finalizer"},
        "poison-node": {"avoidance"},
        "capped-tenant-livelock": {"hidden_demand"},
        "terminal-and-deleting": {"deletion_first"},
        "pools-storm": {
            "preconditions",
            "fencing",
            "expectations",
            "roll_cap",
            "drain_finalizer",
            "silence",
        },
    }


def test_the_same_seed_gives_the_same_storm() -> None:
    first, again = (traced(POOLS_STORM, 7, Options(until_s=60.0))[1] for _ in range(2))

    assert len(first) > 500
    assert [event.text() for event in first] == [event.text() for event in again]


# --- golden ---


def test_the_operator_does_what_it_did_when_someone_last_looked_at_it() -> None:
    """Run with UPDATE_GOLDEN=1 to write the trace anew; then read the diff before you commit it."""
    _, events = traced(POOL_RENAMED, 1)
    head = header("pool-renamed", 1, "golden: the timeline, and what the operator wrote")
    shown = [event.text() for event in events if event.notable or _writes(event)]
    actual = "\n".join([head, *shown]) + "\n"
    file = GOLDEN / "pool-renamed.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(actual, encoding="utf-8")

    assert actual == file.read_text(encoding="utf-8")


def _writes(event: TraceEvent) -> bool:
    return event.actor in CONTROLLERS and event.verb in {"create", "patch", "delete"}
