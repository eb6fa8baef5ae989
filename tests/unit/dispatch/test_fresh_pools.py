"""A pool that our view does not show is looked for at the server, and never so often that it would mind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.fresh_pools import ABSENT_MAX, ABSENT_S, LOOK_S, FreshPools
from remuda.kube.meta import ObjectMeta
from remuda.ports.kube import Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.loop import run
from tests.support.local_shop import a_pool
from tests.unit.control.fake_kube import FakeKube

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool

SPACE = "runners"


def a_new_pool(name: str) -> RunnerPool:
    made = a_pool(name)
    return type(made)(metadata=ObjectMeta(name=name, namespace=SPACE), spec=made.spec)


def looks(kube: FakeKube) -> int:
    return sum("get" in call for call in kube.calls)


def test_a_pool_is_found_as_it_is_now_and_its_absence_is_believed_for_a_moment() -> None:
    async def play() -> None:
        clock, kube = SimClock(asyncio.get_running_loop()), FakeKube()
        pools = FreshPools(kube, SPACE, clock=clock)
        await kube.put(a_new_pool("there"))

        found = await pools.get("there")
        assert found is not None
        assert found.name == "there"
        for _ in range(10):
            assert await pools.get("new") is None
        assert looks(kube) == 2
        await kube.put(a_new_pool("new"))
        assert await pools.get("new") is None
        await clock.sleep(ABSENT_S)
        assert await pools.get("new") is not None

    run(play)


def test_names_that_are_made_up_do_not_reach_the_server_for_ever() -> None:
    async def play() -> None:
        clock, kube = SimClock(asyncio.get_running_loop()), FakeKube()
        pools = FreshPools(kube, SPACE, clock=clock)

        answers = await asyncio.gather(
            *(pools.get(f"made-up-{n}") for n in range(500)), return_exceptions=True
        )

        assert answers[:ABSENT_MAX] == [None] * ABSENT_MAX
        assert {type(answer) for answer in answers[ABSENT_MAX:]} == {Unavailable}
        assert looks(kube) == ABSENT_MAX
        await clock.sleep(ABSENT_S)
        await pools.get("made-up-0")
        assert looks(kube) == ABSENT_MAX + 1

    run(play)


def test_a_pool_that_is_there_is_never_said_to_be_absent_whatever_names_others_make_up() -> None:
    async def play() -> None:
        clock, kube = SimClock(asyncio.get_running_loop()), FakeKube()
        pools = FreshPools(kube, SPACE, clock=clock)
        await kube.put(a_new_pool("there"))
        for number in range(ABSENT_MAX):
            assert await pools.get(f"made-up-{number}") is None

        with pytest.raises(Unavailable, match="too many"):
            await pools.get("there")
        await clock.sleep(ABSENT_S)
        assert await pools.get("there") is not None

    run(play)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../pods/x", "a?b", "Caps", "a" * 254, "a\n"])
def test_what_can_be_no_pools_name_is_not_looked_for(name: str) -> None:
    async def play() -> None:
        kube = FakeKube()
        pools = FreshPools(kube, SPACE, clock=SimClock(asyncio.get_running_loop()))
        assert await pools.get(name) is None
        assert looks(kube) == 0

    run(play)


def test_a_server_that_hangs_holds_nobody_up_for_long() -> None:
    async def play() -> None:
        clock, kube = SimClock(asyncio.get_running_loop()), FakeKube()
        kube.delay_s = 3600.0
        pools = FreshPools(kube, SPACE, clock=clock)
        began = clock.monotonic()

        answers = await asyncio.gather(
            *(pools.get(f"pool-{n}") for n in range(5)), return_exceptions=True
        )

        assert [type(answer) for answer in answers] == [Unavailable] * 5
        assert clock.monotonic() - began <= LOOK_S
        with pytest.raises(Unavailable):
            await pools.get("pool-0")  # nothing is remembered of one that was not answered for

    run(play)
