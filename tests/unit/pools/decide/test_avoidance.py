from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.control.conditions import set_condition
from remuda.kube.meta import Condition
from remuda.kube.names import STARTS_FAILING
from remuda.pools.decide.avoidance import (
    OUTCOMES_PER_HOST,
    HostSeen,
    SetStartsFailing,
    StartOutcome,
    avoid_max,
    avoidance,
    condition_of,
    host_seen,
    probe_delay,
    read_condition,
    worth_keeping,
)
from tests.unit.pools.decide.scaled import NOW, READY, a_host

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.kube.core import Node
    from remuda.pools.decide.avoidance import Avoidance

FAILED, STARTED = False, True


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def outcome(node: str, minutes: float, *, started: bool) -> StartOutcome:
    return StartOutcome(node, f"{node}-{minutes}", started, at(minutes))


def failed(node: str, *minutes: float) -> list[StartOutcome]:
    return [outcome(node, m, started=FAILED) for m in minutes]


def ok(node: str, *minutes: float) -> list[StartOutcome]:
    return [outcome(node, m, started=STARTED) for m in minutes]


def of(template: str, outcomes: list[StartOutcome]) -> list[StartOutcome]:
    return [replace(o, template=template, pod_uid=f"{template}-{o.pod_uid}") for o in outcomes]


def hosts(*names: str) -> list[HostSeen]:
    return [HostSeen(name, healthy=True) for name in names]


def failing(name: str, failures: int = 3, *, probe_at: float = 10) -> HostSeen:
    return HostSeen(name, True, NOW, failures, at(probe_at))  # noqa: FBT003 - healthy


FIVE = hosts("a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("outcomes", "avoided"),
    [
        pytest.param([], "", id="nothing is known"),
        pytest.param(failed("a", 1, 2, 3) + ok("b", 2), "a", id="three in a row while another starts"),
        pytest.param(failed("a", 1, 2, 3) + ok("b", 9), "a", id="another starts after them"),
        pytest.param(failed("a", 1, 2, 3) + ok("b", 1), "a", id="another starts with the first of them"),
        pytest.param(failed("a", 1, 2) + ok("b", 2), "", id="two in a row are no proof"),
        pytest.param(failed("a", 1, 2, 2) + ok("b", 2), "", id="one that is told twice counts once"),
        pytest.param(failed("a", 1, 2, 3) + ok("b", 0), "", id="what started before the first of them is no proof"),
        pytest.param(failed("a", 1, 2, 4) + ok("a", 3) + ok("b", 2), "", id="a success in between begins anew"),
        pytest.param(failed("a", 1, 2, 3) + ok("a", 4) + ok("b", 2), "", id="a success after them clears"),
        pytest.param(failed("a", 1, 2, 3) + ok("a", 3.0) + ok("b", 2), "", id="at the same moment a success counts"),
        pytest.param(failed("a", 1, 2, 3) + failed("b", 1, 2, 3), "", id="a bad image is no host's fault"),
        pytest.param(failed("", 1, 2, 3) + ok("b", 2), "", id="starts without a host are no host's fault"),
        pytest.param(failed("gone", 1, 2, 3) + ok("b", 2), "", id="a host that is gone is not avoided"),
        pytest.param(failed("a", 1, 2, 3) + ok("gone", 2), "", id="a host that is gone proves nothing"),
        pytest.param(failed("a", 1, 2, 3) + failed("b", 1, 2, 3) + ok("c", 2), "ab", id="two of five"),
        pytest.param(
            failed("a", 1, 2, 3) + failed("b", 1, 2, 3) + failed("d", 1, 2, 3, 4) + ok("c", 2), "ad",
            id="never more than a minority: the worst",
        ),
    ],
)  # fmt: skip
def test_who_is_avoided(outcomes: list[StartOutcome], avoided: str) -> None:
    decided = avoidance(FIVE, outcomes, at(10))

    assert decided.avoid == frozenset(avoided)
    assert {c.node for c in decided.changes if c.failing} == set(avoided)
    assert decided.probe == ""


BAD, GOOD = "bad image", "good image"


