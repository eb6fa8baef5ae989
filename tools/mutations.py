"""
``make mutations``: take each guard of the operator out, in a copy of the source, and see its test fail.

A mutant that survives is a test that proves nothing; the run says so and fails. Name mutants to run only those.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ROLLS = "tests/e2e/test_operator_rolls.py"
DELETES = "tests/e2e/test_operator_deletes.py"
RACES = "tests/e2e/test_operator_races.py"
GUARDS = "remuda/pools/guards.py"
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Mutant:
    """One line of the source, changed, and the test that must notice."""

    name: str
    file: str
    old: str
    new: str
    test: str


OWNED = (
    'template.pod(name, placement).replace(b\'"annotations":\', (f\'"ownerReferences":'
    '[{{"apiVersion":"remuda.dev/v1alpha1","kind":"RunnerPool","name":"{pool.name}","uid":"{pool.uid}"}}],'
    '"annotations":\').encode(), 1)'
)
"""A runner's Pod as ADR 0007 refused to make it: owned by its pool."""


def without(guard: str, test: str) -> Mutant:
    return Mutant(guard, GUARDS, f"{guard}: bool = True", f"{guard}: bool = False", test)


MUTANTS = (
    without(
        "roll_cap", f"{ROLLS}::test_a_roll_of_twenty_runners_at_ten_percent_takes_two_at_a_time"
    ),
    without(
        "void_marks",
        f"{ROLLS}::test_a_roll_that_is_taken_back_half_way_keeps_to_its_cap_both_ways",
    ),
    without(
        "drain_finalizer",
        f"{DELETES}::test_a_pool_that_is_renamed_keeps_its_three_busy_runners_to_their_end",
    ),
    without(
        "preconditions",
        f"{RACES}::test_a_runner_that_gets_its_job_while_its_deletion_is_on_the_way_keeps_it",
    ),
    without(
        "deletion_first",
        f"{RACES}::test_a_runner_that_ended_and_is_being_deleted_is_replaced_once_and_reaped_once",
    ),
    Mutant(
        "no_owner",
        "remuda/pools/turn.py",
        "template.pod(name, placement)",
        OWNED,
        f"{DELETES}::test_no_way_of_deleting_a_pool_ends_a_job[foreground]",
    ),
    Mutant(
        "stale_first",
        "remuda/pools/decide/replicas.py",
        "key=lambda r: (_usefulness(pool, r, unproven),",
        "key=lambda r: (-_usefulness(pool, r, unproven),",
        f"{ROLLS}::test_a_pool_that_is_scaled_during_its_roll_loses_stale_runners_first",
    ),
)


def is_noticed(mutant: Mutant, folder: Path) -> bool:
    """Run the mutant's test on a changed copy of the source. ``PYTHONPATH`` comes before what is installed."""
    source = folder / mutant.name
    shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    file = source / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} does not hold {mutant.old!r} once"
    file.write_text(text.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", mutant.test]
    ran = subprocess.run(  # noqa: S603 - our own tests
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    (folder / f"{mutant.name}.log").write_text(ran.stdout + ran.stderr)
    failed = ran.returncode == 1  # anything else is not a test that failed
    reasons = [line for line in ran.stdout.splitlines() if "Error" in line or "assert " in line]
    print(f"{'noticed ' if failed else 'SURVIVED'}  {mutant.name}  by {mutant.test}", flush=True)
    if failed:
        print(f"          {reasons[-1].strip(' |') if reasons else 'see its log'}", flush=True)
    return failed


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    folder = Path(tempfile.mkdtemp(prefix="remuda-mutants-"))
    survived = [mutant.name for mutant in chosen if not is_noticed(mutant, folder)]
    if survived:
        print(f"mutations: not noticed: {', '.join(survived)}; logs in {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"mutations: all {len(chosen)} noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
