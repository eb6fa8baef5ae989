"""The table of a VM's life: no cell is empty, and what must never be in a cell is in none."""

from __future__ import annotations

from itertools import product

import pytest

from remuda.agent.decide.lifecycle import Action, Observed, Recorded, Wanted, next_step, recorded_as
from remuda.agent.decide.recorded import MAY_FOLLOW, OVER, State

CELLS = tuple(product(Wanted, Recorded, Observed))
A, W, R, O = Action, Wanted, Recorded, Observed  # noqa: E741 - the columns of the tables below

TOUCHES_THE_VM = {A.CLONE, A.CLONE_AGAIN, A.START, A.STOP, A.DELETE, A.REAP}
MAKES_OR_BOOTS = {A.CLONE, A.CLONE_AGAIN, A.START, A.SERVE}
NEVER_BOOTED = {R.NOTHING, R.CLONING, R.CLONED}


def act(cell: tuple[Wanted, Recorded, Observed]) -> Action:
    return next_step(*cell).action


def test_no_cell_is_empty() -> None:
    assert len(CELLS) == 6 * 10 * 4
    assert all(isinstance(act(cell), Action) for cell in CELLS)


def test_every_action_is_in_some_cell() -> None:
    assert {act(cell) for cell in CELLS} == set(Action)


def test_every_state_of_a_record_has_a_row() -> None:
    assert {recorded_as(state) for state in State} == set(R) - {R.NOTHING, R.UNREADABLE}


def test_every_step_says_why() -> None:
    step = next_step(W.LIVE, R.STARTED, O.STOPPED)
    assert step.why == "the Pod is alive; it was started; the VM is stopped"
    assert len({next_step(*cell).why for cell in CELLS}) == len(CELLS)


@pytest.mark.parametrize(
    ("wanted", "recorded", "observed", "action"),
    [
        pytest.param(W.NEW, R.NOTHING, O.ABSENT, A.HOLD, id="our finalizer comes before anything on the host"),
        pytest.param(W.NEW, R.DELIVERED, O.RUNNING, A.HOLD, id="a finalizer that was taken off comes back"),
        pytest.param(W.LIVE, R.NOTHING, O.ABSENT, A.CLONE, id="a live Pod gets a disk"),
        pytest.param(W.LIVE, R.NOTHING, O.STOPPED, A.REFUSE, id="a VM of our name that we did not make is not used"),
        pytest.param(W.LIVE, R.NOTHING, O.RUNNING, A.REFUSE, id="nor one that runs"),
        pytest.param(W.LIVE, R.NOTHING, O.UNKNOWN, A.LOOK_AGAIN, id="nothing is cloned over what cannot be seen"),
        pytest.param(W.LIVE, R.CLONING, O.ABSENT, A.CLONE, id="a clone that did not begin is made"),
        pytest.param(W.LIVE, R.CLONING, O.STOPPED, A.CLONE_AGAIN, id="a clone that may be half of one is made anew"),
        pytest.param(W.LIVE, R.CLONING, O.RUNNING, A.GIVE_UP, id="a disk that somebody else boots is spent"),
        pytest.param(W.LIVE, R.CLONED, O.STOPPED, A.START, id="a whole disk boots"),
        pytest.param(W.LIVE, R.CLONED, O.ABSENT, A.CLONE, id="a disk that was lost before its boot is made anew"),
        pytest.param(W.LIVE, R.STARTED, O.RUNNING, A.SERVE, id="what runs after a restart is adopted"),
        pytest.param(W.LIVE, R.STARTED, O.STOPPED, A.SETTLE, id="a disk boots once, even if we saw no boot"),
        pytest.param(W.LIVE, R.STARTED, O.ABSENT, A.SETTLE, id="a VM that was removed by hand is over"),
        pytest.param(W.LIVE, R.DELIVERING, O.RUNNING, A.CHECK_DELIVERY, id="a delivery that we died in is looked into"),
        pytest.param(W.LIVE, R.DELIVERED, O.RUNNING, A.WATCH, id="a job that runs after a restart is adopted"),
        pytest.param(W.LIVE, R.DELIVERED, O.UNKNOWN, A.WATCH, id="a hung look at a VM does not hide its exit"),
        pytest.param(W.LIVE, R.DELIVERED, O.STOPPED, A.SETTLE, id="a job that ended while we were away is settled"),
        pytest.param(W.LIVE, R.EXITED, O.STOPPED, A.PUBLISH, id="a verdict is published until it lands"),
        pytest.param(W.LIVE, R.EXITED, O.UNKNOWN, A.PUBLISH, id="a hung driver does not hide a verdict"),
        pytest.param(W.LIVE, R.EXITED, O.RUNNING, A.STOP, id="a Pod shows its end when its slot is free"),
        pytest.param(W.LIVE, R.CLEARED, O.ABSENT, A.PUBLISH, id="a stale look at an ended Pod provisions nothing"),
        pytest.param(W.LIVE, R.UNREADABLE, O.RUNNING, A.LEAVE_UNREADABLE, id="a VM whose record is damaged goes on"),
        pytest.param(W.LIVE, R.UNREADABLE, O.STOPPED, A.FAIL_UNREADABLE, id="and is not booted again"),
        pytest.param(W.ENDED, R.EXITED, O.STOPPED, A.DELETE, id="the VM of an ended Pod goes"),
        pytest.param(W.ENDED, R.EXITED, O.ABSENT, A.CLEAR, id="gone already is success"),
        pytest.param(W.ENDED, R.DELIVERED, O.RUNNING, A.WATCH, id="whoever ends a Pod, its job is not cut short"),
        pytest.param(W.ENDED, R.STARTED, O.RUNNING, A.STOP, id="without a job it is stopped"),
        pytest.param(W.ENDED, R.NOTHING, O.RUNNING, A.LEAVE, id="what is not ours is left"),
        pytest.param(W.DELETING, R.NOTHING, O.ABSENT, A.RELEASE, id="a Pod that we have nothing of goes at once"),
        pytest.param(W.DELETING, R.NOTHING, O.UNKNOWN, A.RELEASE, id="and does not wait for a hung driver"),
        pytest.param(W.DELETING, R.NOTHING, O.RUNNING, A.RELEASE, id="nor for a VM that is not ours"),
        pytest.param(W.DELETING, R.DELIVERED, O.RUNNING, A.STOP, id="who deletes a Pod ends its job"),
        pytest.param(W.DELETING, R.CLEARED, O.ABSENT, A.RELEASE, id="an ended and deleted Pod loses its finalizer"),
        pytest.param(W.DELETING, R.EXITED, O.ABSENT, A.CLEAR, id="a VM that was removed by hand holds no Pod"),
        pytest.param(W.DELETING, R.CLEARED, O.STOPPED, A.DELETE, id="a clone that came late is removed"),
        pytest.param(W.GONE, R.STARTED, O.RUNNING, A.REAP, id="an orphan that runs is reaped after its grace"),
        pytest.param(W.GONE, R.DELIVERING, O.RUNNING, A.CHECK_DELIVERY, id="an orphan without a job waits for no job"),
        pytest.param(W.GONE, R.CLEARED, O.ABSENT, A.FORGET, id="a record goes last"),
        pytest.param(W.GONE, R.REFUSED, O.RUNNING, A.FORGET, id="a namesake is left when its Pod goes"),
        pytest.param(W.UNREAD, R.DELIVERED, O.RUNNING, A.WATCH, id="without an API server jobs go on"),
        pytest.param(W.UNREAD, R.DELIVERED, O.STOPPED, A.SETTLE, id="and their ends are written down"),
        pytest.param(W.UNREAD, R.EXITED, O.STOPPED, A.WAIT, id="and nothing is removed"),
    ],
)  # fmt: skip
def test_next_step(wanted: Wanted, recorded: Recorded, observed: Observed, action: Action) -> None:
    assert next_step(wanted, recorded, observed).action is action


