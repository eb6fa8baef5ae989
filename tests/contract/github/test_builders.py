"""Registration tokens of builders, asked of a GitHub of our own as an App: what is asked, and what refusals say."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from remuda.adapters.github.builders import BuilderTokens
from remuda.hosts.registration import App, RunnerAtWork
from remuda.model.errors import BadInput
from remuda.model.secret import Secret
from remuda.ports.forge import ForgeError, ForgeRefused, ForgeThrottled, ForgeUnavailable
from tests.support.github_references import Judge
from tests.support.github_server import APP_ID, Fault, GithubServer, app_key

if TYPE_CHECKING:
    from pathlib import Path


def pkcs8() -> bytes:
    key = load_pem_private_key(app_key()[0].encode(), password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def an_app(installation: int, key: bytes | None = None, app_id: str = APP_ID) -> App:
    return App(app_id, installation, Secret(key or app_key()[0].encode()))


@pytest.mark.parametrize("document", ["api.github.com", "ghec", "ghes-3.19", "ghes-3.17"])
async def test_a_token_is_asked_for_as_github_describes_it(
    github_references: Path, document: str
) -> None:
    judge = Judge.of(github_references, document)
    server = GithubServer()
    server.watch = judge.watch
    account = server.account("acme")
    async with server.running("/api/v3" if document.startswith("ghes") else ""):
        tokens = BuilderTokens(server.clock, server.url)
        first = await tokens.registration_token(an_app(account.installation), "acme")
        again = await tokens.registration_token(an_app(account.installation, pkcs8()), "Acme")
    assert re.fullmatch(rb"AREGCANARY\d+", first.reveal())
    assert first != again, "a fresh one each time"
    assert judge.faults == []
    assert judge.operations == {
        "POST /app/installations/{installation_id}/access_tokens",
        "POST /orgs/{org}/actions/runners/registration-token",
    }


@pytest.mark.parametrize(
    ("org", "change", "kind", "says"),
    [
        ("globex", {}, ForgeRefused, "installation-id is that of globex"),
        ("acme", {"installation": 9999}, ForgeRefused, "404"),
        ("acme", {"app_id": "8"}, ForgeRefused, "does not accept the App's own key"),
        ("acme", {"key": b"canary-of-no-key"}, BadInput, "not a PEM file"),
    ],
)
async def test_a_wrong_secret_is_said_to_be_wrong(
    github: GithubServer, org: str, change: dict[str, object], kind: type[Exception], says: str
) -> None:
    given: dict[str, object] = {"installation": github.account("acme").installation, **change}
    with pytest.raises(kind, match=says) as raised:
        await BuilderTokens(github.clock, github.url).registration_token(
            an_app(**given),  # type: ignore[arg-type]
            org,
        )
    assert "canary" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (Fault("registration_token", status=403), ForgeRefused, "Self-hosted runners: write"),
        (Fault("registration_token", status=500), ForgeUnavailable, "500"),
        (Fault("registration_token", status=429), ForgeThrottled, "rate limit"),
        (Fault("registration_token", kind="lost"), ForgeUnavailable, "could be registered"),
        (Fault("registration_token", status=201, body=b"{}"), ForgeUnavailable, "no sense"),
        (
            Fault("registration_token", status=201, body=b'{"token": "a\\nb"}'),
            ForgeUnavailable,
            "no token",
        ),
        (
            Fault("registration_token", status=201, body=b'{"token": ""}'),
            ForgeUnavailable,
            "no token",
        ),
    ],
)
async def test_a_token_that_is_not_given_is_said_so_without_any_credential(
    github: GithubServer, fault: Fault, kind: type[ForgeError], says: str
) -> None:
    account = github.account("acme")
    github.faults.append(fault)
    with pytest.raises(kind, match=says) as raised:
        await BuilderTokens(github.clock, github.url).registration_token(
            an_app(account.installation), "acme"
        )
    told = "".join(traceback.format_exception(raised.value)).lower()
    assert "canary" not in told
    assert "private key" not in told


@pytest.mark.parametrize("document", ["api.github.com", "ghec", "ghes-3.19", "ghes-3.17"])
async def test_a_runner_is_removed_as_github_describes_it(
    github_references: Path, document: str
) -> None:
    judge = Judge.of(github_references, document)
    server = GithubServer()
    server.watch = judge.watch
    account = server.account("acme")
    for name in ("mini-1", "mini-10"):
        server.registered(name, "acme")
    async with server.running("/api/v3" if document.startswith("ghes") else ""):
        tokens = BuilderTokens(server.clock, server.url)
        for _ in range(2):  # the second time there is none
            await tokens.remove_runner(an_app(account.installation), "acme", "mini-1")
    assert [runner.name for runner in server.runners.values()] == ["mini-10"]
    assert judge.faults == []
    assert judge.operations == {
        "POST /app/installations/{installation_id}/access_tokens",
        "GET /orgs/{org}/actions/runners",
        "DELETE /orgs/{org}/actions/runners/{runner_id}",
    }


@pytest.mark.parametrize("how", [{"online": True}, {"busy": True}], ids=str)
async def test_a_runner_that_is_at_work_is_left_to_it(
    github: GithubServer, how: dict[str, bool]
) -> None:
    account = github.account("acme")
    runner = github.registered("mini-1", "acme", **how)
    with pytest.raises(RunnerAtWork, match="another machine has its name"):
        await BuilderTokens(github.clock, github.url).remove_runner(
            an_app(account.installation), "acme", "mini-1"
        )
    assert github.runners == {runner.number: runner}


async def test_a_runner_that_gets_a_job_meanwhile_is_left_to_it(github: GithubServer) -> None:
    account = github.account("acme")
    runner = github.registered("mini-1", "acme")
    github.faults.append(Fault("remove", status=422))
    with pytest.raises(RunnerAtWork):
        await BuilderTokens(github.clock, github.url).remove_runner(
            an_app(account.installation), "acme", "mini-1"
        )
    assert github.runners == {runner.number: runner}
