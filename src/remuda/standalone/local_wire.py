"""The wire without a network: requests go straight into an API server in the same process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from remuda.ports.kube import TimedOut
from remuda.standalone.api import is_stream
from remuda.standalone.errors import StatusError
from remuda.standalone.streams import Stream, refused
from remuda.standalone.users import ADMIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractAsyncContextManager

    from remuda.ports.wire import Request, Response, WireStream
    from remuda.standalone.api import ApiServer


class LocalWire:
    """A ``Wire`` for one client, known by its bearer token."""

    def __init__(self, api: ApiServer, bearer: str) -> None:
        self._api = api
        self._bearer = bearer
        self._never_waits = api.rest.store.in_memory and api.is_admin(bearer)

    def send(self, request: Request, *, timeout_s: float) -> Coroutine[Any, Any, Response]:
        # Nearly all that a simulated fleet asks: nothing to look up, and no deadline, as only streams go on.
        if self._never_waits and request.method != "GET":
            return self._api.handle(request, ADMIN)
        return self._send(request, timeout_s)

    async def _send(self, request: Request, timeout_s: float) -> Response:
        try:
            user = self._api.authenticate(self._bearer)
            if self._api.rest.store.in_memory and not is_stream(request):
                return await self._api.handle(request, user)  # never waits, so it needs no deadline
            async with asyncio.timeout(timeout_s):
                return await self._api.handle(request, user)
        except StatusError as refusal:
            return refused(refusal)
        except TimeoutError as error:
            raise TimedOut(
                f"{request.method} {request.path} took too long",
                why=f"there was no answer within {timeout_s:g} s",
                fix="Look whether it was applied, then try again",
            ) from error

    def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AbstractAsyncContextManager[WireStream]:
        """Open a watch or log. In one process a connection neither fails to open nor dies silently."""
        del connect_timeout_s, idle_timeout_s
        return self._opened(request)

    @asynccontextmanager
    async def _opened(self, request: Request) -> AsyncIterator[WireStream]:
        try:
            user = self._api.authenticate(self._bearer)
        except StatusError as refusal:
            answer = refused(refusal)
            yield Stream.of(answer.status, answer.body)
            return
        async with self._api.stream(request, user) as stream:
            yield stream

    async def close(self) -> None:
        """Nothing is held open."""
