from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.control.cache import Key
from remuda.control.election import (
    Create,
    ElectionSettings,
    LeaderElector,
    Observed,
    Step,
    Take,
    Wait,
    decide,
)
from remuda.kube.core import LEASE, LeaseSpec
from remuda.kube.patches import MergePatch
from remuda.model.errors import BadInput
from remuda.ports.kube import NotFound, TimedOut, Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.control.fake_kube import FakeKube, broken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ME = ElectionSettings(namespace="ci", name="leader", identity="me")
LEASE_KEY = Key("ci", "leader")


def seen(holder: str | None, *, since: float = 100.0, duration_s: int = 15) -> Observed:
    return Observed(LeaseSpec(holder_identity=holder, lease_duration_seconds=duration_s), since)


@pytest.mark.parametrize(
    ("observed", "now", "step"),
    [
        pytest.param(None, 0.0, Create(), id="no lease is created"),
        pytest.param(seen(None), 100.0, Take("nobody holds it"), id="a released lease is taken"),
        pytest.param(seen(""), 100.0, Take("nobody holds it"), id="an empty holder is nobody"),
        pytest.param(
            seen("me"), 100.0, Take("it is ours already"), id="our own lease is taken again"
        ),
        pytest.param(seen("you"), 100.0, Wait(2.0), id="a fresh lease is respected"),
        pytest.param(seen("you"), 114.5, Wait(0.5), id="the wait ends with the lease"),
        pytest.param(
            seen("you"),
            115.0,
            Take("you has not renewed it for 15 s"),
            id="a lease that is over is taken",
        ),
        pytest.param(
            seen("you", duration_s=60),
            130.0,
            Wait(2.0),
            id="how long it lasts is what the lease says, not what we are set to",
        ),
    ],
)
def test_decide(observed: Observed | None, now: float, step: Step) -> None:
    assert decide(ME, observed, now) == step


@pytest.mark.parametrize(
    ("retry_s", "renew_deadline_s", "lease_duration_s"),
    [
        pytest.param(2, 15, 15, id="no time to stop"),
        pytest.param(2, 14.5, 15, id="too little time to stop"),
        pytest.param(10, 10, 15, id="one try only"),
        pytest.param(2, 20, 15, id="a reign beyond the lease"),
        pytest.param(0, 10, 15, id="no pause between renewals"),
        pytest.param(-1, 10, 15, id="a pause that is none"),
        pytest.param(2, float("nan"), 15, id="no number"),
    ],
)
def test_times_that_would_let_two_lead_are_refused(
    retry_s: float, renew_deadline_s: float, lease_duration_s: int
) -> None:
    with pytest.raises(BadInput, match="Keep 0 < retry < renew deadline, and that 1 s or more"):
        ElectionSettings(
            namespace="ci",
            name="leader",
            identity="me",
            retry_s=retry_s,
            renew_deadline_s=renew_deadline_s,
            lease_duration_s=lease_duration_s,
        )


def test_a_candidate_without_a_name_is_refused() -> None:
    with pytest.raises(BadInput, match="an empty identity is what a free Lease has"):
        ElectionSettings(namespace="ci", name="leader", identity="")


class Candidate:
    """An elector, and when its work ran."""

    def __init__(
        self, kube: FakeKube, name: str, *, skew_s: float = 0.0, drift: float = 0.0
    ) -> None:
        self.loop = asyncio.get_running_loop()
        settings = ElectionSettings(namespace="ci", name="leader", identity=name)
        clock = SimClock(self.loop, skew_s=skew_s, drift=drift)
        self.elector = LeaderElector(kube, settings, clock=clock, ids=SeededIds(1, name))
        self.began: list[float] = []
        self.ended: list[float] = []
        self.stopping_takes_s = 0.0

    async def work(self) -> None:
        self.began.append(self.loop.time())
        try:
            await self.loop.create_future()
        finally:
            await asyncio.sleep(self.stopping_takes_s)
            self.ended.append(self.loop.time())

    async def run(self) -> None:
        await self.elector.run(self.work)


@asynccontextmanager
async def campaigning(*candidates: Candidate) -> AsyncIterator[list[asyncio.Task[None]]]:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(c.run(), name=f"candidate {n}") for n, c in enumerate(candidates)
        ]
        yield tasks
        for task in tasks:
            task.cancel()


def test_one_of_many_leads_and_goes_on_leading() -> None:
    async def main() -> None:
        kube = FakeKube()
        many = [Candidate(kube, name) for name in ("a", "b", "c")]
        async with campaigning(*many):
            await asyncio.sleep(600)
            assert [c.elector.is_leader for c in many] == [True, False, False]
        assert [len(c.began) for c in many] == [1, 0, 0]

    run(main)


def test_a_leader_that_is_told_to_stop_hands_over_at_once() -> None:
    async def main() -> None:
        kube = FakeKube()
        a, b = Candidate(kube, "a"), Candidate(kube, "b")
        async with campaigning(a, b) as tasks:
            await asyncio.sleep(60)
            tasks[0].cancel()
            await asyncio.sleep(3)
            assert b.elector.is_leader
            assert a.ended[0] <= b.began[0]
            assert b.elector.transitions == a.elector.transitions + 1

    run(main)


