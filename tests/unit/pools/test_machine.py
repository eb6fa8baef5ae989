"""Pools under any interleaving of claims, ends, boots, spec changes, lost writes and old reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from remuda.model.runner import Phase
from remuda.pools.decide.autoscale import Memory, Scale, autoscale
from remuda.pools.decide.counts import is_stale
from remuda.pools.decide.scaling import target
from remuda.pools.guards import Guards
from remuda.ports.dispatch import Signals
from tests.unit.pools.builders import a_pool
from tests.unit.pools.world import BROKEN, NODES, Outcome, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DataObject

POOLS = ("mac", "mac-xl")
TEMPLATES = ("one", "two", BROKEN)
REPLICAS_MAX = 5
ROUNDS_MAX = 400
"""More than any calm world of this size needs."""
POOL = st.sampled_from(POOLS)


class Pools(RuleBasedStateMachine):
    """Two sibling pools in one fleet. Each rule is one thing that somebody does."""

    guards: ClassVar[Guards] = Guards()
    waits_for_sync: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.guards, waits_for_sync=self.waits_for_sync)
        for name in POOLS:
            self.world.put_pool(a_pool(name=name, template="one", replicas=2, roll_percent=34))
        self.world.list_everything()
        self.memories: dict[str, Memory] = {}

    @invariant()
    def no_pool_is_larger_than_it_may_ever_be(self) -> None:
        for name in POOLS:
            alive = sum(r.is_alive for r in self.world.of(name))
            assert alive <= REPLICAS_MAX, f"S3: {name} has {alive} runners"

    # --- people and the autoscaler ------------------------------------------------------------------------------------

    @rule(name=POOL, replicas=st.integers(0, REPLICAS_MAX))
    def scale(self, name: str, replicas: int) -> None:
        self._edit(name, replicas=replicas)

    @rule(name=POOL, queued=st.none() | st.integers(0, 9))
    def autoscale(self, name: str, queued: int | None) -> None:
        """Let the autoscaler look at a pool. Without an answer about its demand it holds."""
        pool = self.world.pools.get(name)
        if pool is None or pool.deleting or queued is None:
            return
        busy = sum(r.is_alive and r.phase is Phase.BUSY for r in self.world.of(name))
        signals = Signals(queued=queued, claimed=busy, occupied=busy)
        step, self.memories[name] = autoscale(
            pool.replicas,
            target(signals, min_warm=1, max_replicas=REPLICAS_MAX),
            self.memories.get(name, Memory()),
            last_scale_down_at=None,
            cooldown=timedelta(seconds=30),
            now=self.world.now,
        )
        if isinstance(step, Scale):
            self._edit(name, replicas=step.replicas)

    @rule(name=POOL, template=st.sampled_from(TEMPLATES))
    def change_the_template(self, name: str, template: str) -> None:
        pool = self.world.pools.get(name)
        if pool is not None and pool.template != template:
            self.world.put_pool(replace(pool, template=template, roll_waiting_since=None))

    @rule(name=POOL, paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:  # noqa: FBT001 - a drawn value
        pool = self.world.pools.get(name)
        if pool is not None:
            self.world.put_pool(replace(pool, paused=paused))

    @precondition(lambda self: self.world.of("mac-xl"))
    @rule(during_jobs=st.booleans())
    def delete_a_pool(self, during_jobs: bool) -> None:  # noqa: FBT001 - a drawn value
        pool = self.world.pools.get("mac-xl")
        if pool is None:
            return
        for runner in self.world.of("mac-xl") if during_jobs else ():
            self.world.poll(runner.name, job=True)
        self.world.put_pool(replace(pool, deleting=True))

    @rule(node=st.sampled_from(NODES))
    def cordon_or_uncordon(self, node: str) -> None:
        self.world.draining ^= {node}

    def _edit(self, name: str, *, replicas: int) -> None:
        pool = self.world.pools.get(name)
        if pool is not None and not pool.deleting:
            self.world.put_pool(replace(pool, replicas=replicas))

    # --- hosts, dispatch, time ----------------------------------------------------------------------------------------

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def bind(self, data: DataObject, node: str) -> None:
        if name := self._pick(data, self.world.alive(Phase.STARTING)):
            self.world.bind(name, node)

    @rule(data=st.data())
    def find_no_host(self, data: DataObject) -> None:
        if name := self._pick(data, self.world.alive(Phase.STARTING)):
            self.world.refuse(name)

    @rule(data=st.data())
    def boot(self, data: DataObject) -> None:
        if name := self._pick(data, self.world.alive(Phase.STARTING)):
            self.world.boot(name)

    @rule(data=st.data())
    def poll(self, data: DataObject) -> None:
        if name := self._pick(data, self.world.alive(Phase.WARM)):
            self.world.poll(name, job=False)

    @rule(data=st.data())
    def claim(self, data: DataObject) -> None:
        if name := self._pick(data, self.world.alive(Phase.WARM)):
            self.world.poll(name, job=True)

    @rule(data=st.data())
    def hang(self, data: DataObject) -> None:
        if name := self._pick(data, self.world.alive(Phase.WARM)):
            self.world.hung.add(name)

    @rule(data=st.data())
    def end(self, data: DataObject) -> None:
        """Let a job end, a start fail, a guest die."""
        if name := self._pick(data, self.world.alive()):
            self.world.end(name)

    @rule(data=st.data())
    def clean_up(self, data: DataObject) -> None:
        deleting = [n for n, (_, r) in self.world.runners.items() if r.deleting_since]
        if name := self._pick(data, sorted(deleting)):
            self.world.clean_up(name)

    @rule(seconds=st.sampled_from([1, 30, 130, 310, 620]))
    def wait(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    # --- the operator -------------------------------------------------------------------------------------------------

    @rule(name=POOL)
    def think(self, name: str) -> None:
        self.world.think(name)

    @rule(name=POOL, outcome=st.sampled_from(Outcome))
    def act(self, name: str, outcome: Outcome) -> None:
        self.world.act(name, outcome)

    @rule(name=POOL)
    def a_whole_pass(self, name: str) -> None:
        self._pass(name)

    @rule(number=st.integers(1, 4))
    def deliver(self, number: int) -> None:
        self.world.deliver(number)

    @rule()
    def deliver_pools(self) -> None:
        self.world.deliver_pools()

    @rule()
    def catch_up(self) -> None:
        self.world.deliver(len(self.world.events))
        self.world.deliver_pools()

    @rule(name=POOL)
    def get_warm(self, name: str) -> None:
        """Let a pool come a good way: without it few worlds would ever have a warm runner to lose."""
        for _ in range(3):
            self.catch_up()
            self._pass(name)
            self._start_all()
        self.catch_up()

    @rule()
    def lead_anew(self) -> None:
        self.world.new_leader()
        self.memories.clear()

    @precondition(lambda self: not self.world.operator.synced)
    @rule()
    def list_everything(self) -> None:
        self.world.list_everything()

    @rule()
    def ask_about_unconfirmed(self) -> None:
        self.world.ask_about_unconfirmed()

    @rule(readable=st.booleans())
    def read_nodes(self, readable: bool) -> None:  # noqa: FBT001 - a drawn value
        self.world.nodes_readable = readable

    # --- calm ---------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """V8: once faults stop, what is there is what is wanted, and nothing more is done."""
        self._mend()
        for _ in range(ROUNDS_MAX):
            if self._calm_round():
                break
        else:
            pytest.fail(f"V8: still busy after {ROUNDS_MAX} rounds: {self.world.runners}")
        for name, pool in self.world.pools.items():
            assert not pool.deleting, f"V4: {name} is still there"
            runners = self.world.of(name)
            assert len(runners) == pool.replicas, f"V8: {name} wants {pool.replicas}: {runners}"
            assert all(r.phase is Phase.WARM for r in runners), f"V8: {runners}"
            stale = [r for r in runners if is_stale(pool, r)]
            assert pool.paused or not stale, f"V8: stale runners are left: {stale}"
            void = [r for r in runners if r.mark and r.mark.target != pool.template]
            assert not void, f"A4: void marks are left: {void}"

    def _mend(self) -> None:
        world = self.world
        world.draining.clear()
        world.nodes_readable = True
        if not world.operator.synced:
            world.list_everything()
        for pool in tuple(world.pools.values()):
            if pool.template == BROKEN:
                world.put_pool(replace(pool, template="mended", roll_waiting_since=None))

    def _calm_round(self) -> bool:
        """Let everybody do what is due; say whether there was nothing to do."""
        world = self.world
        before = (dict(world.runners), dict(world.pools))
        for name in world.alive(Phase.BUSY):
            world.end(name)
        for name in world.alive(Phase.WARM):
            world.poll(name, job=False)
        for name in sorted(world.runners):
            world.clean_up(name)
        self._start_all()
        world.now += timedelta(seconds=5)
        world.ask_about_unconfirmed()
        self.catch_up()
        acted = [self._pass(name) for name in POOLS]
        unsettled = any(
            world.operator.expectations.placeholders(name) or world.look_again.get(name)
            for name in world.pools
        )
        same = before == (dict(world.runners), dict(world.pools))
        return same and not any(acted) and not unsettled

    def _pass(self, name: str) -> bool:
        pending = name in self.world.operator.intents
        actions = self.world.think(name)
        while name in self.world.operator.intents:
            self.world.act(name, Outcome.ANSWERED)
        return bool(actions) or pending

    def _start_all(self) -> None:
        free = [node for node in NODES if node not in self.world.draining]
        for number, name in enumerate(self.world.alive(Phase.STARTING)):
            if free:
                self.world.bind(name, free[number % len(free)])
            self.world.boot(name)

    def _pick(self, data: DataObject, names: list[str]) -> str:
        return data.draw(st.sampled_from(names)) if names else ""


SETTINGS = settings(
    max_examples=100,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
)


def test_no_interleaving_hurts_a_job_or_a_cap_and_calm_converges() -> None:
    run_state_machine_as_test(Pools, settings=SETTINGS)


# --- taking guards out ------------------------------------------------------------------------------------------------
# The machine finds each of these by itself, given time. The stories are its findings, short enough for every run.


def roll_a_warm_pool(pools: Pools) -> None:
    pools.scale("mac", 5)
    for _ in range(3):
        pools.get_warm("mac")
    pools.change_the_template("mac", "two")
    pools.catch_up()
    pools.a_whole_pass("mac")


def take_a_roll_back(pools: Pools) -> None:
    roll_a_warm_pool(pools)
    pools.change_the_template("mac", "one")


def roll_on_to_a_third_template(pools: Pools) -> None:
    roll_a_warm_pool(pools)
    pools.change_the_template("mac", "three")


def hang_and_be_marked(pools: Pools) -> None:
    pools.get_warm("mac")
    pools.world.hung.update(pools.world.alive())
    pools.change_the_template("mac", "two")


def claim_between_look_and_delete(pools: Pools) -> None:
    pools.get_warm("mac")
    pools.scale("mac", 0)
    pools.catch_up()
    pools.think("mac")
    for name in pools.world.alive(Phase.WARM):
        pools.world.poll(name, job=True)
    pools.a_whole_pass("mac")


def end_and_wait_for_the_host(pools: Pools) -> None:
    pools.get_warm("mac")
    for name in pools.world.alive():
        pools.world.end(name)
    pools.catch_up()
    pools.a_whole_pass("mac")
    pools.catch_up()
    pools.a_whole_pass("mac")


def look_twice_before_any_event(pools: Pools) -> None:
    pools.a_whole_pass("mac")
    pools.a_whole_pass("mac")


def lose_many_to_jobs_on_a_broken_template(pools: Pools) -> None:
    pools.scale("mac", 5)
    for _ in range(3):
        pools.get_warm("mac")
    pools.change_the_template("mac", BROKEN)
    for name in pools.world.alive(Phase.WARM):
        pools.world.end(name)
    pools.catch_up()
    pools.a_whole_pass("mac")


def want_many_at_once(pools: Pools) -> None:
    pools.scale("mac", 5)
    pools.catch_up()
    pools.a_whole_pass("mac")


def lead_with_an_empty_list(pools: Pools) -> None:
    pools.get_warm("mac")
    pools.lead_anew()
    pools.a_whole_pass("mac")


def test_a_deleted_pool_is_held_by_its_jobs_and_by_nothing_else() -> None:
    pools = Pools()
    pools.get_warm("mac-xl")
    pools.delete_a_pool(during_jobs=True)
    for _ in range(3):
        pools.catch_up()
        pools.a_whole_pass("mac-xl")

    held = pools.world.of("mac-xl")
    assert [r.phase for r in held] == [Phase.BUSY] * 2
    assert "mac-xl" in pools.world.pools
    pools.teardown()
    assert "mac-xl" not in pools.world.pools


def test_runners_that_hang_do_not_hold_a_roll_for_ever() -> None:
    pools = Pools()
    hang_and_be_marked(pools)
    pools.teardown()

    assert {r.template for r in pools.world.of("mac")} == {"two"}


@pytest.mark.parametrize(
    ("story", "out", "noticed"),
    [
        pytest.param(roll_a_warm_pool, "roll_cap", "S4", id="a roll without its cap"),
        pytest.param(take_a_roll_back, "void_marks", "A4", id="marks that outlive their roll"),
        pytest.param(roll_on_to_a_third_template, "void_marks", "V8", id="old marks block a roll"),
        pytest.param(claim_between_look_and_delete, "preconditions", "S2", id="a blind delete"),
        pytest.param(end_and_wait_for_the_host, "deletion_first", "V4", id="reaping it again"),
        pytest.param(look_twice_before_any_event, "expectations", "S3|A12", id="a lagging cache"),
        pytest.param(lose_many_to_jobs_on_a_broken_template, "fallback", "S5", id="no fallback"),
        pytest.param(want_many_at_once, "brake", "A12", id="no brake"),
        pytest.param(lead_with_an_empty_list, "sync", "S3", id="deciding before the first list"),
    ],
)
def test_a_guard_that_is_out_is_noticed(
    story: Callable[[Pools], None], out: str, noticed: str
) -> None:
    class WithoutIt(Pools):
        guards = Guards() if out == "sync" else Guards.without(out)
        waits_for_sync = out != "sync"

    def play(pools: Pools) -> None:
        story(pools)
        pools.teardown()

    play(Pools())
    with pytest.raises(AssertionError, match=noticed):
        play(WithoutIt())
