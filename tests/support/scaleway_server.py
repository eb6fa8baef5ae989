"""
A stand-in for Scaleway's Apple silicon API on loopback, made of the dataclasses of Scaleway's own SDK.

What it answers is what the SDK's types hold, spelled as the SDK's unmarshalling reads it (the tests check that), and it
keeps state: names, systems, who is being installed. It fails as it is told.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from aiohttp import web
from scaleway.applesilicon.v1alpha1 import OS, Server, ServerStatus  # type: ignore[import-untyped] # it has types and no marker
from scaleway.applesilicon.v1alpha1.types import OSSupportedServerType, ServerPrivateNetworkStatus  # type: ignore[import-untyped] # it has types and no marker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ZONE = "fr-par-3"
TOKEN = "11111111-2222-3333-4444-canary555555"  # noqa: S105 - nobody's
ROOT = f"/apple-silicon/v1alpha1/zones/{ZONE}"


def an_os(id_: str = "os-sequoia-15.6", **fields: Any) -> OS:  # noqa: ANN401 - whatever the SDK's type has
    given: dict[str, Any] = {
        "id": id_,
        "name": "macos-sequoia-15.6",
        "label": "macOS Sequoia 15.6",
        "image_url": "",
        "family": "Sequoia",
        "is_beta": False,
        "version": "15.6",
        "xcode_version": "16",
        "release_notes_url": "",
        "description": "",
        "tags": [],
        "supported_server_types": [OSSupportedServerType("M2-M", fast_delivery_available=True)],
        "compatible_server_types": [],
        **fields,
    }
    return OS(**given)


def a_server(id_: str, name: str, **fields: Any) -> Server:  # noqa: ANN401 - whatever the SDK's type has
    given: dict[str, Any] = {
        "id": id_,
        "type_": "M2-M",
        "name": name,
        "project_id": "project",
        "organization_id": "organization",
        "ip": "192.0.2.7",
        "vnc_url": "vnc://m1:pass%2Fword@192.0.2.7:5900",
        "ssh_username": "m1",
        "sudo_password": "canary-password",
        "vnc_port": 5900,
        "status": ServerStatus.READY,
        "deletion_scheduled": False,
        "zone": ZONE,
        "delivered": True,
        "vpc_status": ServerPrivateNetworkStatus.VPC_DISABLED,
        "public_bandwidth_bps": 1_000_000_000,
        "tags": [],
        "applied_runner_configuration_ids": [],
        "kext_enabled": False,
        "os": an_os(),
        "updated_at": datetime(2026, 11, 1, tzinfo=UTC),
        **fields,
    }
    return Server(**given)


def spelled(thing: object) -> Any:  # noqa: ANN401 - JSON
    """Return a thing of the SDK as the API spells it."""
    return _plain(asdict(thing))  # type: ignore[call-overload] # the SDK's types are all dataclasses


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key.removesuffix("_"): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value


@dataclass(slots=True)
class FakeScaleway:
    """The account. ``faults`` maps ``METHOD path-ending`` to answers of the next calls."""

    servers: dict[str, Server] = field(default_factory=dict)
    images: list[OS] = field(default_factory=lambda: [an_os()])
    faults: dict[str, list[tuple[int, dict[str, str], str]]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """Calls that are carried out and not answered."""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    on_rename: Any = None
    """Called with (server, new name) after each rename: somebody else's turn."""
    clock: Any = None
    """Gives the time for ``updated_at``; none: it stays."""

    def add(self, *servers: Server) -> None:
        self.servers |= {server.id: server for server in servers}

    def writes(self) -> list[tuple[str, str, Any]]:
        return [call for call in self.calls if call[0] != "GET"]

    # --- HTTP -------------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        path = request.path.removeprefix(ROOT)
        self.calls.append((request.method, path, body))
        self.tokens.append(request.headers.get("X-Auth-Token", ""))
        key = f"{request.method} {path.rpartition('/')[2]}"
        if self.faults.get(key):
            status, headers, text = self.faults[key].pop(0)
            return web.Response(
                status=status, headers=headers, text=text, content_type="application/json"
            )
        answer = self._answer(request, path, body)
        if key in self.lost:
            self.lost.discard(key)
            await asyncio.sleep(3600)
        return answer

    def _answer(self, request: web.Request, path: str, body: Any) -> web.Response:  # noqa: ANN401 - JSON
        parts = path.strip("/").split("/")
        match request.method, parts:
            case "GET", ["servers"]:
                return self._page(request, "servers", list(self.servers.values()))
            case "GET", ["os"]:
                return self._page(request, "os", self.images)
            case method, ["servers", id_, *rest]:
                server = self.servers.get(id_)
                if server is None:
                    return web.json_response({"type": "not_found", "message": "gone"}, status=404)
                return self._do(method, rest, server, body)
            case _:
                pass
        return web.json_response({"type": "not_found"}, status=404)

    def _do(self, method: str, rest: list[str], server: Server, body: Any) -> web.Response:  # noqa: ANN401 - JSON
        match method, rest:
            case "PATCH", []:
                assert set(body) == {"name"}, f"anything else would be dangerous: {body}"
                server.name = body["name"]
                if self.clock is not None:
                    server.updated_at = self.clock()
                if self.on_rename is not None:
                    self.on_rename(server, body["name"])
            case "POST", ["reinstall"]:
                server.status = ServerStatus.REINSTALLING
                server.os = next(image for image in self.images if image.id == body["os_id"])
            case "POST", ["reboot"]:
                server.status = ServerStatus.REBOOTING
            case _:
                pass
        return web.json_response(spelled(server))

    def _page(self, request: web.Request, key: str, things: list[Any]) -> web.Response:
        page, size = int(request.query["page"]), int(request.query["page_size"])
        here = things[(page - 1) * size : page * size]
        body = {"total_count": len(things), key: [spelled(thing) for thing in here]}
        return web.json_response(body)


@asynccontextmanager
async def serving(fake: FakeScaleway) -> AsyncIterator[str]:
    """Serve it on a free port; gives the address."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", fake.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
