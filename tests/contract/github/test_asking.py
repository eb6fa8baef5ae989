"""Looking jobs and runs up, sweeping, asking for messages again. GitHub's OpenAPI watches (see conftest)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.github import github_forge
from remuda.ports.forge import (
    ForgeError,
    ForgeJob,
    ForgeRefused,
    ForgeState,
    ForgeUnavailable,
    Scope,
)
from tests.support.github_jobs import a_job
from tests.support.github_server import Account, Fault, GithubServer, Seen

if TYPE_CHECKING:
    from remuda.adapters.github import GithubForge

WITHIN = timedelta(hours=6)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("queued", ForgeState.QUEUED),
        ("in_progress", ForgeState.IN_PROGRESS),
        ("completed", ForgeState.COMPLETED),
        ("waiting", ForgeState.OTHER),
        ("pending", ForgeState.OTHER),
        ("requested", ForgeState.OTHER),
    ],
)
async def test_a_job_is_looked_up(
    github: GithubServer, forge: GithubForge, status: str, state: ForgeState
) -> None:
    repository = github.repository(github.account("acme"), "widgets")
    over = {"conclusion": "failure", "completed_at": "2026-03-01T12:09:00Z"}
    number = github.job(github.run(repository), status=status, runner_name="r1")
    if status == "completed":
        github.jobs[number] |= over
    found = await forge.look_up(a_job(github.settings().host, number))
    begun = state in {ForgeState.IN_PROGRESS, ForgeState.COMPLETED}
    assert found == ForgeJob(
        state=state,
        conclusion="failure" if status == "completed" else "",
        runner_name="r1" if begun else "",
        started_at=datetime(2026, 3, 1, 12, tzinfo=UTC) if begun else None,
        ended_at=datetime(2026, 3, 1, 12, 9, tzinfo=UTC) if status == "completed" else None,
    )


async def test_a_job_that_github_does_not_know_is_gone(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    found = await forge.look_up(a_job(github.settings().host, 999))
    assert found == ForgeJob(state=ForgeState.GONE)


@pytest.mark.parametrize(
    "fault", [Fault("job"), Fault("job", kind="hang"), Fault("job", kind="cut", times=9)]
)
async def test_a_job_that_github_cannot_say_anything_about_is_never_gone(
    github: GithubServer, fault: Fault
) -> None:
    github.repository(github.account("acme"), "widgets")
    github.faults.append(fault)
    async with github_forge(github.settings(call_s=1.0), github.clock) as forge:
        with pytest.raises(ForgeUnavailable):
            await forge.look_up(a_job(github.settings().host, 999))


async def test_a_job_of_a_tenant_that_is_not_installed_is_refused_and_not_gone(
    github: GithubServer, forge: GithubForge
) -> None:
    with pytest.raises(ForgeRefused) as refused:
        await forge.look_up(a_job(github.settings().host, 1))
    assert refused.value.scope is Scope.TENANT


async def test_a_job_of_another_github_is_not_asked_for_here(
    github: GithubServer, forge: GithubForge
) -> None:
    with pytest.raises(ForgeRefused) as refused:
        await forge.look_up(a_job("github.com", 1))
    assert refused.value.scope is Scope.JOB
    assert github.seen == []


async def test_a_renamed_repositorys_job_is_found_where_it_is_now_but_never_elsewhere() -> None:
    server = GithubServer()  # such addresses are not in GitHub's OpenAPI
    async with server.running(), github_forge(server.settings(), server.clock) as forge:
        repository = server.repository(server.account("acme"), "widgets")
        number = server.job(server.run(repository))
        job = a_job(server.settings().host, number)
        server.moved["acme/widgets"] = f"{server.url}/repositories/5/actions/jobs/{number}"
        assert (await forge.look_up(job)).state is ForgeState.QUEUED
        for place in (
            f"http://127.0.0.1:1/repositories/5/{number}",
            f"{server.url}.evil/repositories/5",
            "/x",
        ):
            server.moved["acme/widgets"] = place
            with pytest.raises(ForgeRefused):
                await forge.look_up(job)


async def test_a_run_is_a_forks_if_its_code_is_from_elsewhere_and_github_is_asked_once(
    github: GithubServer, forge: GithubForge
) -> None:
    repository = github.repository(github.account("acme"), "widgets")
    fork = github.repository(github.account("mallory"), "widgets")
    ours, theirs = github.run(repository), github.run(repository, head=fork)
    for _ in range(2):
        assert await forge.is_fork("acme/widgets", ours, "acme") is False
        assert await forge.is_fork("acme/widgets", theirs, "acme") is True
    assert len(github.asked("run")) == 2


async def test_what_is_not_said_is_neither_and_is_asked_again() -> None:
    server = (
        GithubServer()
    )  # GitHub's OpenAPI says that a run always has a head repository; deleted forks have none
    async with server.running(), github_forge(server.settings(), server.clock) as forge:
        repository = server.repository(server.account("acme"), "widgets")
        run_id = server.run(repository)
        assert await forge.is_fork("acme/widgets", None, "acme") is None
        assert await forge.is_fork("acme/widgets", 4, "acme") is None
        server.runs[run_id] |= {"head_repository": None}
        assert await forge.is_fork("acme/widgets", run_id, "acme") is None
        server.runs[run_id] |= {"head_repository": {"full_name": "ACME/Widgets"}}
        assert await forge.is_fork("acme/widgets", run_id, "acme") is False
        server.faults.append(Fault("run"))
        with pytest.raises(ForgeUnavailable):
            await forge.is_fork("acme/widgets", 5, "acme")


# --- Sweeps -----------------------------------------------------------------------------------------------------------


async def test_a_sweep_finds_queued_jobs_of_queued_and_running_runs(
    github: GithubServer, forge: GithubForge
) -> None:
    repository = github.repository(github.account("Acme"), "widgets")
    queued, running = github.run(repository), github.run(repository, status="in_progress")
    done = github.run(repository, status="completed")
    wanted = {github.job(queued), github.job(running)}
    github.job(running, status="in_progress", runner_name="r")
    github.job(queued, status="waiting")
    github.job(done)
    swept = await forge.sweep(["Acme/widgets"], at_most=10)
    host = github.settings().host
    assert {a.job_id for a in swept.found} == {f"{host}/{number}" for number in wanted}
    assert {(a.tenant, a.repository, a.action) for a in swept.found} == {
        ("acme", "Acme/widgets", "queued")
    }
    assert (swept.repositories, swept.left_out) == (1, 0)


async def test_an_idle_repository_costs_nothing_of_the_rate_limit(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    repository = github.repository(account, "widgets")
    github.job(github.run(repository))
    first = await forge.sweep(["acme/widgets"], at_most=10)
    used, asked = account.used, len(github.seen)
    for _ in range(5):
        again = await forge.sweep(["acme/widgets"], at_most=10)
        assert again == first, "what has not changed is still found"
    assert account.used == used
    assert len(github.seen) == asked + 5 * 3
    github.job(github.run(repository))
    assert len((await forge.sweep(["acme/widgets"], at_most=10)).found) == 2
    assert account.used > used


async def test_long_lists_are_read_to_their_end(github: GithubServer, forge: GithubForge) -> None:
    repository = github.repository(github.account("acme"), "widgets")
    run_id = github.run(repository)
    for _ in range(250):
        github.job(run_id)
    for _ in range(105):
        github.run(repository)
    swept = await forge.sweep(["acme/widgets"], at_most=1)
    assert len(swept.found) == 250
    assert len(github.asked("jobs")) == 105 + 1 + 2


async def test_repositories_take_turns_and_installations_share_the_room(
    github: GithubServer, forge: GithubForge
) -> None:
    large, small = github.account("acme"), github.account("globex")
    for number in range(40):
        github.repository(large, f"r{number:02}")
    for number in range(3):
        github.repository(small, f"g{number}")
    seen: list[str] = []
    for _ in range(8):
        before = len(github.seen)
        assert (await forge.sweep([], at_most=8)).repositories == 8
        asked = {s.path for s in github.seen[before:] if s.operation == "runs"}
        seen += sorted(asked)
        assert any("/globex/" in path for path in asked)
    assert len({path for path in seen if "/acme/" in path}) == 40, "everybody had a turn"


async def test_the_first_ones_go_first_and_are_not_looked_at_twice(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    for number in range(5):
        github.repository(account, f"r{number}")
    swept = await forge.sweep(["acme/r4", "ACME/R4", "acme/r3", "../etc", "x"], at_most=3)
    paths = [s.path.split("/")[3] for s in github.asked("runs")]
    assert set(paths) == {"r4", "r3", "r0"}
    assert (swept.repositories, swept.left_out) == (3, 2)


@pytest.mark.parametrize("status", [403, 404, 451])
async def test_a_closed_repository_is_left_out_and_stops_no_other(
    github: GithubServer, forge: GithubForge, status: int
) -> None:
    account = github.account("acme")
    closed = [github.repository(account, f"closed{n}") for n in range(5)]
    github.job(github.run(github.repository(account, "widgets")))
    if status == 451:
        github.faults += [Fault("runs", status=451, path=r.full_name, times=9) for r in closed]
    else:
        for repository in closed:
            repository.answers = status
    swept = await forge.sweep([r.full_name for r in closed], at_most=10)
    assert len(swept.found) == 1
    assert (swept.repositories, swept.left_out) == (1, 5)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault("runs", path="/acme/", times=99), id="which fails"),
        pytest.param(Fault("runs", path="/acme/", status=429, times=99), id="which is throttled"),
        pytest.param(Fault("runs", path="/acme/", kind="hang", times=99), id="which hangs"),
        pytest.param(
            Fault("runs", path="/acme/", status=200, body=b"[]", times=99), id="which talks rubbish"
        ),
        pytest.param(Fault("token", path="/41/", times=99), id="which gives no token"),
        pytest.param(Fault("token", path="/41/", status=403, times=99), id="which was suspended"),
    ],
)
async def test_an_installation_stops_no_other(github: GithubServer, fault: Fault) -> None:
    broken, other = github.account("acme"), github.account("globex")
    names = [github.repository(broken, f"r{n}").full_name for n in range(20)]
    github.job(github.run(github.repository(other, "gears")))
    github.faults.append(fault)
    settings = github.settings(call_s=0.5, sweep_at_once=2)
    async with github_forge(settings, github.clock) as forge:
        swept = await forge.sweep([*names, "globex/gears"], at_most=50)
    assert len(swept.found) == 1
    assert swept.repositories == 1
    assert swept.left_out >= 20
    asked = [s for s in github.seen if s.by_fault]
    assert len(asked) <= 6, "after a few failures it is left for the next sweep"


async def test_sweeps_give_way_before_what_minting_needs(
    github: GithubServer, forge: GithubForge
) -> None:
    poor, rich = github.account("acme"), github.account("globex")
    poor.used = 4100
    for account in (poor, rich):
        for number in range(3):
            github.job(github.run(github.repository(account, f"r{number}")))
    swept = await forge.sweep([], at_most=50)
    assert {a.tenant for a in swept.found} == {"globex"}
    assert swept.left_out > 0
    assert poor.used <= 4102


async def test_sweeps_keep_below_githubs_limit_by_the_minute(github: GithubServer) -> None:
    account = github.account("acme")
    for number in range(10):
        github.repository(account, f"r{number}")
    settings = github.settings(sweep_per_minute_max=9)
    async with github_forge(settings, github.clock) as forge:
        swept = await forge.sweep([], at_most=50)
        assert len(github.asked("runs")) == 8
        assert swept.left_out >= 6
        github.clock.ahead_s += 61
        before = len(github.asked("runs"))
        await forge.sweep([], at_most=4)
        assert len(github.asked("runs")) == before + 8


async def test_many_installations_are_listed_a_few_at_a_time_and_broken_ones_go_back_in_line(
    github: GithubServer, forge: GithubForge
) -> None:
    for number in range(45):
        github.job(github.run(github.repository(github.account(f"a{number}"), "r")))
    broken = min(github.accounts)
    github.faults.append(Fault("token", path=f"/{broken}/", times=99))
    found: set[str] = set()
    for sweep in range(3):
        swept = await forge.sweep([], at_most=100)
        found |= {announcement.tenant for announcement in swept.found}
        assert len(github.asked("repositories")) == (19, 39, 44)[sweep]
    assert found == {f"a{number}" for number in range(1, 45)}


async def test_busy_repositories_do_not_shut_the_others_out(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    busy = [github.repository(account, f"busy{number}").full_name for number in range(20)]
    github.job(github.run(github.repository(account, "quiet")))
    found = [(await forge.sweep(busy, at_most=12)).found for _ in range(4)]
    assert any(found), "a job whose message was lost waits for ever"
    assert len({s.path for s in github.asked("runs")}) == 21, "everybody had a turn"


async def test_a_slow_github_costs_a_sweep_some_repositories_and_not_all_that_it_found() -> None:
    server = GithubServer()
    account = server.account("acme")
    names = [server.repository(account, f"r{number}").full_name for number in range(30)]
    for name in names:
        server.job(server.run(server.repositories[name]))

    def slowly(_: Seen) -> None:
        server.clock.ahead_s += 0.5  # eight ask at once

    server.watch = slowly
    found: set[str] = set()
    async with server.running(), github_forge(server.settings(), server.clock) as forge:
        for _ in range(12):
            began = server.clock.monotonic()
            swept = await forge.sweep(names, at_most=60)
            assert server.clock.monotonic() - began < 60, "dispatch takes it for hung then"
            assert swept.found
            found |= {a.repository for a in swept.found}
            server.clock.ahead_s += 60
    assert found == set(names), "everybody had a turn"


async def test_repositories_that_take_long_to_list_keep_no_sweep_from_looking() -> None:
    server = GithubServer()
    large, other = server.account("acme"), server.account("globex")
    for number in range(950):
        server.repository(large, f"r{number:03}")
    server.job(server.run(server.repository(large, "zebra")))
    server.job(server.run(server.repository(other, "gears")))

    def slowly(seen: Seen) -> None:
        server.clock.ahead_s += 7 if seen.operation == "repositories" else 0

    server.watch = slowly
    async with server.running(), github_forge(server.settings(), server.clock) as forge:
        began = server.clock.monotonic()
        assert len((await forge.sweep(["globex/gears"], at_most=3)).found) == 1
        assert server.clock.monotonic() - began < 60
        for _ in range(9):
            await forge.sweep([], at_most=3)
        pages = [s.query["page"] for s in server.asked("repositories") if "page" in s.query]
        assert sorted(map(int, pages)) == [1, *range(1, 11)], "each page of each list was read once"


async def test_what_was_found_before_the_budget_ended_counts_and_the_rest_is_next() -> None:
    server = GithubServer()
    repository = server.repository(server.account("acme"), "widgets")
    jobs = {str(server.job(server.run(repository))) for _ in range(30)}
    found: set[str] = set()
    async with server.running():
        settings = server.settings(sweep_per_minute_max=12)
        async with github_forge(settings, server.clock) as forge:
            for _ in range(6):
                swept = await forge.sweep(["acme/widgets"], at_most=1)
                found |= {a.job_id.rpartition("/")[2] for a in swept.found}
                server.clock.ahead_s += 61
    assert found == jobs


async def test_an_account_that_was_renamed_is_found_by_both_names(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    repository = github.repository(account, "widgets")
    job = a_job(github.settings().host, github.job(github.run(repository)))
    assert (await forge.look_up(job)).state is ForgeState.QUEUED
    account.login = "acme2"
    github.clock.ahead_s += 400
    assert (await forge.look_up(job)).state is ForgeState.QUEUED
    renamed = a_job(github.settings().host, 1, tenant="acme2")
    assert (await forge.look_up(renamed)).state is ForgeState.GONE


async def test_a_suspended_installation_is_not_swept(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    account.suspended = True
    github.repository(account, "widgets")
    swept = await forge.sweep(["acme/widgets"], at_most=10)
    assert (swept.repositories, swept.left_out) == (0, 1)
    assert [s.operation for s in github.seen] == ["installations"]


async def test_a_sweep_without_a_list_of_installations_fails_as_a_forge_does(
    github: GithubServer, forge: GithubForge
) -> None:
    github.faults.append(Fault("installations"))
    with pytest.raises(ForgeError):
        await forge.sweep(["acme/widgets"], at_most=10)


# --- Redelivery -------------------------------------------------------------------------------------------------------


async def test_messages_that_never_arrived_are_asked_for_again(
    github: GithubServer, forge: GithubForge
) -> None:
    minutes = timedelta(minutes=1)
    github.deliver("lost", 9 * minutes, 502, "workflow_job")
    latest = github.deliver("lost", 5 * minutes, 0, "workflow_job")
    github.deliver("arrived-later", 9 * minutes, 502, "workflow_job")
    github.deliver("arrived-later", 8 * minutes, 200, "workflow_job")
    github.deliver("arrived-first", 9 * minutes, 200, "workflow_job")
    github.deliver("arrived-first", 8 * minutes, 500, "workflow_job")
    github.deliver("other", minutes, 500, "push")
    useless = github.deliver("useless", minutes, 500, "workflow_job")
    github.not_redeliverable.add(useless)
    github.deliver("old", timedelta(hours=7), 500, "workflow_job")
    assert await forge.redeliver(within=WITHIN) == 1
    assert github.redelivered == [latest]


async def test_all_pages_are_read_until_they_are_too_old(
    github: GithubServer, forge: GithubForge
) -> None:
    seconds = timedelta(seconds=1)
    for number in range(250):
        github.deliver(f"g{number}", number * seconds, 200, "workflow_job")
    lost = github.deliver("lost", 240 * seconds, 504, "workflow_job")
    for number in range(300):
        github.deliver(f"h{number}", timedelta(days=1), 500, "workflow_job")
    assert await forge.redeliver(within=WITHIN) == 1
    assert github.redelivered == [lost]
    assert len(github.asked("deliveries")) == 3


async def test_what_is_settled_is_not_read_again(github: GithubServer, forge: GithubForge) -> None:
    for number in range(500):
        github.deliver(f"g{number}", timedelta(seconds=40 * number), 200, "workflow_job")
    await forge.redeliver(within=WITHIN)
    pages = len(github.asked("deliveries"))
    assert pages == 5
    lost = github.deliver("lost", timedelta(seconds=2), 504, "workflow_job")
    assert await forge.redeliver(within=WITHIN) == 1
    assert github.redelivered == [lost]
    assert len(github.asked("deliveries")) == pages + 1


async def test_a_message_that_keeps_failing_is_asked_for_less_and_less_often(
    github: GithubServer, forge: GithubForge
) -> None:
    asked = 0
    github.deliver("lost", timedelta(), 500, "workflow_job")
    for _ in range(60):
        count = await forge.redeliver(within=WITHIN)
        asked += count
        if count:
            github.deliver("lost", timedelta(), 500, "workflow_job")
        github.clock.ahead_s += 60
    assert 4 <= asked <= 7


async def test_a_message_that_github_cannot_deliver_again_keeps_no_other_from_us(
    github: GithubServer, forge: GithubForge
) -> None:
    first = github.deliver("poison", timedelta(minutes=9), 500, "workflow_job")
    second = github.deliver("lost", timedelta(minutes=5), 500, "workflow_job")
    github.faults.append(Fault("attempt", path=f"/{first}/", times=9))
    assert await forge.redeliver(within=WITHIN) == 1
    assert github.redelivered == [second]
    github.faults.clear()
    assert await forge.redeliver(within=WITHIN) == 2, "it was not taken for settled"


async def test_a_message_that_github_will_not_deliver_again_is_no_failure(
    github: GithubServer, forge: GithubForge
) -> None:
    github.not_redeliverable.add(github.deliver("useless", WITHIN / 2, 500, "workflow_job"))
    assert await forge.redeliver(within=WITHIN) == 0


async def test_of_many_failures_the_first_few_end_the_round(
    github: GithubServer, forge: GithubForge
) -> None:
    for number in range(10):
        github.deliver(f"g{number}", timedelta(minutes=9), 500, "workflow_job")
    github.faults.append(Fault("attempt", times=99))
    with pytest.raises(ForgeUnavailable):
        await forge.redeliver(within=WITHIN)
    assert len(github.asked("attempt")) == 3


async def test_deliveries_that_cannot_be_listed_are_an_error(
    github: GithubServer, forge: GithubForge
) -> None:
    github.faults.append(Fault("deliveries", status=503))
    with pytest.raises(ForgeUnavailable):
        await forge.redeliver(within=WITHIN)
    github.deliver("lost", timedelta(minutes=1), 500, "workflow_job")
    assert await forge.redeliver(within=WITHIN) == 1, "nothing was taken for settled"


async def test_asking_for_messages_again_leaves_the_apps_own_limit_to_minting(
    github: GithubServer, forge: GithubForge
) -> None:
    """After an outage thousands of messages are lost at once, and each token for a mint is the App's own request."""
    github.app = Account("the App itself", 0, limit=400)
    for number in range(350):
        github.deliver(f"g{number}", timedelta(minutes=5), 503, "workflow_job")
    for _ in range(60):
        await forge.redeliver(within=WITHIN)
        assert github.app.used <= 0.8 * github.app.limit
        github.clock.ahead_s += 40
    assert len(github.redelivered) > 250, "what can be spared is used"
    assert len(set(github.redelivered)) == len(github.redelivered), "none is asked for twice"


async def test_a_list_that_is_too_long_for_one_turn_is_read_on_in_the_next() -> None:
    server = GithubServer()
    async with server.running(), github_forge(server.settings(), server.clock) as forge:
        lost = server.deliver("lost", timedelta(hours=2), 503, "workflow_job")
        for number in range(2000):
            ago = timedelta(seconds=7000 - 3 * number)
            server.deliver(f"g{number}", ago, 200, "workflow_job")

        def slowly(_: Seen) -> None:
            server.clock.ahead_s += 5

        server.watch = slowly
        turns = 0
        while not await forge.redeliver(within=WITHIN):
            turns += 1
            assert turns < 9
        assert turns > 0, "else this shows nothing"
        assert server.redelivered == [lost]
        cursors = [seen.query.get("cursor", "") for seen in server.asked("deliveries")]
        assert len(cursors) == len(set(cursors)), "no page is read twice"
