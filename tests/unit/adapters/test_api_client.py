"""The commands' own client against the real application on a real socket, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from remuda.adapters.api_client import ApiSettings, api_client
from remuda.adapters.api_stream import EventReader
from remuda.adapters.http_server import serving_http
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock
from remuda.dispatch.api.feed import FeedSettings
from remuda.model.errors import BadInput
from remuda.model.job import JobState
from remuda.ports.api import (
    ApiFault,
    ApiInvalid,
    ApiNotFound,
    ApiRefused,
    ApiUnavailable,
    Cancellation,
    EventsWanted,
    JobsWanted,
    NewJob,
    Subject,
)
from tests.support.api import an_office
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.adapters.api_client import ApiClient
    from remuda.ports.api import Api, Event
    from tests.support.api import Office
    from tests.support.certificates import KeyPair

WAIT_S = 60
QUICK = FeedSettings(poll_s=0.02)
TOKEN = "rmd_canary-4711"  # noqa: S105 - a test's


@asynccontextmanager
async def an_api(role: str = "operate") -> AsyncIterator[tuple[Office, ApiClient]]:
    async with (
        an_office(SystemClock(), QUICK) as office,
        serving_http(office.app, Listen(port=0), shutdown_s=1.0) as server,
        api_client(
            ApiSettings(base_url=server.address, token=office.keys[role]), SystemClock()
        ) as client,
    ):
        yield office, client


@asynccontextmanager
async def a_server(
    handler: Any,  # noqa: ANN401 - aiohttp's own
    certificate: KeyPair | None = None,
    **settings: Any,  # noqa: ANN401 - of the client
) -> AsyncIterator[ApiClient]:
    """Serve whatever a test wants to see answered."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        tls, scheme = None, "http"
        if certificate is not None:
            tls, scheme = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), "https"
            tls.load_cert_chain(certificate.certificate, certificate.key)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        host, port = runner.addresses[0][:2]
        given = {"base_url": f"{scheme}://{host}:{port}", "token": TOKEN, **settings}
        async with api_client(ApiSettings(**given), SystemClock()) as client:
            yield client
    finally:
        await runner.cleanup()


def answering(status: int, body: object = None, **headers: str) -> Any:  # noqa: ANN401 - a handler
    async def answer(_: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=json.dumps(body).encode(), headers=named)

    return answer


# --- What there is ---------------------------------------------------------------------------------------------------


async def test_jobs_are_listed_over_pages_up_to_a_limit() -> None:
    async with an_api("read") as (office, client):
        api: Api = client
        await office.limit()
        await office.queue(*range(1, 8))
        office_page, client_page = len(await api.jobs()), len(await api.jobs(limit=3))
        assert (office_page, client_page) == (7, 3)
        waiting = JobsWanted(states=(JobState.QUEUED, JobState.CLAIMED), pool="linux")
        assert len(await api.jobs(waiting)) == 7
        assert await api.jobs(JobsWanted(states=(JobState.COMPLETED,))) == ()
        first = (await api.jobs(limit=1))[0]
        assert await api.job(first.id) == first
        assert "/" in first.id


async def test_all_pages_are_read() -> None:
    asked: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        number = len(asked)
        row = {"id": f"github.com/{number}", "state": "queued", "queued_at": "2026-01-01T00:00:00Z"}
        return web.json_response({"jobs": [row], "next": "more" if number < 3 else None})

    async with a_server(answer) as client:
        assert [job.id[-1] for job in await client.jobs()] == ["1", "2", "3"]
        assert [query.get("cursor") for query in asked] == [None, "more", "more"]


async def test_runners_pools_hosts_claims_and_limits_are_read() -> None:
    async with an_api("read") as (office, client):
        await office.add_pool()
        await office.add_pod("linux-a")
        await office.add_pod("linux-b", warm=False)
        await office.add_node("mini-1")
        await office.limit()
        await office.queue(1)
        await office.run_on("linux-a")

        names = [runner.name for runner in await client.runners(pool="linux")]
        runner = await client.runner("linux-a")
        pools, detail = await client.pools(), await client.pool("linux")
        hosts, claims, limits = await client.hosts(), await client.claims(), await client.limits()

        assert names == ["linux-a", "linux-b"]
        assert [found.name for found in await client.runners(limit=1)] == ["linux-a"]
        assert runner.pod is not None
        assert (runner.pod.phase, runner.pool, runner.pod.template) == ("warm", "linux", "t1")
        assert runner.claim is not None
        assert [claim.pod for claim in claims] == ["linux-a"]
        assert [pool.name for pool in pools] == ["linux"]
        assert detail.pool.labels[-1] == "linux"
        assert detail.signals.claimed == 1
        assert [host.name for host in hosts] == ["mini-1"]
        assert [(row.tenant, row.vcpus) for row in limits] == [("acme", 8)]