@pytest.mark.parametrize(
    ("outcomes", "avoided", "suspected"),
    [
        pytest.param(
            of(BAD, failed("a", 1, 2, 3) + failed("b", 2)) + of(GOOD, ok("b", 1, 2)), "", "",
            id="a bad image is no host's fault, though others start",
        ),
        pytest.param(
            of(BAD, failed("a", 1, 2, 3)) + of(GOOD, ok("b", 1, 2)), "", "a",
            id="nobody tried it elsewhere: the next should",
        ),
        pytest.param(
            of(BAD, failed("a", 1, 2, 3) + ok("b", 4)) + of(GOOD, ok("c", 2)), "a", "",
            id="it starts elsewhere, so it was the host",
        ),
        pytest.param(
            of(BAD, failed("a", 1, 3) + failed("b", 3)) + of(GOOD, failed("a", 2, 4) + ok("b", 2)), "", "",
            id="two of each: only those of the good image count",
        ),
        pytest.param(
            of(BAD, failed("a", 1, 3) + failed("b", 3)) + of(GOOD, failed("a", 2, 4, 5) + ok("b", 2)), "a", "",
            id="three of the good image among others",
        ),
        pytest.param(
            of(BAD, failed("a", 1)) + of(GOOD, failed("a", 3, 4, 5) + ok("b", 2)), "", "",
            id="the good image started elsewhere before it failed here",
        ),
        pytest.param(of(BAD, failed("a", 1, 2, 3)) + of(GOOD, ok("a", 4)), "", "", id="any start clears a host"),
        pytest.param(
            of("x", ok("b", 0) + failed("a", 1, 3)) + of("y", failed("a", 2) + ok("c", 2)), "a", "",
            id="failures of two pools add up",
        ),
    ],
)  # fmt: skip
def test_what_never_started_anywhere_speaks_against_no_host(
    outcomes: list[StartOutcome], avoided: str, suspected: str
) -> None:
    decided = avoidance(FIVE, outcomes, at(10))

    assert decided.avoid == frozenset(avoided)
    assert decided.suspects == frozenset(suspected)


@pytest.mark.parametrize(
    ("seen", "bound"),
    [
        pytest.param(hosts(), 0, id="no host"),
        pytest.param(hosts("a"), 0, id="never the last"),
        pytest.param(hosts("a", "b"), 1, id="one of two"),
        pytest.param(hosts("a", "b", "c"), 1, id="one of three"),
        pytest.param(hosts("a", "b", "c", "d"), 1, id="one of four"),
        pytest.param(FIVE, 2, id="two of five"),
        pytest.param([HostSeen("a", healthy=True), HostSeen("b", healthy=False)], 0, id="never the last healthy one"),
    ],
)  # fmt: skip
def test_how_many_may_be_avoided(seen: list[HostSeen], bound: int) -> None:
    everyone = [o for host in seen for o in failed(host.name, 1, 2, 3)] + ok("z", 2)

    assert avoid_max(seen) == bound
    assert len(avoidance([*seen, HostSeen("z", healthy=False)], everyone, at(10)).avoid) == bound


def test_the_change_says_how_many_failed_and_when_a_probe_comes() -> None:
    (change,) = avoidance(FIVE, failed("a", 1, 2, 3) + ok("b", 2), at(10)).changes

    assert change == SetStartsFailing(
        node="a",
        failing=True,
        failures=3,
        probe_at=at(13),
        why="starts fail here while they succeed on other hosts",
    )
    assert condition_of(change).message == (
        "3 starts in a row failed here while runners started on other hosts. New runners avoid this host; one runner"
        " may try it from 2026-11-01T12:13:00Z on, and clears this if it starts."
    )


@pytest.mark.parametrize(
    ("outcomes", "now", "probe", "change"),
    [
        pytest.param([], 9.9, "", None, id="not before its time"),
        pytest.param([], 10, "a", None, id="from its time on"),
        pytest.param([], 500, "a", None, id="as long as nobody was sent"),
        pytest.param(failed("a", 5), 6, "", None, id="one that was on its way before fails without consequence"),
        pytest.param(failed("a", 12), 12, "", (4, 32), id="a failed probe doubles the wait, from its failure on"),
        pytest.param(failed("a", 12), 40, "a", (4, 32), id="then the next probe"),
        pytest.param(failed("a", 12, 13), 40, "a", (4, 32), id="two that fail together count as one probe"),
        pytest.param(failed("a", 12, 35), 40, "", (5, 75), id="the second failed probe doubles it again"),
        pytest.param(failed("a", 12, 35, 80), 100, "", (6, 140), id="an hour is the longest wait"),
        pytest.param(failed("a", 12, 35, 80, 200), 300, "a", (7, 260), id="and stays it"),
    ],
)  # fmt: skip
def test_probes(
    outcomes: list[StartOutcome], now: float, probe: str, change: tuple[int, float] | None
) -> None:
    decided = avoidance([failing("a"), *hosts("b", "c")], outcomes, at(now))

    assert decided.avoid == {"a"}, "it stays avoided by all but the probe"
    assert decided.probe == probe
    assert [(c.failures, c.probe_at) for c in decided.changes] == (
        [(change[0], at(change[1]))] if change else []
    )


