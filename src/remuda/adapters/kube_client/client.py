"""
The Kubernetes API over any wire: what to ask, and what the answers mean.

It holds no policy: no retries, no caches of objects. A request that failed is the caller's to look at again.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from remuda.adapters.kube_client import reviews
from remuda.adapters.kube_client.refusals import failed_test, nonsense, parse_status, refusal
from remuda.adapters.kube_client.watching import EventReader
from remuda.kube.decoding import Decoding
from remuda.kube.meta import Resource
from remuda.kube.patches import JsonPatch
from remuda.ports.kube import (
    WATCH_S,
    Cascade,
    Expired,
    Invalid,
    Listing,
    Manifest,
    Query,
)
from remuda.ports.wire import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.decoding import ObjectDecoder
    from remuda.kube.kinds import Kind
    from remuda.kube.patches import Patch
    from remuda.ports.kube import Bookmark, BoundPod, Seen, Token, TokenSubject, WatchEvent
    from remuda.ports.wire import Response, Wire, WireStream

T = TypeVar("T", bound=Resource)

_OK = range(200, 300)
_EVERYTHING = Query()
_ERROR_BODY_MAX_BYTES = 65536
_NOT_READ, _NOT_CREATED = "{} was not read", "{} was not created"
_NOT_CHANGED, _NOT_DELETED = "{} was not changed", "{} was not deleted"
_NO_TOKEN = "No token was given for {}"  # noqa: S105 - a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How long to wait, and how much to ask for at once."""

    call_timeout_s: float = 30.0
    """Deadline of one request, from waiting for a connection to the last byte."""

    page_size: int = 500
    """Objects in one page of a list."""

    list_restarts_max: int = 3
    """How often a list starts over when its version expires between pages; the last time it asks for all at once."""

    watch_idle_timeout_s: float = 150.0
    """Silence that means the peer is gone. Servers send a bookmark about once a minute."""

    field_manager: str = "remuda"
    """Whom the server names as the author of our writes."""