async def test_why_something_is_so_is_asked_by_its_name() -> None:
    async with an_api("read") as (office, client):
        await office.add_pool()
        await office.add_pod("linux-a")
        await office.limit()
        await office.queue(1)
        job = (await client.jobs())[0]

        about = [
            await client.explain(Subject.JOB, job.id),
            await client.explain(Subject.RUNNER, "linux-a"),
            await client.explain(Subject.POOL, "linux"),
            await client.explain_labels(("self-hosted", "fast")),
        ]

        assert [bool(each.sentence and each.why) for each in about] == [True] * 4
        assert [each.subject for each in about[:3]] == [job.id, "linux-a", "linux"]


async def test_the_server_says_how_it_does() -> None:
    async with an_api("read") as (_, client):
        assert await client.ready() == ""
        assert "remuda_dispatch" in await client.metrics()
    async with a_server(answering(503, "its database does not answer")) as client:
        assert "database" in await client.ready()


# --- Jobs ------------------------------------------------------------------------------------------------------------


async def test_a_job_is_posted_once_however_often_it_is_sent() -> None:
    async with an_api() as (office, client):
        await office.add_pool()
        job = NewJob(pool="linux", command=("echo", "it's"), env={"A": "1"}, name="hello")

        first, second = await client.submit(job, key="k"), await client.submit(job, key="k")

        assert first.id == second.id
        assert (await client.job(first.id)).name == "hello"
        kept = await office.dispatch.ports.local_jobs.get(first.id)
        assert kept is not None
        assert kept.script == "exec echo 'it'\"'\"'s'\n"
        with pytest.raises(ApiInvalid, match="same Idempotency-Key"):
            await client.submit(NewJob(pool="linux", script="other"), key="k")


async def test_a_job_is_cancelled_and_its_outcome_read() -> None:
    async with an_api() as (office, client):
        await office.add_pool()
        job = await client.submit(NewJob(pool="linux", script="true"), key="k")
        assert not (await client.outcome(job.id)).over

        assert await client.cancel(job.id) is Cancellation.CANCELLED
        assert await client.cancel(job.id) is Cancellation.OVER

        outcome = await client.outcome(job.id)
        assert (outcome.over, outcome.conclusion, outcome.exit_code) == (True, "cancelled", None)


async def test_output_is_read_from_a_place_on_and_followed_to_its_end() -> None:
    async with an_api() as (office, client):
        await office.add_pool()
        pod = await office.add_pod("linux-a")
        await office.account("linux-a", pod=pod)
        job = await client.submit(NewJob(pool="linux", script="true"), key="k")
        await office.run_on("linux-a", runner="r-a")

        async def says(body: dict[str, Any]) -> None:
            path = "/api/v1/runners/linux-a/telemetry"
            assert (await office.call("POST", path, "linux-a", body=body)).status == 204

        await says({"started_at": "2026-01-01T00:00:01Z", "log": {"offset": 0, "data": "AAEC/w=="}})
        read = [piece async for piece in client.log(job.id, offset=1)]
        assert b"".join(read) == b"\x01\x02\xff"
        followed = b""
        async with asyncio.timeout(WAIT_S), aclosing(client.log(job.id, follow=True)) as pieces:
            async for piece in pieces:
                followed += piece
                if len(followed) == 4:
                    await says({"log": {"offset": 4, "data": "eA=="}, "exit": {"code": 7}})
        assert followed == b"\x00\x01\x02\xffx"
        outcome = await client.outcome(job.id)
        assert (outcome.conclusion, outcome.exit_code, outcome.pod) == ("failure", 7, "linux-a")


async def test_a_log_that_is_silent_ends_so_that_the_line_is_tried_again() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        await asyncio.sleep(WAIT_S)
        return response

    async with a_server(answer, log_idle_s=2.0) as client:
        assert [piece async for piece in client.log("local-1", follow=True)] == [b"one"]
    async with a_server(answer, timeout_s=2.0) as client:
        with pytest.raises(ApiUnavailable, match="said nothing"):
            [piece async for piece in client.log("local-1")]


async def test_a_log_whose_line_is_cut_is_no_log_that_ended() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with a_server(answer) as client:
        with pytest.raises(ApiUnavailable):
            [piece async for piece in client.log("local-1", follow=True)]


# --- Events ----------------------------------------------------------------------------------------------------------


