"""
Taking over an App that was just made from a manifest: GitHub gives its key for a code, once, within an hour.

Also who has installed an App, asked as the App itself. Keys and secrets are in no repr and in no error's text.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from remuda.adapters.github import faults
from remuda.adapters.github.app_key import AppKey
from remuda.adapters.github.client import GithubClient, decoded
from remuda.adapters.github.installations import Installations
from remuda.adapters.github.payloads import Number  # noqa: TC001 - msgspec reads it as it decodes
from remuda.adapters.github.settings import host_of
from remuda.adapters.github.wire import Ask, GithubWire
from remuda.model.errors import BadInput
from remuda.ports.forge import ForgeRefused, ForgeUnavailable, Scope

if TYPE_CHECKING:
    from remuda.adapters.github.installations import Installation
    from remuda.adapters.github.manifest import Site
    from remuda.adapters.github.settings import GithubSettings
    from remuda.ports.clock import Clock

CALL_S: Final = 20.0
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_BODY_MAX: Final = 1024 * 1024
_WHAT: Final = "The App could not be taken over"
_AGAIN: Final = "Try again within the hour, with the same code"


class Owner(msgspec.Struct, frozen=True):
    login: str = ""
    slug: str = ""
    type: str = ""


class NewApp(msgspec.Struct, frozen=True):
    """An App as GitHub gives it, the only time that it tells the key."""

    id: Number
    pem: str
    slug: str = ""
    name: str = ""
    html_url: str = ""
    webhook_secret: str | None = None
    owner: Owner | None = None

    def __repr__(self) -> str:
        return f"NewApp({self.id}, {self.slug!r}, …)"

    @property
    def is_users(self) -> bool:
        """Whether it is a person's: there are no runners but those of repositories then."""
        return self.owner is not None and self.owner.type == "User"

    @property
    def account(self) -> str:
        """Whose it is."""
        return "" if self.owner is None else self.owner.login or self.owner.slug


@dataclass(frozen=True, slots=True)
class Pasted:
    """What a person brought back from GitHub."""

    code: str
    state: str = ""
    """Empty: only the code was pasted."""


def read_pasted(text: str) -> Pasted:
    """Read a code, or the whole address that GitHub sent the browser to."""
    text = text.strip()
    code, state = text, ""
    if "://" in text:
        try:
            query = parse_qs(urlsplit(text).query)
        except ValueError:
            query = {}
        code, state = query.get("code", [""])[0], query.get("state", [""])[0]
    if not _CODE.fullmatch(code):
        raise BadInput(
            "There is no code in that",
            why="it is neither a code nor an address with ?code=… in it",
            fix="Copy the whole address of the page that GitHub sent the browser to, in quotes",
        )
    return Pasted(code, state)


async def convert(site: Site, code: str, *, within_s: float = CALL_S) -> NewApp:
    """Take the App over. Raises ForgeRefused if the code is none (any more), ForgeUnavailable if nobody answers."""
    wire = GithubWire(_Anybody(site.api_url))
    ask = Ask(
        operation="conversion",
        method="POST",
        path="/app-manifests/{code}/conversions",
        parts={"code": code},
    )
    try:
        async with asyncio.timeout(within_s):
            reply = await wire.send(_WHAT, ask, None)
    except TimeoutError:
        raise ForgeUnavailable(
            _WHAT,
            why=f"{host_of(site.api_url)} did not answer within {within_s:g} s",
            fix=_AGAIN,
        ) from None
    except ForgeUnavailable as error:
        raise ForgeUnavailable(_WHAT, why=error.why, fix=_AGAIN) from None
    finally:
        await wire.close()
    if reply.status in {faults.NOT_FOUND, faults.UNPROCESSABLE}:
        raise ForgeRefused(
            _WHAT,
            why=f"GitHub answered {reply.status}: the code was used before, or is older than an hour, or is of"
            " another GitHub",
            fix="Delete the App that was made, on its settings page at GitHub, and begin again",
        )
    if reply.status not in faults.OK:
        fault = faults.fault(_WHAT, reply, (code,), scope=Scope.TENANT)
        raise ForgeUnavailable(_WHAT, why=fault.why, fix=_AGAIN)
    return decoded(_WHAT, reply, NewApp)


@dataclass(frozen=True, slots=True)
class _Anybody:
    """A GitHub of which nothing is known but its address. Implements ``Place``."""

    api_url: str
    body_max_bytes: int = _BODY_MAX

    @property
    def host(self) -> str:
        return host_of(self.api_url)


async def installations_of(settings: GithubSettings, clock: Clock) -> tuple[Installation, ...]:
    """Return where the App is installed now, as far as it is served. Raises ForgeError, BadInput for a bad key."""
    client = GithubClient(settings, AppKey(settings.app_id, settings.private_key, clock), clock)
    try:
        return await Installations(client).all()
    finally:
        await client.close()
