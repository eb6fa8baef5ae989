"""``remuda up`` and a GitHub that cannot reach it: jobs are found, handed over and followed to their end by asking."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.eventually import eventually
from tests.support.github_site import GithubSite
from tests.support.trees import Tree, a_tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.github_server import GithubServer, Repository

WAIT_S = 150.0
STAND_IN = """#!/bin/sh
# Stands for GitHub's runner: notes what it was started with, and runs until it is told that its job is over.
printf '%s' "$ACTIONS_RUNNER_INPUT_JITCONFIG" >'{place}/started'
while [ ! -e '{place}/over' ]; do sleep 0.1; done
"""


async def test_a_job_is_found_run_and_followed_to_its_end_without_any_webhook() -> None:
    async with GithubSite().running() as site:
        with a_tree("--vms=1", "--image=github") as tree:
            place = tree.data.parent
            await asyncio.to_thread(_set_up, tree, site, place)
            said = await asyncio.to_thread(tree.up)
            assert "asked for jobs every few seconds" in said
            assert "asked for jobs" in (await asyncio.to_thread(tree.status))["github"]
            await _no_webhook(tree)
            await _run_a_job(tree, site.api, place)
            assert site.api.asked("deliveries") == [], "nobody asks for messages that are not sent"


def _set_up(tree: Tree, site: GithubSite, place: Path) -> None:
    """Connect the App as on a machine without a browser, and put a stand-in for GitHub's runner into an image."""
    site.install("acme")
    code = site.make_code({"name": "runners"}, "acme")
    options = [f"--data={tree.data}", f"--github-url={site.url}", "--wait=0", f"--code={code}"]
    subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "remuda.cli.main", "setup", "github", *options],
        check=True,
        timeout=WAIT_S,
    )
    program = tree.folder.images / "github" / "actions-runner" / "run.sh"
    program.parent.mkdir(parents=True)
    program.write_text(STAND_IN.format(place=place))
    program.chmod(0o755)


async def _no_webhook(tree: Tree) -> None:
    addresses = tree.folder.home.addresses()
    assert addresses is not None
    url = f"{addresses.server}/webhooks/github"
    async with aiohttp.ClientSession() as client, client.post(url, data=b"{}") as answer:
        assert answer.status == 404


async def _run_a_job(tree: Tree, github: GithubServer, place: Path) -> None:
    repository = github.repositories["acme/widgets"]
    run, job = _queue(github, repository)

    started = await _until_started(place)
    assert started == github.jit_config
    name = (await _until(tree, github, job, "running"))["runner_name"]
    assert name in {runner.name for runner in github.runners.values()}
    # Another one waits behind it, for there is room for one; and then nobody wants it any more.
    other_run, other = _queue(github, repository)
    await _until(tree, github, other, "queued")
    github.runs[run]["status"] = "in_progress"
    at = github.clock.now().isoformat()
    github.jobs[job].update(status="in_progress", runner_name=name, started_at=at)
    github.runs[other_run].update(status="completed", conclusion="cancelled")
    github.jobs[other].update(status="completed", conclusion="cancelled", completed_at=at)

    await _until(tree, github, other, "cancelled")
    assert (await _until(tree, github, job, "running"))["runner_name"] == name

    (place / "over").touch()
    at = github.clock.now().isoformat()
    github.jobs[job].update(status="completed", conclusion="success", completed_at=at)
    github.runs[run].update(status="completed", conclusion="success")
    over = await _until(tree, github, job, "completed")
    assert (over["conclusion"], over["tenant"]) == ("success", "acme")


def _queue(github: GithubServer, repository: Repository) -> tuple[int, int]:
    run = github.run(repository)
    return run, github.job(run, ["self-hosted", "default"])


async def _until_started(place: Path) -> str:
    async def probe() -> str:
        file = place / "started"
        return file.read_text() if file.exists() else ""

    return await eventually(probe, bool, within_s=WAIT_S)


async def _until(tree: Tree, github: GithubServer, job: int, state: str) -> Any:  # noqa: ANN401 - JSON
    job_id = f"{github.settings().host}/{job}"

    async def probe() -> Any:  # noqa: ANN401 - JSON
        found = await tree.api.get("/api/v1/jobs")
        return next((one for one in found["jobs"] if one["id"] == job_id), {})

    return await eventually(probe, lambda found: found.get("state") == state, within_s=WAIT_S)