async def test_events_come_as_they_happen_and_from_a_number_on() -> None:
    async with an_api() as (office, client):
        await office.limit()
        seen: list[Event] = []
        async with asyncio.timeout(WAIT_S):
            async with aclosing(client.events(EventsWanted(after=0))) as events:
                async for event in events:
                    seen.append(event)
                    if len(seen) == 1:
                        await office.queue(1, 2)
                    if len(seen) == 3:
                        break
            behind = EventsWanted(after=seen[1].number, job_id=seen[2].job_id)
            async with aclosing(client.events(behind)) as events:
                again = await anext(events)
        assert [event.what for event in seen] == ["limited", "enqueued", "enqueued"]
        assert again == seen[2]
        assert await client.audit() == tuple(seen)
        assert await client.audit(after=seen[0].number, limit=1) == (seen[1],)


async def test_only_what_happens_next_is_told_to_who_names_no_number() -> None:
    async with an_api() as (office, client):
        await office.limit()
        async with (
            asyncio.timeout(WAIT_S),
            aclosing(client.events()) as events,
            asyncio.TaskGroup() as coming,
        ):
            first = coming.create_task(anext(events))
            await office.until(lambda: office.feed.listeners == 1, within_s=WAIT_S)
            await office.queue(1)
        assert first.result().what == "enqueued"


async def test_a_stream_that_breaks_goes_on_behind_the_last_event() -> None:
    asked: list[str] = []
    troubles: list[ApiUnavailable] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Last-Event-ID"])
        if len(asked) == 2:
            return web.Response(status=503)
        response = web.StreamResponse()
        await response.prepare(request)
        number = int(asked[-1]) + 1
        event = json.dumps({"number": number, "at": "2026-01-01T00:00:00Z"})
        await response.write(f": hello\n\nid: {number}\ndata: {event}\n\n".encode())
        if len(asked) == 1:
            assert request.transport is not None
            request.transport.abort()
        return response

    async with a_server(answer) as client, asyncio.timeout(WAIT_S):
        stream = client.events(EventsWanted(after=5), trouble=troubles.append)
        async with aclosing(stream) as events:
            numbers = [(await anext(events)).number for _ in range(3)]
    assert numbers == [6, 7, 8]
    assert asked[:4] == ["5", "6", "6", "7"]
    assert len(troubles) == 2


async def test_a_stream_of_events_that_falls_silent_is_opened_again() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Last-Event-ID"])
        response = web.StreamResponse()
        await response.prepare(request)
        if len(asked) > 1:
            await response.write(b'data: {"number": 9, "at": "2026-01-01T00:00:00Z"}\n\n')
        await asyncio.sleep(WAIT_S)
        return response

    async with (
        a_server(answer, events_idle_s=0.2) as client,
        asyncio.timeout(WAIT_S),
        aclosing(client.events(EventsWanted(after=1))) as events,
    ):
        assert (await anext(events)).number == 9
    assert len(asked) > 1
    assert set(asked) == {"1"}


async def test_a_stream_that_is_refused_is_not_tried_again() -> None:
    async with a_server(answering(403, {"error": "You may not do this", "why": "w"})) as client:
        with pytest.raises(ApiRefused, match="You may not do this"):
            await anext(client.events(EventsWanted(after=1)))


@pytest.mark.parametrize("newline", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_found_however_the_stream_is_cut(newline: str, size: int) -> None:
    text = ["retry: 1", ": hello", "", "id: 1", "data: a", "data:b", "", "event: x", "", "data:  c"]
    stream = (newline.join([*text, "", ""])).encode()
    reader = EventReader()
    found: list[bytes] = []
    for begin in range(0, len(stream), size):
        found += reader.feed(stream[begin : begin + size])
        found += reader.feed(b"")
    assert found == [b"a\nb", b" c"]


def test_an_event_without_an_end_is_refused() -> None:
    reader = EventReader()
    reader.feed(b"data: " + b"x" * 1_000_000)
    with pytest.raises(ApiFault, match="KiB"):
        reader.feed(b"x" * 100_000)


# --- What goes wrong -------------------------------------------------------------------------------------------------


async def test_errors_are_the_servers_own_words() -> None:
    async with an_api("read") as (_, client):
        with pytest.raises(ApiNotFound) as missing:
            await client.job("github.com/404")
        with pytest.raises(ApiRefused) as refused:
            await client.submit(NewJob(pool="linux", script="true"), key="k")
    assert "no job github.com/404" in missing.value.why
    assert missing.value.fix
    assert "needs operate" in refused.value.why
    async with an_api("unknown") as (_, client):
        with pytest.raises(ApiRefused):
            await client.pools()
    async with an_api() as (_, client):
        with pytest.raises(ApiInvalid, match="there is no pool nowhere"):
            await client.submit(NewJob(pool="nowhere", script="true"), key="k")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, ApiFault),
        (401, ApiRefused),
        (404, ApiNotFound),
        (409, ApiInvalid),
        (429, ApiUnavailable),
        (500, ApiUnavailable),
        (503, ApiUnavailable),
        (599, ApiFault),
    ],
)
async def test_an_answer_without_words_is_an_error_all_the_same(
    status: int, kind: type[Exception]
) -> None:
    async with a_server(answering(status, [], Retry_After="7")) as client:
        with pytest.raises(kind, match=f"answered {status}") as raised:
            await client.pools()
    if isinstance(raised.value, ApiUnavailable):
        assert raised.value.after_s == 7


