"""The table carried out by an agent that dies between any two effects, in a world that moves meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remuda.agent.decide.lifecycle import Action, Observed, Recorded, Wanted, next_step, recorded_as
from remuda.agent.decide.recorded import MAY_FOLLOW, OVER, State

if TYPE_CHECKING:
    from collections.abc import Callable

    Effect = Callable[[], None]

ALL = 99
"""More effects than any action has: the agent lives through it."""


@dataclass
class Vm:
    ours: bool
    running: bool = False


class Life(RuleBasedStateMachine):
    """One Pod, its record, what is on the host under its VM's name, and its mailbox."""

    def __init__(self) -> None:
        super().__init__()
        self.there = True
        self.held = self.ended = self.deleting = False
        self.record: State | None = None
        self.vm: Vm | None = None
        self.job_in = self.api_down = self.blind = self.vm_is_late = False
        self.boots = self.jobs = 0
        self.faults: list[str] = []

    # --- what the agent sees, and what its actions do -----------------------------------------------------------------

    def wanted(self) -> Wanted:
        if self.api_down:
            return Wanted.UNREAD
        if not self.there:
            return Wanted.GONE
        if self.deleting:
            return Wanted.DELETING
        if self.ended:
            return Wanted.ENDED
        return Wanted.LIVE if self.held else Wanted.NEW

    def observed(self) -> Observed:
        if self.blind:
            return Observed.UNKNOWN
        if self.vm is None:
            return Observed.ABSENT
        return Observed.RUNNING if self.vm.running else Observed.STOPPED

    def effects(self, action: Action) -> list[Effect]:
        """Return what an action does, in order. Death between any two of them must be survivable."""
        table: dict[Action, list[Effect]] = {
            Action.HOLD: [self.hold],
            Action.CLONE: [self.writes(State.CLONING), self.clone, self.writes(State.CLONED)],
            Action.CLONE_AGAIN: [self.delete],
            Action.START: [self.writes(State.STARTED), self.boot],
            Action.SERVE: [
                self.writes(State.DELIVERING),
                self.put_job,
                self.writes(State.DELIVERED),
            ],
            Action.CHECK_DELIVERY: [self.check_delivery],
            Action.SETTLE: [self.writes(State.EXITED)],
            Action.GIVE_UP: [self.writes(State.EXITED)],
            Action.REFUSE: [self.writes(State.REFUSED)],
            Action.PUBLISH: [self.publish],
            Action.STOP: [self.stop],
            Action.DELETE: [self.delete],
            Action.CLEAR: [self.writes(State.CLEARED)],
            Action.RELEASE: [self.publish, self.release],
            Action.REAP: [self.reap],
            Action.FORGET: [self.forget],
        }
        return table.get(action, [])

    def writes(self, state: State) -> Effect:
        def write() -> None:
            assert state in MAY_FOLLOW[self.record], f"{state} after {self.record}"
            self.record = state

        return write

    def hold(self) -> None:
        self.held = True

    def clone(self) -> None:
        assert self.vm is None, "a clone replaces nothing"
        self.vm = Vm(ours=True)

    def boot(self) -> None:
        if self.vm is None:
            return
        self.boots += 1
        self.vm.running = True

    def put_job(self) -> None:
        self.jobs += 1
        self.job_in = True

    def check_delivery(self) -> None:
        self.writes(State.DELIVERED if self.job_in else State.STARTED)()

    def publish(self) -> None:
        if self.record is not None and self.record not in OVER:
            self.faults.append("an end was published that is not written down")
        self.ended = True

    def stop(self) -> None:
        if self.vm is None:
            return
        if not self.vm.ours:
            self.faults.append("a VM that is not ours was stopped")
        if self.job_in and self.record is State.DELIVERED and not self.deleting:
            self.faults.append("a job was cut short")
        self.vm.running = False

    def delete(self) -> None:
        if self.vm is None:
            return  # not there: success
        if not self.vm.ours:
            self.faults.append("a VM that is not ours was deleted")
        if self.vm.running:
            self.faults.append("a running VM was deleted")
        self.vm = None

    def release(self) -> None:
        # What was seen to be clean and cannot be looked at now is let go: a host whose driver is broken must not hold
        # Pods for ever (V4). Its record outlives the Pod, so a clone that comes late is reaped: see the end of it all.
        let_go_unseen = self.record is State.CLEARED and self.blind and self.vm_is_late
        if self.vm is not None and self.vm.ours and not let_go_unseen:
            self.faults.append("a Pod was let go before its VM")
        self.there = False

    def reap(self) -> None:
        """As ``garbage`` does when every grace is over: an orphan with a job is left to its job."""
        if self.vm is not None and self.vm.running:
            if self.record is not State.DELIVERED:
                self.stop()
        else:
            self.delete()

    def forget(self) -> None:
        self.record = None

    # --- rules --------------------------------------------------------------------------------------------------------

    @rule(dies_after=st.sampled_from([0, 1, 2, ALL, ALL, ALL]))
    def the_agent_takes_a_step(self, dies_after: int) -> None:
        recorded = Recorded.NOTHING if self.record is None else recorded_as(self.record)
        step = next_step(self.wanted(), recorded, self.observed())
        for effect in self.effects(step.action)[:dies_after]:
            effect()

    @precondition(lambda self: self.vm is not None and self.vm.running)
    @rule()
    def the_guest_halts(self) -> None:
        assert self.vm is not None
        self.vm.running = False

    @precondition(lambda self: self.vm is not None and not self.vm.running)
    @rule()
    def somebody_removes_the_vm(self) -> None:
        self.vm = None

    @precondition(lambda self: self.vm is None and self.record is None)
    @rule(runs=st.booleans())
    def somebody_makes_a_vm_of_that_name(self, *, runs: bool) -> None:
        self.vm = Vm(ours=False, running=runs)

    @precondition(lambda self: self.vm is not None and not self.vm.running)
    @rule()
    def somebody_boots_it_by_hand(self) -> None:
        assert self.vm is not None
        self.vm.running = True

    @precondition(lambda self: self.vm is None and self.record is State.CLEARED)
    @rule()
    def a_clone_that_hung_comes_late(self) -> None:
        self.vm = Vm(ours=True)
        self.vm_is_late = True

    @rule()
    def the_pod_is_deleted(self) -> None:
        self.deleting = True

    @rule()
    def somebody_ends_the_pod(self) -> None:
        self.ended = True

    @precondition(lambda self: self.record is not None)
    @rule()
    def the_pod_is_forced_away(self) -> None:
        self.there = False

    @rule()
    def the_finalizer_is_taken_off(self) -> None:
        self.held = False

    @rule(down=st.booleans())
    def the_api_server_goes_or_comes(self, *, down: bool) -> None:
        self.api_down = down

    @rule(blind=st.booleans())
    def the_driver_hangs_or_recovers(self, *, blind: bool) -> None:
        self.blind = blind

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def a_pod_boots_at_most_one_disk_once(self) -> None:
        assert self.boots <= 1

    @invariant()
    def nothing_forbidden_happened(self) -> None:
        assert self.faults == []

    def teardown(self) -> None:
        """End the faults and the guest, and delete the Pod: then nothing of ours is left."""
        self.api_down = self.blind = False
        self.deleting = True
        for _ in range(20):
            if self.vm is not None and self.vm.ours:
                self.vm.running = False
            self.the_agent_takes_a_step(ALL)
        assert not self.there
        assert self.record is None
        assert self.vm is None or not self.vm.ours
        assert self.faults == []


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
