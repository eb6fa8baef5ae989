"""Keys, tokens and job configs are in no error, no log and no repr, whatever goes wrong and whatever GitHub quotes."""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from remuda.adapters.github import GithubWebhooks, github_forge
from remuda.ports.forge import ForgeError
from tests.support.github_jobs import a_job, a_registration, a_runner
from tests.support.github_server import SECRET, Fault, GithubServer, app_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from remuda.adapters.github import GithubForge

CALLS: dict[str, tuple[str, Callable[[GithubForge, str], Awaitable[object]]]] = {
    "mint": ("mint", lambda forge, host: forge.mint(a_job(host), a_runner())),
    "look_up": ("job", lambda forge, host: forge.look_up(a_job(host, 5))),
    "remove": ("runners", lambda forge, _: forge.remove(a_registration())),
    "is_fork": ("run", lambda forge, _: forge.is_fork("acme/widgets", 5, "acme")),
    "redeliver": ("deliveries", lambda forge, _: forge.redeliver(within=timedelta(hours=1))),
    "token": ("token", lambda forge, host: forge.mint(a_job(host), a_runner())),
    "installations": ("installations", lambda forge, host: forge.mint(a_job(host), a_runner())),
}


def _whole(error: BaseException) -> Iterator[str]:
    """Yield all that anybody may print of an error, also what it was raised after."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        yield from (str(error), repr(error), repr(vars(error)), repr(error.args))
        yield "".join(traceback.format_exception(error))
        error = error.__cause__ or error.__context__ or error


def _canaries(github: GithubServer) -> list[str]:
    key = [line for line in app_key()[0].splitlines() if "KEY" not in line]
    sent = [s.headers.get("authorization", "").partition(" ")[2] for s in github.seen]
    return [*key, SECRET, github.jit_config, *github.tokens, *filter(None, sent)]


@pytest.mark.parametrize("status", [201, 400, 401, 403, 404, 409, 422, 429, 500])
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_that_quotes_our_credentials_shows_them_to_nobody(
    github: GithubServer, caplog: pytest.LogCaptureFixture, call: str, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    github.repository(github.account("acme"), "widgets")
    operation, ask = CALLS[call]
    settings = github.settings()
    async with github_forge(settings, github.clock) as forge:
        if call not in {"token", "installations"}:
            await forge.mint(a_job(settings.host), a_runner("warm-up"))
        token = next(iter(github.tokens), "none-yet")
        jit = github.jit_config
        words = f"you sent {token}, and we both know {SECRET}"
        said = {"message": words, "token": token, "encoded_jit_config": jit}
        github.faults.append(Fault(operation, status=status, body=msgspec.json.encode(said)))
        shown = [repr(forge), repr(settings), repr(GithubWebhooks(settings))]
        try:
            shown.append(repr(await ask(forge, settings.host)))
        except ForgeError as error:
            shown += _whole(error)
        shown += [repr(value) for value in vars(forge).values()]
        shown += [repr(vars(value)) for value in vars(forge).values() if hasattr(value, "__dict__")]
    shown.append(caplog.text)
    assert _canaries(github)
    for canary in _canaries(github):
        assert not any(canary in text for text in shown)


@pytest.mark.parametrize("kind", ["hang", "lost", "cut"])
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_that_never_comes_shows_nothing_of_the_request(
    github: GithubServer, caplog: pytest.LogCaptureFixture, call: str, kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    github.repository(github.account("acme"), "widgets")
    operation, ask = CALLS[call]
    github.faults.append(Fault(operation, kind=kind, times=9))
    settings = github.settings(call_s=0.3, mint_s=0.3)
    async with github_forge(settings, github.clock) as forge:
        with pytest.raises(ForgeError) as raised:
            await ask(forge, settings.host)
    shown = [*_whole(raised.value), caplog.text]
    for canary in _canaries(github):
        assert not any(canary in text for text in shown)


async def test_what_was_minted_shows_no_job_config(
    github: GithubServer, forge: GithubForge
) -> None:
    github.repository(github.account("acme"), "widgets")
    minted = await forge.mint(a_job("h"), a_runner())
    assert minted.encoded_jit_config == github.jit_config
    assert github.jit_config not in repr(minted) + repr(minted.registration)