def test_a_start_clears_the_host() -> None:
    decided = avoidance([failing("a"), *hosts("b", "c")], failed("a", 12) + ok("a", 13), at(14))

    assert (decided.avoid, decided.probe) == (frozenset(), "")
    (change,) = decided.changes
    assert (change.node, change.failing) == ("a", False)
    assert condition_of(change).status == "False"


def test_a_success_from_before_clears_nothing() -> None:
    assert avoidance([failing("a"), *hosts("b", "c")], ok("a", -5), at(5)).avoid == {"a"}


def test_one_probe_at_a_time_and_the_longest_waiting_first() -> None:
    seen = [failing("a", probe_at=20), failing("b", probe_at=10), *hosts("c", "d", "e")]

    assert avoidance(seen, [], at(30)).probe == "b"
    assert avoidance(seen, [], at(30), starting_on={"b", "c"}).probe == ""


def test_an_operator_that_knows_no_outcomes_keeps_to_what_the_nodes_say() -> None:
    decided = avoidance([failing("a"), *hosts("b", "c")], [], at(5))

    assert (set(decided.avoid), decided.changes) == ({"a"}, ())


def test_when_good_hosts_go_only_the_worst_stay_avoided() -> None:
    seen = [failing("a", 3), failing("b", 5), *hosts("c", "d", "e")]
    fewer = [replace(h, healthy=h.name in "abc") for h in seen]

    assert avoidance(seen, [], at(5)).avoid == {"a", "b"}
    decided = avoidance(fewer, failed("c", 1, 2, 3), at(5))
    assert (set(decided.avoid), decided.changes) == ({"b"}, ()), (
        "the others' conditions outlive the gap"
    )
    assert avoidance([failing("a")], [], at(5)).avoid == frozenset(), "never the last"


def test_a_host_that_draws_every_start_is_suspected_until_another_was_tried() -> None:
    alone = failed("a", 1, 2, 3)

    assert avoidance(FIVE, alone, at(4)).suspects == {"a"}
    assert avoidance(FIVE, alone, at(4)).avoid == frozenset(), "there is nothing to compare with"
    assert avoidance(FIVE, alone + ok("b", 4), at(5)).avoid == {"a"}
    assert avoidance(FIVE, alone + ok("b", 4), at(5)).suspects == frozenset()
    assert avoidance(FIVE, alone + failed("b", 4), at(5)).suspects == frozenset()
    assert avoidance(hosts("a"), alone, at(4)).suspects == frozenset(), "never the last"


@pytest.mark.parametrize(
    ("failures", "minutes"), [(0, 10), (3, 10), (4, 20), (5, 40), (6, 60), (7, 60), (999_999, 60)]
)
def test_probe_delay(failures: int, minutes: int) -> None:
    assert probe_delay(failures) == timedelta(minutes=minutes)


# --- the Node's condition -----------------------------------------------------------------------------------------


def told(node: Node, decided: Avoidance, now: datetime) -> Node:
    """Write the changes onto a Node, as the shell does."""
    conditions = node.status.conditions
    for change in decided.changes:
        if change.node == node.name:
            conditions = set_condition(conditions, condition_of(change), now)
    return a_host(node.name, *conditions)


def test_the_condition_carries_all_that_is_needed_over_a_restart() -> None:
    nodes = [a_host(name, READY) for name in "abc"]
    first = avoidance(map(host_seen, nodes), failed("a", 1, 2, 3) + ok("b", 2), at(3))
    nodes = [told(n, first, at(3)) for n in nodes]

    assert host_seen(nodes[0]) == HostSeen("a", True, at(3), 3, at(13))  # noqa: FBT003 - healthy
    assert avoidance(map(host_seen, nodes), failed("a", 1, 2, 3), at(5)).changes == ()
    second = avoidance(map(host_seen, nodes), failed("a", 14), at(14))
    nodes = [told(n, second, at(14)) for n in nodes]
    assert host_seen(nodes[0]) == HostSeen("a", True, at(3), 4, at(34))  # noqa: FBT003 - healthy
    third = avoidance(map(host_seen, nodes), failed("a", 14) + ok("a", 35), at(35))
    assert host_seen(told(nodes[0], third, at(35))) == HostSeen("a", healthy=True)


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        pytest.param(None, None, id="never written"),
        pytest.param(Condition(type=STARTS_FAILING, status="False", last_transition_time=NOW), None, id="cleared"),
        pytest.param(
            Condition(type=STARTS_FAILING, status="True", message="by hand", last_transition_time=NOW),
            (NOW, 3, None), id="written by a person: avoided, with the usual first probe",
        ),
        pytest.param(
            Condition(
                type=STARTS_FAILING, status="True", last_transition_time=NOW,
                message="4 starts in a row failed; from 2026-99-99T00:00:00Z on",
            ),
            (NOW, 4, None), id="a time that is none",
        ),
        pytest.param(Condition(type=STARTS_FAILING, status="True"), None, id="without a time it says nothing"),
    ],
)  # fmt: skip
def test_reading_the_condition(condition: Condition | None, read: object) -> None:
    assert read_condition(condition) == read


