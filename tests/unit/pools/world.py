"""
A world of pools, runners and nodes, with an operator whose cache lags behind it.

It holds the truth, plays the API server (versions, preconditions), the hosts and dispatch, and runs the real decisions
the way the shell does: observe, decide and reserve in one turn, then one write after the other, while the world moves
on. What must never happen is checked at the write that would do it, against the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from itertools import count as counting
from typing import TYPE_CHECKING, assert_never

from remuda.model.runner import Mark, Phase, Runner
from remuda.pools.decide.actions import (
    Action,
    Cause,
    CreateRunner,
    MarkRunner,
    ReapRunner,
    ReleasePool,
    UnmarkRunner,
)
from remuda.pools.decide.brake import Slots, slots
from remuda.pools.decide.counts import is_stale, is_unavailable
from remuda.pools.decide.one_pass import Surroundings, decide
from remuda.pools.expectations import Expectations
from tests.unit.pools.builders import NOW

if TYPE_CHECKING:
    from remuda.model.pool import Pool
    from remuda.pools.decide.one_pass import Decision
    from remuda.pools.guards import Guards

STARTS_MAX = 3
"""The fleet's brake."""
NODES = ("host-1", "host-2", "host-3")
BROKEN = "broken"
"""Runners of this template never become warm."""


class Outcome(StrEnum):
    """What the operator learns of a write."""

    ANSWERED = "answered"
    APPLIED_UNHEARD = "applied, and the answer is lost"
    LOST = "lost on the way"


@dataclass(slots=True)
class Intent:
    """A decision on its way to the API server."""

    pool: Pool
    view: tuple[Runner, ...]
    actions: list[Action]
    own: set[str] = field(default_factory=set)
    """Runners that this decision itself has touched."""
    names: list[str] = field(default_factory=list)
    """Reserved for its creates."""


@dataclass(slots=True)
class Operator:
    """One reign: what it saw, what it expects, what it is about to do."""

    cache: dict[str, tuple[str, Runner]] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    synced: bool = False
    expectations: Expectations = field(default_factory=Expectations)
    intents: dict[str, Intent] = field(default_factory=dict)


