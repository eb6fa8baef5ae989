from __future__ import annotations

import json

from remuda.sim.trace import WHY, Trace, TraceEvent, because, header, stamp


def test_a_line_has_five_fields_and_a_reason() -> None:
    event = TraceEvent(12.345678, "ctl-a", "create", "configmaps/demo/a", "201", "herd has 4 of 5")

    assert event.text() == "00:00:12.345678 ctl-a create configmaps/demo/a 201 # herd has 4 of 5"


def test_blanks_and_line_ends_cannot_break_a_line() -> None:
    event = TraceEvent(0, "an actor", "verb", "", "S8 fencing", "two\nlines")

    assert event.text() == "00:00:00.000000 an_actor verb - S8_fencing # two lines"


def test_hours_go_on_past_a_day() -> None:
    assert stamp(30 * 3600 + 61.5) == "30:01:01.500000"


def test_json_says_the_same() -> None:
    event = TraceEvent(1, "a", "patch", "leases/n/l", "200", "why", notable=True)

    assert json.loads(event.json()) == {
        "at": "00:00:01.000000",
        "actor": "a",
        "verb": "patch",
        "object": "leases/n/l",
        "outcome": "200",
        "why": "why",
        "notable": True,
    }


def test_a_header_says_what_to_run() -> None:
    assert header("keep-n", 7) == "# remuda trace v1 scenario=keep-n seed=7"


def test_a_trace_that_nobody_listens_to_is_off_but_counts() -> None:
    trace = Trace(lambda: 0.0)
    trace.add("a", "b", "c", "d")

    assert not trace.on
    assert trace.event_count == 1


def test_reasons_nest() -> None:
    with because("outer"):
        with because("inner"):
            assert WHY.get() == "inner"
        assert WHY.get() == "outer"
    assert WHY.get() == ""
