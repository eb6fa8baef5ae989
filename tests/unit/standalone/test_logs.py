"""Pod logs: which container is meant, where its log is, and what is said when it cannot be had."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from remuda.adapters.system import SystemClock, SystemIds
from remuda.standalone.errors import StatusError
from remuda.standalone.http import HttpFront, HttpSettings
from remuda.standalone.logs import PodLogs, choose_container, log_parameters, log_url
from remuda.standalone.pki import load_or_create
from remuda.standalone.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


def a_pod(*containers: str, init: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ci"},
        "spec": {
            "containers": [{"name": name} for name in containers],
            "initContainers": [{"name": name} for name in init],
        },
    }


def a_node(*addresses: tuple[str, str], port: int | None = 10250) -> dict[str, Any]:
    endpoints = {"kubeletEndpoint": {"Port": port}} if port else {}
    listed = [{"type": kind, "address": address} for kind, address in addresses]
    return {
        "metadata": {"name": "mini"},
        "status": {"addresses": listed, "daemonEndpoints": endpoints},
    }


def outcome(ask: Callable[[], object]) -> object:
    """Return what was answered, or how it was refused."""
    try:
        return ask()
    except StatusError as refused:
        return f"{refused.code} {refused.message}"


@pytest.mark.parametrize(
    ("pod", "asked", "expected"),
    [
        pytest.param(a_pod("a"), "", "a", id="the only container is meant"),
        pytest.param(a_pod("a", "b"), "b", "b", id="a named container is meant"),
        pytest.param(a_pod("a", init=("i",)), "i", "i", id="an init container has a log too"),
        pytest.param(a_pod("a", init=("i",)), "", "a", id="init containers do not make it unclear"),
        pytest.param(
            a_pod("a", "b"),
            "",
            "400 a container name must be specified for pod p, choose one of: [a b]",
            id="of two containers one must be named",
        ),
        pytest.param(
            a_pod("a", "b", init=("i",)),
            "",
            "400 a container name must be specified for pod p, choose one of: [i a b]",
            id="init containers are offered too",
        ),
        pytest.param(
            a_pod("a"), "x", "400 container x is not valid for pod p", id="an unknown container"
        ),
    ],
)
def test_choose_container(pod: dict[str, Any], asked: str, expected: str) -> None:
    assert outcome(lambda: choose_container(pod, asked)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, {}, id="nothing asked, nothing passed on"),
        pytest.param(
            {"follow": "true", "previous": "false", "timestamps": "1"},
            {"follow": "true", "timestamps": "true"},
            id="only flags that are set are passed on",
        ),
        pytest.param(
            {"tailLines": "0", "limitBytes": "1"},
            {"tailLines": "0", "limitBytes": "1"},
            id="no lines at all may be asked for",
        ),
        pytest.param({"container": "a", "pretty": "x"}, {}, id="the rest is not the agent's"),
        pytest.param(
            {"tailLines": "-1"},
            '422 PodLogOptions "p" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
            id="less than no lines makes no sense",
        ),
        pytest.param(
            {"limitBytes": "0"},
            '422 PodLogOptions "p" is invalid: limitBytes: Invalid value: 0: must be greater than 0',
            id="no bytes at all makes no sense",
        ),
        pytest.param(
            {"tailLines": "many"},
            '400 strconv.ParseInt: parsing "many": invalid syntax',
            id="many is no number",
        ),
    ],
)
def test_log_parameters(query: dict[str, str], expected: object) -> None:
    assert outcome(lambda: log_parameters("p", query)) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(
            a_node(("Hostname", "mini"), ("InternalIP", "10.0.0.1")),
            "https://10.0.0.1:10250/containerLogs/ci/p/a?tailLines=3",
            id="the internal address comes first",
        ),
        pytest.param(
            a_node(("Hostname", "mini")),
            "https://mini:10250/containerLogs/ci/p/a?tailLines=3",
            id="a name will do",
        ),
        pytest.param(
            a_node(("InternalIP", "::1")),
            "https://[::1]:10250/containerLogs/ci/p/a?tailLines=3",
            id="an IPv6 address is bracketed",
        ),
        pytest.param(a_node(), "502 node mini has no address", id="a Node without an address"),
        pytest.param(
            a_node(("InternalIP", "10.0.0.1"), port=None),
            "502 node mini has no log port (status.daemonEndpoints.kubeletEndpoint)",
            id="a Node without a port",
        ),
    ],
)
def test_log_url(node: dict[str, Any], expected: str) -> None:
    assert outcome(lambda: log_url(node, a_pod("a"), "a", {"tailLines": "3"})) == expected


# --- Through the HTTPS front, from an agent that really listens -------------------------------------------------------


@asynccontextmanager
async def fetched(
    tmp_path: Path, agent: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None
) -> AsyncIterator[Callable[..., Awaitable[aiohttp.ClientResponse]]]:
    """Serve a control plane with one Pod on one Node, whose agent answers as given (None: nobody listens)."""
    clock, ids = SystemClock(), SystemIds()
    pki = load_or_create(tmp_path / "pki", clock, ids)
    plane = ControlPlane.in_memory(clock, ids)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki.path("server.crt"), pki.path("server.key"))
    tls.load_verify_locations(pki.path("ca.crt"))
    tls.verify_mode = ssl.CERT_REQUIRED  # the agent wants to know who asks
    runner = web.ServerRunner(web.Server(agent or _never), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = int(runner.addresses[0][1])
    if agent is None:
        await site.stop()
    await _furnish(plane, port)
    logs = PodLogs(plane.rest, plane.store, pki)
    front = HttpFront(plane.api, pki, HttpSettings(port=0), logs)
    url = f"https://127.0.0.1:{await front.start()}/api/v1/namespaces/default/pods"
    client = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            ssl=ssl.create_default_context(cafile=str(pki.path("ca.crt")))
        ),
        headers={"Authorization": f"Bearer {plane.admin_token}"},
    )

    async def get(pod: str = "p", **query: str) -> aiohttp.ClientResponse:
        return await client.get(f"{url}/{pod}/log", params=query)

    try:
        yield get
    finally:
        await client.close()
        await front.stop()
        await logs.close()
        await runner.cleanup()


async def _never(_: web.BaseRequest) -> web.StreamResponse:
    raise NotImplementedError


async def _furnish(plane: ControlPlane, port: int) -> None:
    kinds = {k.plural: k for k in plane.kinds}
    status = a_node(("InternalIP", "127.0.0.1"), port=port)["status"]
    await plane.rest.create(kinds["nodes"], "", {"metadata": {"name": "mini"}, "status": status})
    for name, node in (("p", "mini"), ("waiting", ""), ("lost", "nowhere")):
        spec: dict[str, Any] = {"containers": [{"name": "a", "image": "x"}]}
        if node:
            spec["nodeName"] = node
        await plane.rest.create(
            kinds["pods"], "default", {"metadata": {"name": name}, "spec": spec}
        )


async def test_a_log_is_fetched_from_the_pods_node(tmp_path: Path) -> None:
    asked: list[str] = []

    async def agent(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path_qs)
        return web.Response(text="hello\n")

    async with fetched(tmp_path, agent) as get:
        answer = await get(tailLines="5", container="a")
        assert (answer.status, answer.content_type) == (200, "text/plain")
        assert await answer.text() == "hello\n"
    assert asked == ["/containerLogs/default/p/a?tailLines=5"]


async def test_a_followed_log_comes_line_by_line_and_ends_with_the_client(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def agent(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one\n")
        try:
            while True:
                await asyncio.sleep(0.05)
                await answer.write(b".\n")
        except (ConnectionError, asyncio.CancelledError):
            gone.set()
            raise

    async with fetched(tmp_path, agent) as get:
        answer = await get(follow="true")
        assert await asyncio.wait_for(answer.content.readline(), 5) == b"one\n"
        answer.close()
        await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize(
    ("pod", "code", "text"),
    [
        pytest.param("nobody", 404, 'pods "nobody" not found', id="no such Pod"),
        pytest.param("lost", 404, 'nodes "nowhere" not found', id="a Pod on a Node that is gone"),
        pytest.param(
            "p", 502, "cannot read the log from node mini at 127.0.0.1:", id="nobody listens"
        ),
    ],
)
async def test_refusals(tmp_path: Path, pod: str, code: int, text: str) -> None:
    async with fetched(tmp_path, None) as get:
        answer = await get(pod)
        body = await answer.json()
        assert answer.status == code
        assert text in body["message"]


async def test_a_pod_that_waits_for_a_node_has_an_empty_log(tmp_path: Path) -> None:
    async with fetched(tmp_path, None) as get:
        answer = await get("waiting")
        assert (answer.status, await answer.read()) == (200, b"")


@pytest.mark.parametrize(
    ("agent_code", "code"),
    [
        pytest.param(404, 404, id="what the agent does not know is not found"),
        pytest.param(400, 400, id="what the agent refuses is refused"),
        pytest.param(500, 502, id="an agent in trouble is a bad gateway"),
        pytest.param(302, 502, id="a redirect is not followed"),
    ],
)
async def test_what_the_agent_says_is_passed_on(tmp_path: Path, agent_code: int, code: int) -> None:
    async def agent(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=agent_code, text="no such container", headers={"Location": "/x"})

    async with fetched(tmp_path, agent) as get:
        answer = await get()
        body = await answer.json()
        assert (answer.status, body["code"]) == (code, code)
        assert "no such container" in body["message"]
