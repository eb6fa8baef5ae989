"""The lines of polls: one turn for one wake-up, in order, and none lost whatever happens at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remuda.dispatch.hub import COUNTED_MAX, Bell, Hub
from remuda.ports.database import DatabaseUnavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import datetime

    from remuda.dispatch.hub import Waiter
    from remuda.ports.clock import Clock
    from remuda.ports.job_views import JobViews

POOL = "linux"


@dataclass
class Counts:
    """As much of ``JobViews`` as the hub asks for."""

    counts: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    fails: bool = False
    takes_s: float = 0.0

    async def claimable(self) -> Mapping[str, int]:
        self.asked += 1
        if self.fails:
            raise DatabaseUnavailable("Not counted", why="it is down", fix="Wait")
        seen = dict(self.counts)
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        return seen


class Telegraph:
    """Implements ``remuda.ports.wakeups.Wakeups``."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[str | None] = asyncio.Queue()

    def listen(self) -> Telegraph:
        return self

    async def __aenter__(self) -> AsyncIterator[str | None]:
        return self._items()

    async def __aexit__(self, *_: object) -> None: ...

    async def _items(self) -> AsyncIterator[str | None]:
        while True:
            yield await self.sent.get()


class NoClock:
    """For tests in which no time passes."""

    def now(self) -> datetime:
        raise NotImplementedError

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def a_hub(counts: Counts, clock: Clock, telegraph: Telegraph | None = None) -> Hub:
    views = cast("JobViews", counts)
    wakeups = telegraph or Telegraph()
    return Hub(views, wakeups, beat_s=1.0, clock=clock, ids=SeededIds(1, "hub"))


def a_still_hub(counts: Counts | None = None) -> Hub:
    return a_hub(counts or Counts(), NoClock())


def turns(waiters: list[Waiter]) -> list[bool]:
    return [waiter.has_turn for waiter in waiters]


def join(hub: Hub, count: int) -> list[Waiter]:
    return [hub.join(POOL, Bell()) for _ in range(count)]


def test_turns_are_given_in_order_of_arrival() -> None:
    hub = a_still_hub()
    waiters = join(hub, 3)
    hub.told(POOL)
    assert turns(waiters) == [True, False, False]
    hub.told(POOL)
    assert turns(waiters) == [True, True, False]


def test_a_wake_up_of_another_pool_is_not_ours() -> None:
    hub = a_still_hub()
    waiters = join(hub, 1)
    hub.told("mac")
    assert turns(waiters) == [False]


def test_a_wake_up_without_waiters_is_kept_for_the_next() -> None:
    hub = a_still_hub()
    hub.told(POOL)
    assert turns(join(hub, 2)) == [True, False]


def test_who_found_nothing_stands_at_its_old_place() -> None:
    hub = a_still_hub()
    first, second = join(hub, 2)
    hub.told(POOL)
    hub.begin(first)
    hub.lost(first)
    hub.told(POOL)
    assert turns([first, second]) == [True, False]


def test_a_wake_up_during_a_question_is_not_lost_with_its_answer() -> None:
    hub = a_still_hub()
    (waiter,) = join(hub, 1)
    hub.told(POOL)
    hub.begin(waiter)
    hub.told(POOL)
    hub.lost(waiter)
    assert waiter.has_turn


def test_a_wake_up_from_before_a_question_is_answered_by_it() -> None:
    hub = a_still_hub()
    for _ in range(5):
        hub.told(POOL)
    (waiter,) = join(hub, 1)
    hub.begin(waiter)
    hub.lost(waiter)
    assert not waiter.has_turn


def test_a_turn_of_who_leaves_is_the_next_ones() -> None:
    hub = a_still_hub()
    first, second = join(hub, 2)
    hub.told(POOL)
    hub.leave(first)
    assert turns([first, second]) == [False, True]


def test_who_left_while_it_asked_does_not_come_back() -> None:
    hub = a_still_hub()
    first, second = join(hub, 2)
    hub.told(POOL)
    hub.begin(first)
    hub.leave(first)
    hub.lost(first)
    hub.told(POOL)
    assert turns([first, second]) == [False, True]


def test_what_one_may_not_have_is_offered_to_who_stands_behind() -> None:
    hub = a_still_hub()
    first, second, third = join(hub, 3)
    hub.told(POOL)
    hub.begin(first)
    hub.lost(first, for_others=True)
    assert turns([first, second, third]) == [False, True, False]
    hub.begin(second)
    hub.lost(second)
    assert turns([first, second, third]) == [False, False, False]


