"""
Asking GitHub with the right credential: tokens, rate limits, pages, and answers that have not changed.

Nothing is asked twice by itself. Every answer that is no success becomes an error of the port, in one place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

import msgspec

from remuda.adapters.github import faults
from remuda.adapters.github.budgets import APP, Budgets
from remuda.adapters.github.models import InstallationToken
from remuda.adapters.github.payloads import moment
from remuda.adapters.github.wire import Ask, Credential, GithubWire
from remuda.ports.forge import ForgeRefused, ForgeUnavailable, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from remuda.adapters.github.app_key import AppKey
    from remuda.adapters.github.settings import GithubSettings
    from remuda.adapters.github.wire import Reply
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.ports.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

_RENEW_BEFORE_S: Final = 300.0
"""A token is not used in the last minutes of its hour: a call under way must outlive it."""
_LIFE_UNSAID_S: Final = 600.0
_KEPT_MAX: Final = 20_000
"""How many unchanged answers are remembered: three for each of some thousand repositories."""
NEVER: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    until: float


@dataclass(frozen=True, slots=True)
class _Kept:
    etag: str
    value: object = field(repr=False)
    next: str


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """What is wanted of one page of a list, and what the next one is called; empty: it was the last."""

    value: R = field(repr=False)
    next: str
    unchanged: bool = False
    """It has not changed since it was asked for before, so that it cost nothing of the rate limit."""


class GithubClient:
    """One App at one GitHub."""

    def __init__(
        self,
        settings: GithubSettings,
        key: AppKey,
        clock: Clock,
        metrics: DispatchMetrics | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.budgets = Budgets(
            reserve=settings.sweep_reserve, sweep_per_minute_max=settings.sweep_per_minute_max
        )
        self._key = key
        self._metrics = metrics
        self._wire = GithubWire(settings, metrics)
        self._tokens: dict[int, _Token] = {}
        self._renewing: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._kept: OrderedDict[tuple[int, str, str], _Kept] = OrderedDict()

    async def close(self) -> None:
        await self._wire.close()

    @asynccontextmanager
    async def deadline(self, what: str, seconds: float | None = None) -> AsyncIterator[None]:
        """Bound everything inside, the waiting for a token or a connection too."""
        seconds = self.settings.call_s if seconds is None else seconds
        late = False
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            late = True
        if late:
            why = f"{self.settings.host} did not answer within {seconds:g} s"
            raise ForgeUnavailable(what, why=why, fix="See GitHub's status page and the network")

    async def as_app(
        self, what: str, ask: Ask, *, allowed: Collection[int] = NEVER, scope: Scope = Scope.TENANT
    ) -> Reply:
        """Ask as the App itself. Statuses that are ``allowed`` are returned, not raised."""
        credential = Credential(self._key.token(), is_app=True)
        reply = await self._send(what, ask, credential, APP)
        if reply.status == faults.UNAUTHORIZED:
            self._key.forget()
            words = faults.said(reply.body, self._secrets(credential))
            raise ForgeRefused(
                what,
                why="GitHub does not accept the App's own key" + (f" ({words})" if words else ""),
                fix="Check the App id, its private key, and that this machine's clock is right",
                scope=Scope.TENANT,
            )
        if reply.status in faults.OK or reply.status in allowed:
            return reply
        raise faults.fault(what, reply, self._secrets(credential), scope)

    def _secrets(self, credential: Credential) -> tuple[str, ...]:
        """Return what must not be quoted, whoever writes it: what we showed, and what GitHub knows of us besides."""
        return (credential.token, *self.settings.webhook_secrets)

    async def as_installation(
        self,
        what: str,
        ask: Ask,
        number: int,
        *,
        allowed: Collection[int] = NEVER,
        scope: Scope = Scope.JOB,
        unless: Mapping[int, tuple[Scope, str]] | None = None,
    ) -> Reply:
        """
        Ask for an installation. Statuses that are ``allowed`` are returned, not raised.

        A refusal holds for ``scope``, ``unless`` its status is named with another scope and what to do about it.
        """
        credential = Credential(await self._token(what, number))
        reply = await self._send(what, ask, credential, number)
        if ask.method == "GET" and (path := reply.moved_to(self.settings.api_url)):
            reply = await self._send(what, replace(ask, path=path, parts={}), credential, number)
        if reply.status == faults.UNAUTHORIZED:
            self._drop(number, credential.token)
        scope, fix = (unless or {}).get(reply.status, (scope, ""))
        if reply.status in faults.OK or reply.status in allowed:
            return reply
        raise faults.fault(what, reply, self._secrets(credential), scope, fix)

    async def page(
        self, what: str, ask: Ask, number: int, kind: type[T], of: Callable[[T], R]
    ) -> Page[R]:
        """
        Return a page for an installation; one that has not changed costs nothing of the rate limit.

        Only what ``of`` makes of it is remembered: whole answers would take gigabytes.
        """
        key = (number, ask.path, msgspec.json.encode(ask.parts, order="sorted").decode())
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            ask = replace(ask, etag=kept.etag)
        allowed = {faults.NOT_MODIFIED} if kept is not None else NEVER
        reply = await self.as_installation(
            what, ask, number, allowed=allowed, scope=Scope.REPOSITORY
        )
        if kept is not None and reply.status == faults.NOT_MODIFIED:
            return Page(cast("R", kept.value), kept.next, unchanged=True)
        page = Page(of(decoded(what, reply, kind)), reply.next("page"))
        self._keep(key, reply.headers.get("etag", ""), page)
        return page

    def _keep(self, key: tuple[int, str, str], etag: str, page: Page[R]) -> None:
        self._kept.pop(key, None)
        if etag:
            self._kept[key] = _Kept(etag, page.value, page.next)
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)

    async def _send(self, what: str, ask: Ask, credential: Credential, key: int) -> Reply:
        at = self.clock.monotonic()
        if silent_s := self.budgets.silent_s(key, at=at):
            raise faults.throttled(what, silent_s)
        reply = await self._wire.send(what, ask, credential)
        now = self.clock.now().timestamp()
        self.budgets.heard(key, reply.headers)
        if (
            self._metrics is not None
            and (left := self.budgets.least_remaining(now=now)) is not None
        ):
            self._metrics.forge_remaining.set(left)
        if retry_after_s := faults.throttled_s(reply, now):
            self.budgets.quieten(key, until=self.clock.monotonic() + retry_after_s)
            raise faults.throttled(what, retry_after_s)
        return reply

    async def _token(self, what: str, number: int) -> str:
        """Return a token of an installation. However many need one at once, one of them asks for it."""
        async with self._renewing[number]:
            known = self._tokens.get(number)
            if known is not None and self.clock.monotonic() < known.until:
                return known.text
            fresh = await self._new_token(what, number)
            self._tokens[number] = fresh
            return fresh.text

    async def _new_token(self, what: str, number: int) -> _Token:
        ask = Ask(
            operation="token",
            method="POST",
            path="/app/installations/{installation_id}/access_tokens",
            parts={"installation_id": number},
        )
        reply = await self.as_app(what, ask, scope=Scope.TENANT)
        token = decoded(what, reply, InstallationToken)
        ends = moment(token.expires_at)
        left = _LIFE_UNSAID_S if ends is None else (ends - self.clock.now()).total_seconds()
        return _Token(token.token, self.clock.monotonic() + max(0.0, left - _RENEW_BEFORE_S))

    def _drop(self, number: int, token: str) -> None:
        known = self._tokens.get(number)
        if known is not None and known.text == token:
            del self._tokens[number]


def decoded(what: str, reply: Reply, kind: type[T]) -> T:
    """Read a success. One that makes no sense is like none: what was asked may have been done."""
    fault = ""
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.ValidationError as error:
        fault = str(error)  # says where and of which type, never what
    except (msgspec.MsgspecError, ValueError, RecursionError):
        fault = "no JSON"
    raise ForgeUnavailable(
        what,
        why=f"GitHub's answer makes no sense ({fault})",
        fix="Check that the address is that of GitHub's API and not of something in between",
    )