def test_a_leader_that_cannot_renew_stops_before_another_may_lead() -> None:
    async def main() -> None:
        kube, cut_off = FakeKube(), FakeKube()
        cut_off.objects = kube.objects
        a, b = Candidate(cut_off, "a"), Candidate(kube, "b")
        a.stopping_takes_s = 4
        async with campaigning(a, b):
            await asyncio.sleep(60)
            assert a.elector.is_leader
            cut_off.faults = {
                verb: [broken(Unavailable) for _ in range(1000)] for verb in ("get", "patch")
            }
            await asyncio.sleep(60)
            assert a.ended
            assert a.ended[0] < b.began[0]
            assert not a.elector.is_leader
            assert b.elector.is_leader

    run(main)


def test_a_renewal_is_counted_from_its_start_and_not_from_its_answer() -> None:
    async def main() -> None:
        kube = FakeKube()
        a = Candidate(kube, "a")
        async with campaigning(a):
            await asyncio.sleep(30)
            kube.delay_s = 3.0  # renewals that begin now are applied, and answered 3 s later
            await asyncio.sleep(6)
            answered: list[float] = []
            for _ in range(100):
                await asyncio.sleep(0.1)
                answered.append(a.elector._leads_until - a.loop.time())  # noqa: SLF001 - what the test is about
            assert a.elector.is_leader
            assert max(answered) <= 10.0 - 3.0 + 0.1

    run(main)


def test_a_renewal_that_vanishes_leaves_time_for_another() -> None:
    async def main() -> None:
        kube = FakeKube()
        a = Candidate(kube, "a")
        async with campaigning(a):
            await asyncio.sleep(30)
            kube.delay_s = 3600  # the connection died unseen: what is sent now is never answered
            await asyncio.sleep(3)
            kube.delay_s = 0
            await asyncio.sleep(60)
        assert len(a.began) == 1

    run(main)


def test_a_renewal_whose_answer_was_lost_costs_no_leadership() -> None:
    async def main() -> None:
        kube = FakeKube()
        a = Candidate(kube, "a")
        async with campaigning(a):
            await asyncio.sleep(30)
            kube.faults["patch-answer"] = [broken(TimedOut), None, broken(TimedOut)]
            await asyncio.sleep(60)
            assert a.elector.is_leader
        assert len(a.began) == 1

    run(main)


def test_clocks_that_differ_by_minutes_make_no_difference() -> None:
    async def main() -> None:
        kube = FakeKube()
        ahead, behind = Candidate(kube, "a", skew_s=300), Candidate(kube, "b", skew_s=-300)
        async with campaigning(ahead, behind):
            await asyncio.sleep(600)
        assert [len(ahead.began), len(behind.began)] == [1, 0]

    run(main)


def test_a_wall_clock_that_stands_still_looks_like_no_dead_leader() -> None:
    async def main() -> None:
        kube = FakeKube()
        stopped, going = Candidate(kube, "a", drift=-1.0), Candidate(kube, "b")
        async with campaigning(stopped, going):
            await asyncio.sleep(600)
        assert [len(stopped.began), len(going.began)] == [1, 0]

    run(main)


def test_a_lease_that_someone_else_took_is_given_up_at_once() -> None:
    async def main() -> None:
        kube = FakeKube()
        a = Candidate(kube, "a")
        async with campaigning(a):
            await asyncio.sleep(30)
            stolen = MergePatch({"spec": {"holderIdentity": "thief"}})
            await kube.patch(LEASE, "leader", stolen, namespace="ci")
            await asyncio.sleep(2.5)
            assert a.ended
            assert not a.elector.is_leader

    run(main)


def test_a_lease_that_was_deleted_is_given_up_and_campaigned_for_again() -> None:
    async def main() -> None:
        kube = FakeKube()
        a = Candidate(kube, "a")
        async with campaigning(a):
            await asyncio.sleep(30)
            await kube.remove(LEASE_KEY)
            await asyncio.sleep(2.5)
            assert len(a.ended) == 1
            await asyncio.sleep(10)
            assert a.elector.is_leader

    run(main)


def test_what_keeps_a_candidate_from_the_election_is_said_until_it_is_over() -> None:
    async def main() -> None:
        kube = FakeKube()
        a = Candidate(kube, "a")
        kube.faults["create"] = [broken(NotFound, "The namespace")] * 3
        async with campaigning(a):
            await asyncio.sleep(3)
            assert "The namespace failed" in a.elector.trouble
            await asyncio.sleep(10)
            assert a.elector.is_leader
            assert a.elector.trouble == ""

    run(main)


def test_led_work_that_fails_ends_the_process_and_frees_the_lease() -> None:
    async def main() -> None:
        kube = FakeKube()
        a = Candidate(kube, "a")

        async def fails() -> None:
            await asyncio.sleep(5)
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as caught:
            await a.elector.run(fails)
        assert caught.group_contains(ZeroDivisionError)
        assert not kube.objects[LEASE_KEY].spec.holder_identity

    run(main)
