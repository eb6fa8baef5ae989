"""Asking with a deadline: an answer, or why there is none. No fault of the world ends the whole look."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, TypeVar

import aiohttp

from remuda.cli.doctor.decide.facts import Unread
from remuda.model.errors import RemudaError
from remuda.ports.api import ApiRefused
from remuda.ports.kube import Refused

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable

    from remuda.ports.clock import Clock

T = TypeVar("T")

CALL_S: Final = 10.0
"""For one request."""
LIST_S: Final = 30.0
"""For all pages of a list."""


async def readable(what: Awaitable[T]) -> T | Unread:
    """Wait for what reads files of this machine: one that is closed to us is a fact like any other."""
    try:
        return await what
    except OSError as error:
        return Unread(
            why=f"{error.filename or 'A file'}: {error.strerror or error}.",
            fix="See that this user may read it",
        )


async def asked(what: Awaitable[T], within_s: float = LIST_S) -> T | Unread:
    """Wait for an answer, but not for ever."""
    try:
        async with asyncio.timeout(within_s):
            return await what
    except TimeoutError:
        return Unread(why=f"No answer came within {within_s:.0f} s.", fix="Try again")
    except RemudaError as error:
        return unread(error)


def unread(error: RemudaError) -> Unread:
    refused = isinstance(error, ApiRefused | Refused)
    return Unread(why=f"{error.what}: {error.why}.", fix=error.fix, refused=refused)


async def ahead_s(
    url: str, clock: Clock, *, tls: ssl.SSLContext | None = None, name: str = ""
) -> float | Unread:
    """Return how far a server's clock is ahead of ours, by the Date of whatever it answers."""
    try:
        async with asyncio.timeout(CALL_S), aiohttp.ClientSession() as session:
            before = clock.now()
            async with session.get(
                url, ssl=tls or True, server_hostname=name or None, allow_redirects=False
            ) as answer:
                said = answer.headers.get("Date", "")
            middle = before + (clock.now() - before) / 2
        return (parsedate_to_datetime(said) - middle).total_seconds()
    except (TimeoutError, aiohttp.ClientError, OSError):
        return Unread(why="It did not tell its time.")
    except (TypeError, ValueError):
        return Unread(why="It does not tell its time.")
