"""How a new configuration goes over a fleet."""

from __future__ import annotations

import random

import pytest

from remuda.hosts.decide.lifecycle import Limits, Phase, Seen
from remuda.hosts.decide.roll import Member, Stand, roll, stand


def members(**counts: int) -> list[Member]:
    """Return so many members of each stand, named by it."""
    return [
        Member(f"{name}-{n}", Stand(name), "it broke" if name == "failed" else "")
        for name, count in counts.items()
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("counts", "percent", "cap", "begin", "halted"),
    [
        ({"waiting": 50}, 10, 5, 5, False),
        ({"waiting": 50}, 5, 2, 2, False),
        ({"waiting": 3}, 5, 1, 1, False),
        ({"waiting": 1}, 100, 1, 1, False),
        ({"waiting": 45, "changing": 5}, 10, 5, 0, False),
        ({"waiting": 47, "changing": 3}, 10, 5, 2, False),
        ({"waiting": 45, "changing": 2, "failed": 3}, 10, 5, 0, False),
        ({"waiting": 45, "failed": 5}, 10, 5, 0, True),
        ({"waiting": 40, "done": 6, "failed": 4}, 10, 5, 1, False),
        ({"waiting": 5, "aside": 45}, 10, 1, 1, False),
        ({"done": 50}, 10, 5, 0, False),
        ({"waiting": 1, "failed": 1}, 5, 1, 0, True),
        ({"waiting": 40, "failed": 10}, 10, 5, 0, True),
    ],
)
def test_who_may_begin(
    counts: dict[str, int], percent: int, cap: int, begin: int, *, halted: bool
) -> None:
    found = roll(members(**counts), percent)

    assert found.cap == cap
    assert len(found.granted & set(found.waiting)) == begin
    assert bool(found.halted) is halted
    assert set(found.changing) <= found.granted, "who has begun may go on"


def test_a_halt_says_where_it_failed_and_why() -> None:
    found = roll(members(waiting=45, failed=5), 10)

    assert "failed-0" in found.halted
    assert "it broke" in found.halted
    assert found.held_back("waiting-0") == found.halted


def test_the_answer_does_not_depend_on_the_order() -> None:
    given = members(waiting=20, changing=2, failed=1)
    shuffled = list(given)
    random.Random(7).shuffle(shuffled)  # noqa: S311 - no secret

    assert roll(given, 20) == roll(shuffled, 20)


OLD, NEW = "old", "new"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Seen(config_hash=NEW, phase=Phase.READY), Stand.DONE),
        (Seen(config_hash=NEW, phase=Phase.NOT_READY), Stand.DONE),
        (Seen(config_hash=NEW, phase=Phase.READY, changed=True), Stand.WAITING),
        (Seen(config_hash=NEW, phase=Phase.UPDATING), Stand.CHANGING),
        (Seen(config_hash=OLD, phase=Phase.READY), Stand.WAITING),
        (Seen(config_hash=OLD, phase=Phase.DRAINING), Stand.CHANGING),
        (Seen(config_hash=OLD, phase=Phase.FAILED, failed_hash=OLD, attempts=9), Stand.WAITING),
        (Seen(config_hash=OLD, phase=Phase.FAILED, failed_hash=NEW, attempts=9), Stand.FAILED),
        (Seen(config_hash=NEW, phase=Phase.FAILED, failed_hash=NEW, attempts=9), Stand.FAILED),
        (Seen(config_hash=OLD, phase=Phase.UPDATING, failed_hash=NEW, attempts=2), Stand.CHANGING),
        (Seen(config_hash=OLD, phase=Phase.READY, key_refused=True), Stand.ASIDE),
        (Seen(config_hash=NEW, phase=Phase.FAILED, key_refused=True), Stand.ASIDE),
        (
            Seen(config_hash=OLD, phase=Phase.FAILED, failed_hash=NEW, attempts=9, reached=False),
            Stand.UNREACHED,
        ),
        (
            Seen(config_hash=OLD, phase=Phase.UPDATING, failed_hash=NEW, attempts=2, reached=False),
            Stand.CHANGING,
        ),
        (Seen(config_hash=NEW, phase=Phase.READY, failed_hash=NEW, attempts=1000), Stand.DONE),
        (Seen(config_hash=OLD, phase=Phase.READY, paused=True), Stand.ASIDE),
        (Seen(config_hash=OLD, phase=Phase.READY, deleting=True), Stand.ASIDE),
        (Seen(config_hash="", phase=Phase.BOOTSTRAPPING), Stand.ASIDE),
        (Seen(config_hash=OLD, phase=Phase.RELEASING), Stand.ASIDE),
    ],
)
def test_where_a_host_stands(seen: Seen, expected: Stand) -> None:
    assert stand(seen, Limits()) is expected


def test_a_host_that_nobody_reaches_is_tried_when_there_is_a_place_and_halts_nothing() -> None:
    assert roll(members(unreached=3, done=40), 5).granted == {"unreached-0", "unreached-1"}
    assert roll(members(unreached=3, waiting=1, done=2), 5).granted == {"waiting-0"}
    assert roll(members(unreached=1, changing=1, done=2), 5).granted == {"changing-0"}
    assert roll(members(unreached=1, failed=1, done=2), 5).granted == {"failed-0"}
    assert not roll(members(unreached=9, waiting=1), 5).halted
    begun = Seen(config_hash=OLD, phase=Phase.FAILED, failed_hash=NEW, attempts=9, reached=False)
    assert stand(begun, Limits(), begun=True) is Stand.CHANGING


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Seen(config_hash=NEW, phase=Phase.NOT_READY), Stand.WAITING),
        (Seen(config_hash=OLD, phase=Phase.NOT_READY), Stand.WAITING),
        (Seen(config_hash=NEW, phase=Phase.BOOTSTRAPPING), Stand.CHANGING),
        (Seen(config_hash="", phase=Phase.PENDING), Stand.ASIDE),
        (Seen(config_hash=OLD, phase=Phase.NOT_READY, paused=True), Stand.ASIDE),
    ],
)
def test_a_host_whose_node_is_gone_waits_for_its_turn(seen: Seen, expected: Stand) -> None:
    assert stand(seen, Limits(), gone=True) is expected


@pytest.mark.parametrize(
    ("gone", "others", "together"),
    [(1, 0, False), (2, 0, False), (3, 0, True), (3, 3, False), (4, 3, True), (25, 25, False)],
)
def test_nothing_is_done_when_most_nodes_are_gone_together(
    gone: int, others: int, *, together: bool
) -> None:
    lost = [Member(f"gone-{n}", Stand.WAITING, gone=True) for n in range(gone)]
    found = roll([*lost, *members(done=others)], 100)

    assert bool(found.vanished) is together
    assert (found.granted == frozenset()) is together
    assert not together or "Nodes" in found.held_back("gone-0")


def test_who_has_its_node_goes_on_when_others_lost_theirs() -> None:
    lost = [Member(f"gone-{n}", Stand.WAITING, gone=True) for n in range(5)]
    found = roll([*lost, *members(waiting=2)], 100)

    assert found.granted == {"waiting-0", "waiting-1"}


def test_one_that_was_let_go_holds_its_place_before_its_status_says_so() -> None:
    waiting = Seen(config_hash=OLD, phase=Phase.READY)

    assert stand(waiting, Limits(), begun=True) is Stand.CHANGING
