"""The HTTPS front: who may ask, how long answers last, and how it stops."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from remuda.adapters.system import SystemClock, SystemIds
from remuda.standalone.api import ApiServer
from remuda.standalone.http import HttpFront, HttpSettings, certificate_user
from remuda.standalone.pki import load_or_create, new_authority, new_client
from remuda.standalone.plane import ControlPlane
from remuda.standalone.users import ANONYMOUS, User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.ports.wire import Request, Response
    from remuda.standalone.pki import Pki

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Served:
    """A control plane in memory, served over real HTTPS, and a client."""

    def __init__(self, plane: ControlPlane, front: HttpFront, pki: Pki, port: int) -> None:
        self.plane, self.front, self.pki = plane, front, pki
        self.url = f"https://127.0.0.1:{port}"

    def tls(self, identity: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki.path("ca.crt")))
        if identity:
            context.load_cert_chain(
                self.pki.path(f"{identity}.crt"), self.pki.path(f"{identity}.key")
            )
        return context

    @asynccontextmanager
    async def client(
        self, *, token: str | None = None, identity: str = ""
    ) -> AsyncIterator[aiohttp.ClientSession]:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        connector = aiohttp.TCPConnector(ssl=self.tls(identity))
        async with aiohttp.ClientSession(self.url, connector=connector, headers=headers) as session:
            yield session

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[aiohttp.ClientSession]:
        async with self.client(token=self.plane.admin_token) as session:
            yield session


@asynccontextmanager
async def served(
    tmp_path: Path,
    api: type[ApiServer] = ApiServer,
    **settings: Any,  # noqa: ANN401 - settings
) -> AsyncIterator[Served]:
    clock, ids = SystemClock(), SystemIds()
    pki = load_or_create(tmp_path / "pki", clock, ids)
    plane = ControlPlane.in_memory(clock, ids)
    behind = api(plane.rest, plane.tokens, admin_token=plane.admin_token)
    front = HttpFront(behind, pki, HttpSettings(port=0, **settings))
    port = await front.start()
    try:
        yield Served(plane, front, pki, port)
    finally:
        await front.stop()


async def test_a_write_and_a_read_go_round(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.admin() as http:
        made = await http.post(CONFIGMAPS, json={"metadata": {"name": "a"}, "data": {"k": "v"}})
        read = await http.get(f"{CONFIGMAPS}/a")
        assert (made.status, read.status) == (201, 200)
        assert (await read.json())["data"] == {"k": "v"}
        assert read.content_type == "application/json"


async def test_the_administrators_certificate_opens_everything(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.client(identity="admin") as http:
        assert (await http.get(CONFIGMAPS)).status == 200


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(None, id="nobody in particular"),
        pytest.param("", id="an empty token"),
        pytest.param("wrong", id="a token that nobody issued"),
        pytest.param("\u00e4\u00f6", id="a token that is no ASCII"),
    ],
)
async def test_others_are_refused(tmp_path: Path, token: str | None) -> None:
    async with served(tmp_path) as server, server.client(token=token) as http:
        answer = await http.get(CONFIGMAPS)
        body = await answer.json()
        assert (answer.status, body["reason"]) == (401, "Unauthorized")


async def test_a_wrong_token_is_not_made_good_by_a_certificate(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.client(token="wrong", identity="admin") as http:  # noqa: S106 - no secret
        assert (await http.get(CONFIGMAPS)).status == 401


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        now = SystemClock().now()
        foreign = new_client(new_authority(now), "admin", ("system:masters",), now)
        (tmp_path / "pki" / "foreign.crt").write_bytes(foreign.certificate)
        (tmp_path / "pki" / "foreign.key").write_bytes(foreign.key)
        async with server.client(identity="foreign") as http:
            with pytest.raises(aiohttp.ClientError):
                await http.get("/version")


async def test_health_needs_no_credentials(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.client() as http:
        answer = await http.get("/readyz")
        assert (answer.status, await answer.text()) == (200, "ok")


async def test_a_service_account_token_is_good_until_its_pod_is_gone(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.admin() as admin:
        pods = "/api/v1/namespaces/default/pods"
        spec = {"containers": [{"name": "a", "image": "x"}]}
        await admin.post(pods, json={"metadata": {"name": "p"}, "spec": spec})
        asked = {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}}
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        answer = await admin.post(f"{accounts}/default/token", json=asked)
        assert answer.status == 201
        token = (await answer.json())["status"]["token"]
        async with server.client(token=token) as pod:
            assert (await pod.get(CONFIGMAPS)).status == 200
            await admin.delete(f"{pods}/p")
            assert (await pod.get(CONFIGMAPS)).status == 401


# --- Watches ----------------------------------------------------------------------------------------------------------


async def test_a_watch_shows_changes_as_they_happen(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.admin() as http:
        watch = await http.get(CONFIGMAPS, params={"watch": "true"})
        assert watch.status == 200  # the headers come before there is anything to say
        await http.post(CONFIGMAPS, json={"metadata": {"name": "a"}})
        event = json.loads(await asyncio.wait_for(watch.content.readline(), 5))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        watch.close()


async def test_a_watch_ends_when_its_time_is_up(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.admin() as http:
        asked = {"watch": "1", "timeoutSeconds": "1"}
        async with asyncio.timeout(5), http.get(CONFIGMAPS, params=asked) as watch:
            assert await watch.read() == b""


async def test_a_client_that_goes_away_ends_its_watch_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.admin() as http:
        kind = next(k for k in server.plane.kinds if k.plural == "configmaps")
        table = server.plane.store._tables[kind.group, kind.plural]  # noqa: SLF001 - who still listens?
        watch = await http.get(CONFIGMAPS, params={"watch": "true"})
        await _until(lambda: len(table.listeners) == 1)
        watch.close()
        await _until(lambda: len(table.listeners) == 0)


async def test_stopping_ends_watches_properly_and_at_once(tmp_path: Path) -> None:
    async with served(tmp_path, shutdown_timeout_s=30.0) as server, server.admin() as http:
        watch = await http.get(CONFIGMAPS, params={"watch": "true"})
        async with asyncio.timeout(5):
            _, rest = await asyncio.gather(server.front.stop(), watch.read())
        assert rest == b""  # a broken-off chunked answer would have raised


async def _until(holds: Any) -> None:  # noqa: ANN401 - a question
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.01)


# --- Limits -----------------------------------------------------------------------------------------------------------


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.admin() as http:
        large = io.BytesIO(b'{"data": "' + b"x" * (3 << 20) + b'"}')
        answer = await http.post(CONFIGMAPS, data=large)
        body = await answer.json()
        assert (answer.status, body["reason"]) == (413, "RequestEntityTooLarge")


class SlowServer(ApiServer):
    async def handle(self, request: Request, user: User) -> Response:
        await asyncio.sleep(60)
        return await super().handle(request, user)


class BrokenServer(ApiServer):
    async def handle(self, request: Request, user: User) -> Response:
        raise KeyError(f"something of ours, while {user.name} asked for {request.path}")


async def test_a_request_that_takes_too_long_is_answered_all_the_same(tmp_path: Path) -> None:
    settings = {"request_timeout_s": 0.1}
    async with served(tmp_path, SlowServer, **settings) as server, server.admin() as http:
        answer = await http.get("/api")
        assert (answer.status, (await answer.json())["reason"]) == (504, "Timeout")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        pytest.param("0.05s", 504, id="the deadline of the sender is kept"),
        pytest.param("50ms", 504, id="in any unit"),
        pytest.param("soon", 400, id="a deadline that is none is refused"),
    ],
)
async def test_a_request_ends_when_its_sender_stops_waiting(
    tmp_path: Path, said: str, status: int
) -> None:
    async with served(tmp_path, SlowServer) as server, server.admin() as http:
        async with asyncio.timeout(10):
            answer = await http.get("/api", params={"timeout": said})
        assert answer.status == status


async def test_a_body_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    async def never_ending() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    async with served(tmp_path, request_timeout_s=0.2) as server, server.admin() as http:
        async with asyncio.timeout(5):
            answer = await http.post(CONFIGMAPS, data=never_ending())
        assert answer.status == 504


async def test_our_own_fault_is_answered_and_logged_without_the_token(tmp_path: Path) -> None:
    async with served(tmp_path, BrokenServer) as server, server.admin() as http:
        with capture_logs() as logs:
            answer = await http.get("/api")
        assert (answer.status, (await answer.json())["reason"]) == (500, "InternalError")
        assert "something of ours" in str(logs)
        assert server.plane.admin_token not in str(logs)


async def test_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        assert [address[0] for address in server.front.addresses] == ["127.0.0.1"]


# --- Certificates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        pytest.param(
            (
                (("organizationName", "system:masters"),),
                (("organizationName", "b"),),
                (("commonName", "admin"),),
            ),
            User("admin", groups=("system:masters", "b", "system:authenticated")),
            id="the name is the user, the organizations are its groups",
        ),
        pytest.param(
            ((("commonName", "system:node:mini"),),),
            User("system:node:mini", groups=("system:authenticated",)),
            id="a user without groups is still somebody",
        ),
        pytest.param(
            ((("organizationName", "system:masters"),),),
            ANONYMOUS,
            id="a certificate without a name is nobody's",
        ),
    ],
)
def test_certificate_user(subject: tuple[Any, ...], user: User) -> None:
    assert certificate_user({"subject": subject}) == user


async def test_bytes_that_are_no_text_are_the_senders_fault(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        async with server.client(token="\udcff\udcfe") as stranger:  # noqa: S106 - no token at all
            assert (await stranger.get(CONFIGMAPS)).status == 401
        async with server.admin() as http:
            body = b'{"metadata": {"name": "a"}, "data": {"k": "\xff"}}'
            assert (await http.post(CONFIGMAPS, data=body)).status in (400, 415)
            as_json = {"Content-Type": "application/json"}
            assert (await http.post(CONFIGMAPS, data=body, headers=as_json)).status == 400


async def test_only_a_pods_log_is_a_log(tmp_path: Path) -> None:
    async with served(tmp_path) as server, server.admin() as http:
        await http.post("/api/v1/namespaces", json={"metadata": {"name": "pods"}})
        path = "/api/v1/namespaces/pods/configmaps"
        assert (await http.post(path, json={"metadata": {"name": "log"}})).status == 201
        assert (await (await http.get(f"{path}/log")).json())["metadata"]["name"] == "log"
