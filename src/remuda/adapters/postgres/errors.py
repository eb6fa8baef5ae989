"""asyncpg's errors as ours. Errors of a statement's own making (a broken constraint) pass through unchanged."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit

import asyncpg

from remuda.ports.database import (
    DatabaseConflict,
    DatabaseError,
    DatabaseRefused,
    DatabaseTimeout,
    DatabaseUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNAVAILABLE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InsufficientResourcesError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # a server that was demoted, or whose disk was made read-only
)
_TIMEOUT = (TimeoutError, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)
_CONFLICT = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_NOT_LET_IN = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)
_OTHER_SCHEMA = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError)


class Place:
    """Which database it is, for messages: everything of its URL but the password."""

    def __init__(self, url: str) -> None:
        self._secrets: tuple[str, ...] = (url,)
        try:
            parts = urlsplit(url)
            asked = parse_qs(parts.query)
            host = parts.hostname or asked.get("host", ["localhost"])[0]
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            self._text = "the database"
            return
        self._text = f"the database {parts.path.strip('/')} at {host}{port}"
        passwords = [unquote(parts.password or ""), *asked.get("password", [])]
        spelled = {text for p in passwords if p for text in (p, quote(p), quote(p, safe=""))}
        self._secrets = (url, parts.password or url, *sorted(spelled, key=len, reverse=True))

    def __str__(self) -> str:
        return self._text

    def say(self, error: BaseException) -> str:
        """Return the error's own text on one line, without the password."""
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


_ENDED_UNDER_US = ("cannot switch to state", "a free connection holder")


@contextlib.contextmanager
def translated(place: Place) -> Iterator[None]:
    """Turn what the block raises into a DatabaseError, if it is the database's or the network's fault."""
    try:
        yield
    except (*_TIMEOUT, *_UNAVAILABLE, *_CONFLICT, *_NOT_LET_IN, *_OTHER_SCHEMA) as error:
        raise _ours(error, place) from None
    except asyncpg.InterfaceError as error:
        if not any(word in str(error) for word in ("closed", "closing")):
            raise  # any other wrong use of a connection is our own bug
        raise _unavailable(error, place) from None
    except asyncpg.InternalClientError as error:
        # The server said good-bye on a connection, and we used it, or gave it back, before its end was read.
        if not any(word in str(error) for word in _ENDED_UNDER_US):
            raise
        raise _unavailable(error, place) from None


def may_heal(error: BaseException) -> bool:
    """Tell whether the same statement may work later."""
    return isinstance(error, (*_TIMEOUT, *_UNAVAILABLE, *_CONFLICT))


def _ours(error: BaseException, place: Place) -> DatabaseError:
    if isinstance(error, _TIMEOUT):  # first: TimeoutError is an OSError too
        return DatabaseTimeout(
            f"No answer in time from {place}",
            why=place.say(error),
            fix="It is tried again; if it stays so, look at the server's load and locks",
        )
    if isinstance(error, _CONFLICT):
        return DatabaseConflict(
            f"A transaction was rolled back by {place}",
            why=place.say(error),
            fix="It is tried again",
        )
    if isinstance(error, _OTHER_SCHEMA):
        return DatabaseRefused(
            f"{place} has not the schema that this version needs",
            why=place.say(error),
            fix="Run: remuda server migrate",
        )
    if isinstance(error, _NOT_LET_IN):
        return DatabaseRefused(
            f"{place} refused us",
            why=place.say(error),
            fix="Look at user, password and database in REMUDA_DATABASE_URL, and at the user's rights",
        )
    return _unavailable(error, place)


def _unavailable(error: BaseException, place: Place) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"{place} is not available",
        why=place.say(error),
        fix="It is tried again; if it stays so, see that the server runs and can be reached",
    )
