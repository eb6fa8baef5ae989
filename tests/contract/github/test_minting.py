"""Registering runners at GitHub and removing them. GitHub's OpenAPI watches (see conftest)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from remuda.adapters.github import MintScope, github_forge
from remuda.model.job import Kind, Os
from remuda.ports.forge import (
    ForgeError,
    ForgeRefused,
    ForgeThrottled,
    ForgeUnavailable,
    Removal,
    Scope,
)
from tests.support.github_jobs import a_job, a_registration, a_runner
from tests.support.github_server import Fault, GithubServer

if TYPE_CHECKING:
    from remuda.adapters.github import GithubForge
    from remuda.dispatch.metrics import DispatchMetrics

HOST = "127.0.0.1"


async def test_a_runner_is_registered_at_the_organisation(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("Acme"), "widgets")
    minted = await forge.mint(a_job(HOST, repository="Acme/widgets"), a_runner())
    (runner,) = github.runners.values()
    assert minted.encoded_jit_config == github.jit_config
    assert runner.scope == "orgs/Acme"
    assert runner.body == {
        "name": "fast-1-0badcafe",
        "runner_group_id": 1,
        "labels": ["fast", "self-hosted"],
        "work_folder": "/home/runner/work",
    }
    registration = minted.registration
    assert registration is not None
    assert (registration.scope, registration.number) == ("orgs/Acme", runner.number)
    assert registration.kind is Kind.GITHUB
    assert (registration.tenant, registration.job_id) == ("acme", f"{HOST}/1")


async def test_a_mac_gets_the_folder_of_a_mac(github: GithubServer, forge: GithubForge) -> None:
    github.repository(github.account("acme"), "widgets")
    await forge.mint(a_job(HOST), a_runner(os=Os.DARWIN))
    (runner,) = github.runners.values()
    assert runner.body["work_folder"] == "/Users/runner/work"


async def test_a_users_runner_is_registered_at_the_repository(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme", kind="User"), "widgets")
    minted = await forge.mint(a_job(HOST), a_runner())
    assert minted.registration is not None
    assert minted.registration.scope == "repos/acme/widgets"
    assert [seen.path for seen in github.asked("mint")] == [
        "/repos/acme/widgets/actions/runners/generate-jitconfig"
    ]


async def test_an_organisation_that_says_404_is_followed_by_its_repository(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    github.faults.append(Fault("mint", status=404, body=b'{"message": "Not Found"}'))
    minted = await forge.mint(a_job(HOST), a_runner())
    assert minted.registration is not None
    assert minted.registration.scope == "repos/acme/widgets"


async def test_the_repository_goes_first_if_that_is_wanted_and_the_organisation_second(
    github: GithubServer,
) -> None:
    github.repository(github.account("acme"), "widgets")
    settings = github.settings(scope=MintScope.REPOSITORY)
    async with github_forge(settings, github.clock) as forge:
        first = await forge.mint(a_job(HOST), a_runner("one"))
        github.faults.append(Fault("mint", status=404))
        second = await forge.mint(a_job(HOST), a_runner("two"))
    assert first.registration is not None
    assert second.registration is not None
    assert first.registration.scope == "repos/acme/widgets"
    assert second.registration.scope == "orgs/acme"


async def test_a_group_is_found_by_its_name_once_and_is_never_left_for_the_repository(
    github: GithubServer,
) -> None:
    account = github.account("acme")
    github.repository(account, "widgets")
    account.groups |= {number: f"g{number}" for number in range(2, 150)} | {150: "CI"}
    async with github_forge(github.settings(runner_group="ci"), github.clock) as forge:
        await forge.mint(a_job(HOST), a_runner("one"))
        await forge.mint(a_job(HOST), a_runner("two"))
        assert [r.body["runner_group_id"] for r in github.runners.values()] == [150, 150]
        assert len(github.asked("groups")) == 2  # two pages, once
        del account.groups[150]
        with pytest.raises(ForgeRefused) as refused:
            await forge.mint(a_job(HOST), a_runner("three"))
    assert refused.value.scope is Scope.REPOSITORY
    assert len(github.runners) == 2


async def test_a_group_that_is_not_there_is_said_so(github: GithubServer) -> None:
    github.repository(github.account("acme"), "widgets")
    settings = github.settings(runner_groups={"acme": "Gone"})
    async with github_forge(settings, github.clock) as forge:
        with pytest.raises(ForgeRefused, match="no runner group 'Gone'") as refused:
            await forge.mint(a_job(HOST), a_runner())
    assert refused.value.scope is Scope.TENANT


@pytest.mark.parametrize(
    ("status", "headers", "message", "expected"),
    [
        pytest.param(
            403,
            {},
            "Resource not accessible by integration",
            (ForgeRefused, Scope.TENANT),
            id="403 is the tenant's: a permission is missing",
        ),
        pytest.param(422, {}, "Labels", (ForgeRefused, Scope.JOB), id="422 is the job's"),
        pytest.param(400, {}, "Bad", (ForgeRefused, Scope.JOB), id="400 is the job's"),
        pytest.param(
            302,
            {"location": "http://127.0.0.1:1/"},
            "",
            (ForgeRefused, Scope.REPOSITORY),
            id="a redirect is the repository's, and is not followed",
        ),
        pytest.param(409, {}, "Exists", (ForgeUnavailable, None), id="409 takes another name"),
        pytest.param(401, {}, "Bad", (ForgeUnavailable, None), id="401 takes another token"),
        pytest.param(500, {}, "", (ForgeUnavailable, None), id="500 may heal"),
        pytest.param(502, {}, "", (ForgeUnavailable, None), id="502 may heal"),
        pytest.param(429, {"retry-after": "7"}, "", (ForgeThrottled, 7.0), id="429 names its time"),
        pytest.param(429, {}, "", (ForgeThrottled, 60.0), id="429 without a time is a minute"),
        pytest.param(
            403, {"retry-after": "30"}, "", (ForgeThrottled, 30.0), id="403 with a time is a limit"
        ),
        pytest.param(
            403,
            {},
            "You have exceeded a secondary rate limit",
            (ForgeThrottled, 60.0),
            id="403 that speaks of a limit is one",
        ),
        pytest.param(
            403,
            {"x-ratelimit-remaining": "0"},
            "API rate limit exceeded",
            (ForgeThrottled, 60.0),
            id="403 with nothing remaining is a limit",
        ),
    ],
)
async def test_a_refusal_says_whom_to_pass_over(
    github: GithubServer,
    forge: GithubForge,
    status: int,
    headers: dict[str, str],
    message: str,
    expected: tuple[type[ForgeError], Scope | float | None],
) -> None:
    github.repository(github.account("acme"), "widgets")
    body = msgspec.json.encode({"message": message})
    github.faults.append(Fault("mint", status=status, headers=headers, body=body))
    with pytest.raises(ForgeError) as raised:
        await forge.mint(a_job(HOST), a_runner())
    said = getattr(raised.value, "scope", getattr(raised.value, "retry_after_s", None))
    assert (type(raised.value), said) == expected
    assert len(github.asked("mint")) == 1, "a mint is never repeated inside"
    assert github.runners == {}


async def test_a_repository_that_the_app_cannot_see_is_the_repositorys_own_trouble(
    github: GithubServer, forge: GithubForge
) -> None:
    github.account("acme", kind="User")
    with pytest.raises(ForgeRefused) as refused:
        await forge.mint(a_job(HOST), a_runner())
    assert refused.value.scope is Scope.REPOSITORY


async def test_after_too_much_was_asked_nothing_is_asked_before_the_time_named(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    github.repository(github.account("globex"), "gears")
    github.faults.append(Fault("mint", status=429, headers={"retry-after": "90"}))
    for _ in range(3):
        with pytest.raises(ForgeThrottled):
            await forge.mint(a_job(HOST), a_runner())
    assert len(github.asked("mint")) == 1
    other = a_job(HOST, tenant="globex", repository="globex/gears")
    await forge.mint(other, a_runner("other"))
    github.clock.ahead_s += 91
    await forge.mint(a_job(HOST), a_runner())
    assert {r.scope for r in github.runners.values()} == {"orgs/acme", "orgs/globex"}


@pytest.mark.parametrize("kind", ["hang", "lost", "cut"])
async def test_an_answer_that_never_comes_is_unavailable_and_what_was_made_is_found_by_its_name(
    github: GithubServer, kind: str
) -> None:
    github.repository(github.account("acme"), "widgets")
    github.faults.append(Fault("mint", kind=kind))
    async with github_forge(github.settings(mint_s=1.0), github.clock) as forge:
        with pytest.raises(ForgeUnavailable):
            await forge.mint(a_job(HOST), a_runner())
    assert len(github.asked("mint")) == 1
    async with github_forge(github.settings(), github.clock) as forge:
        removal = await forge.remove(a_registration())
        assert removal is (Removal.REMOVED if kind == "lost" else Removal.GONE)
        assert await forge.remove(a_registration()) is Removal.GONE
    assert github.runners == {}


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"runner": {"id": "x"}, "encoded_jit_config": "s"}', b"\xff"],
)
async def test_a_success_that_makes_no_sense_is_unavailable(
    github: GithubServer, forge: GithubForge, body: bytes
) -> None:
    github.repository(github.account("acme"), "widgets")
    github.faults.append(Fault("mint", status=201, body=body))
    with pytest.raises(ForgeUnavailable, match="makes no sense"):
        await forge.mint(a_job(HOST), a_runner())


async def test_tenants_that_cannot_be_served_are_refused_as_tenants(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    github.repository(account, "widgets")
    account.suspended = True
    with pytest.raises(ForgeRefused, match="suspended") as refused:
        await forge.mint(a_job(HOST), a_runner())
    assert refused.value.scope is Scope.TENANT
    assert github.asked("token") == [], "it is not even asked for a token"
    with pytest.raises(ForgeRefused, match="not installed") as refused:
        await forge.mint(a_job(HOST, tenant="nobody"), a_runner())
    assert refused.value.scope is Scope.TENANT


async def test_an_installation_that_is_removed_while_we_believe_in_it_refuses_the_tenant(
    github: GithubServer, forge: GithubForge
) -> None:
    account = github.account("acme")
    github.repository(account, "widgets")
    await forge.mint(a_job(HOST), a_runner("one"))
    account.suspended = True
    github.clock.ahead_s += 30  # the list is still believed
    with pytest.raises(ForgeRefused) as refused:
        await forge.mint(a_job(HOST), a_runner("two"))
    assert refused.value.scope is Scope.TENANT


async def test_a_wrong_key_is_said_to_be_wrong(github: GithubServer) -> None:
    github.repository(github.account("acme"), "widgets")
    async with github_forge(github.settings(app_id="8"), github.clock) as forge:
        with pytest.raises(ForgeRefused, match="does not accept the App's own key") as refused:
            await forge.mint(a_job(HOST), a_runner())
    assert refused.value.scope is Scope.TENANT


async def test_a_token_is_asked_for_once_however_many_need_it_and_again_before_it_ends(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(forge.mint(a_job(HOST, number), a_runner(f"r{number}")))
    assert len(github.asked("token")) == 1
    assert len(github.asked("installations")) == 1
    assert len(github.runners) == 20
    github.clock.ahead_s += 56 * 60
    await forge.mint(a_job(HOST), a_runner("later"))
    assert len(github.asked("token")) == 2


async def test_a_token_that_is_refused_is_thrown_away(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    await forge.mint(a_job(HOST), a_runner("one"))
    github.tokens.clear()
    with pytest.raises(ForgeUnavailable):
        await forge.mint(a_job(HOST), a_runner("two"))
    await forge.mint(a_job(HOST), a_runner("three"))
    assert sorted(r.name for r in github.runners.values()) == ["one", "three"]


async def test_a_mint_that_is_cancelled_while_it_waits_for_a_token_leaves_the_way_free(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    github.faults.append(Fault("token", kind="hang"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await forge.mint(a_job(HOST), a_runner("one"))
    await forge.mint(a_job(HOST), a_runner("two"))
    assert [r.name for r in github.runners.values()] == ["two"]


async def test_githubs_failing_to_list_installations_stops_no_mint_of_a_known_tenant(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    await forge.mint(a_job(HOST), a_runner("one"))
    github.clock.ahead_s += 1000
    github.faults.append(Fault("installations", times=99))
    await forge.mint(a_job(HOST), a_runner("two"))
    await forge.mint(a_job(HOST), a_runner("three"))
    assert len(github.asked("installations")) == 2, "not tried at each mint"


async def test_what_is_left_of_the_rate_limit_is_published(
    github: GithubServer, forge: GithubForge, metrics: DispatchMetrics
) -> None:
    account = github.account("acme")
    github.repository(account, "widgets")
    account.used = 100
    await forge.mint(a_job(HOST), a_runner())
    value = metrics.registry.get_sample_value
    assert value("remuda_forge_rate_limit_remaining") == 4899
    labels = {"operation": "mint", "status": "201"}
    assert value("remuda_forge_requests_total", labels) == 1


@pytest.mark.parametrize("by", ["number", "name"])
async def test_a_registration_is_removed_once_and_a_busy_one_is_left_alone(
    github: GithubServer, forge: GithubForge, by: str
) -> None:
    github.repository(github.account("acme"), "widgets")
    minted = await forge.mint(a_job(HOST), a_runner())
    known = minted.registration
    assert known is not None
    registration = known if by == "number" else a_registration()
    runner = next(iter(github.runners.values()))
    runner.busy = True
    assert await forge.remove(registration) is Removal.BUSY
    runner.busy = False
    assert await forge.remove(registration) is Removal.REMOVED
    assert await forge.remove(registration) is Removal.GONE


async def test_only_the_very_name_is_removed(github: GithubServer, forge: GithubForge) -> None:
    github.repository(github.account("acme"), "widgets")
    await forge.mint(a_job(HOST), a_runner("fast-1-0badcafe0"))
    assert await forge.remove(a_registration("fast-1-0badcafe")) is Removal.GONE
    assert len(github.runners) == 1


async def test_an_enterprise_server_is_asked_below_its_path() -> None:
    server = GithubServer()
    server.repository(server.account("acme"), "widgets")
    async with server.running("/api/v3"), github_forge(server.settings(), server.clock) as forge:
        await forge.mint(a_job(HOST), a_runner())
    assert [seen.path for seen in server.asked("mint")] == [
        "/orgs/acme/actions/runners/generate-jitconfig"
    ]