class World:
    """The truth, and everybody who acts in it."""

    def __init__(self, guards: Guards, *, waits_for_sync: bool = True) -> None:
        self.guards = guards
        self.waits_for_sync = waits_for_sync
        self.now = NOW
        self.pools: dict[str, Pool] = {}
        self.runners: dict[str, tuple[str, Runner]] = {}
        self.draining: set[str] = set()
        self.events: list[tuple[str, str, Runner | None]] = []
        self.pool_events: list[tuple[str, Pool | None]] = []
        self.hung: set[str] = set()
        """Guests that neither poll nor end any more."""
        self.nodes_readable = True
        self.operator = Operator()
        self.look_again: dict[str, timedelta | None] = {}
        self._numbers = counting(1)

    # --- the truth ----------------------------------------------------------------------------------------------------

    def of(self, pool: str) -> tuple[Runner, ...]:
        return tuple(runner for home, runner in self.runners.values() if home == pool)

    def alive(self, *phases: Phase) -> list[str]:
        wanted = phases or tuple(Phase)
        return sorted(n for n, (_, r) in self.runners.items() if r.is_alive and r.phase in wanted)

    def put_pool(self, pool: Pool) -> None:
        self.pools[pool.name] = pool
        self.pool_events.append((pool.name, pool))

    def change(self, name: str, new: Runner) -> Runner:
        home, _ = self.runners[name]
        new = replace(new, version=str(next(self._numbers)))
        self.runners[name] = (home, new)
        self.events.append((name, home, new))
        return new

    def remove(self, name: str) -> None:
        home, _ = self.runners.pop(name)
        self.events.append((name, home, None))

    def get(self, name: str) -> Runner | None:
        found = self.runners.get(name)
        return found[1] if found else None

    # --- hosts and dispatch -------------------------------------------------------------------------------------------

    def bind(self, name: str, node: str) -> None:
        runner = self.runners[name][1]
        if runner.phase is Phase.STARTING and not runner.node and node not in self.draining:
            new = replace(runner, node=node, bound_at=self.now, unschedulable_since=None)
            self.change(name, new)

    def refuse(self, name: str) -> None:
        runner = self.runners[name][1]
        if runner.phase is Phase.STARTING and not runner.node and not runner.unschedulable_since:
            self.change(name, replace(runner, unschedulable_since=self.now))

    def boot(self, name: str) -> None:
        runner = self.runners[name][1]
        if runner.phase is Phase.STARTING and runner.node and runner.template != BROKEN:
            self.change(name, replace(runner, phase=Phase.WARM, warm_at=self.now))

    def end(self, name: str) -> None:
        """Let it end: its job is over, its guest died, or dispatch answered 410."""
        runner = self.runners[name][1]
        if runner.phase is not Phase.ENDED:
            self.change(name, replace(runner, phase=Phase.ENDED, warm_at=None))

    def poll(self, name: str, *, job: bool) -> None:
        """Let a warm runner ask dispatch: 410 for a mark that holds, else the job, stamped on what was just read."""
        runner = self.runners[name][1]
        if runner.phase is not Phase.WARM or runner.deleting_since or name in self.hung:
            return
        if self.tells_to_leave(name):
            self.end(name)
        elif job:
            self.change(name, replace(runner, phase=Phase.BUSY))

    def tells_to_leave(self, name: str) -> bool:
        """Say whether dispatch answers a runner's poll with 410."""
        home, runner = self.runners[name]
        pool = self.pools.get(home)
        if runner.mark is None or pool is None:
            return runner.drain
        return is_stale(pool, runner) and runner.mark.target == pool.template

    def clean_up(self, name: str) -> None:
        """Let the host finish a deletion."""
        if self.runners[name][1].deleting_since is not None:
            self.remove(name)

    # --- the operator -------------------------------------------------------------------------------------------------

    def new_leader(self) -> None:
        """Start a reign that knows nothing."""
        self.operator = Operator()

    def list_everything(self) -> None:
        """Give the leader a fresh list. Events from before it are no news."""
        self.events.clear()
        self.pool_events.clear()
        self.operator.cache = dict(self.runners)
        self.operator.pools = dict(self.pools)
        self.operator.synced = True

    def deliver(self, number: int) -> None:
        for name, home, runner in self.events[:number]:
            if runner is None:
                self.operator.cache.pop(name, None)
            else:
                self.operator.cache[name] = (home, runner)
        del self.events[:number]

    def deliver_pools(self) -> None:
        for name, pool in self.pool_events:
            if pool is None:
                self.operator.pools.pop(name, None)
            else:
                self.operator.pools[name] = pool
        self.pool_events.clear()

    def view(self, pool: str) -> tuple[Runner, ...]:
        cached = tuple(r for home, r in self.operator.cache.values() if home == pool)
        if not self.guards.expectations:
            return cached
        return self.operator.expectations.seen(pool, cached)

    def think(self, name: str) -> tuple[Action, ...]:
        """Observe, decide and reserve, in one turn. A view that is not whole decides nothing."""
        operator = self.operator
        if (self.waits_for_sync and not operator.synced) or operator.intents.get(name):
            return ()
        pool = operator.pools.get(name, self.pools.get(name) if not self.waits_for_sync else None)
        if pool is None:
            return ()
        view = self.view(name)
        decision = decide(pool, view, self._surroundings(), self.now, guards=self.guards)
        self.look_again[name] = decision.look_again_after
        self._check_decision(decision.actions)
        self._write_status(pool, decision)
        if decision.actions:
            intent = Intent(pool, view, list(decision.actions))
            operator.intents[name] = intent
            self._reserve(intent)
        return decision.actions

    def _surroundings(self) -> Surroundings:
        starting = sum(
            r.is_alive and r.phase is Phase.STARTING for name in self.pools for r in self.view(name)
        )
        healthy = len(NODES) - len(self.draining) if self.nodes_readable else None
        free = slots([STARTS_MAX], starting, healthy) if self.guards.brake else Slots(100)
        # A node that cannot be read is not draining: nobody is reaped for it.
        nodes = frozenset(self.draining) if self.nodes_readable else frozenset()
        return Surroundings(slots=free, draining_nodes=nodes)

    def _write_status(self, seen: Pool, decision: Decision) -> None:
        pool = self.pools.get(seen.name)
        if pool is None:
            return
        after = replace(pool, proven=seen.template) if decision.worked else pool
        # Of another target it says nothing: the status belongs to the template hash beside it.
        if pool.template == seen.template:
            after = replace(after, roll_waiting_since=decision.roll_waiting_since)
        if after != pool:
            self.put_pool(after)

    def _reserve(self, intent: Intent) -> None:
        for action in intent.actions:
            if isinstance(action, CreateRunner):
                name = f"{intent.pool.name}-{next(self._numbers)}"
                intent.names.append(name)
                if self.guards.expectations:
                    self.operator.expectations.create(intent.pool.name, self._new(name, action))

    def _new(self, name: str, action: CreateRunner) -> Runner:
        return Runner(
            name=name,
            uid="",
            version="",
            template=action.template,
            created_at=self.now,
            phase=Phase.STARTING,
        )

    def act(self, name: str, outcome: Outcome) -> None:
        """Carry out the pool's next action."""
        intent = self.operator.intents.get(name)
        if intent is None:
            return
        action = intent.actions.pop(0)
        if not intent.actions:
            del self.operator.intents[name]
        self._carry_out(intent, action, outcome)

    def _carry_out(self, intent: Intent, action: Action, outcome: Outcome) -> None:
        match action:
            case CreateRunner():
                self._create(intent, action, outcome)
            case ReapRunner(runner=runner, cause=cause):
                self._reap(intent, runner, cause, outcome)
            case MarkRunner(runner=runner, target=target):
                self._patch(intent, runner, Mark(target, self.now), outcome)
            case UnmarkRunner(runner=runner):
                self._patch(intent, runner, None, outcome)
            case ReleasePool():
                self._release(intent.pool, outcome)
            case _:
                assert_never(action)

    def _create(self, intent: Intent, action: CreateRunner, outcome: Outcome) -> None:
        name = intent.names.pop(0)
        placeholder = self._new(name, action)
        if outcome is not Outcome.LOST:
            self.runners[name] = (intent.pool.name, replace(placeholder, uid=f"uid-{name}"))
            created = self.change(name, self.runners[name][1])
            self._check_created(intent)
            if outcome is Outcome.ANSWERED:
                self.operator.expectations.wrote(placeholder, created)

    def _reap(self, intent: Intent, runner: Runner, cause: Cause, outcome: Outcome) -> None:
        truth = self.get(runner.name)
        if outcome is Outcome.LOST or not self._still(truth, runner):
            return
        assert truth is not None
        assert truth.phase is not Phase.BUSY, (
            f"S2: {truth.name} holds a job and is deleted: {cause}"
        )
        intent.own.add(runner.name)
        if truth.node:
            self.change(truth.name, replace(truth, deleting_since=truth.deleting_since or self.now))
        else:
            self.remove(truth.name)
        # After a lost answer the shell looks the runner up before it goes on, and finds it deleted.
        self.operator.expectations.reaped(runner, self.now)
        if cause is Cause.ROLL and runner.mark is None:
            self._check_retired(intent)

    def _patch(self, intent: Intent, runner: Runner, mark: Mark | None, outcome: Outcome) -> None:
        truth = self.get(runner.name)
        if outcome is Outcome.LOST or not self._still(truth, runner):
            return
        assert truth is not None
        after = self.change(truth.name, replace(truth, mark=mark))
        self.operator.expectations.wrote(runner, after)
        if mark is not None:
            intent.own.add(runner.name)
            self._check_retired(intent)

    def _release(self, pool: Pool, outcome: Outcome) -> None:
        if outcome is Outcome.LOST:
            return
        left = [r.name for r in self.of(pool.name) if r.is_alive]
        assert not left, f"V4: {pool.name} is let go while {left} are alive"
        self.pools.pop(pool.name, None)
        self.pool_events.append((pool.name, None))
        self.operator.expectations.forget(pool.name)

    def _still(self, truth: Runner | None, seen: Runner) -> bool:
        if truth is None:
            return False
        if not self.guards.preconditions:
            return True
        return (truth.uid, truth.version) == (seen.uid, seen.version)

    def ask_about_unconfirmed(self) -> None:
        """Ask the API server about runners that the cache should have shown by now."""
        expectations = self.operator.expectations
        # What is still to be sent is absent by right, and will not be for long.
        unsent = {name for intent in self.operator.intents.values() for name in intent.names}
        for pool in self.operator.pools:
            for name in expectations.unconfirmed(pool, self.now - timedelta(seconds=30)):
                if name not in unsent and self.get(name) is None:
                    expectations.absent(pool, name)

    # --- what must never happen ---------------------------------------------------------------------------------------

    def _check_decision(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, ReapRunner):
                assert action.runner.phase is not Phase.BUSY, "S2: a busy runner is reaped"
                assert action.runner.deleting_since is None, "V4: one being deleted is reaped again"

    def _check_created(self, intent: Intent) -> None:
        alive = [r for r in self.of(intent.pool.name) if r.is_alive]
        wanted = intent.pool.replicas
        assert len(alive) <= wanted, f"S3: {len(alive)} runners are alive, {wanted} were wanted"
        starting = len(self.alive(Phase.STARTING))
        assert starting <= STARTS_MAX, f"A12: {starting} runners start at once"
        self._check_trial(intent, alive)

    def _check_trial(self, intent: Intent, alive: list[Runner]) -> None:
        """Check S5 where a runner is made: what is on trial takes up no more than the roll's cap."""
        pool, seen = intent.pool, intent.view
        if pool.proven in {"", pool.template} or any(_serves(pool, r) for r in (*seen, *alive)):
            return
        trying = sum(r.template == pool.template for r in alive)
        assert trying <= pool.roll_cap, f"S5: {trying} try a template, the cap is {pool.roll_cap}"

    def _check_retired(self, intent: Intent) -> None:
        """Check S4 at the write that retires a runner, less what the world took since the operator looked."""
        pool = intent.pool
        truth = {r.name: r for r in self.of(pool.name)}
        alive = [r for r in truth.values() if r.is_alive]
        missing = max(0, pool.replicas - len(alive))
        unavailable = missing + sum(is_unavailable(pool, r) for r in alive)
        lost = sum(
            r.is_alive
            and not is_unavailable(pool, r)
            and r.name not in intent.own
            and _is_lost(pool, truth.get(r.name))
            for r in intent.view
        )
        ours = unavailable - lost
        assert ours <= pool.roll_cap, f"S4: the roll takes {ours}, its cap is {pool.roll_cap}"


def _serves(pool: Pool, runner: Runner) -> bool:
    """Say whether a runner proves its pool's template."""
    serving = runner.phase in {Phase.WARM, Phase.BUSY} and runner.is_alive
    return serving and runner.template == pool.template


def _is_lost(pool: Pool, truth: Runner | None) -> bool:
    return truth is None or not truth.is_alive or is_unavailable(pool, truth)