def test_a_condition_by_hand_is_probed_after_ten_minutes() -> None:
    by_hand = HostSeen("a", True, NOW, 3)  # noqa: FBT003 - healthy

    assert avoidance([by_hand, *hosts("b")], [], at(9)).probe == ""
    assert avoidance([by_hand, *hosts("b")], [], at(10)).probe == "a"


# --- whatever comes -----------------------------------------------------------------------------------------------

OUTCOMES = st.lists(
    st.builds(
        StartOutcome,
        st.sampled_from(["", "a", "b", "c", "d", "e", "gone"]),
        st.integers(0, 40).map(str),
        st.booleans(),
        st.integers(0, 60).map(at),
    ),
    max_size=40,
    unique_by=lambda o: o.pod_uid,
)
HOSTS = st.lists(
    st.builds(
        HostSeen,
        st.sampled_from("abcdef"),
        st.booleans(),
        st.none() | st.integers(0, 30).map(at),
        st.integers(0, 8),
        st.none() | st.integers(10, 60).map(at),
    ),
    max_size=6,
    unique_by=lambda h: h.name,
)


@given(seen=HOSTS, outcomes=OUTCOMES, now=st.integers(0, 90))
def test_only_a_minority_is_ever_avoided(
    seen: list[HostSeen], outcomes: list[StartOutcome], now: int
) -> None:
    decided = avoidance(seen, outcomes, at(now))
    healthy = {h.name for h in seen if h.healthy}
    away = decided.avoid | decided.suspects

    assert away <= healthy
    assert len(away) <= max(1, (len(healthy) - 1) // 2)
    assert away != healthy or not healthy, "never the last"
    assert decided.probe == "" or decided.probe in decided.avoid


@given(seen=HOSTS, outcomes=OUTCOMES, data=st.data())
def test_order_and_repetition_do_not_matter(
    seen: list[HostSeen], outcomes: list[StartOutcome], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(outcomes), max_size=20)) if outcomes else []
    shuffled = data.draw(st.permutations([*outcomes, *again]))
    turned = data.draw(st.permutations(seen))

    assert avoidance(turned, shuffled, at(90)) == avoidance(seen, outcomes, at(90))


@given(outcomes=OUTCOMES)
def test_without_a_success_nobody_is_avoided(outcomes: list[StartOutcome]) -> None:
    decided = avoidance(FIVE, [replace(o, started=FAILED) for o in outcomes], at(90))

    assert (decided.avoid, decided.changes) == (frozenset(), ())


@given(outcomes=OUTCOMES)
def test_what_is_written_down_is_not_decided_again(outcomes: list[StartOutcome]) -> None:
    nodes = [a_host(name, READY) for name in "abcde"]
    first = avoidance(map(host_seen, nodes), outcomes, at(90))
    nodes = [told(n, first, at(90)) for n in nodes]
    second = avoidance(map(host_seen, nodes), outcomes, at(90))

    assert second.changes == ()
    assert second.avoid == first.avoid


@given(outcomes=OUTCOMES)
def test_what_is_not_kept_is_not_missed(outcomes: list[StartOutcome]) -> None:
    kept = worth_keeping(outcomes)

    assert set(kept) <= set(outcomes)
    assert worth_keeping(kept) == kept
    for name in {o.node for o in kept}:
        assert name
        assert sum(1 for o in kept if o.node == name) <= OUTCOMES_PER_HOST
    if all(sum(1 for o in outcomes if o.node == n) <= OUTCOMES_PER_HOST for n in "abcde"):
        assert avoidance(FIVE, kept, at(90)) == avoidance(FIVE, outcomes, at(90))
