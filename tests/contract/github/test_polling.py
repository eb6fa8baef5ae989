"""Sweeps where lists are all that tells of jobs, what they cost, and which repositories they look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.github import GithubWebhooks, Taking, github_forge
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import Announcement, Ignored
from tests.support.github_server import Fault, GithubServer

if TYPE_CHECKING:
    from remuda.adapters.github import GithubForge


async def test_where_no_messages_come_a_sweep_tells_also_what_a_runner_took(
    github: GithubServer,
) -> None:
    repository = github.repository(github.account("Acme"), "widgets")
    run = github.run(repository, status="in_progress")
    waits = github.job(run)
    runs = github.job(run, status="in_progress", runner_name="mine")
    ended = github.job(run, status="completed", conclusion="success", runner_name="mine-too")
    github.job(run, status="completed", conclusion="skipped")
    github.job(run, status="waiting")
    settings = github.settings(webhook_secrets=(), intake=Taking.POLLING)
    async with github_forge(settings, github.clock) as forge:
        swept = await forge.sweep([], at_most=10)
    told = {a.job_id.rpartition("/")[2]: (a.action.value, a.runner_name) for a in swept.found}
    assert told == {
        str(waits): ("queued", ""),
        str(runs): ("in_progress", "mine"),
        str(ended): ("completed", "mine-too"),
    }
    assert swept.alive == {f"{settings.host}/{number}" for number in (waits, runs)}
    assert swept.looked_at == {"acme/widgets"}


async def test_a_sweep_says_what_it_cost_and_what_is_left(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    repository = github.repository(account, "widgets")
    github.job(github.run(repository))
    (first,) = (await forge.sweep([], at_most=10)).spent
    assert (first.asked, first.charged) == (4, 4), (
        "its repositories, two lists of runs, one of jobs"
    )
    assert first.left == account.limit * 0.8 - account.used
    assert 0 < first.resets_s <= 3000
    (again,) = (await forge.sweep([], at_most=10)).spent
    assert (again.asked, again.charged) == (3, 0)
    github.faults.append(Fault("runs", status=429, headers={"retry-after": "90"}))
    (silent,) = (await forge.sweep([], at_most=10)).spent
    assert 80 < silent.silent_s <= 90
    (still,) = (await forge.sweep([], at_most=10)).spent
    assert (still.asked, still.charged) == (0, 0)
    assert still.silent_s > 80


async def test_only_the_repositories_that_were_named_are_looked_at_and_none_are_listed(
    github: GithubServer,
) -> None:
    account = github.account("acme")
    mine, other = github.repository(account, "widgets"), github.repository(account, "gadgets")
    wanted, foreign = github.job(github.run(mine)), github.job(github.run(other))
    settings = github.settings(repositories=("Acme/Widgets",))
    async with github_forge(settings, github.clock) as forge:
        swept = await forge.sweep(["acme/gadgets"], at_most=10)
        assert [a.job_id for a in swept.found] == [f"{settings.host}/{wanted}"]
        assert github.asked("repositories") == []
        for job, read in ((wanted, Announcement), (foreign, Ignored)):
            headers, body = github.message(job, "queued")
            accepted = GithubWebhooks(settings).accept(headers, body)
            assert isinstance(accepted, Delivery)
            assert isinstance(await forge.read(accepted), read)