def test_a_disk_boots_once() -> None:
    assert [c for c in CELLS if act(c) is A.START] == [(W.LIVE, R.CLONED, O.STOPPED)]
    # From "started" no way leads back to a state that may boot.
    reached, todo = set[State](), [State.STARTED]
    while todo:
        reached |= (new := MAY_FOLLOW[todo.pop()] - reached)
        todo.extend(new)
    assert not reached & {State.CLONING, State.CLONED}
    assert {c[1] for c in CELLS if act(c) in {A.CLONE, A.CLONE_AGAIN}} <= NEVER_BOOTED


def test_only_a_live_pod_is_provisioned() -> None:
    assert {c[0] for c in CELLS if act(c) in MAKES_OR_BOOTS} == {W.LIVE}


def test_what_we_have_no_record_of_is_never_touched() -> None:
    not_ours = [c for c in CELLS if c[1] in {R.NOTHING, R.REFUSED} and c[2] is not O.ABSENT]
    assert {act(c) for c in not_ours} & TOUCHES_THE_VM == set()


def test_a_damaged_record_lets_only_a_deletion_touch_its_vm() -> None:
    damaged = [c for c in CELLS if c[1] is R.UNREADABLE]
    assert {c[0] for c in damaged if act(c) in TOUCHES_THE_VM} == {W.DELETING}


def test_a_job_is_cut_short_by_a_deletion_alone() -> None:
    with_job = [c for c in CELLS if c[1] in {R.DELIVERING, R.DELIVERED} and c[2] is O.RUNNING]
    assert {c[0] for c in with_job if act(c) in {A.STOP, A.DELETE}} == {W.DELETING}


def test_nothing_that_runs_is_deleted() -> None:
    assert A.DELETE not in {act(c) for c in CELLS if c[2] in {O.RUNNING, O.UNKNOWN}}


def test_an_unread_pod_removes_nothing() -> None:
    seen = {act(c) for c in CELLS if c[0] is W.UNREAD}
    assert seen == {A.WAIT, A.SETTLE, A.CHECK_DELIVERY, A.WATCH}


def test_a_finalizer_comes_off_only_when_nothing_of_ours_is_left() -> None:
    released = [c for c in CELLS if act(c) is A.RELEASE]
    assert {c[0] for c in released} == {W.DELETING}
    assert {c[1] for c in released if c[2] in {O.STOPPED, O.RUNNING}} == {R.NOTHING, R.REFUSED}


def test_a_record_goes_only_when_pod_and_vm_are_gone() -> None:
    forgotten = [c for c in CELLS if act(c) is A.FORGET]
    assert {c[0] for c in forgotten} == {W.GONE}
    assert {c[1] for c in forgotten if c[2] is not O.ABSENT} == {R.REFUSED}


def test_a_verdict_is_published_only_where_there_is_one() -> None:
    published = {c[1] for c in CELLS if act(c) is A.PUBLISH}
    assert published == {recorded_as(state) for state in OVER}


def test_settling_is_for_what_has_no_verdict_yet() -> None:
    settled = {c[1] for c in CELLS if act(c) in {A.SETTLE, A.GIVE_UP}}
    assert settled == {R.CLONING, R.CLONED, R.STARTED, R.DELIVERING, R.DELIVERED}
