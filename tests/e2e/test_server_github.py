"""A GitHub job all the way, against a GitHub of our own over HTTP; and where its secrets do not turn up."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp

from tests.support.dispatched import Stage, dispatched
from tests.support.eventually import eventually
from tests.support.github_server import APP_ID, SECRET, Fault, GithubServer, app_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.github_server import Repository
    from tests.support.runner_desk import Hand
    from tests.support.standalone import StandaloneProcess

SWEPT_S = 60.0
TOLD_S = 30.0
CANARY = base64.b64encode(b"jit-config-canary-90210 " * 60).decode()
"""As long as GitHub's own, and as plain to see."""


@asynccontextmanager
async def github_fleet(
    plane: StandaloneProcess, database_url: str, folder: Path
) -> AsyncIterator[tuple[Stage, GithubServer, Repository]]:
    """Start a replica that serves an organisation, and a pool with one warm runner."""
    async with GithubServer().running() as github:
        github.jit_config = CANARY
        repository = github.repository(github.account("acme"), "widgets")
        key = folder / "app.pem"
        key.write_text(app_key()[0])
        env = {
            "REMUDA_GITHUB_APP_ID": APP_ID,
            "REMUDA_GITHUB_PRIVATE_KEY_FILE": str(key),
            "REMUDA_GITHUB_WEBHOOK_SECRET": SECRET,
            "REMUDA_GITHUB_API_URL": github.url,
        }
        async with dispatched(plane.kubeconfig, database_url, folder, env) as stage:
            stage.servers.start("one")
            await stage.servers.ready("one")
            await stage.fleet.create_pool("mac", 1, labels=["macos"])
            await stage.fleet.warm("mac", 1)
            yield stage, github, repository


async def test_a_job_of_github_goes_all_the_way_and_its_secrets_turn_up_nowhere(
    plane: StandaloneProcess, database_url: str, tmp_path: Path
) -> None:
    async with github_fleet(plane, database_url, tmp_path) as (stage, github, repository):
        # GitHub forgets its tokens, and quotes the one that it refuses: the job is handed over at a later try.
        await stage.fleet.until(lambda: bool(github.tokens))
        forgotten = list(github.tokens)
        github.tokens.clear()
        said = json.dumps(
            {"message": f"no: {CANARY} {SECRET}"}
        ).encode()  # and then quotes all it knows
        github.faults.append(Fault("mint", status=500, body=said))
        job = github.job(github.run(repository), ["self-hosted", "macos"])
        await _tell(stage, github, job, "queued")

        hand = await _handed(stage)
        await _execute(stage, github, job, hand)
        api = stage.api("one")
        over = await stage.until_job(api, hand.job_id)

        assert (over["conclusion"], over["tenant"]) == ("success", "acme")
        assert json.loads(hand.document)["encoded_jit_config"] == CANARY, "it reached the runner"
        assert any(seen.status == 401 for seen in github.seen)
        assert any(seen.by_fault for seen in github.asked("mint"))
        await stage.calm()
        assert hand.runner_name not in await _registrations(stage)
        assert await _leaks(stage, [*forgotten, *github.tokens]) == []


async def test_a_job_that_no_message_told_of_is_found_by_the_sweep(
    plane: StandaloneProcess, database_url: str, tmp_path: Path
) -> None:
    async with github_fleet(plane, database_url, tmp_path) as (stage, github, repository):
        job = github.job(github.run(repository), ["macos"])

        hand = await _handed(stage, within_s=SWEPT_S)
        github.jobs[job].update(_ended(hand))  # and nobody tells of its end either

        over = await stage.until_job(stage.api("one"), hand.job_id, within_s=120)
        assert over["conclusion"] == "success"


async def _handed(stage: Stage, within_s: float = 60.0) -> Hand:
    await stage.fleet.until(lambda: bool(stage.desk.hands), within_s=within_s)
    (hand,) = stage.desk.hands
    return hand


async def _tell(stage: Stage, github: GithubServer, job: int, action: str) -> None:
    headers, body = github.message(job, action)
    url = f"{stage.servers.url('one')}/webhooks/github"
    async with aiohttp.ClientSession() as client, client.post(url, data=body, headers=headers) as a:
        assert a.status == 200, await a.text()


