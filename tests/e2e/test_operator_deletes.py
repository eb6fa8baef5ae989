"""Pools that are renamed or deleted on the real API server, whose garbage collector runs: no job is cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.kube.meta import ObjectMeta, OwnerReference
from remuda.ports.kube import Change, NotFound
from tests.support.eventually import eventually
from tests.support.history import is_busy
from tests.support.manifests import CONFIG_MAP, ConfigMap
from tests.support.operated import check_always, operated

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.kube.runner_pool import RunnerPool
    from tests.support.control_plane import RealControlPlane
    from tests.support.fleet import Fleet

HOLDS = "remuda.dev/pool-drain"


async def test_a_pool_that_is_renamed_keeps_its_three_busy_runners_to_their_end(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with operated(real_control_plane, tmp_path) as stage:
        fleet = stage.fleet
        await fleet.create_pool("old", 6)
        await fleet.warm("old", 6)
        jobs = await fleet.busy("old", 3)
        await stage.kubectl("delete", "rpool", "old", "--wait=false")
        await fleet.create_pool("new", 6)
        await fleet.until(lambda: only_busy_left(fleet, "old", 3))
        await fleet.until(lambda: "old-" in draining(fleet, "old"))
        await fleet.warm("new", 6)
        for left, job in zip((2, 1, 0), jobs, strict=True):
            assert is_held(fleet, "old")
            await fleet.desk.finish(job)
            await fleet.until(lambda n=left: len(fleet.runners("old")) == n)  # type: ignore[misc]
        await fleet.until(lambda: "old" not in fleet.now.pools)

        await check_always(fleet)
        steps = await fleet.recorder.caught_up()
        gone = [s for s in steps if s.change is Change.DELETED and s.object.name.startswith("old")]
        assert gone[-1].object.name == "old", "the pool goes last"


@pytest.mark.parametrize("cascade", ["foreground", "background", "orphan"])
async def test_no_way_of_deleting_a_pool_ends_a_job(
    real_control_plane: RealControlPlane, tmp_path: Path, cascade: str
) -> None:
    async with operated(real_control_plane, tmp_path) as stage:
        fleet = stage.fleet
        pool = await fleet.create_pool("mac", 4)
        await fleet.warm("mac", 4)
        jobs = await fleet.busy("mac", 2)
        await add_canary(fleet, pool)
        await stage.kubectl("delete", "rpool", "mac", f"--cascade={cascade}", "--wait=false")
        await fleet.until(lambda: only_busy_left(fleet, "mac", 2))
        if cascade == "foreground":
            await eventually(lambda: is_canary_gone(fleet))  # the collector has done what it does
        busy = {fleet.holder(job) for job in jobs}
        assert {pod.name for pod in fleet.runners("mac") if is_busy(pod)} == busy
        assert is_held(fleet, "mac")
        for job in jobs:
            await fleet.desk.finish(job)
        await fleet.until(lambda: "mac" not in fleet.now.pools)

        await eventually(lambda: is_canary_gone(fleet), lambda gone: gone is (cascade != "orphan"))
        await check_always(fleet)


async def test_a_runner_has_no_owner_that_the_collector_could_follow(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with operated(real_control_plane, tmp_path) as stage:
        await stage.fleet.create_pool("mac", 2)
        await stage.fleet.warm("mac", 2)

        assert [o for p in stage.fleet.runners("mac") for o in p.metadata.owner_references] == []
        owners = [a.metadata.owner_references for a in stage.fleet.now.accounts.values()]
        assert owners == [(), ()]


def only_busy_left(fleet: Fleet, pool: str, count: int) -> bool:
    left = fleet.runners(pool)
    return len(left) == count and all(map(is_busy, left))


def is_held(fleet: Fleet, pool: str) -> bool:
    found = fleet.now.pools.get(pool)
    return found is not None and HOLDS in found.metadata.finalizers


def draining(fleet: Fleet, pool: str) -> str:
    """Return what the pool says about whom it waits for."""
    assert is_held(fleet, pool), "the pool went before its runners"
    conditions = fleet.now.pools[pool].status.conditions
    found = (c for c in conditions if c.type == "Draining" and c.status == "True")
    return "".join(c.message for c in found)


async def add_canary(fleet: Fleet, pool: RunnerPool) -> None:
    """Add what the collector takes as it would take a runner with an owner."""
    owner = OwnerReference(
        api_version="remuda.dev/v1alpha1",
        kind="RunnerPool",
        name=pool.name,
        uid=pool.uid,
        controller=True,
        block_owner_deletion=True,
    )
    meta = ObjectMeta(name="canary", namespace=fleet.namespace, owner_references=(owner,))
    await fleet.kube.create(CONFIG_MAP, ConfigMap(metadata=meta))


async def is_canary_gone(fleet: Fleet) -> bool:
    try:
        await fleet.kube.get(CONFIG_MAP, "canary", namespace=fleet.namespace)
    except NotFound:
        return True
    return False
