"""Every operation that we use is in GitHub's own descriptions, github.com's and those of its Enterprise Servers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.github import MintScope, github_forge
from tests.support.github_jobs import a_job, a_registration, a_runner
from tests.support.github_references import Judge
from tests.support.github_server import GithubServer, Seen

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.adapters.github import GithubForge

USED = {
    "GET /app/hook/deliveries",
    "GET /app/installations",
    "GET /installation/repositories",
    "GET /orgs/{org}/actions/runner-groups",
    "GET /orgs/{org}/actions/runners",
    "GET /repos/{owner}/{repo}/actions/jobs/{job_id}",
    "GET /repos/{owner}/{repo}/actions/runners",
    "GET /repos/{owner}/{repo}/actions/runs",
    "GET /repos/{owner}/{repo}/actions/runs/{run_id}",
    "GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs",
    "POST /app/hook/deliveries/{delivery_id}/attempts",
    "POST /app/installations/{installation_id}/access_tokens",
    "POST /orgs/{org}/actions/runners/generate-jitconfig",
    "POST /repos/{owner}/{repo}/actions/runners/generate-jitconfig",
    "DELETE /orgs/{org}/actions/runners/{runner_id}",
    "DELETE /repos/{owner}/{repo}/actions/runners/{runner_id}",
}


async def _everything(github: GithubServer, forge: GithubForge) -> None:
    """Do all that the adapter can do."""
    repository = github.repository(github.account("acme"), "widgets")
    run_id = github.run(repository)
    job = a_job(github.settings().host, github.job(run_id))
    minted = await forge.mint(job, a_runner())
    assert minted.registration is not None
    await forge.remove(a_registration())
    await forge.remove(minted.registration)
    await forge.look_up(job)
    assert await forge.is_fork(job.repository, run_id, "acme") is False
    assert len((await forge.sweep([], at_most=5)).found) == 1
    await forge.sweep([], at_most=5)
    github.deliver("lost", timedelta(minutes=3), 500, "workflow_job")
    assert await forge.redeliver(within=timedelta(hours=1)) == 1


@pytest.mark.parametrize("document", ["api.github.com", "ghec", "ghes-3.19", "ghes-3.17"])
async def test_all_that_we_ask_is_as_github_describes_it(
    github_references: Path, document: str
) -> None:
    judge = Judge.of(github_references, document)
    prefix = "/api/v3" if document.startswith("ghes") else ""
    for scope in MintScope:
        server = GithubServer()
        server.watch = judge.watch
        settings = {"scope": scope, "runner_group": "default"}
        async with (
            server.running(prefix),
            github_forge(server.settings(**settings), server.clock) as forge,
        ):
            await _everything(server, forge)
    assert judge.faults == []
    assert judge.operations == USED


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"path": "/horses"}, "no such operation"),
        ({"query": {"colour": "red"}}, "unknown parameter colour"),
        ({"body": b'{"name": 7, "runner_group_id": 1, "labels": ["x"]}'}, "is not of type"),
        ({"body": b'{"name": "x", "runner_group_id": 1, "labels": []}'}, "labels"),
        ({"body": b'{"name": "x", "labels": ["x"]}'}, "runner_group_id"),
        ({"body": b'{"name": "x", "runner_group_id": 1, "labels": ["x"], "y": 1}'}, "field y"),
        ({"body": b""}, "the body is missing"),
        ({"status": 202}, "not described"),
        ({"answer": b'{"encoded_jit_config": "x"}'}, "'runner' is a required"),
    ],
)
def test_the_judge_sees_what_is_wrong(
    github_openapi: Judge, change: dict[str, object], says: str
) -> None:
    right = Seen(
        operation="mint",
        method="POST",
        path="/orgs/acme/actions/runners/generate-jitconfig",
        query={},
        headers={},
        body=b'{"name": "x", "runner_group_id": 1, "labels": ["x"]}',
        status=404,
        answer=b'{"message": "Not Found"}',
    )
    judge = Judge(github_openapi.document)
    judge.watch(right)
    assert judge.faults == []
    if "answer" in change:
        change |= {"status": 201}
    judge.watch(replace(right, **change))  # type: ignore[arg-type]
    assert any(says in fault for fault in judge.faults), judge.faults
