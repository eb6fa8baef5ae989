"""Rolls on the real API server, with a leader and a standby: at no version that it had were too many unavailable."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.kube.core import POD
from remuda.kube.names import MARKED_AT
from remuda.kube.patches import MergePatch
from remuda.kube.times import whole_seconds
from tests.support.history import MARK, hashes_of, is_alive, replay, unavailable
from tests.support.operated import check_always, operated
from tests.support.pool_checks import over_cap, overreached, retired

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.control_plane import RealControlPlane
    from tests.support.fleet import Fleet

OLD, NEW = "registry.test/runner:1", "registry.test/runner:2"
POOL = "mac"


async def test_a_roll_of_twenty_runners_at_ten_percent_takes_two_at_a_time(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with operated(real_control_plane, tmp_path) as stage:
        fleet = stage.fleet
        await twenty(fleet)
        changed = await fleet.change_pool(POOL, image=NEW)
        await fleet.until(lambda: fleet.is_rolled(POOL))
        since = int(changed.resource_version)

        assert await over_the_cap(fleet, since) == []
        assert await most_unavailable(fleet, since) == 2, "the roll used what it may take"
        assert len(stage.dispatch.stopped) == 20, "dispatch heard of every end"
        await check_always(fleet)


async def test_a_roll_that_is_taken_back_half_way_keeps_to_its_cap_both_ways(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with operated(real_control_plane, tmp_path) as stage:
        fleet = stage.fleet
        await twenty(fleet)
        kept = {pod.uid for pod in fleet.runners(POOL)}
        changed = await fleet.change_pool(POOL, image=NEW)
        await fleet.until(lambda: len(fleet.stale(POOL)) <= 10)
        fleet.desk.sends_home = False
        await fleet.until(lambda: len(marked(fleet)) == 2)
        in_doubt = marked(fleet)
        await fleet.change_pool(POOL, image=OLD)
        await make_marks_older(fleet)
        fleet.desk.sends_home = True
        await fleet.until(lambda: fleet.is_rolled(POOL))

        assert await over_the_cap(fleet, int(changed.resource_version)) == []
        stayed = kept & {pod.uid for pod in fleet.runners(POOL)}
        assert len(stayed) >= 8, "those that are current again stay"
        assert in_doubt <= stayed, "and so do those that were marked"
        assert marked(fleet) == set(), "a mark for what nobody wants any more is taken away"
        await check_always(fleet)


async def test_a_pool_that_is_scaled_during_its_roll_loses_stale_runners_first(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with operated(real_control_plane, tmp_path) as stage:
        fleet = stage.fleet
        await twenty(fleet)
        jobs = await fleet.busy(POOL, 2)
        await fleet.change_pool(POOL, image=NEW)
        await fleet.until(lambda: len(fleet.stale(POOL)) <= 17)
        await fleet.change_pool(POOL, replicas=26)
        await fleet.until(lambda: len(fleet.runners(POOL, warm=True)) >= 22)
        shrunk = await fleet.change_pool(POOL, replicas=18)
        await fleet.until(lambda: len(fleet.runners(POOL)) <= 18)
        for job in jobs:
            await fleet.desk.finish(job)
        await fleet.until(lambda: fleet.is_rolled(POOL))
        steps = await fleet.recorder.caught_up()
        gone = retired(steps, POOL, since=int(shrunk.resource_version))

        assert len(gone) >= 6, "the pool was shrunk by force, not by the roll alone"
        assert [pod.name for pod, stale in gone if not stale] == []
        assert overreached(steps) == []
        await check_always(fleet)


def marked(fleet: Fleet) -> set[str]:
    """Return the live runners that carry a mark, by their UIDs."""
    return {pod.uid for pod in fleet.runners(POOL) if MARK in pod.labels and is_alive(pod)}


async def make_marks_older(fleet: Fleet) -> None:
    """
    Let the marks be a minute old.

    A void mark stays until its runner would have left if it had been told to (45 s), and nobody was told here.
    """
    at = whole_seconds(fleet.clock.now() - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    older = MergePatch({"metadata": {"annotations": {MARKED_AT: at}}})
    for pod in fleet.runners(POOL):
        if MARK in pod.labels:
            await fleet.kube.patch(POD, pod.name, older, namespace=fleet.namespace)


async def twenty(fleet: Fleet) -> None:
    await fleet.create_pool(POOL, 20, image=OLD)
    await fleet.until(lambda: fleet.is_rolled(POOL))


async def over_the_cap(fleet: Fleet, since: int) -> list[str]:
    steps = await fleet.recorder.caught_up()
    return over_cap(steps, POOL, since=since, until=steps[-1].version)


async def most_unavailable(fleet: Fleet, since: int) -> int:
    steps = await fleet.recorder.caught_up()
    hashes = hashes_of(steps)
    return max(
        unavailable(instant.pools[POOL], instant.runners(POOL), hashes).total
        for instant in replay(steps)
        if instant.step is not None and instant.step.version >= since
    )
