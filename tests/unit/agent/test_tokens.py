"""Tokens of Pods: one request at a time, replaced in time, and never shown."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from remuda.agent.tokens import LASTS_S, REFUSALS, PodTokens
from remuda.kube.names import AUDIENCE
from remuda.ports.kube import BoundPod, KubeError, Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from tests.unit.agent.desks import RUNNER, SECRET, TokenKube, another, on_virtual_time
from tests.unit.control.fake_kube import broken


def tokens_of(skew_s: float = 0.0) -> tuple[PodTokens, TokenKube, SimClock]:
    loop = asyncio.get_running_loop()
    kube = TokenKube(SimClock(loop))
    clock = SimClock(loop, skew_s=skew_s)
    return PodTokens(kube, clock=clock, ids=SeededIds(1, "tokens")), kube, clock


@on_virtual_time
async def test_a_token_is_bound_to_its_pod_and_kept_for_all_who_ask() -> None:
    tokens, kube, _ = tokens_of()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(tokens.get(RUNNER)) for _ in range(20)]
    assert {task.result() for task in asked} == {f"{SECRET}-1"}
    assert kube.asked == [
        (RUNNER.service_account, RUNNER.namespace, AUDIENCE, BoundPod(RUNNER.pod, RUNNER.pod_uid))
    ]
    assert SECRET not in repr(vars(tokens))


@on_virtual_time
async def test_it_is_replaced_well_before_its_end_and_not_all_the_time() -> None:
    tokens, kube, clock = tokens_of()
    for _ in range(10 * 60):
        await tokens.get(RUNNER)
        await clock.sleep(60)
    apart = [b - a for a, b in pairwise(kube.asked_at)]
    assert len(apart) >= 10
    assert all(LASTS_S / 2 < each < LASTS_S * 0.8 for each in apart)


@on_virtual_time
async def test_a_token_that_the_server_made_shorter_is_replaced_sooner() -> None:
    tokens, kube, clock = tokens_of()
    kube.lasts_s = 600
    await tokens.get(RUNNER)
    await clock.sleep(500)
    assert await tokens.get(RUNNER) == f"{SECRET}-2"


@pytest.mark.parametrize("skew_s", [-86_400.0, 86_400.0])
def test_a_clock_that_is_wrong_neither_storms_the_server_nor_keeps_a_dead_token(
    skew_s: float,
) -> None:
    @on_virtual_time
    async def story() -> None:
        tokens, kube, clock = tokens_of(skew_s)
        for _ in range(3600):
            await tokens.get(RUNNER)
            await clock.sleep(1)
        assert 1 <= len(kube.asked) <= 3600 / 30

    story()


@on_virtual_time
async def test_the_one_at_hand_serves_while_the_server_cannot_be_reached() -> None:
    tokens, kube, clock = tokens_of()
    first = await tokens.get(RUNNER)
    kube.wrong = broken(Unavailable)
    await clock.sleep(LASTS_S * 0.9)
    assert await tokens.get(RUNNER) == first
    await clock.sleep(LASTS_S * 0.11)
    with pytest.raises(Unavailable):
        await tokens.get(RUNNER)
    kube.wrong = None
    assert await tokens.get(RUNNER) == f"{SECRET}-2"


@on_virtual_time
async def test_one_that_was_refused_is_given_out_no_more() -> None:
    tokens, _, _ = tokens_of()
    first = await tokens.get(RUNNER)
    tokens.refused(RUNNER, first)
    second = await tokens.get(RUNNER)
    assert second != first
    tokens.refused(RUNNER, first)  # a late word about the old one
    assert await tokens.get(RUNNER) == second
    tokens.forget(RUNNER.pod_uid)
    tokens.forget(RUNNER.pod_uid)
    assert await tokens.get(RUNNER) != second


@on_virtual_time
async def test_a_pods_request_that_hangs_holds_up_no_other() -> None:
    tokens, kube, clock = tokens_of()
    kube.hangs.add("stuck")
    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(tokens.get(another("stuck")))
        await clock.sleep(1)
        began = clock.monotonic()
        await tokens.get(RUNNER)
        assert clock.monotonic() - began == pytest.approx(kube.takes_s)
        stuck.cancel()


@pytest.mark.parametrize("sort", [*REFUSALS, Unavailable])
def test_what_the_server_says_is_raised_as_it_is(sort: type[KubeError]) -> None:
    @on_virtual_time
    async def story() -> None:
        tokens, kube, _ = tokens_of()
        kube.wrong = broken(sort)
        with pytest.raises(sort):
            await tokens.get(RUNNER)
        kube.wrong = None
        assert await tokens.get(RUNNER)

    story()
