"""Runners that fail are tried again with growing waits, and what works is not held back."""

from __future__ import annotations

from datetime import timedelta

from remuda.pools.holdback import Failed, HoldBack
from tests.unit.pools.builders import NOW


def a_failure(generation: int, *, newest: int | None = None) -> Failed:
    made, last = (NOW + timedelta(seconds=n) for n in (generation, newest or generation))
    return Failed(made, last, "it ended with exit code 1")


def failed(generations: int) -> HoldBack:
    hold = HoldBack()
    for generation in range(generations):
        hold.fail(a_failure(generation), now=0.0, fraction=0.0)
    return hold


def test_two_generations_may_fail_before_anyone_waits() -> None:
    assert failed(2).refusal(0.0) is None
    assert failed(2).until < 0


def test_the_third_waits_and_then_one_is_tried() -> None:
    hold = failed(3)
    held, tried = hold.refusal(0.0), hold.refusal(hold.until)

    assert (held and held.tries, tried and tried.tries) == (0, 1)
    assert held is not None
    assert held.lasts
    assert held.why == (
        "Runners end without having served: it ended with exit code 1. One is tried at a time."
    )


def test_while_one_is_tried_no_other_is() -> None:
    refusal = failed(3).refusal(99.0, tried=True)

    assert refusal is not None
    assert refusal.tries == 0


def test_the_waits_grow_up_to_a_minute() -> None:
    waits = [failed(generations).until for generations in (3, 4, 5, 20)]

    assert waits == [1.0, 2.0, 4.0, 30.0]  # the shorter half: chance adds the other


def test_those_that_were_there_together_count_once() -> None:
    hold = failed(2)
    for _ in range(9):
        hold.fail(a_failure(2, newest=9), now=0.0, fraction=0.0)
    hold.fail(a_failure(9), now=0.0, fraction=0.0)

    assert hold.until == 1.0


def test_one_that_serves_ends_the_wait() -> None:
    hold = failed(9)
    hold.serve()

    assert hold.refusal(0.0) is None
    assert hold.until < 0


def test_one_that_serves_does_not_end_a_refusal() -> None:
    hold = failed(9)
    hold.refuse("quota", now=100.0, fraction=0.0)
    hold.serve()
    refusal = hold.refusal(100.0)

    assert refusal is not None
    assert (refusal.reason, refusal.why, refusal.tries) == ("CreateRefused", "quota", 0)


def test_one_that_is_taken_ends_a_refusal_and_no_wait_of_those_that_fail() -> None:
    refused = HoldBack()
    refused.refuse("quota", now=0.0, fraction=0.0)
    refused.accept()
    failing = failed(9)
    failing.accept()

    assert refused.refusal(0.0) is None
    assert failing.refusal(0.0) is not None
    assert failing.until > 0
