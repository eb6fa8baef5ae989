"""
The Kubernetes API as our controllers use it, and its errors, typed by what the caller must do.

There is no ``replace``: a write creates, patches touched keys, or deletes with what it saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from remuda.kube.meta import Resource
from remuda.model.errors import RemudaError, Retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from remuda.kube.kinds import Kind
    from remuda.kube.patches import Patch

T = TypeVar("T", bound=Resource)

WATCH_S = 300.0
"""How long a watch lasts before it is opened again: one that died unseen costs at most this."""


class KubeError(RemudaError):
    """The API server did not do what was asked."""


class NotFound(KubeError):
    """No such object (or no such kind)."""


class AlreadyExists(KubeError):
    """An object of that name is there already. Look at it; it may be ours."""


class Conflict(KubeError):
    """The object is not what we saw: another version, another UID, or a failed test. Look again."""


class Invalid(KubeError):
    """The object breaks its schema or a rule. Only a changed object can succeed."""

    retry = Retry.NEVER


class Refused(KubeError):
    """We are not who we should be (401) or may not do this (403)."""


class Expired(KubeError):
    """The version to start from is too old (410). List again."""


class Throttled(KubeError):
    """Too much at once (429). Wait ``retry_after_s`` first."""

    def __init__(self, what: str, *, why: str, fix: str, retry_after_s: float = 1.0) -> None:
        super().__init__(what, why=why, fix=fix)
        self.retry_after_s = retry_after_s


class Unavailable(KubeError):
    """The server failed or cannot be reached; whether the request was applied is unknown."""


class TimedOut(Unavailable):
    """The deadline of the call passed; whether the request was applied is unknown."""


class Cascade(StrEnum):
    """What a delete does with the objects that the deleted one owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object as JSON, for what our types do not hold (a Pod with its pool's template merged in)."""

    body: bytes = field(repr=False)  # it may be a Secret's
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which objects of a kind. The empty namespace means all of them."""

    namespace: str = ""
    labels: str = ""
    """A label selector as kubectl writes it, such as ``remuda.dev/pool=mac,!remuda.dev/drain``."""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One consistent list; watching from ``resource_version`` misses nothing."""

    items: tuple[T, ...]
    resource_version: str


class Change(StrEnum):
    """What happened to a watched object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change, with the object after it (or, for DELETED, as it last was)."""

    change: Change
    object: T


@dataclass(frozen=True, slots=True)
class Bookmark:
    """No news up to this version. ``initial_events_end`` is set on the one that closes a streaming list."""

    resource_version: str
    initial_events_end: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A ServiceAccount token. Its text never shows in a repr."""

    text: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"Token(expires_at={self.expires_at.isoformat()})"


@dataclass(frozen=True, slots=True)
class TokenSubject:
    """Whom a reviewed token belongs to. ``audiences`` is never empty: absent audiences fail closed."""

    username: str
    uid: str
    groups: tuple[str, ...]
    audiences: tuple[str, ...]
    pod_name: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the caller saw of an object: a delete happens only if it is still so."""

    uid: str
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """The Pod that a token is good for: once it is gone, the token is worthless."""

    name: str
    uid: str


class Kube(Protocol):
    """The API server. Every call has a deadline; every error is a KubeError."""

    def within(self, seconds: float) -> Kube:
        """Return the same server, with calls that end within so long: a write is not applied after that."""
        ...

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T: ...

    async def list(self, kind: Kind[T], query: Query = ...) -> Listing[T]:
        """Read all that match, in pages, at one consistent version."""
        ...

    def watch(
        self,
        kind: Kind[T],
        query: Query,
        *,
        since: str = "",
        streaming_list: bool = False,
        lasts_s: float = WATCH_S,
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[WatchEvent[T] | Bookmark, ...]]]:
        """
        Follow changes after version ``since``, in batches as they arrive; the server ends it after ``lasts_s``.

        With ``streaming_list`` the current objects come first, as ADDED, up to a Bookmark with
        ``initial_events_end``; a server without that ability raises Invalid. A version that is too old raises
        Expired, at once or on the way.
        """
        ...

    async def create(self, kind: Kind[T], resource: T | Manifest) -> T: ...

    async def patch(
        self, kind: Kind[T], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> T:
        """Change the touched keys only. Put ``metadata.resourceVersion`` in a merge patch to make it conditional."""
        ...

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
        """Ask for deletion. With ``seen``, only if the object is still the one that was seen; else Conflict."""
        ...

    async def request_token(
        self,
        service_account: str,
        *,
        namespace: str,
        audience: str,
        expiration_s: int,
        pod: BoundPod | None = None,
    ) -> Token:
        """Ask for a token of a ServiceAccount, bound to a Pod if one is given."""
        ...

    async def review_token(self, token: str, *, audience: str) -> TokenSubject | None:
        """Return whose token it is, or None if it is not valid for that audience."""
        ...

    async def may_i(
        self, verb: str, kind: Kind[T], *, namespace: str = "", subresource: str = ""
    ) -> bool: ...
