"""
The pages of a GitHub of our own, as far as an App is made and installed there, and a browser that follows forms.

It is as strict about a manifest as GitHub is: what GitHub was seen to refuse is refused here.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from tests.support import github_shapes as shapes
from tests.support.github_server import APP_ID, SECRET, GithubServer, app_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_KNOWN: Final = frozenset(
    {
        *("name", "url", "description", "redirect_url", "callback_urls", "setup_url", "public"),
        *("default_permissions", "default_events", "hook_attributes", "request_oauth_on_install"),
    }
)
_NAME_MAX: Final = 34


class GithubSite:
    """An Enterprise Server: pages, and the API below /api/v3."""

    def __init__(self) -> None:
        self.api = GithubServer()
        self.manifests: list[dict[str, Any]] = []
        self.states: list[str] = []
        self.owners: list[str] = []
        self.url = ""
        self._codes = iter(range(100, 1000))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GithubSite]:
        pages = [
            web.post("/organizations/{org}/settings/apps/new", self._register),
            web.post("/settings/apps/new", self._register),
            web.get("/github-apps/{slug}/installations/new", self._install),
        ]
        async with self.api.running("/api/v3", pages):
            self.url = self.api.url.removesuffix("/api/v3")
            yield self

    async def _register(self, request: web.Request) -> web.Response:
        form = await request.post()
        manifest = json.loads(str(form["manifest"]))
        if fault := manifest_fault(manifest):
            return web.Response(status=422, text=f"Invalid GitHub App configuration: {fault}")
        org = request.match_info.get("org", "")
        self.manifests.append(manifest)
        self.states.append(request.query["state"])
        self.owners.append(org)
        code = self.make_code(manifest, org)
        back = urlencode({"code": code, "state": request.query["state"]})
        raise web.HTTPFound(f"{manifest['redirect_url']}?{back}")

    def make_code(self, manifest: dict[str, Any], org: str) -> str:
        """Make the App and return the code that it can be taken over with."""
        code = f"code-{next(self._codes)}"
        owner = shapes.user(org or "alice", "Organization" if org else "User")
        hook = manifest.get("hook_attributes", {}).get("active", False)
        secrets: shapes.Json = {"pem": app_key()[0], "webhook_secret": SECRET if hook else None}
        name = str(manifest["name"])
        slug = name.lower().replace(" ", "-")
        page = f"{self.url}/github-apps/{slug}"
        app = shapes.new_app(int(APP_ID), name, owner=owner, page=page, secrets=secrets)
        self.api.codes[code] = app
        return code

    async def _install(self, request: web.Request) -> web.Response:
        del request
        org = self.owners[-1]
        self.install(org or "alice", kind="Organization" if org else "User")
        return web.Response(text="installed")

    def install(self, login: str, kind: str = "Organization") -> None:
        self.api.repository(self.api.account(login, kind=kind), "widgets")


def manifest_fault(manifest: dict[str, Any]) -> str:
    """Say what GitHub would say."""
    if unknown := set(manifest) - _KNOWN:
        return f"unknown {sorted(unknown)}"
    for name in ("url", "redirect_url"):
        if not str(manifest.get(name, "")).startswith(("https://", "http://")):
            return f'"{name}" was not supplied'
    if "hook_attributes" in manifest and not manifest["hook_attributes"].get("url"):
        return '"url" was not supplied'
    if not 0 < len(manifest.get("name", "")) <= _NAME_MAX:
        return "name is too long"
    if manifest.get("default_events") and not manifest.get("hook_attributes"):
        return "events without a hook"
    return ""


@dataclass
class Shown:
    """A page as a browser has it."""

    url: str
    status: int
    headers: dict[str, str]
    text: str
    forms: list[dict[str, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[dict[str, str]] = []
        self.links: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append({"": given["action"]})
        elif tag == "input" and self.forms:
            self.forms[-1][given["name"]] = given["value"]
        elif tag == "a":
            self.links.append(given["href"])
        elif tag == "script":
            self.scripts += 1


class Browser:
    """Opens pages and sends forms, as a person without JavaScript does."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client

    async def open(self, url: str, **headers: str) -> Shown:
        async with self._client.get(url, headers=headers) as answer:
            return await _shown(answer)

    async def send(self, form: dict[str, str]) -> Shown:
        fields = {name: value for name, value in form.items() if name}
        async with self._client.post(form[""], data=fields) as answer:
            return await _shown(answer)


async def _shown(answer: aiohttp.ClientResponse) -> Shown:
    text, reader = await answer.text(), _Reader()
    reader.feed(text)
    assert reader.scripts == 0, "no page of ours needs a script"
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Shown(str(answer.url), answer.status, headers, text, reader.forms, reader.links)


@asynccontextmanager
async def a_browser() -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as client:
        yield Browser(client)
