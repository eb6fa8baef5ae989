from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.pools.decide.brake import Slots
from remuda.pools.decide.one_pass import Surroundings, decide
from tests.unit.pools.builders import (
    NEW,
    NOW,
    OLD,
    a_pool,
    ago,
    around,
    busy,
    marked,
    starting,
    waiting,
    warm,
)

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner

FULL = [warm("a"), warm("b"), warm("c")]
ROLLING = [starting("a"), warm("b", template=OLD), warm("c", template=OLD)]


NO_HEALTHY_NODE = (
    "Fleet minis has no healthy node, so missing runners cannot be made. A node counts while it is labelled"
    " remuda.dev/fleet=minis, Ready, not cordoned and without pressure."
)


def homeless(name: str, why: str = "0/3 nodes are available: 3 full.") -> Runner:
    return waiting(name, unschedulable_since=ago(5), unschedulable_why=why)


def said(
    kind: str,
    pool: Pool,
    runners: list[Runner],
    world: Surroundings | None = None,
    now: datetime = NOW,
) -> tuple[str, str, str]:
    decision = decide(pool, runners, world or around(), now)
    (found,) = [c for c in decision.conditions if c.type == kind]
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    ("replicas", "runners", "expected"),
    [
        pytest.param(3, FULL, ("True", "Warm", "3 of 3 runners can take a job now."), id="warm"),
        pytest.param(0, [], ("True", "Empty", "The pool wants no runners."), id="empty on purpose"),
        pytest.param(2, [busy("a"), busy("b")], ("False", "NoWarmRunner", "All 2 runners hold jobs."), id="all busy"),
        pytest.param(1, [busy("a")], ("False", "NoWarmRunner", "Its runner holds a job."), id="the only one is busy"),
        pytest.param(
            4, [busy("a"), starting("b"), marked("c")],
            ("False", "NoWarmRunner", "No runner is warm: 1 busy, 1 starting, 1 missing, 1 leaving."), id="all else",
        ),
        pytest.param(
            3, [warm("a"), homeless("b"), homeless("c", "0/3 nodes are available: 3 full.")],
            ("True", "Warm", "1 of 3 runners can take a job now; 2 find no host: 0/3 nodes are available: 3 full."),
            id="some find no host",
        ),
        pytest.param(
            1, [homeless("a", "")], ("False", "NoWarmRunner", "No runner is warm: 1 starting; 1 finds no host."),
            id="the only one finds no host, and nobody says why",
        ),
    ],
)  # fmt: skip
def test_ready(replicas: int, runners: list[Runner], expected: tuple[str, str, str]) -> None:
    assert said("Ready", a_pool(replicas=replicas), runners) == expected


@pytest.mark.parametrize(
    ("pool", "runners", "expected"),
    [
        pytest.param(
            a_pool(), FULL, ("False", "UpToDate", "All runners are of the current template."), id="up to date"
        ),
        pytest.param(
            a_pool(), ROLLING,
            ("True", "Replacing",
             "2 of 3 runners are of an older template; waiting for replacements (1 unavailable, 1 allowed)."),
            id="waiting for a replacement",
        ),
        pytest.param(
            a_pool(), [warm("a"), warm("b"), busy("c", template=OLD)],
            ("True", "Retiring", "1 of 3 runners are of an older template; the busy ones go when their jobs end."),
            id="waiting for a job",
        ),
        pytest.param(
            a_pool(paused=True), ROLLING,
            ("True", "Paused", "2 of 3 runners are of an older template; the roll is paused."), id="paused",
        ),
        pytest.param(
            a_pool(roll_waiting_since=ago(600)), ROLLING,
            ("True", "Stuck",
             "2 of 3 runners are of an older template; nobody else is retired: a on host-1 does not become warm."),
            id="stuck",
        ),
    ],
)  # fmt: skip
def test_rolling(pool: Pool, runners: list[Runner], expected: tuple[str, str, str]) -> None:
    assert said("Rolling", pool, runners) == expected


