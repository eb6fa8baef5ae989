"""The first scenario, through everything that can go wrong: sampled, enumerated, and with each guard switched off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.sim.plan import OF_EVENT, OF_VERB, Fault, Faults, Scripted
from remuda.sim.scenario import Options, Report, run_scenario
from remuda.sim.scenarios.keep_n.story import KEEP_N
from remuda.sim.trace import TraceEvent, header

GOLDEN = Path(__file__).parent / "golden"
SHORT = Options(until_s=300.0)
SCRIPTED_S = 60.0
NOTHING = Scripted(Fault.DROP, nth=10**9)
"""A script that never strikes: makes a run calm."""


def traced(seed: int, options: Options) -> tuple[Report, list[TraceEvent]]:
    events: list[TraceEvent] = []
    return run_scenario(KEEP_N, seed, options, events.append), events


def scripted(*scripts: Scripted) -> Options:
    return Options(until_s=SCRIPTED_S, scripted=scripts or (NOTHING,))


# --- the same seed ---


def test_the_same_seed_gives_the_same_trace() -> None:
    first, again = (traced(3, SHORT)[1] for _ in range(2))

    assert len(first) > 200
    assert [event.text() for event in first] == [event.text() for event in again]


def test_another_seed_gives_another_trace() -> None:
    assert traced(3, SHORT)[1] != traced(4, SHORT)[1]


def test_the_trace_is_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for file, hash_seed in zip(files, ("0", "4242"), strict=True):
        command = [sys.executable, "-m", "remuda", "sim", "--scenario", "keep-n", "--seed", "5"]
        command += ["--until", "5m", "--trace", str(file)]
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run(command, check=True, capture_output=True, env=env)  # noqa: S603 - our own command

    one, two = (file.read_bytes() for file in files)
    assert one.count(b"\n") > 200
    assert one == two


# --- chance ---


@pytest.mark.parametrize("seed", range(100, 115))
def test_every_invariant_holds_through_a_rough_time(seed: int) -> None:
    report, _ = traced(seed, Options(until_s=900.0))

    assert report.violations == ()
    assert sum(report.faults.values()) > 50
    assert sum(report.disturbances.values()) > 3


@pytest.mark.parametrize("fault", sorted({*OF_VERB["list"], *OF_VERB["patch"], *OF_EVENT}))
def test_a_lot_of_one_fault_is_survived(fault: Fault) -> None:
    faults = Faults(**{fault.value.replace("-", "_"): 0.1})

    report, _ = traced(1, Options(until_s=300.0, faults=faults))

    assert report.violations == ()
    assert report.faults[fault.value] > 3


@pytest.mark.parametrize("seed", range(1, 6))
def test_no_write_of_a_leader_lands_in_anothers_reign(seed: int) -> None:
    hung = Faults(hang=0.2, unacknowledged=0.1, lost=0.05)

    report, _ = traced(seed, Options(until_s=900.0, faults=hung))

    assert report.violations == ()
    assert report.faults["hang"] > 30


# --- guards switched off ---


@pytest.mark.parametrize(
    ("guard", "invariant"),
    [
        ("fencing", "S8 fencing"),
        ("names", "S3 caps"),
        ("preconditions", "S2 no kill"),
        ("relist", "V8 converged"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_checker_notices_a_missing_guard(guard: str, invariant: str, seed: int) -> None:
    options = Options(until_s=KEEP_N.until_s, broken=frozenset({guard}))

    report, _ = traced(seed, options)

    assert [violation.invariant for violation in report.violations[:1]] == [invariant]
    first = report.violations[0]
    assert first.seed == seed
    assert first.replay == f"remuda sim --scenario keep-n --seed {seed} --break {guard}"


def test_every_guard_that_can_be_switched_off_is_tested() -> None:
    assert set(KEEP_N.breaks) == {"fencing", "names", "preconditions", "relist"}


# --- enumerated ---


class Calm:
    """What happens when nothing goes wrong: the points at which something could."""

    def __init__(self) -> None:
        report, self.events = traced(1, scripted())
        assert report.ok
        assert report.faults == {}
        self.leader = next(event.actor for event in self.events if event.verb == "lead")

    def writes(self, resource: str) -> int:
        verbs = {"create", "patch", "delete"}
        return sum(
            event.actor == self.leader and event.verb in verbs and event.object.startswith(resource)
            for event in self.events
        )


@pytest.fixture(scope="module")
def calm() -> Calm:
    return Calm()


@pytest.mark.parametrize(
    "fault",
    [
        Fault.CRASH_BEFORE,
        Fault.CRASH_UNACKNOWLEDGED,
        Fault.CRASH_AFTER,
        Fault.UNACKNOWLEDGED,
        Fault.LOST,
    ],
)
def test_the_leader_may_die_or_lose_an_answer_at_every_single_write(
    calm: Calm, fault: Fault
) -> None:
    writes = calm.writes("configmaps")
    assert writes >= 5
    for nth in range(1, writes + 1):
        script = Scripted(fault, nth, calm.leader, "write", "configmaps")
        report, _ = traced(1, scripted(script))
        assert report.violations == (), f"{script}: {report.violations[0]}"
        assert report.faults == {fault.value: 1}, f"{script} did not strike"


@pytest.mark.parametrize(
    "fault", [Fault.CRASH_UNACKNOWLEDGED, Fault.UNACKNOWLEDGED, Fault.HANG, Fault.CONFLICT]
)
def test_the_leader_may_lose_its_grip_at_each_of_its_first_lease_writes(
    calm: Calm, fault: Fault
) -> None:
    for nth in range(1, 7):
        report, _ = traced(1, scripted(Scripted(fault, nth, calm.leader, "write", "leases")))
        assert report.violations == (), f"{nth}: {report.violations[0]}"
        assert report.faults == {fault.value: 1}


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.COALESCE, Fault.FREEZE_10, Fault.FREEZE_ALL])
def test_each_single_watch_event_may_be_lost_or_withheld(calm: Calm, fault: Fault) -> None:
    for nth in range(1, 16):
        report, _ = traced(1, scripted(Scripted(fault, nth, calm.leader, "event", "configmaps")))
        assert report.violations == (), f"{nth}: {report.violations[0]}"
        assert report.faults == {fault.value: 1}


# --- golden ---


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("calm", NOTHING),
        (
            "crash-after-the-third-create",
            Scripted(Fault.CRASH_UNACKNOWLEDGED, 3, "", "create", "configmaps"),
        ),
    ],
)
def test_the_trace_is_as_it_was_when_someone_last_looked_at_it(name: str, script: Scripted) -> None:
    """Run with UPDATE_GOLDEN=1 to write the traces anew; then read the diff before you commit it."""
    _, events = traced(1, scripted(script))
    head = header("keep-n", 1, f"golden: {name}")
    actual = "\n".join([head, *(event.text() for event in events)]) + "\n"
    file = GOLDEN / f"keep-n-{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(actual, encoding="utf-8")

    assert actual == file.read_text(encoding="utf-8")
