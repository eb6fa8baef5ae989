"""The commands that look at a fleet and change it, as people run them, on a fleet that lives."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from signal import SIGINT
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from remuda.cli.exits import FAILED, INTERRUPTED, NOT_FOUND, OK, REFUSED
from remuda.kube.core import NODE
from remuda.kube.names import TEMPLATE
from tests.support.dispatched import Stage, dispatched
from tests.support.eventually import eventually
from tests.support.processes import Processes, signal_group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.standalone import StandaloneProcess

WAIT_S = 120.0
COMMAND = (sys.executable, "-m", "remuda.cli.main")
FOREVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Hand:
    """A person with a shell."""

    stage: Stage
    folder: Path
    env: dict[str, str]

    async def __call__(self, *args: str, code: int = OK) -> str:
        """Run a command, see that it ends as it should, and return what it printed, errors too if it failed."""
        done = await asyncio.to_thread(
            subprocess.run,
            [*COMMAND, *args],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout if code == OK else done.stderr

    async def json(self, *args: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(await self(*args, "-o", "json"))

    @contextmanager
    def watching(self, *args: str) -> Iterator[Watched]:
        """Start a command that goes on, and end it."""
        processes = Processes(self.folder / "-".join(args[:1]))
        try:
            process = processes.start("watch", [*COMMAND, *args, "--watch"], self.env)
            yield Watched(process, processes.log("watch"))
        finally:
            processes.stop()


@dataclass(frozen=True, slots=True)
class Watched:
    """A command that goes on, and what it printed so far."""

    process: subprocess.Popen[bytes]
    log: Path

    async def says(self, *words: str) -> str:
        """Wait until some line has all of these words."""

        async def line() -> str:
            assert self.process.poll() is None, self.log.read_text()
            lines = self.log.read_text().splitlines()
            return next((each for each in lines if all(word in each for word in words)), "")

        return await eventually(line, within_s=WAIT_S)

    async def interrupted(self) -> int:
        """Press Ctrl-C, and return the exit code."""
        signal_group(self.process, SIGINT)
        return await asyncio.to_thread(self.process.wait, WAIT_S)


@pytest.fixture
async def hand(plane: StandaloneProcess, database_url: str, tmp_path: Path) -> AsyncIterator[Hand]:
    async with dispatched(plane.kubeconfig, database_url, tmp_path, operators=1) as stage:
        stage.servers.start("one")
        await stage.servers.ready("one")
        env = {
            "REMUDA_SERVER": stage.servers.url("one"),
            "REMUDA_API_TOKEN": stage.api_token,
            "REMUDA_KUBECONFIG": str(plane.kubeconfig),
            "REMUDA_NAMESPACE": stage.fleet.namespace,
        }
        yield Hand(stage, tmp_path, env)


async def test_a_fleet_is_listed_followed_and_explained_while_its_server_restarts(
    hand: Hand,
) -> None:
    stage = hand.stage
    api = stage.api("one")
    await stage.fleet.create_pool("mac", 1, labels=["macos"])
    await stage.fleet.create_pool("nobody", 0, labels=["idle"])
    await stage.fleet.warm("mac", 1)

    with (
        hand.watching("jobs", "-o", "json", "--every", "0.2") as jobs,
        hand.watching("runners", "--every", "0.2") as runners,
    ):
        # Seen before it gets the job: a watch that begins late under load would find it gone already.
        await runners.says("mac", "warm")
        posted = await api.post("/api/v1/jobs", {"pool": "mac", "script": "true"})
        await jobs.says(posted["id"], '"completed"')
        over = await api.get(f"/api/v1/jobs/{posted['id']}")
        await runners.says(over["pod"], "mac")

        stage.servers.kill("one")
        await jobs.says("asked again until it answers")
        stage.servers.start("one")
        await stage.servers.ready("one")
        await jobs.says("It answers again")
        second = await api.post("/api/v1/jobs", {"pool": "mac", "script": "true"})
        await jobs.says(second["id"], '"completed"')
        # Its Pod is gone before the watch ends: the table says that too.
        await runners.says(over["pod"], "gone")
        assert await jobs.interrupted() == INTERRUPTED
        assert await runners.interrupted() == INTERRUPTED
    assert "Traceback" not in jobs.log.read_text() + runners.log.read_text()

    waits = await api.post("/api/v1/jobs", {"pool": "nobody", "script": "true"})
    (row,) = await hand.json("jobs", "--state", "queued")
    assert row["id"] == waits["id"]
    assert (await hand.json("explain", "job", waits["id"]))["why"] == "scaled_to_zero"
    await stage.fleet.warm("mac", 1)
    (runner,) = (await hand("runners", "--pool", "mac", "-o", "name")).split()[-1:]
    text = await hand("explain", "runner", runner)
    assert text.startswith(runner)
    assert "Evidence:" in text
    assert yaml.safe_load(await hand("pools", "mac", "-o", "yaml"))["labels"] == ["macos"]
    pool = await hand("explain", "pool", "nobody")
    assert "scaled to zero" in pool
    assert "Ready is" in pool, "what the operator says is evidence"
    host = (await hand("hosts", "-o", "name")).split()[0]
    assert "takes new runners" in await hand("explain", "host", host)
    await hand("explain", "host", "ghost", code=NOT_FOUND)


async def test_pools_are_scaled_paused_and_rolled_and_a_host_is_drained(hand: Hand) -> None:
    fleet = hand.stage.fleet
    await fleet.create_pool("mac", 1, labels=["macos"], rollout={"maxConcurrentPercent": 100})
    await fleet.create_pool(
        "auto", 0, labels=["auto"], autoscaling={"enabled": True, "minWarm": 0, "maxReplicas": 2}
    )

    assert "wants 2 runners" in await hand("pools", "scale", "mac", "2", "--wait")
    await fleet.warm("mac", 2)
    refused = await hand("pools", "scale", "auto", "2", code=REFUSED)
    assert "autoscaler owns" in refused
    assert "fix: " in refused
    await hand("pools", "scale", "ghost", "2", code=NOT_FOUND)

    await hand("pools", "pause", "mac")
    assert (await hand.json("pools", "mac"))["paused"]
    assert "paused" in await hand("pools", "roll", "mac", code=REFUSED)
    await hand("pools", "resume", "mac")
    before = {pod.labels[TEMPLATE] for pod in fleet.runners("mac")}
    assert "is as wanted" in await hand("pools", "roll", "mac", "--wait")
    await fleet.until(lambda: fleet.is_rolled("mac"))
    assert before.isdisjoint({pod.labels[TEMPLATE] for pod in fleet.runners("mac")})

    hand.stage.desk.lasts_s = FOREVER_S
    api = hand.stage.api("one")
    posted = await api.post("/api/v1/jobs", {"pool": "mac", "script": "true"})
    running = await hand.stage.until_job(api, posted["id"], "running")
    await fleet.warm("mac", 1)
    host = fleet.now.pods[running["pod"]].spec.node_name
    late = await hand("hosts", "drain", host, "--wait", "--timeout", "1s", code=FAILED)
    assert "1 busy" in late
    assert (await api.get(f"/api/v1/jobs/{posted['id']}"))["state"] == "running", "no job is ended"
    assert "being drained" in await hand("explain", "host", host)
    assert "takes runners again" in await hand("hosts", "undrain", host)

    hosts = (await hand("hosts", "-o", "name")).split()
    idle = [pod.spec.node_name for pod in fleet.runners("mac", warm=True)]
    other = next(name for name in [*idle, *hosts] if name != host)
    assert "is drained" in await hand("hosts", "drain", other, "--wait")
    assert (await fleet.kube.get(NODE, other)).spec.unschedulable
    assert "drained already" in await hand("hosts", "drain", other)
    await hand("hosts", "drain", "ghost", code=NOT_FOUND)
