"""
A replica killed with SIGKILL between any two steps of a hand-over, on real PostgreSQL, with nobody to clean up.

All steps are played at once, each in a namespace and a database of its own: the graces are those of production. The
only runner of each pool is the one that was in the replica's hands: whatever happened to it, it must be of use again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from remuda.dispatch.attempt import Step
from tests.support.dispatched import Stage, dispatched
from tests.support.postgres import TEMPLATE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Server
    from tests.support.standalone import StandaloneProcess

BACK_S = 60.0
"""Within so long after its replica was killed, the job is handed over or back in the queue."""


async def test_a_replica_killed_at_any_step_loses_no_job_and_hands_none_out_twice(
    plane: StandaloneProcess, postgres_server: Server, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        stages: dict[Step, Stage] = {}
        for step in Step:
            name = await postgres_server.new_database(TEMPLATE)
            url = postgres_server.postgres.dsn_of(name)
            made = dispatched(plane.kubeconfig, url, tmp_path / step.value, operators=1)
            stages[step] = await stack.enter_async_context(made)
        async with asyncio.TaskGroup() as group:
            for step, stage in stages.items():
                group.create_task(_play(step, stage), name=step.value)


async def _play(step: Step, stage: Stage) -> None:
    stage.servers.start("one", dies_at=step.value)
    await stage.servers.ready("one")
    await stage.fleet.create_pool("mac", 1, labels=["macos"])
    await stage.fleet.warm("mac", 1)
    api = stage.api("one")
    posted = await api.post("/api/v1/jobs", {"pool": "mac", "script": "true"})
    await stage.fleet.until(lambda: stage.servers.has_died("one"))
    died_at = stage.fleet.clock.monotonic()
    stage.servers.start("one")
    await stage.servers.ready("one")

    # It waits again, or somebody has it, or it is even over.
    left_s = BACK_S - (stage.fleet.clock.monotonic() - died_at)
    back = await stage.until_job(
        api, posted["id"], "queued", "running", "completed", within_s=left_s
    )
    over = await stage.until_job(api, posted["id"], within_s=2 * BACK_S)

    assert over["conclusion"] == "success", f"{step}: {back} then {over}"
    assert stage.desk.begun == [posted["id"]], f"{step}: it began {len(stage.desk.begun)} times"
    assert stage.desk.doubled() == []
    await stage.calm()
