"""A template on trial, end to end: what the status remembers, what runners are made from, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

from remuda.kube.names import TEMPLATE
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pod import template_hash
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.pools.guards import Guards
from tests.unit.pools.ranch import SETTINGS, SPACE, Ranch, scenario

GOOD = "registry.test/runner:good"
BAD = "registry.test/runner:bad"
TWENTY_PER_CENT = {"maxConcurrentPercent": 20, "progressDeadlineSeconds": 60}


async def a_pool_of_ten(ranch: Ranch) -> None:
    ranch.host("mini-1", (BAD,), vms=8)
    ranch.host("mini-2", (BAD,), vms=8)
    await ranch.add_pool(replicas=10, image=GOOD, rollout=TWENTY_PER_CENT)
    ranch.operator()
    await ranch.warm(10)
    await ranch.later(5)


async def images(ranch: Ranch) -> list[str]:
    """Return the images of those that live, after all who ended were replaced."""
    pods = [p for p in await ranch.pods() if p.metadata.deletion_timestamp is None]
    return sorted(p.spec.containers[0].image for p in pods)


async def finish_jobs(ranch: Ranch, number: int) -> None:
    good = [p for p in await ranch.pods() if p.spec.containers[0].image == GOOD]
    for pod in good[:number]:
        await ranch.end(pod.name)


async def spoil(ranch: Ranch, **fields: str) -> None:
    """Change what the status remembers."""
    patch = MergePatch({"status": {"provenTemplate": {**fields}}})
    await ranch.kube.patch(RUNNER_POOL, "mac", patch, namespace=SPACE, subresource="status")


@scenario()
async def test_a_template_is_remembered_once_a_runner_of_it_is_warm(ranch: Ranch) -> None:
    await ranch.add_pool(replicas=2)
    ranch.operator()
    await ranch.later(60)
    assert (await ranch.pool()).status.proven_template is None, "nothing started yet"

    ranch.host()
    await ranch.warm(2)
    await ranch.later(5)

    pool = await ranch.pool()
    assert pool.status.proven_template is not None
    assert pool.status.proven_template.hash == template_hash(pool, SETTINGS.pod)
    assert pool.status.proven_template.image == pool.spec.image


@scenario()
async def test_beyond_the_cap_runners_are_made_from_what_worked(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    good = (await ranch.pool()).status.template_hash
    await ranch.edit("mac", image=BAD)
    for _ in range(6):
        await ranch.later(20)
        await finish_jobs(ranch, 4)
    await ranch.later(20)

    pool = await ranch.pool()
    assert await images(ranch) == [BAD] * 2 + [GOOD] * 8
    made = {p.spec.containers[0].image: p.labels[TEMPLATE] for p in await ranch.pods()}
    assert made == {GOOD: good, BAD: pool.status.template_hash}
    assert [e.count for e in await ranch.events() if e.reason == "FellBack"] == [1]
    degraded = next(c for c in pool.status.conditions if c.type == "Degraded")
    assert degraded.reason == "RollStuck"
    assert f"replaced from template {good}, the last that worked" in degraded.message
    assert pool.status.proven_template is not None
    assert pool.status.proven_template.hash == good


@scenario()
async def test_a_new_leader_falls_back_as_well(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    await ranch.edit("mac", image=BAD)
    await ranch.later(30)
    ranch.tasks[-1].cancel()
    ranch.operator("op-2")
    await ranch.later(30)
    await finish_jobs(ranch, 5)
    await ranch.later(30)

    assert await images(ranch) == [BAD] * 2 + [GOOD] * 8


@scenario()
async def test_a_mended_template_is_remembered_when_its_roll_is_through(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    good = (await ranch.pool()).status.template_hash
    await ranch.edit("mac", image=BAD)
    await ranch.later(30)
    await finish_jobs(ranch, 5)
    await ranch.later(30)
    await ranch.edit("mac", image="registry.test/runner:2")

    async def is_begun() -> bool:
        return (await images(ranch)).count("registry.test/runner:2") >= 4

    async def is_through() -> bool:
        return set(await images(ranch)) == {"registry.test/runner:2"}

    await ranch.until(is_begun, within_s=300)
    begun = (await ranch.pool()).status.proven_template
    await ranch.until(is_through, within_s=300)
    await ranch.warm(10)
    await ranch.later(5)

    pool = await ranch.pool()
    assert begun is not None
    assert begun.hash == good, "until then the old one is what a stuck roll needs"
    assert pool.status.proven_template is not None
    assert pool.status.proven_template.hash == pool.status.template_hash


@scenario()
async def test_another_fleet_is_not_filled_with_what_worked_in_the_old(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    ranch.host("pony-1", (BAD,), fleet="paddock")
    await ranch.edit("mac", fleet="paddock", image=BAD)
    await ranch.later(30)
    await finish_jobs(ranch, 5)
    await ranch.later(30)

    assert (await images(ranch)).count(GOOD) == 3
    assert "FellBack" not in await ranch.reasons()


@scenario()
async def test_what_cannot_be_read_any_more_is_not_fallen_back_on(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    await ranch.edit("mac", image=BAD)
    await ranch.later(30)
    ranch.tasks[-1].cancel()
    await spoil(ranch, spec='{"image": "nonsense"}')
    ranch.operator("op-2")
    await ranch.later(30)
    await finish_jobs(ranch, 5)
    await ranch.later(30)

    assert (await images(ranch)).count(GOOD) == 3, "all replacements are of the pool's template"


@scenario()
async def test_what_was_remembered_of_the_same_spec_under_another_hash_is_written_anew(
    ranch: Ranch,
) -> None:
    """Another version of the operator made other Pods from it: what those proved, ours have to prove again."""
    await a_pool_of_ten(ranch)
    await spoil(ranch, hash="another")
    await ranch.later(30)

    pool = await ranch.pool()
    assert pool.status.proven_template is not None
    assert pool.status.proven_template.hash == pool.status.template_hash


@scenario()
async def test_a_spec_that_is_refused_is_not_remembered_for_the_runners_before_it(
    ranch: Ranch,
) -> None:
    await ranch.add_pool(replicas=2, image=GOOD)
    ranch.host(boot_s=60.0)
    ranch.operator()
    await ranch.later(10)
    await ranch.edit("mac", image=BAD, template={"spec": {"hostNetwork": True}})
    await ranch.warm(2)
    await ranch.later(10)

    pool = await ranch.pool()
    assert ranch.condition(pool, "Degraded") == ("True", "TemplateRefused")
    assert pool.status.proven_template is None


@scenario()
async def test_what_worked_costs_no_write_at_rest(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    await ranch.edit("mac", forks="allow")
    await ranch.later(30)
    ranch.tap.writes.clear()
    await ranch.later(1800)

    assert ranch.tap.writes == []


REFUSED = {"spec": {"hostNetwork": True}}


async def a_spec_is_refused_while_jobs_end(ranch: Ranch) -> None:
    await ranch.edit("mac", image=BAD, template=REFUSED)
    await ranch.later(20)
    for _ in range(3):
        for pod in (await ranch.pods())[:4]:
            await ranch.end(pod.name)
        await ranch.later(20)


@scenario()
async def test_a_spec_that_is_refused_does_not_empty_a_busy_pool(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    await a_spec_is_refused_while_jobs_end(ranch)

    pool = await ranch.pool()
    assert await images(ranch) == [GOOD] * 10
    degraded = next(c for c in pool.status.conditions if c.type == "Degraded")
    assert degraded.reason == "TemplateRefused"
    made_from = f"made from template {pool.status.template_hash}, the last that worked"
    assert made_from in degraded.message
    await ranch.edit("mac", image=GOOD, template=None)
    await ranch.warm(10)
    await ranch.later(5)
    assert ranch.condition(await ranch.pool(), "Degraded") == ("False", "AsExpected")


@scenario()
async def test_a_spec_that_is_refused_half_way_through_a_roll_does_not_empty_it(
    ranch: Ranch,
) -> None:
    await a_pool_of_ten(ranch)
    await ranch.edit("mac", image="registry.test/runner:2")

    async def is_half_through() -> bool:
        return (await images(ranch)).count("registry.test/runner:2") >= 4

    await ranch.until(is_half_through, within_s=300)
    await a_spec_is_refused_while_jobs_end(ranch)

    assert len(await images(ranch)) == 10
    assert set(await images(ranch)) <= {GOOD, "registry.test/runner:2"}


@scenario(replace(SETTINGS, guards=Guards.without("fallback")))
async def test_without_the_fallback_a_spec_that_is_refused_empties_it(ranch: Ranch) -> None:
    await a_pool_of_ten(ranch)
    await a_spec_is_refused_while_jobs_end(ranch)

    assert await images(ranch) == []
