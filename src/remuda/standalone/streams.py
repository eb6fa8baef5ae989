"""Answers that go on: watches, opened from a request's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.ports.wire import Response
from remuda.standalone.errors import StatusError, bad_request
from remuda.standalone.lists import options_refused, parse_version, too_large
from remuda.standalone.requests import flag, number
from remuda.standalone.store import encode
from remuda.standalone.watch import Watch, WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from remuda.standalone.requests import Target
    from remuda.standalone.rest import Rest
    from remuda.standalone.watch import Shape

_TIMEOUT_MIN_S = 1800
"""A watch without a timeout of its own ends after once to twice as long: clients must not all return at once."""


def refused(refusal: StatusError) -> Response:
    wait_s = refusal.details.get("retryAfterSeconds")
    return Response(
        refusal.code, encode(refusal.status()), None if wait_s is None else float(wait_s)
    )


@dataclass(frozen=True, slots=True)
class Stream:
    """A ``WireStream``: its status is known, its chunks are on their way."""

    status: int
    source: AsyncIterator[bytes]
    on_close: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, status: int, body: bytes) -> Stream:
        return cls(status, _once(body))

    def chunks(self) -> AsyncIterator[bytes]:
        return self.source

    def close(self) -> None:
        self.on_close()


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def opened_watch(
    rest: Rest,
    target: Target,
    query: Mapping[str, str],
    shape: Shape | None,
    bookmark_every_s: float,
) -> Stream:
    """Start a watch, as the query asks for it."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    selection = rest.select(target.kind, target.namespace, labels, fields)
    streaming = _streaming_list(query)
    since = parse_version(query.get("resourceVersion", ""))
    if streaming and since > rest.store.revision:
        raise too_large(since, rest.store.revision)
    bookmarks = flag(query, "allowWatchBookmarks")
    from_the_start = streaming or since == 0
    seconds = number(query, "timeoutSeconds")
    options = WatchOptions(
        since=None if from_the_start else since,
        bookmarks=bookmarks,
        end_of_initial=bookmarks and from_the_start,
        timeout_s=seconds or _TIMEOUT_MIN_S * (1 + rest.ids.fraction()),
        bookmark_every_s=bookmark_every_s,
    )
    watch = Watch(rest.store, selection, options, shape)
    return Stream(200, watch.chunks(), watch.close)


def _streaming_list(query: Mapping[str, str]) -> bool:
    """Tell whether a watch is to begin with what is there; refuse combinations that mean nothing."""
    match = query.get("resourceVersionMatch", "")
    if "sendInitialEvents" not in query:
        if match:
            raise options_refused(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        return False
    if match != "NotOlderThan":
        raise options_refused(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )
    if query["sendInitialEvents"] not in {"true", "false", "1", "0", ""}:
        raise bad_request("sendInitialEvents is neither true nor false")
    return flag(query, "sendInitialEvents")