async def test_no_error_shows_the_token_or_what_a_terminal_would_obey() -> None:
    said = {"error": f"\x1b[2Jno {TOKEN}", "why": "w" * 5000 + TOKEN, "fix": f"x\n{TOKEN}"}
    async with a_server(answering(422, said)) as client:
        with pytest.raises(ApiInvalid) as raised:
            await client.pools()
    shown = str(raised.value)
    assert TOKEN not in shown
    assert shown.isprintable()
    assert len(shown) < 4000
    assert TOKEN not in repr(ApiSettings(base_url="http://x", token=TOKEN))


@pytest.mark.parametrize("body", ["nonsense", [], {"pools": 1}, {"pools": [{"name": 1}]}])
async def test_an_answer_that_makes_no_sense_is_a_fault(body: object) -> None:
    async with a_server(answering(200, body)) as client:
        with pytest.raises(ApiFault, match="makes no sense"):
            await client.pools()


async def test_what_a_newer_server_says_more_is_passed_over() -> None:
    pool = {"name": "linux", "colour": "brown", "runners": {"warm": 1, "grazing": 2}}
    async with a_server(answering(200, {"pools": [pool], "more": 1})) as client:
        assert (await client.pools())[0].runners.warm == 1


async def test_a_server_that_says_nothing_or_is_not_there_is_unavailable() -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(WAIT_S)
        return web.Response()

    async with a_server(silent, timeout_s=0.2) as client:
        with pytest.raises(ApiUnavailable, match="did not answer within"):
            await client.pools()
        with pytest.raises(ApiUnavailable, match="did not answer within"):
            await anext(client.log("local-1"))
    settings = ApiSettings(base_url="http://127.0.0.1:1")
    async with api_client(settings, SystemClock()) as client:
        with pytest.raises(ApiUnavailable, match=r"127\.0\.0\.1:1: Connection refused"):
            await client.pools()
        with pytest.raises(ApiUnavailable, match=r"127\.0\.0\.1:1"):
            await anext(client.log("local-1"))


@pytest.mark.parametrize("name", ["", "..", "a/../b", "a//b", "."])
async def test_no_name_leads_elsewhere(name: str) -> None:
    async with a_server(answering(200, {})) as client:
        with pytest.raises(BadInput, match="no name"):
            await client.job(name)


async def test_names_are_written_so_that_they_stay_one() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.json_response({})

    async with a_server(answer) as client:
        with pytest.raises(ApiFault):
            await client.pool("a?b#c%2e d")
    assert asked == ["/api/v1/pools/a%3Fb%23c%252e%20d"]


async def test_a_token_file_is_read_for_each_call(tmp_path: Path) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({"pools": []})

    file = tmp_path / "token"
    async with a_server(answer, token="", token_file=file) as client:
        with pytest.raises(BadInput, match="No such file"):
            await client.pools()
        file.write_text("")
        with pytest.raises(BadInput, match="holds no token"):
            await client.pools()
        for text in ("rmd_one\n", "rmd_two"):
            file.write_text(text)
            await client.pools()
    assert seen == ["Bearer rmd_one", "Bearer rmd_two"]


async def test_only_a_server_that_shows_a_trusted_certificate_is_asked(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    served = ours.server("remuda")
    pools = answering(200, {"pools": []})
    async with a_server(pools, served, ca_file=ours.file) as client:
        assert await client.pools() == ()
    for trusted in (other.file, None):
        async with a_server(pools, served, ca_file=trusted) as client:
            with pytest.raises(ApiUnavailable, match="certificate verify failed"):
                await client.pools()
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("no certificate")
    for file in (nothing, tmp_path / "missing.pem"):
        async with a_server(pools, served, ca_file=file) as client:
            with pytest.raises(BadInput, match="cannot be used"):
                await client.pools()
