"""A small OCI registry in memory that does what it is told to do wrong. The real one is ``docker_registry``."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class TroubledRegistry:
    """What it holds, what it does wrong, and what it saw."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    breaks_after: list[int] = field(default_factory=list)
    """For each of the next answers with a blob: after how many bytes the connection is cut."""
    knows_ranges: bool = True
    wrong_range: bool = False
    statuses: list[int] = field(default_factory=list)
    """For each of the next requests: what it answers instead."""
    blobs_elsewhere: str = ""
    """The address that reads of blobs are sent to."""
    token: str = ""
    """If set, what a request must bear; the token service hands it out for ``password``."""
    password: str = ""
    realm: str = ""
    """Where it says that its token service is; empty: here."""
    gzip: bool = False
    stalls: bool = False
    """Whether it takes questions and says nothing."""
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    authorizations: list[str] = field(default_factory=list)
    upload_to: str = ""

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    def hold(self, content: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = content
        return digest

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[TroubledRegistry]:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/token", self._token)
        app.router.add_get("/v2/{name:.+}/manifests/{reference}", self._manifest)
        app.router.add_put("/v2/{name:.+}/manifests/{reference}", self._take_manifest)
        app.router.add_get("/v2/{name:.+}/blobs/{digest:sha256:.+}", self._blob)
        app.router.add_post("/v2/{name:.+}/blobs/uploads/", self._begin)
        app.router.add_put("/upload", self._finish)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def _note(self, request: web.Request) -> web.Response | None:
        self.asked[f"{request.method} {request.path.split('/')[-2]}"] += 1
        self.authorizations.append(request.headers.get("authorization", ""))
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            realm = self.realm or f"{self.url}/token"
            challenge = f'Bearer realm="{realm}",service="test"'
            return web.Response(status=401, headers={"www-authenticate": challenge})
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return web.Response(status=status, text="trouble")
        return None

    async def _token(self, request: web.Request) -> web.Response:
        self.asked["token"] += 1
        if self.password and request.headers.get("authorization", "") != self.password:
            return web.Response(status=401)
        return web.json_response({"token": self.token})

    async def _manifest(self, request: web.Request) -> web.StreamResponse:
        if refused := self._note(request):
            return refused
        if self.stalls:
            await asyncio.Event().wait()
        raw = self.manifests.get(request.match_info["reference"])
        return web.Response(status=404) if raw is None else web.Response(body=raw)

    async def _take_manifest(self, request: web.Request) -> web.StreamResponse:
        if refused := self._note(request):
            return refused
        self.manifests[request.match_info["reference"]] = await request.read()
        return web.Response(status=201)

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        if refused := self._note(request):
            return refused
        if self.blobs_elsewhere:
            raise web.HTTPTemporaryRedirect(self.blobs_elsewhere)
        content = self.blobs.get(request.match_info["digest"])
        if content is None:
            return web.Response(status=404)
        start = 0
        if "range" in request.headers and self.knows_ranges:
            start = int(request.headers["range"].removeprefix("bytes=").rstrip("-"))
        return await self._send(request, content, start)

    async def _send(self, request: web.Request, content: bytes, start: int) -> web.StreamResponse:
        response = web.StreamResponse(status=206 if start else 200)
        if start:
            shown = start + 1 if self.wrong_range else start
            response.headers["content-range"] = f"bytes {shown}-{len(content) - 1}/{len(content)}"
        if self.gzip:
            response.headers["content-encoding"] = "gzip"
        response.content_length = len(content) - start
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        if self.breaks_after:
            await response.write(content[start : start + self.breaks_after.pop(0)])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(content[start:])
        return response

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        if refused := self._note(request):
            return refused
        return web.Response(status=202, headers={"location": self.upload_to or "/upload"})

    async def _finish(self, request: web.Request) -> web.StreamResponse:
        if refused := self._note(request):
            return refused
        content = await request.read()
        assert self.hold(content) == request.query["digest"]
        return web.Response(status=201)
