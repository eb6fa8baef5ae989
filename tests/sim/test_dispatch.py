"""The real dispatch in the incidents that taught its rules, and in a storm; with each guard switched off, too."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from remuda.sim.plan import ROUGH, Fault, Scripted
from remuda.sim.scenario import Options, Report, Scenario, run_scenario
from remuda.sim.scenarios.dispatch.every_step import EVERY_STEP
from remuda.sim.scenarios.dispatch.lists_lie import LISTS_LIE
from remuda.sim.scenarios.dispatch.mint_fails import MINT_FAILS_AFTER_STAMP
from remuda.sim.scenarios.dispatch.reaper_kills import REAPER_KILLS_LIVE_JOB
from remuda.sim.scenarios.dispatch.runner_shuffle import RUNNER_SHUFFLE
from remuda.sim.scenarios.dispatch.server_deploy import SERVER_DEPLOY
from remuda.sim.scenarios.dispatch.small_limits import SMALL_LIMITS
from remuda.sim.scenarios.dispatch.stage import REPLICAS
from remuda.sim.scenarios.dispatch.stamped_without_claim import STAMPED_WITHOUT_CLAIM
from remuda.sim.scenarios.dispatch.storm import DISPATCH_STORM
from remuda.sim.scenarios.dispatch.webhook_lost import WEBHOOK_LOST
from remuda.sim.scenarios.dispatch.webhooks_dropped import P95_MAX_S, WEBHOOKS_DROPPED
from remuda.sim.trace import TraceEvent, header

GOLDEN = Path(__file__).parent / "golden"
INCIDENTS = (
    WEBHOOK_LOST,
    STAMPED_WITHOUT_CLAIM,
    MINT_FAILS_AFTER_STAMP,
    REAPER_KILLS_LIVE_JOB,
    RUNNER_SHUFFLE,
    SERVER_DEPLOY,
    EVERY_STEP,
    LISTS_LIE,
    SMALL_LIMITS,
)
STORM_S = 450.0


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


@pytest.mark.parametrize(
    ("scenario", "guard", "invariant"),
    [
        (WEBHOOK_LOST, "sweep", "V2 no job is lost"),
        (WEBHOOKS_DROPPED, "sweep", "V1 handed out in time"),
        (STAMPED_WITHOUT_CLAIM, "reaper", "V3 no zombies"),
        (MINT_FAILS_AFTER_STAMP, "unstamp", "V3 no zombies"),
        (REAPER_KILLS_LIVE_JOB, "proof", "S2 no kill"),
        (RUNNER_SHUFFLE, "attribution", "S6 hints are hints"),
        (SERVER_DEPLOY, "goodbye", "V1 handed out in time"),
        (SERVER_DEPLOY, "wakeups", "V1 handed out in time"),
        (LISTS_LIE, "second_look", "S9 fail static"),
        (SMALL_LIMITS, "budgets", "S3 budgets"),
        (SMALL_LIMITS, "fairness", "S3 fair shares"),
        (EVERY_STEP, "recovery", "V2 no job is lost"),
    ],
    ids=lambda value: value.name if isinstance(value, Scenario) else str(value),
)
def test_the_incident_happens_again_without_its_guard(
    scenario: Scenario, guard: str, invariant: str
) -> None:
    report, _ = traced(scenario, 1, without(scenario, guard))

    assert [violation.invariant for violation in report.violations[:1]] == [invariant]


def test_a_fifth_of_the_messages_lost_costs_seconds() -> None:
    """The issue's figure: 20 % of webhooks dropped and 5 % delayed by 150 s, p95 queued to handed over <= 20 s."""
    report, events = traced(WEBHOOKS_DROPPED, 1)

    assert report.violations == ()
    figures = next(event.why for event in events if event.verb == "measured")
    p95 = re.search(r"p95 ([0-9.]+) s", figures)
    dropped = re.search(r"(\d+) messages dropped, (\d+) late", figures)
    assert p95 is not None
    assert dropped is not None
    assert float(p95[1]) <= P95_MAX_S
    assert int(dropped[1]) > 50, "hardly anything was dropped"
    assert int(dropped[2]) > 5, "hardly anything was late"