async def _execute(stage: Stage, github: GithubServer, job: int, hand: Hand) -> None:
    """Let GitHub tell that the runner took the job and finished it."""
    at = stage.fleet.clock.now().isoformat()
    github.jobs[job].update(status="in_progress", runner_name=hand.runner_name, started_at=at)
    await _tell(stage, github, job, "in_progress")
    github.jobs[job].update(_ended(hand) | {"started_at": at, "completed_at": at})
    await _tell(stage, github, job, "completed")


def _ended(hand: Hand) -> dict[str, object]:
    return {"status": "completed", "conclusion": "success", "runner_name": hand.runner_name}


async def _registrations(stage: Stage) -> set[str]:
    async with stage.database.connection() as c:
        return {str(row[0]) for row in await c.fetch("SELECT runner_name FROM registrations")}


async def _leaks(stage: Stage, installation_tokens: list[str]) -> list[str]:
    """Return where a secret turned up that has no business there."""
    secrets = {
        "job config": CANARY,
        "webhook secret": SECRET,
        "App key": app_key()[0].splitlines()[3],
        "API token": stage.api_token,
        **{f"installation token {n}": token for n, token in enumerate(installation_tokens)},
        **{f"token of a Pod {n}": token for n, token in enumerate(stage.desk.tokens())},
    }
    places = {
        "log of dispatch": stage.servers.logs(),
        "log of the operator": stage.operators.logs(),
        "database": await _rows(stage),
        "cluster": await stage.fleet.described(),
        "API": await _answers(stage),
        "events": await _events(stage),
    }
    assert all(len(text) > 100 for text in places.values()), "a place that is empty hides nothing"
    return [
        f"{s} in {p}" for s, text in secrets.items() for p, held in places.items() if text in held
    ]


async def _rows(stage: Stage) -> str:
    async with stage.database.connection() as c:
        tables = await c.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        held = [await c.fetch(f'SELECT t::text FROM "{name}" t') for (name,) in tables]  # noqa: S608 - ours
    texts = [str(row[0]) for rows in held for row in rows]
    # Bytes are shown as hexadecimal digits, in which no secret would be found.
    told = [bytes.fromhex(digits) for text in texts for digits in _BYTES.findall(text)]
    assert any(told), "messages and logs are kept as bytes"
    return "\n".join([*texts, *(one.decode(errors="replace") for one in told)])


_BYTES = re.compile(r"\\x((?:[0-9a-f]{2})+)")


async def _answers(stage: Stage) -> str:
    api = stage.api("one")
    paths = ("jobs", "runners", "claims", "pools", "audit", "limits")
    return "\n".join([await api.text(f"/api/v1/{path}") for path in paths])


async def _events(stage: Stage) -> str:
    """Return the stream of events from the first one on, until it tells that the job is over."""
    url = f"{stage.servers.url('one')}/api/v1/events"
    headers = {"Authorization": f"Bearer {stage.api_token}", "Last-Event-ID": "0"}
    told = b""
    async with (
        asyncio.timeout(TOLD_S),
        aiohttp.ClientSession() as client,
        client.get(url, headers=headers) as answer,
    ):
        while b'"completed"' not in told:
            told += await answer.content.readany()
    return told.decode()


async def test_a_runner_of_a_killed_replica_is_registered_nowhere_in_the_end(
    plane: StandaloneProcess, database_url: str, tmp_path: Path
) -> None:
    """The replica dies after the mint: the registration that nobody can use is removed at GitHub."""
    async with github_fleet(plane, database_url, tmp_path) as (stage, github, repository):
        stage.servers.stop("one")
        stage.servers.start("one", dies_at="minted")
        await stage.servers.ready("one")
        job = github.job(github.run(repository), ["macos"])
        await _tell(stage, github, job, "queued")
        await stage.fleet.until(lambda: stage.servers.has_died("one"))
        (first,) = github.runners.values()
        stage.servers.start("one", unused_s=5)
        await stage.servers.ready("one")

        hand = await _handed(stage, within_s=90)

        assert hand.runner_name != first.name, "a second delivery is a second mint"
        await _execute(stage, github, job, hand)

        async def left() -> set[str]:
            return {runner.name for runner in github.runners.values()}

        await eventually(left, lambda names: first.name not in names, within_s=90)
