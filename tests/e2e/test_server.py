"""Control plane, operator, dispatch and hosts together: jobs go all the way, whoever is killed on the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.dispatched import Stage, dispatched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.standalone import StandaloneProcess


@pytest.fixture
async def stage(
    plane: StandaloneProcess, database_url: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with dispatched(plane.kubeconfig, database_url, tmp_path) as made:
        yield made


async def test_one_pool_one_job_one_runner(stage: Stage) -> None:
    stage.servers.start("one")
    await stage.servers.ready("one")
    api = stage.api("one")
    await stage.fleet.create_pool("mac", 1, labels=["macos"])
    await stage.fleet.warm("mac", 1)

    posted = await api.post("/api/v1/jobs", {"pool": "mac", "script": "echo all is well"})
    over = await stage.until_job(api, posted["id"])

    assert (over["state"], over["conclusion"]) == ("completed", "success")
    assert await api.text(f"/api/v1/jobs/{posted['id']}/logs") == "all is well\n"
    (hand,) = stage.desk.hands
    assert (hand.job_id, hand.pod) == (posted["id"], over["pod"])
    await stage.calm()
    assert hand.pod not in stage.fleet.now.pods, "a runner has one job in its life"
    told = [entry["what"] for entry in (await api.get("/api/v1/audit"))["entries"]]
    assert [word for word in told if word in {"enqueued", "claimed", "running"}] == [
        "enqueued",
        "claimed",
        "running",
    ]
    assert stage.servers.stop("one") == 0


async def test_a_job_that_waits_says_why_and_runs_once_somebody_is_warm(stage: Stage) -> None:
    stage.servers.start("one")
    await stage.servers.ready("one")
    api = stage.api("one")
    await stage.fleet.create_pool("mac", 0, labels=["macos"])

    posted = await api.post("/api/v1/jobs", {"labels": ["macos"], "script": "true"})
    explained = await api.get(f"/api/v1/jobs/{posted['id']}/explain")
    assert explained["why"] == "scaled_to_zero", explained
    assert (await api.get("/api/v1/pools/mac/signals"))["queued"] == 1

    await stage.fleet.change_pool("mac", replicas=1)
    assert (await stage.until_job(api, posted["id"]))["conclusion"] == "success"


async def test_two_replicas_share_a_burst_and_one_of_them_is_killed(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.servers.start(name)
    for name in ("one", "two"):
        await stage.servers.ready(name)
    await stage.fleet.create_pool("mac", 6, labels=["macos"])
    await stage.fleet.warm("mac", 6)
    stage.desk.lasts_s = 0.3
    other = stage.api("two")

    async def post() -> str:
        job = await other.post("/api/v1/jobs", {"pool": "mac", "script": "true"})
        return str(job["id"])

    ids = [await post() for _ in range(24)]
    await stage.fleet.until(lambda: len(stage.desk.begun) >= 6)
    stage.servers.kill("one")
    stage.servers.start("one")
    for job_id in ids:
        assert (await stage.until_job(other, job_id, within_s=120))["conclusion"] == "success"

    assert stage.desk.doubled() == []
    assert sorted(stage.desk.begun) == sorted(ids)
    await stage.calm()


async def test_told_to_stop_a_replica_sends_its_polls_to_the_other(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.servers.start(name)
        await stage.servers.ready(name)
    await stage.fleet.create_pool("mac", 2, labels=["macos"])
    await stage.fleet.warm("mac", 2)

    code = await asyncio.to_thread(stage.servers.stop, "one")

    assert code == 0, stage.servers.log("one")[-3000:]
    other = stage.api("two")
    posted = await other.post("/api/v1/jobs", {"pool": "mac", "script": "true"})
    assert (await stage.until_job(other, posted["id"]))["conclusion"] == "success"