@pytest.mark.parametrize(
    "scenario",
    [STAMPED_WITHOUT_CLAIM, RUNNER_SHUFFLE, EVERY_STEP],
    ids=lambda scenario: scenario.name,
)
def test_what_must_never_happen_does_not_on_a_bad_network_either(scenario: Scenario) -> None:
    report, _ = traced(scenario, 2, Options(until_s=scenario.until_s, faults=ROUGH))

    # How long things take is another matter: the stories' bounds are for a network that works. Nor is a row right the
    # moment its message is sent.
    never = ("S1", "S2", "S3", "S8", "no bugs")
    assert [v for v in report.violations if v.invariant.startswith(never)] == []
    assert sum(report.faults.values()) > 50


# --- enumerated ---


@pytest.mark.parametrize(
    ("fault", "verb", "resource"),
    [
        (Fault.UNACKNOWLEDGED, "claim", "jobs"),
        (Fault.RESET_AFTER, "claim", "jobs"),
        (Fault.CRASH_UNACKNOWLEDGED, "claim", "jobs"),
        (Fault.UNACKNOWLEDGED, "patch", "pods"),
        (Fault.CRASH_UNACKNOWLEDGED, "patch", "pods"),
        (Fault.CONFLICT, "patch", "pods"),
        (Fault.HANG, "mint", "forge"),
        (Fault.UNACKNOWLEDGED, "mint", "forge"),
        (Fault.CRASH_UNACKNOWLEDGED, "mint", "forge"),
        (Fault.UNACKNOWLEDGED, "mark_running", "jobs"),
        (Fault.CRASH_UNACKNOWLEDGED, "mark_running", "jobs"),
        (Fault.CRASH_UNACKNOWLEDGED, "enqueue", "jobs"),
        (Fault.CRASH_UNACKNOWLEDGED, "attribute", "jobs"),
        (Fault.CRASH_UNACKNOWLEDGED, "complete", "jobs"),
    ],
)
def test_a_replica_may_die_or_lose_an_answer_at_each_side_effect(
    fault: Fault, verb: str, resource: str
) -> None:
    script = tuple(Scripted(fault, 1, actor, verb, resource) for actor in REPLICAS)

    report, _ = traced(WEBHOOK_LOST, 1, Options(until_s=WEBHOOK_LOST.until_s, scripted=script))

    assert report.violations == ()
    assert report.faults == {fault.value: len(REPLICAS)}, "it did not strike both"


@pytest.mark.parametrize(
    ("verb", "nth"), [("record", 1), ("record", 2), ("take", 3), ("processed", 1), ("processed", 2)]
)
def test_a_replica_may_die_at_each_step_of_a_message(verb: str, nth: int) -> None:
    fault = Fault.CRASH_UNACKNOWLEDGED
    script = Scripted(fault, nth, REPLICAS[0], verb, "deliveries")

    report, _ = traced(
        RUNNER_SHUFFLE, 1, Options(until_s=RUNNER_SHUFFLE.until_s, scripted=(script,))
    )

    assert [v for v in report.violations if v.invariant != "V2 no job is lost"] == []
    assert report.faults == {fault.value: 1}, "it did not strike"


@pytest.mark.parametrize("fault", [Fault.UNACKNOWLEDGED, Fault.RESET_AFTER])
def test_an_answer_with_a_job_that_is_lost_on_its_way_is_given_again(fault: Fault) -> None:
    """The runner asks again, and gets the job once more under another runner's name; the first name is removed."""
    # The first polls of a host find nothing; those that wait when the jobs come are answered with one.
    script = tuple(
        Scripted(fault, nth, f"mac-{host}", "poll", "dispatch") for host in (1, 2) for nth in (1, 2)
    )

    report, _ = traced(RUNNER_SHUFFLE, 1, Options(until_s=RUNNER_SHUFFLE.until_s, scripted=script))

    assert [v for v in report.violations if v.invariant != "V2 no job is lost"] == []
    assert report.faults.get(fault.value, 0) >= 1, "it did not strike"


