"""Hosts on which nothing starts are told apart from the others, avoided, and tried again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.kube.core import NODE
from remuda.kube.names import STARTS_FAILING, image_label
from remuda.kube.node_view import starts_failing
from remuda.kube.patches import MergePatch
from tests.unit.pools.ranch import SETTINGS, Ranch, scenario

if TYPE_CHECKING:
    from remuda.kube.meta import Condition
    from remuda.kube.patches import JsonValue


async def condition_of(ranch: Ranch, node: str) -> Condition | None:
    return starts_failing(await ranch.kube.get(NODE, node))


async def a_poisoned_barn(ranch: Ranch) -> None:
    """Have one host on which starts hang. It is the emptiest and holds the image: it attracts every runner."""
    ranch.host("mini-bad", boot_s=100_000.0, vms=20)
    await ranch.later(1)
    image: dict[str, JsonValue] = {image_label("registry.test/runner:1"): "ready"}
    await ranch.kube.patch(NODE, "mini-bad", MergePatch({"metadata": {"labels": image}}))
    ranch.host("mini-good", vms=20)
    ranch.host("mini-fine", vms=20)
    starting = {"startTimeoutSeconds": 30, "maxConcurrent": 9}
    await ranch.add_pool(replicas=9, provisioning=starting)
    ranch.operator()


@scenario()
async def test_a_host_on_which_starts_fail_is_avoided_and_says_so(ranch: Ranch) -> None:
    await a_poisoned_barn(ranch)
    await ranch.warm(9, within_s=300)
    await ranch.later(15)

    assert {runner.node for runner in await ranch.runners()} == {"mini-good", "mini-fine"}
    failing = await condition_of(ranch, "mini-bad")
    assert failing is not None
    assert failing.status == "True"
    assert await condition_of(ranch, "mini-good") is None
    assert "HostAvoided" in await ranch.reasons()
    assert ranch.metric("remuda_fleet_avoided_hosts", fleet="barn") == 1


@scenario(replace(SETTINGS, guards=replace(SETTINGS.guards, avoidance=False)))
async def test_without_avoidance_the_bad_host_goes_on_taking_runners(ranch: Ranch) -> None:
    await a_poisoned_barn(ranch)
    await ranch.later(300)

    assert "mini-bad" in {runner.node for runner in await ranch.runners()}


@scenario()
async def test_a_new_leader_goes_on_avoiding(ranch: Ranch) -> None:
    await a_poisoned_barn(ranch)
    await ranch.warm(9, within_s=300)
    await ranch.later(15)
    ranch.tasks[-1].cancel()
    ranch.operator("op-2")
    await ranch.edit("mac", replicas=14)
    await ranch.later(60)

    assert "mini-bad" not in {runner.node for runner in await ranch.runners()}
    assert len(await ranch.runners()) == 14


@scenario()
async def test_a_condition_that_is_wiped_off_is_written_again(ranch: Ranch) -> None:
    await a_poisoned_barn(ranch)
    await ranch.warm(9, within_s=300)
    await ranch.later(15)
    ranch.tasks[-1].cancel()
    ranch.operator("op-2")  # it knows of no failed start but by the condition
    await ranch.later(30)
    node = await ranch.kube.get(NODE, "mini-bad")
    kept: list[JsonValue] = [
        {"type": c.type, "status": c.status}
        for c in node.status.conditions
        if c.type != STARTS_FAILING
    ]
    patch = MergePatch({"status": {"conditions": kept}})
    await ranch.kube.patch(NODE, "mini-bad", patch, subresource="status")
    assert await condition_of(ranch, "mini-bad") is None
    await ranch.later(30)

    again = await condition_of(ranch, "mini-bad")
    assert again is not None
    assert again.status == "True"
