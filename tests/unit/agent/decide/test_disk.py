"""Disk pressure, making room, and whether an image fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.decide.disk import DiskMarks, DiskSpace, DiskState, admit, judge, why

MARKS = DiskMarks()
GIB = 1024**3


def free(percent: float) -> DiskSpace:
    return DiskSpace(int(percent * 10), 1000)


@pytest.mark.parametrize(
    ("before", "percent", "after"),
    [
        pytest.param(False, 10.1, False, id="enough is enough"),
        pytest.param(False, 9.9, True, id="too little is pressure"),
        pytest.param(True, 10.1, True, id="a little more does not end it"),
        pytest.param(True, 12.0, False, id="enough more does"),
        pytest.param(False, 0.0, True, id="a full disk is pressure"),
    ],
)
def test_pressure_of_the_host(*, before: bool, percent: float, after: bool) -> None:
    state = judge(DiskState(host_low=before), free(percent), {}, MARKS)
    assert state.host_low is after
    assert state.pressure is after


@pytest.mark.parametrize(
    ("before", "percent", "after"),
    [
        pytest.param(False, 14.9, True, id="room is made before there is pressure"),
        pytest.param(False, 15.0, False, id="not earlier"),
        pytest.param(True, 19.9, True, id="and until there is plenty"),
        pytest.param(True, 20.0, False, id="not longer"),
    ],
)
def test_making_room(*, before: bool, percent: float, after: bool) -> None:
    assert judge(DiskState(reclaiming=before), free(percent), {}, MARKS).reclaiming is after


@pytest.mark.parametrize(
    ("before", "used", "full"),
    [
        pytest.param((), 0.9, {"a"}, id="a guest that is nearly full"),
        pytest.param((), 0.89, set(), id="one that is not"),
        pytest.param(("a",), 0.86, {"a"}, id="one that was, and is still close"),
        pytest.param(("a",), 0.85, set(), id="one that has room again"),
        pytest.param(("a",), None, {"a"}, id="one that cannot be asked stays as it was"),
        pytest.param((), None, set(), id="and is not accused"),
    ],
)
def test_pressure_of_a_guest(before: tuple[str, ...], used: float | None, full: set[str]) -> None:
    state = judge(DiskState(full_guests=frozenset(before)), free(50), {"a": used}, MARKS)
    assert state.full_guests == full
    assert state.pressure is bool(full)


def test_a_guest_that_is_gone_presses_nobody() -> None:
    before = DiskState(full_guests=frozenset({"gone"}))
    assert not judge(before, free(50), {}, MARKS).pressure


@pytest.mark.parametrize("before", [DiskState(), DiskState(host_low=True, reclaiming=True)])
@pytest.mark.parametrize("unread", [None, DiskSpace(0, 0)])
def test_what_cannot_be_measured_changes_nothing(
    before: DiskState, unread: DiskSpace | None
) -> None:
    assert judge(before, unread, {}, MARKS) == before


@given(st.lists(st.sampled_from([10.5, 11.0, 11.9]), min_size=2, max_size=20), st.booleans())
def test_a_disk_between_the_marks_never_flaps(percents: list[float], before: bool) -> None:  # noqa: FBT001 - given
    state = DiskState(host_low=before)
    for percent in percents:
        state = judge(state, free(percent), {}, MARKS)
        assert state.host_low is before


@pytest.mark.parametrize(
    ("need", "free_gib", "fits"),
    [
        pytest.param(20 * GIB, 30, True, id="an image that leaves enough"),
        pytest.param(20 * GIB, 29, False, id="one that leaves too little for the VMs that run"),
        pytest.param(None, 50, True, id="one of unknown size, on a disk with much room"),
        pytest.param(None, 49, False, id="one of unknown size, on a disk with little"),
    ],
)
def test_admit(need: int | None, free_gib: int, *, fits: bool) -> None:
    short = admit(need, DiskSpace(free_gib * GIB, 500 * GIB), MARKS)
    assert (short is None) is fits
    if short is not None:
        assert short.by_bytes == GIB
        assert "GiB" in short.why


@pytest.mark.parametrize("unread", [None, DiskSpace(0, 0)])
def test_an_unread_disk_refuses_nothing(unread: DiskSpace | None) -> None:
    assert admit(10**15, unread, MARKS) is None


def test_the_condition_says_what_is_full() -> None:
    state = DiskState(full_guests=frozenset({"b", "a"}))
    assert why(state, free(50)) == "50% of the host's disk is free; the disk of a, b is nearly full"
    assert why(DiskState(), None) == "the disk is unread"


def test_marks_that_would_flap_are_our_bug() -> None:
    with pytest.raises(AssertionError):
        DiskMarks(host_free_low=0.2, host_free_ok=0.1)