def test_a_second_delivery_whose_note_is_not_answered_is_tried_again() -> None:
    """The runner of a first delivery is noted with its claim; that of a second one by a call of its own."""
    lost = tuple(
        Scripted(Fault.RESET_AFTER, nth, f"mac-{host}", "poll", "dispatch")
        for host in (1, 2)
        for nth in (1, 2)
    )
    note = tuple(
        Scripted(Fault.UNACKNOWLEDGED, 1, actor, "note", "registrations") for actor in REPLICAS
    )

    options = Options(until_s=RUNNER_SHUFFLE.until_s, scripted=(*lost, *note))
    report, _ = traced(RUNNER_SHUFFLE, 1, options)

    assert [v for v in report.violations if v.invariant != "V2 no job is lost"] == []
    assert report.faults.get(Fault.UNACKNOWLEDGED.value, 0) >= 1, "it did not strike"


# --- the storm ---


@pytest.mark.parametrize("seed", range(1, 3))
def test_every_invariant_holds_through_a_storm(seed: int) -> None:
    report, _ = traced(DISPATCH_STORM, seed, Options(until_s=STORM_S))

    assert report.violations == ()
    assert sum(report.faults.values()) > 200
    assert sum(report.disturbances.values()) > 5


def test_a_runner_busy_with_a_job_that_nobody_told_of_uses_its_tenants_room() -> None:
    """Its claim was given up: a tenant at its limit was given one more (S3)."""
    report, _ = traced(DISPATCH_STORM, 10)

    assert report.violations == ()


@pytest.mark.parametrize(
    ("guard", "invariant", "seed"),
    [
        ("stamp", "S8 fencing", 1),
        ("recovery", "S6 hints are hints", 3),
    ],
)
def test_a_checker_notices_a_missing_guard_in_a_storm(
    guard: str, invariant: str, seed: int
) -> None:
    report, _ = traced(DISPATCH_STORM, seed, without(DISPATCH_STORM, guard, STORM_S))

    assert [violation.invariant for violation in report.violations[:1]] == [invariant]


def test_every_guard_that_can_be_switched_off_is_tested() -> None:
    assert {s.name: set(s.breaks) for s in (*INCIDENTS, WEBHOOKS_DROPPED, DISPATCH_STORM)} == {
        "webhook-lost": {"sweep"},
        "webhooks-dropped": {"sweep"},
        "stamped-without-claim": {"reaper"},
        "mint-fails-after-stamp": {"unstamp"},
        "reaper-kills-live-job": {"proof"},
        "runner-shuffle": {"attribution"},
        "server-deploy": {"goodbye", "wakeups"},
        "killed-at-every-step": {"recovery"},
        "lists-lie": {"second_look"},
        "small-limits": {"budgets", "fairness"},
        "dispatch-storm": {"stamp", "recovery"},
    }


def test_the_same_seed_gives_the_same_storm() -> None:
    first, again = (traced(DISPATCH_STORM, 7, Options(until_s=60.0))[1] for _ in range(2))

    assert len(first) > 500
    assert [event.text() for event in first] == [event.text() for event in again]


# --- golden ---


@pytest.mark.parametrize(
    "scenario", [RUNNER_SHUFFLE, MINT_FAILS_AFTER_STAMP], ids=lambda scenario: scenario.name
)
def test_dispatch_does_what_it_did_when_someone_last_looked_at_it(scenario: Scenario) -> None:
    """Run with UPDATE_GOLDEN=1 to write the trace anew; then read the diff before you commit it."""
    _, events = traced(scenario, 1)
    head = header(scenario.name, 1, "golden: the timeline, the forge, and what dispatch wrote")
    shown = [event.text() for event in events if event.notable or _tells(event)]
    actual = "\n".join([head, *shown]) + "\n"
    file = GOLDEN / f"{scenario.name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(actual, encoding="utf-8")

    assert actual == file.read_text(encoding="utf-8")


def _tells(event: TraceEvent) -> bool:
    if event.actor in REPLICAS:
        did = event.verb in {"claim", "mark_running", "release", "mint", "remove", "settle"}
        return did or (event.verb in {"patch", "delete"} and event.object.startswith("pods/"))
    return event.actor == "forge" or event.verb == "begin"
