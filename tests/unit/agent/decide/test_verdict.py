"""How a Pod ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.decide.recorded import OVER, State
from remuda.agent.decide.verdict import MESSAGE_MAX_CHARS, GuestExit, failed, sent_home, settle
from remuda.ports.vms import Ending, RunEnd
from tests.unit.agent.builders import NOON, a_record, ago

if TYPE_CHECKING:
    from datetime import datetime

RAN = a_record(State.DELIVERED, started_at=ago(hours=2), ready_at=ago(minutes=110))
ENDED = ago(minutes=1)


@pytest.mark.parametrize(
    ("record", "guest", "end", "said"),
    [
        pytest.param(RAN, GuestExit(code=0), None, (0, "Completed"), id="a guest that says 0 succeeded"),
        pytest.param(RAN, GuestExit(code=143), None, (143, "Error"), id="a guest's own code counts"),
        pytest.param(
            RAN, GuestExit(code=0), RunEnd(how=Ending.CRASHED), (0, "Completed"),
            id="a job that ended before the crash ended well",
        ),
        pytest.param(RAN, None, RunEnd(how=Ending.HALTED), (1, "NoExitReported"), id="a halt is no success"),
        pytest.param(RAN, None, RunEnd(how=Ending.CRASHED), (1, "VmCrashed"), id="a crash is told from a halt"),
        pytest.param(RAN, None, None, (1, "NoExitReported"), id="a VM that was removed by hand failed"),
        pytest.param(
            replace(RAN, state=State.STARTED, ready_at=None), None, RunEnd(how=Ending.NEVER_BOOTED, why="no slot"),
            (1, "StartFailed"), id="a VM that ended at once did not start",
        ),
        pytest.param(
            replace(RAN, state=State.STARTED, ready_at=None), None, RunEnd(how=Ending.HALTED),
            (1, "StartFailed"), id="a guest that was never ready did not start",
        ),
        pytest.param(
            replace(RAN, state=State.STARTED), None, RunEnd(how=Ending.HALTED), (1, "NoJob"),
            id="a warm guest that goes by itself had no job",
        ),
        pytest.param(a_record(State.CLONED), None, None, (1, "NeverStarted"), id="what never started says so"),
    ],
)  # fmt: skip
def test_settle(
    record: object, guest: GuestExit | None, end: RunEnd | None, said: tuple[int, str]
) -> None:
    assert isinstance(record, type(RAN))
    verdict = settle(record, guest, end, NOON, deleting=False)
    assert (verdict.exit_code, verdict.reason) == said
    assert verdict.succeeded == (said[0] == 0)


def test_a_deleted_pod_says_so_unless_its_guest_had_ended() -> None:
    stopped = RunEnd(how=Ending.STOPPED)
    assert settle(RAN, None, stopped, NOON, deleting=True).reason == "Deleted"
    assert settle(RAN, GuestExit(code=0), stopped, NOON, deleting=True).succeeded


@pytest.mark.parametrize(
    ("claimed", "believed"),
    [
        pytest.param(ago(minutes=5), ago(minutes=5), id="a time within the run"),
        pytest.param(None, ENDED, id="none: the end of the VM"),
        pytest.param(ago(hours=5), ENDED, id="a time before the run: the end of the VM"),
        pytest.param(NOON + timedelta(days=999), ENDED, id="a time to come: the end of the VM"),
    ],
)
def test_a_guest_cannot_date_its_end_freely(claimed: datetime | None, believed: datetime) -> None:
    verdict = settle(
        RAN, GuestExit(code=0, finished_at=claimed), RunEnd(at=ENDED), NOON, deleting=False
    )
    assert verdict.finished_at == believed


def test_an_end_that_nobody_saw_is_dated_now() -> None:
    assert settle(RAN, None, None, NOON, deleting=False).finished_at == NOON
    jumped = settle(RAN, None, RunEnd(at=ago(hours=9)), NOON, deleting=False)
    assert jumped.finished_at == NOON


def test_who_is_sent_home_succeeded() -> None:
    verdict = sent_home("the pool rolls", NOON)
    assert verdict.succeeded
    assert verdict.exit_code == 0
    assert "the pool rolls" in verdict.message


def test_a_log_does_not_flood_a_status() -> None:
    assert len(failed("StartFailed", "x" * 10_000, NOON).message) == MESSAGE_MAX_CHARS
    assert len(sent_home("x" * 10_000, NOON).message) == MESSAGE_MAX_CHARS
    guest = GuestExit(code=1, reason="x" * 10_000)
    assert len(settle(RAN, guest, None, NOON, deleting=False).message) == MESSAGE_MAX_CHARS


@given(
    state=st.sampled_from([s for s in State if s not in OVER]),
    how=st.sampled_from(Ending),
    ready=st.booleans(),
    deleting=st.booleans(),
)
def test_a_guest_that_said_nothing_never_succeeded(
    *, state: State, how: Ending, ready: bool, deleting: bool
) -> None:
    record = a_record(state, started_at=ago(hours=1), ready_at=NOON if ready else None)
    verdict = settle(record, None, RunEnd(how=how), NOON, deleting=deleting)
    assert not verdict.succeeded
    assert verdict.exit_code != 0
    assert verdict.message