def test_a_question_that_was_not_answered_is_asked_by_the_next_or_found_by_the_beat() -> None:
    hub = a_still_hub()
    first, second = join(hub, 2)
    hub.told(POOL)
    hub.begin(first)
    hub.leave(first)
    hub.unasked(first, pass_on=True)
    assert turns([first, second]) == [False, True]
    hub.begin(second)
    hub.unasked(second, pass_on=False)
    assert turns([second]) == [False]


def look(hub: Hub) -> None:
    run(hub.look)


def test_the_beat_gives_as_many_turns_as_there_are_jobs() -> None:
    counts = Counts({POOL: 2})
    hub = a_still_hub(counts)
    waiters = join(hub, 3)
    look(hub)
    assert turns(waiters) == [True, True, False]
    look(hub)
    assert turns(waiters) == [True, True, False], "those with a turn are about to take them"


def test_after_nothing_was_found_the_beat_sends_one_and_calls_the_others_if_it_succeeds() -> None:
    counts = Counts({POOL: 50})
    hub = a_still_hub(counts)
    waiters = join(hub, 60)
    hub.told(POOL)
    hub.begin(waiters[0])
    hub.lost(waiters[0])
    look(hub)
    assert sum(turns(waiters)) == 1
    hub.begin(waiters[0])
    hub.won(waiters[0])
    assert sum(turns(waiters)) == 49


def test_where_more_is_than_was_counted_each_success_calls_the_next() -> None:
    hub = a_still_hub(Counts({POOL: COUNTED_MAX}))
    look(hub)
    for _ in range(3 * COUNTED_MAX):
        (waiter,) = join(hub, 1)
        assert waiter.has_turn
        hub.begin(waiter)
        hub.won(waiter)
        hub.leave(waiter)


def test_where_more_is_than_was_counted_a_group_that_succeeds_calls_as_many() -> None:
    hub = a_still_hub(Counts({POOL: COUNTED_MAX}))
    look(hub)
    for _ in range(20):
        group = join(hub, 32)
        assert all(turns(group))
        for waiter in group:
            hub.begin(waiter)
        for waiter in group:
            hub.won(waiter)
            hub.leave(waiter)


def test_a_job_counted_while_the_winner_of_another_was_answered_waits_for_no_further_beat() -> None:
    """The beat cannot know whether the one who asks has its job already: what it counted may be all for others."""
    hub = a_still_hub(Counts({POOL: 1}))
    first, second = join(hub, 2)
    hub.told(POOL)
    hub.begin(first)
    look(hub)
    assert turns([first, second]) == [False, False], "the job may be the one that is asked for"
    hub.won(first)
    assert turns([second]) == [True]


def test_a_job_counted_after_a_question_found_nothing_waits_for_no_further_beat() -> None:
    hub = a_still_hub(Counts({POOL: 1}))
    first, second = join(hub, 2)
    hub.told(POOL)
    hub.begin(first)
    look(hub)
    hub.lost(first)
    assert turns([first, second]) == [True, False]
    hub.begin(first)
    hub.lost(first)
    assert turns([first, second]) == [False, False], "nobody can have what was counted"


def test_an_empty_pool_has_no_turns_after_a_beat() -> None:
    hub = a_still_hub()
    hub.told(POOL)
    look(hub)
    assert turns(join(hub, 1)) == [False]


def test_a_wake_up_while_the_beat_asks_is_kept() -> None:
    async def main() -> None:
        counts = Counts(takes_s=0.5)
        hub = a_hub(counts, SimClock(asyncio.get_running_loop()))
        hub.told("mac")
        async with asyncio.TaskGroup() as group:
            group.create_task(hub.look())
            await asyncio.sleep(0.1)
            hub.told(POOL)
        assert turns(join(hub, 1)) == [True]

    run(main)


def test_a_reconnection_looks_at_all_pools_at_once() -> None:
    async def main() -> None:
        counts, telegraph = Counts(), Telegraph()
        hub = a_hub(counts, SimClock(asyncio.get_running_loop()), telegraph)
        waiters = join(hub, 1)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(hub.run())
            await asyncio.sleep(0.01)
            counts.counts = {POOL: 1}
            telegraph.sent.put_nowait(None)
            await asyncio.sleep(0.01)
            assert turns(waiters) == [True]
            running.cancel()

    run(main)


