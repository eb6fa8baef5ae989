"""What the screen shows, as text: rows, bars, panes, places, and the steps that keys take."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.top.decide.bars import bar, painted
from remuda.cli.top.decide.board import board, drawn, first_shown
from remuda.cli.top.decide.lines import Span, Tone, filled, text_of, width_of, wrapped
from remuda.cli.top.decide.panes import Pane, job_state, pool_bar, rolled
from remuda.cli.top.decide.picture import Moment, once, picture
from remuda.cli.top.decide.places import BESIDE, heights, places
from remuda.cli.top.decide.sight import Fleet, Sight, head
from remuda.cli.top.decide.view import View
from remuda.model.job import JobState
from remuda.ports.api import Condition, PoolRow
from tests.support.memory_api import NOON, a_host, a_job, a_pool, a_runner, an_event

AT = Moment(now=NOON.astimezone(UTC), now_s=1000.0)
READY = (Condition(type="Ready", status="True"),)
FLEET = Fleet(
    pools=(
        a_pool("linux", warm=1, busy=2, starting=1, wanted=5, conditions=READY),
        a_pool(
            "mac", warm=6, roll=(4, 2, 2), conditions=(Condition(type="Rolling", status="True"),)
        ),
    ),
    runners=(
        a_runner("linux-a", "busy", job="job-run"),
        a_runner("linux-b"),
        a_runner("mac-c", "starting", node="mini-2"),
    ),
    hosts=(a_host("mini-1", runners=2), a_host("mini-2", runners=1, why_not="unschedulable")),
    jobs=(
        a_job("job-new", queued_s=5),
        a_job("job-old", queued_s=50),
        a_job("job-run", JobState.RUNNING, queued_s=90, started_s=80),
        a_job(
            "job-bad",
            JobState.COMPLETED,
            queued_s=99,
            started_s=98,
            ended_s=91,
            conclusion="failure",
        ),
        a_job(
            "job-ok",
            JobState.COMPLETED,
            queued_s=99,
            started_s=95,
            ended_s=90,
            conclusion="success",
        ),
    ),
)
SIGHT = Sight(
    address="http://here",
    every_s=2.0,
    fleet=FLEET,
    seen_at=999.0,
    events=(
        an_event(1, "enqueued", job_id="job-old", why="the forge announced it"),
        an_event(2, "claimed", job_id="job-run", pod="linux-a", why="its turn came"),
    ),
)


def texts(pane: Pane, *, order: int = 0, filtered: str = "", width: int = 100) -> list[str]:
    shown = board(pane, SIGHT, NOON, order=order, filtered=filtered)
    lines = drawn(shown, width=width, height=shown.lines, cursor=None, is_focused=False)
    return [text_of(line).strip(" ") for line in lines]


# --- Bars -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "size", "expected"),
    [
        pytest.param([], 10, "", id="nothing is nothing"),
        pytest.param([("#", 2), ("+", 1), (".", 1)], 10, "##+.", id="one place for each"),
        pytest.param([("#", -1), (".", 3)], 10, "...", id="less than none is none"),
        pytest.param([("#", 50), (".", 50)], 10, "#####.....", id="in proportion"),
        pytest.param([("#", 999), (".", 1)], 10, "#########.", id="however small, it is seen"),
        pytest.param([("a", 98), ("b", 1), ("c", 1)], 4, "aabc", id="so are several"),
    ],
)
def test_a_bar_shows(parts: list[tuple[str, int]], size: int, expected: str) -> None:
    assert bar(parts, size) == expected


@given(st.lists(st.integers(0, 500), min_size=1, max_size=5), st.integers(5, 30))
def test_a_bar_is_never_longer_than_its_room_and_loses_no_part(
    counts: list[int], size: int
) -> None:
    made = bar(list(zip("abcde", counts, strict=False)), size)
    assert len(made) == min(sum(counts), size)
    assert set(made) == {mark for mark, count in zip("abcde", counts, strict=False) if count}


def test_a_bar_is_painted_by_its_marks() -> None:
    assert painted("██▓·") == (
        Span("██", Tone.AT_WORK),
        Span("▓", Tone.GOOD),
        Span("·", Tone.QUIET),
    )


@pytest.mark.parametrize(
    ("pool", "drawing"),
    [
        pytest.param(
            a_pool("p", warm=2, busy=1, starting=1, wanted=5), "█▓▓▒·", id="one is missing"
        ),
        pytest.param(a_pool("p", busy=3, wanted=1), "███", id="more than wanted"),
        pytest.param(a_pool("p", warm=1, leaving=2, wanted=1), "▓░░", id="some leave"),
    ],
)
def test_a_pools_bar(pool: PoolRow, drawing: str) -> None:
    assert pool_bar(pool) == drawing


@pytest.mark.parametrize(
    ("roll", "said"),
    [
        pytest.param((0, 0, 1), "", id="no roll says nothing"),
        pytest.param((4, 2, 2), "6 of 10, away 2 of 2", id="progress, and its cap beside"),
        pytest.param((12, 1, 1), "0 of 10, away 1 of 1", id="more stale than wanted: none is new"),
    ],
)
def test_a_roll(roll: tuple[int, int, int], said: str) -> None:
    assert rolled(a_pool("p", wanted=10, roll=roll)) == said


# --- Panes ------------------------------------------------------------------------------------------------------------


def test_pools_are_shown_with_their_bars_queues_and_rolls() -> None:
    assert texts(Pane.POOLS)[1:] == [
        "POOL   STATE    RUNNERS  WANT  WARM  BUSY  START  DRAIN  QUEUE  ROLLED               LABELS",
        "linux  ready    ██▓▒·    5     1     2     1      0      2      -                    linux",
        "mac    rolling  ▓▓▓▓▓▓   6     6     0     0      0      0      2 of 6, away 2 of 2  mac",
    ]


def test_runners_are_shown_with_phase_job_age_and_host() -> None:
    assert texts(Pane.RUNNERS)[1:] == [
        "RUNNER   PHASE     JOB      AGE    HOST    POOL",
        "linux-a  busy      job-run  1m30s  mini-1  linux",
        "linux-b  warm      -        1m30s  mini-1  linux",
        "mac-c    starting  -        1m30s  mini-2  mac",
    ]


def test_hosts_are_shown_with_their_slots_and_condition() -> None:
    assert texts(Pane.HOSTS)[1:] == [
        "HOST    CONDITION  SLOTS  USED    RUNTIME  AGE",
        "mini-1  ready      ██     2 of 2  process  1d",
        "mini-2  draining   █·     1 of 2  process  1d",
    ]


def test_jobs_wait_longest_first_then_run_then_are_over_with_their_result() -> None:
    assert texts(Pane.JOBS)[1:] == [
        "JOB      STATE    NAME         POOL   WAITED  TOOK",
        "job-old  queued   the job-old  linux  50s     -",
        "job-new  queued   the job-new  linux  5s      -",
        "job-run  running  the job-run  linux  10s     1m20s",
        "job-ok   success  the job-ok   linux  4s      5s",
        "job-bad  failure  the job-bad  linux  1s      7s",
    ]


def test_events_are_shown_the_newest_first() -> None:
    assert texts(Pane.EVENTS)[1:] == [
        "TIME      WHAT      OF       WHY                     RUNNER   BY",
        "11:58:22  claimed   job-run  its turn came           linux-a  dispatch",
        "11:58:21  enqueued  job-old  the forge announced it  -        dispatch",
    ]


@pytest.mark.parametrize(
    ("pane", "order", "first"),
    [
        pytest.param(Pane.JOBS, 1, "job-new", id="jobs, the newest"),
        pytest.param(Pane.HOSTS, 1, "mini-2", id="hosts, trouble first"),
        pytest.param(Pane.POOLS, 1, "linux", id="pools, most queued"),
        pytest.param(Pane.RUNNERS, 2, "linux-a", id="runners, by phase"),
        pytest.param(Pane.EVENTS, 1, "1", id="events, the oldest"),
        pytest.param(Pane.EVENTS, 2, "2", id="after the last order comes the first"),
    ],
)
def test_another_order(pane: Pane, order: int, first: str) -> None:
    assert board(pane, SIGHT, NOON, order=order).rows[0].key == first


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        pytest.param("QUEUED", ["job-old", "job-new"], id="whatever the case"),
        pytest.param("linux new", ["job-new"], id="every word must be there"),
        pytest.param("[x]", [], id="no word has a meaning"),
    ],
)
def test_a_filter(words: str, keys: list[str]) -> None:
    shown = board(Pane.JOBS, SIGHT, NOON, filtered=words)
    assert ([row.key for row in shown.rows], shown.of) == (keys, 5)


def test_a_pane_without_rows_says_why() -> None:
    assert texts(Pane.JOBS, filtered="nobody")[1] == "Nothing here fits the filter."
    nothing = board(Pane.JOBS, replace(SIGHT, fleet=Fleet()), NOON)
    line = drawn(nothing, width=60, height=2, cursor=None, is_focused=True)[1]
    assert "remuda run" in text_of(line)


def test_names_that_a_terminal_would_obey_are_harmless() -> None:
    evil = a_job("job-\x1b[2Jx\n")
    shown = board(Pane.JOBS, replace(SIGHT, fleet=Fleet(jobs=(evil,))), NOON)
    assert all(text.isprintable() for row in shown.rows for text in row.said)


def test_how_a_job_ended_is_its_state() -> None:
    assert [job_state(job) for job in FLEET.jobs] == [
        "queued",
        "queued",
        "running",
        "failure",
        "success",
    ]


@pytest.mark.parametrize(
    ("index", "room", "count", "first"),
    [(0, 5, 20, 0), (10, 5, 20, 8), (19, 5, 20, 15), (2, 5, 3, 0), (0, 0, 3, 0)],
)
def test_the_chosen_row_is_in_sight(index: int, room: int, count: int, first: int) -> None:
    assert first_shown(index, room, count) == first


# --- The head ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sight", "words"),
    [
        pytest.param(SIGHT, ["http://here", "● healthy", "1s old"], id="all is well"),
        pytest.param(SIGHT, ["queued 2 (since 50s)", "running 1", "warm 1"], id="the numbers"),
        pytest.param(SIGHT, ["hosts 1/2", "slots 3/4"], id="hosts that take runners, and slots"),
        pytest.param(
            replace(SIGHT, fleet=None), ["○ asking", "no data yet"], id="before the first"
        ),
        pytest.param(
            replace(SIGHT, fleet=None, trouble="nobody is there"),
            ["○ away", "! nobody is there; it is asked again"],
            id="a server that never answered",
        ),
        pytest.param(
            replace(SIGHT, trouble="nobody is there"),
            ["○ lost", "STALE, 1s old", "! nobody is there"],
            id="a server that is lost",
        ),
        pytest.param(replace(SIGHT, seen_at=990.0), ["STALE, 10s old"], id="a look that hangs"),
        pytest.param(
            replace(SIGHT, fleet=replace(FLEET, not_ready="no database")),
            ["○ not ready", "! no database"],
            id="a server that is not ready",
        ),
        pytest.param(
            replace(SIGHT, fleet=replace(FLEET, is_cut=True)),
            ["queued 2+"],
            id="more than asked for",
        ),
    ],
)
@pytest.mark.parametrize("width", [80, 120])
def test_the_head_says(sight: Sight, words: list[str], width: int) -> None:
    lines = head(sight, now=NOON, now_s=AT.now_s, width=width)
    said = "\n".join(map(text_of, lines))
    assert [word for word in words if word not in said] == []
    assert {width_of(line) for line in lines} == {width}


# --- Places -----------------------------------------------------------------------------------------------------------

ALL = tuple(Pane)


@given(
    st.lists(st.integers(3, 200), min_size=5, max_size=5),
    st.sampled_from(ALL),
    st.integers(0, 120),
)
def test_all_lines_are_used_and_the_pane_with_the_keys_has_rows_if_any_has(
    needed: list[int], focused: Pane, room: int
) -> None:
    given_ = heights(ALL, dict(zip(ALL, needed, strict=True)), focused, room)
    assert sum(given_.values()) == room
    assert all(height >= 0 for height in given_.values())
    if room >= 8:
        assert given_[focused] >= 3
        assert min(given_.values()) >= 1


@pytest.mark.parametrize(
    ("width", "columns"),
    [pytest.param(BESIDE - 1, 1, id="one below the other"), pytest.param(BESIDE, 2, id="beside")],
)
def test_a_wide_screen_has_two_columns_of_panes(width: int, columns: int) -> None:
    found = places(dict.fromkeys(ALL, 5), Pane.JOBS, width=width, top=2, bottom=50)
    assert len({place.x for place in found.values()}) == columns
    assert {place.x + place.width for place in found.values()} >= {width}
    # Nothing lies on something else.
    cells = [
        (x, y)
        for p in found.values()
        for x in range(p.x, p.x + p.width)
        for y in range(p.y, p.y + p.height)
    ]
    assert len(cells) == len(set(cells))


@pytest.mark.parametrize("focused", ALL)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 4), (200, 60)])
def test_a_picture_fits_its_screen(focused: Pane, width: int, height: int) -> None:
    made = picture(SIGHT, View(focused=focused), AT, width=width, height=height)
    for place, lines in made.panes.values():
        assert len(lines) == place.height
        assert {width_of(line) for line in lines} == {place.width}
        assert place.y + place.height < height
    assert focused in made.panes
    assert width_of(made.foot) == width


def test_all_panes_and_keys_are_on_a_small_screen() -> None:
    made = picture(SIGHT, View(), AT, width=80, height=24)
    assert list(made.panes) == list(Pane)
    assert "q quit" in text_of(made.foot)
    shown = "\n".join(text_of(line) for _, lines in made.panes.values() for line in lines)
    assert [
        word for word in ("linux", "mac", "job-old", "mini-1", "claimed") if word not in shown
    ] == []


def test_one_look_is_plain_text_with_everything() -> None:
    lines = once(SIGHT, AT, width=None)
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert [line for line in lines if line != line.rstrip()] == []
    names = ["Pools 2", "Runners 3", "Hosts 2", "Jobs 5", "Events 2", "job-bad", "mini-2"]
    assert [name for name in names if name not in text] == []


@given(st.text(max_size=40), st.integers(0, 60))
def test_a_line_is_filled_or_cut_to_any_width(text: str, width: int) -> None:
    clean = "".join(c for c in text if c.isprintable())
    line = filled((Span(clean),), width)
    assert width_of(line) <= width
    # A wide character that does not fit leaves one place, which is filled.
    assert width_of(filled(line, width)) == width


# --- Steps ------------------------------------------------------------------------------------------------------------


def test_the_chosen_row_is_followed_wherever_it_goes() -> None:
    jobs = board(Pane.JOBS, SIGHT, NOON)
    view = View(focused=Pane.JOBS).moved(jobs, 2)
    assert view.chosen(jobs) == jobs.rows[2]
    fewer = board(Pane.JOBS, replace(SIGHT, fleet=replace(FLEET, jobs=FLEET.jobs[1:])), NOON)
    chosen = view.chosen(fewer)
    assert chosen is not None
    assert chosen.key == "job-run"
    gone = board(Pane.JOBS, replace(SIGHT, fleet=replace(FLEET, jobs=FLEET.jobs[:1])), NOON)
    left = view.chosen(gone)
    assert left is not None
    assert left.key == "job-new"


def test_who_stays_on_top_sees_what_comes_there() -> None:
    view = View(focused=Pane.EVENTS)
    view = view.moved(view.board(Pane.EVENTS, SIGHT, NOON), 1)
    view = view.moved(view.board(Pane.EVENTS, SIGHT, NOON), -1)
    later = replace(SIGHT, events=(*SIGHT.events, an_event(3)))
    chosen = view.chosen(view.board(Pane.EVENTS, later, NOON))
    assert chosen is not None
    assert chosen.key == "3"


def test_steps_end_at_the_ends() -> None:
    jobs = board(Pane.JOBS, SIGHT, NOON)
    view = View(focused=Pane.JOBS)
    assert view.cursor(jobs) == 0
    assert view.moved(jobs, -5).cursor(jobs) == 0
    assert view.moved(jobs, 99).cursor(jobs) == 4
    nothing = board(Pane.JOBS, replace(SIGHT, fleet=Fleet()), NOON)
    assert view.moved(nothing, 1).chosen(nothing) is None


def test_panes_go_round() -> None:
    view = View()
    assert view.next_pane(-1).focused is Pane.EVENTS
    assert view.next_pane(-1).next_pane().focused is Pane.POOLS


def test_a_click_chooses_the_row_and_its_pane() -> None:
    hosts = board(Pane.HOSTS, SIGHT, NOON)
    view = View().clicked(hosts, y=3, height=6)
    chosen = view.chosen(hosts)
    assert view.focused is Pane.HOSTS
    assert chosen is not None
    assert chosen.key == "mini-2"
    assert View().clicked(hosts, y=0, height=6).focused is Pane.HOSTS
    assert View().clicked(hosts, y=5, height=6).cursor(hosts) == 0


def test_another_order_begins_at_the_top() -> None:
    jobs = board(Pane.JOBS, SIGHT, NOON)
    view = View(focused=Pane.JOBS).moved(jobs, 3).next_order()
    assert view.cursor(view.board(Pane.JOBS, SIGHT, NOON)) == 0
    assert view.board(Pane.JOBS, SIGHT, NOON).order == "newest"


@pytest.mark.parametrize(
    ("pane", "about"),
    [
        (Pane.POOLS, ("pool", "linux", "linux")),
        (Pane.RUNNERS, ("runner", "linux-a", "linux")),
        (Pane.HOSTS, ("host", "mini-1", "")),
        (Pane.JOBS, ("job", "job-old", "linux")),
        (Pane.EVENTS, ("job", "job-run", "")),
    ],
)
def test_what_a_row_is_about(pane: Pane, about: tuple[str, str, str]) -> None:
    found = board(pane, SIGHT, NOON).rows[0].about
    assert (found.kind, found.name, found.pool) == about


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("short", ["short"], id="what fits"),
        pytest.param("a\n\nb", ["a", "", "b"], id="empty lines stay"),
        pytest.param(
            "  - one two three four five",
            ["  - one two three", "    four five"],
            id="what is broken stands below its beginning",
        ),
    ],
)
def test_a_text_is_wrapped(text: str, lines: list[str]) -> None:
    assert wrapped(text, 20) == lines
