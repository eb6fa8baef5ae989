"""The client of dispatch against a real server on loopback that misbehaves in every way that servers do."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from remuda.adapters.dispatch_client import DispatchClientSettings, dispatch_client
from remuda.model.errors import BadInput
from remuda.ports.dispatch import DispatchError, Signals, Stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from remuda.adapters.dispatch_client import DispatchClient

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SECRET = "eyJ0b2tlbiI6InNlY3JldCJ9.c2VjcmV0"  # noqa: S105 - a test's
ENDED = Stopped(ended_at=datetime(2026, 11, 15, 12, 0, 1, tzinfo=UTC), exit_code=137, reason="OOM")


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answered_by(handler: Handler, *, timeout_s: float = 5.0) -> AsyncIterator[DispatchClient]:
    async with serving(handler) as url:
        settings = DispatchClientSettings(
            base_url=url, token=SECRET, signals_timeout_s=timeout_s, stopped_timeout_s=timeout_s
        )
        async with dispatch_client(settings) as client:
            yield client


def says(body: str | bytes, *, status: int = 200) -> Handler:
    raw = body.encode() if isinstance(body, str) else body

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=raw, content_type="application/json")

    return answer


async def refused(handler: Handler, *, timeout_s: float = 5.0) -> DispatchError:
    async with answered_by(handler, timeout_s=timeout_s) as client:
        with pytest.raises(DispatchError) as caught:
            await client.signals("mac")
    assert SECRET not in str(caught.value)
    assert caught.value.fix
    return caught.value


# --- What is asked ------------------------------------------------------------------------------


async def test_signals_are_asked_for_as_the_contract_says() -> None:
    asked: list[tuple[str, str, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.method, request.raw_path, request.headers.get("Authorization")))
        return web.json_response(
            {
                "queued": 3,
                "claimed": 2,
                "occupied": 4,
                "withheld": 1,
                "p95_concurrent_last_hour": 7,
                "oldest_queued_s": 12.5,
                "colour": "a field of a newer server",
            }
        )

    async with answered_by(answer) as client:
        signals = await client.signals("mac")

    assert asked == [("GET", "/api/v1/pools/mac/signals", f"Bearer {SECRET}")]
    assert signals == Signals(
        queued=3,
        claimed=2,
        occupied=4,
        withheld=1,
        p95_concurrent_last_hour=7,
        oldest_queued_s=12.5,
    )


async def test_the_end_of_a_runner_is_reported_as_the_contract_says() -> None:
    got: list[tuple[str, str, object]] = []

    async def answer(request: web.Request) -> web.Response:
        got.append((request.method, request.raw_path, await request.json()))
        return web.Response(status=204)

    async with answered_by(answer) as client:
        await client.stopped("mac-runner-1", ENDED)

    body = {"ended_at": "2026-11-15T12:00:01Z", "exit_code": 137, "reason": "OOM"}
    assert got == [("POST", "/api/v1/runners/mac-runner-1/stopped", body)]


async def test_a_name_cannot_become_another_path() -> None:
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.raw_path)
        return web.json_response({"queued": 0})

    async with answered_by(answer) as client:
        await client.signals("a/../b?c=d#e%2F")
        with pytest.raises(DispatchError, match="is no name"):
            await client.signals("..")

    assert paths == ["/api/v1/pools/a%2F..%2Fb%3Fc=d%23e%252F/signals"]


async def test_a_path_in_the_address_is_kept() -> None:
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.raw_path)
        return web.json_response({"queued": 0})

    async with serving(answer) as url:
        settings = DispatchClientSettings(base_url=f"{url}/ci/")
        async with dispatch_client(settings) as client:
            await client.signals("mac")

    assert paths == ["/ci/api/v1/pools/mac/signals"]


# --- The token ----------------------------------------------------------------------------------


async def test_a_token_that_is_replaced_on_disk_is_used_from_the_next_call_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    shown: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        return web.json_response({"queued": 0})

    async with serving(answer) as url:
        settings = DispatchClientSettings(base_url=url, token_file=file)
        async with dispatch_client(settings) as client:
            for token in ("first", "second"):
                file.write_text(f"{token}\n")
                await client.signals("mac")

    assert shown == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "No such file", id="the file is not there"),
        pytest.param(b"", "holds no token", id="the file is empty"),
        pytest.param(b"two\nlines", "holds no token", id="it would break the header"),
        pytest.param(b"\xff\xfe", "it is not text", id="it is not text"),
    ],
)
async def test_without_a_usable_token_nothing_is_sent(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    calls: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        calls.append(request.path)
        return web.json_response({"queued": 0})

    async with serving(answer) as url:
        settings = DispatchClientSettings(base_url=url, token_file=file)
        async with dispatch_client(settings) as client:
            with pytest.raises(DispatchError, match=why):
                await client.signals("mac")

    assert calls == []


async def test_the_token_does_not_follow_a_redirect() -> None:
    elsewhere: list[str] = []

    async def other(request: web.Request) -> web.Response:
        elsewhere.append(request.path)
        return web.json_response({"queued": 0})

    async with serving(other) as url:

        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{url}/elsewhere"})

        error = await refused(answer)

    assert elsewhere == []
    assert "307" in error.why
    assert "redirects" in error.fix


async def test_a_server_that_repeats_our_token_does_not_get_it_into_the_error() -> None:
    async def answer(request: web.Request) -> web.Response:
        token = request.headers["Authorization"]
        why = "x" * 290 + token  # where the text is cut, half of the token would remain
        return web.json_response({"error": f"bad {token}", "why": why}, status=401)

    error = await refused(answer)
    assert "401 (bad Bearer …" in error.why
    assert SECRET[:6] not in str(error)


def test_the_token_is_not_shown_with_the_settings() -> None:
    assert SECRET not in repr(DispatchClientSettings(base_url="http://d", token=SECRET))


# --- What comes back ----------------------------------------------------------------------------


async def test_a_field_that_an_older_server_does_not_know_counts_as_0() -> None:
    async with answered_by(says('{"claimed": 2}')) as client:
        assert await client.signals("mac") == Signals(claimed=2)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param('{"queued": -1}', ">= 0", id="a negative number"),
        pytest.param('{"queued": 1.5}', "Expected `int`", id="half a job"),
        pytest.param('{"queued": "3"}', "Expected `int`", id="a number as text"),
        pytest.param('{"queued": true}', "Expected `int`", id="a truth for a number"),
        pytest.param('{"queued": null}', "Expected `int`", id="null is not 0"),
        pytest.param('{"queued": 1000001}', "<= 1000000", id="more jobs than there can be"),
        pytest.param(
            '{"queued": 1, "oldest_queued_s": -3}', ">= 0", id="an age before the beginning"
        ),
        pytest.param("{}", "none of the signals", id="an empty answer is not an empty queue"),
        pytest.param('{"hello": "there"}', "none of the signals", id="another server's JSON"),
        pytest.param("[]", "Expected `object`", id="a list"),
        pytest.param("<html>", "malformed", id="a page"),
        pytest.param("", "makes no sense", id="nothing"),
        pytest.param(b"\xff\xfe", "malformed", id="bytes"),
    ],
)
async def test_nonsense_is_an_error_and_never_a_number(body: str | bytes, why: str) -> None:
    assert why in (await refused(says(body))).why


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 429, 500, 503])
async def test_an_answer_that_is_not_2xx_is_an_error_with_its_number(status: int) -> None:
    error = await refused(says('{"error": "no", "why": "because"}', status=status))
    assert f"answered {status} (no: because)" in error.why


async def test_a_report_that_is_refused_is_an_error() -> None:
    async with answered_by(says("", status=403)) as client:
        with pytest.raises(
            DispatchError, match=r"The end of runner mac-1 could not be reported.*403"
        ):
            await client.stopped("mac-1", ENDED)


async def test_an_endless_answer_is_given_up() -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"0" * 16_384)

    assert "longer than 64 KiB" in (await refused(flood)).why


# --- Silence ------------------------------------------------------------------------------------


async def test_a_server_that_never_answers_costs_the_deadline() -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    assert "did not answer within 0.05 s" in (await refused(hang, timeout_s=0.05)).why


async def test_the_deadline_covers_a_body_that_trickles() -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    assert "did not answer within 0.1 s" in (await refused(trickle, timeout_s=0.1)).why


async def test_a_server_that_hangs_up_is_an_error() -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    assert "closed the connection" in (await refused(hang_up)).why


async def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers, nobody else gets it
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        settings = DispatchClientSettings(base_url=url, token=SECRET)
        async with dispatch_client(settings) as client:
            with pytest.raises(DispatchError, match="Connect call failed"):
                await client.signals("mac")


async def test_the_next_call_after_a_failure_works() -> None:
    answers = [500, 200]

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"queued": 1}, status=answers.pop(0))

    async with answered_by(answer) as client:
        with pytest.raises(DispatchError):
            await client.signals("mac")
        assert await client.signals("mac") == Signals(queued=1)


# --- Settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "dispatch", "ftp://d", "http://", "http://user:pw@d", "http://d:0", "http://d?x=1"],
)
def test_an_address_that_cannot_be_used_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput, match="address of dispatch") as caught:
        DispatchClientSettings(base_url=url)
    assert "pw" not in str(caught.value)