class KubeClient:
    """Fills ``remuda.ports.kube.Kube``."""

    def __init__(
        self,
        wire: Wire,
        settings: ClientSettings = ClientSettings(),  # noqa: B008 - frozen
        decoding: Decoding | None = None,
    ) -> None:
        # Clients of one process may share their decoders: making them takes milliseconds.
        self._wire = wire
        self._settings = settings
        self._decoding = decoding or Decoding()
        # The server is told when we give a write up: it must not carry it out after that.
        self._deadline = (("timeout", f"{max(settings.call_timeout_s, 0.001):.3f}s"),)
        self._author = (("fieldManager", settings.field_manager), *self._deadline)

    def within(self, seconds: float) -> KubeClient:
        if seconds >= self._settings.call_timeout_s:
            return self
        settings = replace(self._settings, call_timeout_s=seconds)
        return KubeClient(self._wire, settings, self._decoding)

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        path = _path(_NOT_READ, kind, namespace, name)
        response = await self._send(
            _failure(_NOT_READ, kind, namespace, name), Request("GET", path)
        )
        return self._object(_NOT_READ, kind, namespace, name, response)

    async def list(self, kind: Kind[T], query: Query = _EVERYTHING) -> Listing[T]:
        for _ in range(self._settings.list_restarts_max):
            try:
                return await self._list_in_pages(kind, query, self._settings.page_size)
            except Expired:
                continue  # the version we were paging through is gone: what we have cannot be completed
        return await self._list_in_pages(kind, query, 0)

    @asynccontextmanager
    async def watch(
        self,
        kind: Kind[T],
        query: Query,
        *,
        since: str = "",
        streaming_list: bool = False,
        lasts_s: float = WATCH_S,
    ) -> AsyncIterator[AsyncIterator[tuple[WatchEvent[T] | Bookmark, ...]]]:
        what = f"The {kind} were not watched"
        options = [("watch", "true"), ("allowWatchBookmarks", "true")]
        options.append(("timeoutSeconds", str(max(1, round(lasts_s)))))
        if since:
            options.append(("resourceVersion", since))
        if streaming_list:
            options += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        request = Request("GET", kind.path(query.namespace), (*_selectors(query), *options))
        async with self._wire.stream(
            request,
            connect_timeout_s=self._settings.call_timeout_s,
            idle_timeout_s=self._settings.watch_idle_timeout_s,
        ) as stream:
            if stream.status not in _OK:
                raise refusal(what, parse_status(stream.status, await _error_body(stream)))
            yield _events(stream, EventReader(what, self._decoding.of(kind.type)))

    async def create(self, kind: Kind[T], resource: T | Manifest) -> T:
        if isinstance(resource, Manifest):
            namespace, name, body = resource.namespace, "", resource.body
        else:
            namespace = resource.namespace
            name = resource.name or f"{resource.metadata.generate_name}…"
            body = _with_kind(kind, resource)
        assert namespace or not kind.namespaced, f"a {kind.name} is created in a namespace"
        request = Request("POST", kind.path(namespace), self._author, body)
        response = await self._send(_failure(_NOT_CREATED, kind, namespace, name), request)
        return self._object(_NOT_CREATED, kind, namespace, name, response)

    async def patch(
        self, kind: Kind[T], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> T:
        path = _path(_NOT_CHANGED, kind, namespace, name, subresource)
        request = Request("PATCH", path, self._author, patch.encode(), patch.content_type)
        response = await self._wire.send(request, timeout_s=self._settings.call_timeout_s)
        if response.status not in _OK:
            what = _failure(_NOT_CHANGED, kind, namespace, name)
            status = parse_status(response.status, response.body)
            conflict = failed_test(what, status) if _has_test(patch) else None
            raise conflict or refusal(what, status, retry_after_s=response.retry_after_s)
        return self._object(_NOT_CHANGED, kind, namespace, name, response)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        *,
        namespace: str = "",
        seen: Seen | None = None,
        cascade: Cascade = Cascade.BACKGROUND,
        grace_s: int | None = None,
    ) -> None:
        path = _path(_NOT_DELETED, kind, namespace, name)
        options: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": cascade.value,
        }
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if seen is not None:
            version = {"resourceVersion": seen.resource_version} if seen.resource_version else {}
            options["preconditions"] = {"uid": seen.uid, **version}
        request = Request("DELETE", path, self._deadline, msgspec.json.encode(options))
        await self._send(_failure(_NOT_DELETED, kind, namespace, name), request)

    async def request_token(
        self,
        service_account: str,
        *,
        namespace: str,
        audience: str,
        expiration_s: int,
        pod: BoundPod | None = None,
    ) -> Token:
        account = reviews.SERVICE_ACCOUNT
        path = _path(_NO_TOKEN, account, namespace, service_account, "token")
        what = _failure(_NO_TOKEN, account, namespace, service_account)
        body = reviews.token_request(audience, expiration_s, pod)
        request = Request("POST", path, self._deadline, body)
        return reviews.token(what, (await self._send(what, request)).body)

    async def review_token(self, token: str, *, audience: str) -> TokenSubject | None:
        what = "A token was not reviewed"
        request = Request("POST", reviews.TOKEN_REVIEWS, (), reviews.token_review(token, audience))
        return reviews.subject(what, (await self._send(what, request)).body, audience)

    async def may_i(
        self, verb: str, kind: Kind[T], *, namespace: str = "", subresource: str = ""
    ) -> bool:
        what = f"Whether we may {verb} {kind} was not answered"
        body = reviews.access_review(verb, kind, namespace, subresource)
        request = Request("POST", reviews.ACCESS_REVIEWS, (), body)
        return reviews.allowed(what, (await self._send(what, request)).body)

    async def close(self) -> None:
        await self._wire.close()

    async def _send(self, what: str, request: Request) -> Response:
        response = await self._wire.send(request, timeout_s=self._settings.call_timeout_s)
        if response.status in _OK:
            return response
        status = parse_status(response.status, response.body)
        raise refusal(what, status, retry_after_s=response.retry_after_s)

    async def _list_in_pages(self, kind: Kind[T], query: Query, page_size: int) -> Listing[T]:
        what = f"The {kind} were not listed"
        limit = (("limit", str(page_size)),) if page_size else ()
        items: list[T] = []
        continued: tuple[tuple[str, str], ...] = ()
        while True:
            options = (*_selectors(query), *limit, *continued)
            response = await self._send(what, Request("GET", kind.path(query.namespace), options))
            try:
                page = self._decoding.of(kind.type).page(response.body)
            except (msgspec.MsgspecError, ValueError) as error:
                raise nonsense(what, error) from None
            items.extend(page.items)
            if not page.continue_:
                return Listing(tuple(items), page.resource_version)
            continued = (("continue", page.continue_),)

    def _object(
        self, failure: str, kind: Kind[T], namespace: str, name: str, response: Response
    ) -> T:
        decoder: ObjectDecoder[T] = self._decoding.of(kind.type)
        try:
            return decoder.object(response.body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise nonsense(_failure(failure, kind, namespace, name), error) from None


async def _events(
    stream: WireStream, reader: EventReader[T]
) -> AsyncIterator[tuple[WatchEvent[T] | Bookmark, ...]]:
    async for chunk in stream.chunks():
        for batch in reader.batches(chunk):
            yield batch
    reader.finish()


async def _error_body(stream: WireStream) -> bytes:
    body = b""
    async for chunk in stream.chunks():
        body += chunk
        if len(body) >= _ERROR_BODY_MAX_BYTES:
            break
    return body[:_ERROR_BODY_MAX_BYTES]


def _selectors(query: Query) -> tuple[tuple[str, str], ...]:
    pairs = (("labelSelector", query.labels), ("fieldSelector", query.fields))
    return tuple((key, value) for key, value in pairs if value)


def _has_test(patch: Patch) -> bool:
    return isinstance(patch, JsonPatch) and any(op.get("op") == "test" for op in patch.operations)


def _with_kind(kind: Kind[T], resource: T) -> bytes:
    """Encode an object with the ``apiVersion`` and ``kind`` that its type does not hold."""
    head = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name})
    body = msgspec.json.encode(resource)
    return head if body == b"{}" else head[:-1] + b"," + body[1:]


def _failure(failure: str, kind: Kind[T], namespace: str, name: str) -> str:
    """Say what failed for which object. Only asked for when something did: most calls succeed."""
    place = f"{namespace}/{name}" if namespace and kind.namespaced else name
    return failure.format(f"{kind.name} {place}")


@lru_cache(maxsize=4096)
def _leads_elsewhere(part: str) -> bool:
    """Whether a name would be more than one part of a path. The same few names are asked for all the time."""
    return part in {".", ".."} or "/" in part or "%" in part


def _path(failure: str, kind: Kind[T], namespace: str, name: str, subresource: str = "") -> str:
    """Return an object's path. A name that would lead elsewhere in the API is refused before it is sent."""
    if _leads_elsewhere(namespace) or _leads_elsewhere(name):
        wrong = namespace if _leads_elsewhere(namespace) else name
        what = _failure(failure, kind, namespace, name)
        raise Invalid(what, why=f"{wrong!r} cannot be a name", fix="Correct the name")
    assert name, f"a {kind.name} has a name"
    assert namespace or not kind.namespaced, f"a {kind.name} is in a namespace"
    return kind.path(namespace, name, subresource)