def test_a_database_that_fails_is_asked_again_at_the_next_beat() -> None:
    async def main() -> None:
        counts = Counts({POOL: 1}, fails=True)
        hub = a_hub(counts, SimClock(asyncio.get_running_loop()))
        waiters = join(hub, 1)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(hub.run())
            await asyncio.sleep(10)
            assert 8 <= counts.asked <= 12
            counts.fails = False
            await asyncio.sleep(1.2)
            assert turns(waiters) == [True]
            running.cancel()

    run(main)


def test_a_bell_rung_before_anybody_waits_is_heard() -> None:
    async def main() -> float:
        bell = Bell()
        bell.ring()
        await bell.wait(100.0)
        await bell.wait(5.0)
        return asyncio.get_running_loop().time()

    assert run(main) == 5.0


# --- Every interleaving -----------------------------------------------------------------------------------------------


class Interleavings(RuleBasedStateMachine):
    """A queue, its late or lost wake-ups, polls that come and go, questions under way, and another replica."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()
        self.hub = a_still_hub(self.counts)
        self.jobs = 0
        self.letters = 0
        """Wake-ups on their way."""
        self.lost_letters = False
        self.waiters: list[Waiter] = []
        self.asking: list[Waiter] = []
        """Asked; the database has not looked yet."""
        self.answers: list[tuple[Waiter, bool]] = []
        """The database has looked; the answer is on its way."""

    @rule()
    def a_poll_comes(self) -> None:
        self.waiters.append(self.hub.join(POOL, Bell()))

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def a_poll_goes(self, data: st.DataObject) -> None:
        self.hub.leave(self.waiters.pop(data.draw(st.integers(0, len(self.waiters) - 1))))

    @rule(told=st.booleans())
    def a_job_comes(self, told: bool) -> None:  # noqa: FBT001 - a choice
        self.jobs += 1
        self.letters += told
        self.lost_letters = self.lost_letters or not told

    @precondition(lambda self: self.letters)
    @rule()
    def a_wake_up_arrives(self) -> None:
        self.letters -= 1
        self.hub.told(POOL)

    @precondition(lambda self: self.jobs)
    @rule()
    def another_replica_takes_a_job(self) -> None:
        self.jobs -= 1

    @precondition(lambda self: any(w.has_turn for w in self.waiters))
    @rule(data=st.data())
    def one_with_a_turn_asks(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from([w for w in self.waiters if w.has_turn]))
        self.hub.begin(waiter)
        self.asking.append(waiter)

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def the_database_looks(self, data: st.DataObject) -> None:
        self._look(self.asking.pop(data.draw(st.integers(0, len(self.asking) - 1))))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        self._arrive(*self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1))))

    @rule()
    def the_beat_comes(self) -> None:
        self.counts.counts = {POOL: min(self.jobs, COUNTED_MAX)} if self.jobs else {}
        look(self.hub)
        self.lost_letters = False

    @invariant()
    def no_wake_up_is_lost(self) -> None:
        """Somebody has a turn or a question under way if there is a job, nobody was mis-told, and somebody waits."""
        quiet = not (self.asking or self.answers or self.letters or self.lost_letters)
        if quiet and self.jobs and self.waiters:
            assert any(waiter.has_turn for waiter in self.waiters)

    def teardown(self) -> None:
        """Once everything has arrived, a few beats serve every job or every poll."""
        for _ in range(200):
            self._everything_arrives()
            if not (self.jobs and self.waiters):
                return
            self.the_beat_comes()
        raise AssertionError((self.jobs, len(self.waiters)))

    def _everything_arrives(self) -> None:
        while self.letters:
            self.a_wake_up_arrives()
        for waiter in [w for w in self.waiters if w.has_turn]:
            self.hub.begin(waiter)
            self.asking.append(waiter)
        while self.asking:
            self._look(self.asking.pop())
        while self.answers:
            self._arrive(*self.answers.pop())

    def _look(self, waiter: Waiter) -> None:
        self.answers.append((waiter, self.jobs > 0))
        self.jobs -= self.jobs > 0

    def _arrive(self, waiter: Waiter, won: bool) -> None:  # noqa: FBT001 - what the answer says
        if not won:
            self.hub.lost(waiter)
            return
        self.hub.won(waiter)
        self.hub.leave(waiter)
        if waiter in self.waiters:
            self.waiters.remove(waiter)


Interleavings.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestInterleavings = Interleavings.TestCase