@pytest.mark.parametrize(
    ("deleting", "runners", "expected"),
    [
        pytest.param(False, FULL, ("False", "NotDeleted", "The pool is not being deleted."), id="kept"),
        pytest.param(True, [busy("a")], ("True", "AwaitingJobs", "Waiting for 1 busy runner: a."), id="one job"),
        pytest.param(
            True, [busy(n) for n in "gfedcba"],
            ("True", "AwaitingJobs", "Waiting for 7 busy runners: a, b, c, d, e and 2 more."), id="many jobs",
        ),
        pytest.param(
            True, [warm("a", deleting_since=ago(5))],
            ("True", "AwaitingHosts", "Waiting for hosts to clean up after a."), id="hosts",
        ),
        pytest.param(True, [], ("True", "Releasing", "No runner is awaited any more."), id="nobody"),
    ],
)  # fmt: skip
def test_draining(deleting: bool, runners: list[Runner], expected: tuple[str, str, str]) -> None:  # noqa: FBT001 - a column of the table
    assert said("Draining", a_pool(deleting=deleting), runners) == expected


STUCK = (
    "No replacement became warm within 600 s, so the roll retires nobody else: "
    "a on host-1 does not become warm."
)
FALLS_BACK = (
    " Runners that end are replaced from template old, the last that worked, beyond the roll's cap."
)
NO_NODE = Surroundings(slots=Slots(0, "no_healthy_node"))
UNREADABLE = Surroundings(slots=Slots(0, "fleet_view_error"))


@pytest.mark.parametrize(
    ("pool", "runners", "world", "expected"),
    [
        pytest.param(a_pool(), FULL, None, ("False", "AsExpected", "Nothing needs attention."), id="all is well"),
        pytest.param(
            a_pool(roll_waiting_since=ago(600)), ROLLING, None,
            ("True", "RollStuck", STUCK),
            id="a roll is stuck",
        ),
        pytest.param(
            a_pool(roll_waiting_since=ago(600), proven=OLD), ROLLING, None,
            ("True", "RollStuck", STUCK + FALLS_BACK),
            id="a roll is stuck, and falls back on what worked",
        ),
        pytest.param(
            a_pool(roll_waiting_since=ago(600), proven=NEW), ROLLING, None,
            ("True", "RollStuck", STUCK),
            id="a roll is stuck, and nothing else worked",
        ),
        pytest.param(
            a_pool(), [], NO_NODE,
            ("True", "NoHealthyNode", NO_HEALTHY_NODE),
            id="no healthy node",
        ),
        pytest.param(
            a_pool(), [], UNREADABLE,
            ("True", "FleetUnreadable", "The state of fleet minis cannot be read, so missing runners are not made."),
            id="an unreadable fleet",
        ),
        pytest.param(
            a_pool(), FULL, NO_NODE, ("False", "AsExpected", "Nothing needs attention."),
            id="a full pool does not need a healthy node",
        ),
        pytest.param(
            a_pool(), [], around(0), ("False", "AsExpected", "Nothing needs attention."),
            id="waiting for a start slot is ordinary",
        ),
    ],
)  # fmt: skip
def test_degraded(
    pool: Pool, runners: list[Runner], world: Surroundings | None, expected: tuple[str, str, str]
) -> None:
    assert said("Degraded", pool, runners, world) == expected


def test_a_conflict_of_labels_is_said_and_taken_back() -> None:
    sentence = "Pool elder serves the same labels and is older."
    conflict = Surroundings(slots=Slots(9), pool_conflict=sentence)

    assert said("LabelsConflict", a_pool(), FULL, conflict) == ("True", "SameLabels", sentence)
    assert said("LabelsConflict", a_pool(), FULL)[:2] == ("False", "Unique")


def test_what_stays_the_same_reads_the_same_later() -> None:
    pool = a_pool(replicas=5, roll_waiting_since=ago(700), start_timeout=None)
    runners = [*ROLLING, waiting("d", unschedulable_why="no room"), marked("e", age_s=1)]
    later = NOW + timedelta(seconds=60)

    assert decide(pool, runners, around(0), NOW).conditions == decide(
        pool, runners, around(0), later
    ).conditions  # fmt: skip
