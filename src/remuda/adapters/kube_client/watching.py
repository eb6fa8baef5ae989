"""A watch's bytes, cut anywhere, as batches of typed events. Pure: no I/O, no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec import Raw

from remuda.adapters.kube_client.refusals import event_status, refusal
from remuda.kube.meta import Resource
from remuda.ports.kube import Bookmark, Change, Unavailable, WatchEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.kube.decoding import ObjectDecoder

T = TypeVar("T", bound=Resource)

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_EVENT_MAX_BYTES = 16 * 2**20  # ten times what an API server stores in one object


class _Line(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: Raw


class _BookmarkMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _BookmarkObject(msgspec.Struct, frozen=True):
    metadata: _BookmarkMeta


class EventReader(Generic[T]):
    """Joins chunks to whole lines and decodes them. An ERROR event raises, after the events before it were given."""

    def __init__(self, what: str, decoder: ObjectDecoder[T]) -> None:
        self._what = what
        self._decoder = decoder
        self._lines: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
        self._bookmarks = msgspec.json.Decoder(_BookmarkObject)
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def batches(self, chunk: bytes) -> Iterator[tuple[WatchEvent[T] | Bookmark, ...]]:
        """Yield what is complete with this chunk: one batch, or none, and then perhaps an error."""
        end = chunk.rfind(b"\n")
        if end < 0:  # one event may be longer than many chunks: join once, when its end has come
            self._hold(chunk)
            return
        whole = b"".join((*self._pieces, chunk[:end]))
        self._pieces = [chunk[end + 1 :]] if end + 1 < len(chunk) else []
        self._held_bytes = len(chunk) - end - 1
        batch: list[WatchEvent[T] | Bookmark] = []
        try:
            for line in self._lines.decode_lines(whole):
                if line.type == "ERROR":
                    if batch:
                        yield tuple(batch)
                    raise refusal(self._what, event_status(line.object))
                batch.append(self._event(line))
        except (msgspec.MsgspecError, ValueError) as error:
            why = f"the server sent an event that makes no sense ({type(error).__name__})"
            raise Unavailable(self._what, why=why, fix="Watch again") from None
        if batch:
            yield tuple(batch)

    def _hold(self, chunk: bytes) -> None:
        self._pieces.append(chunk)
        self._held_bytes += len(chunk)
        if self._held_bytes > _EVENT_MAX_BYTES:
            raise Unavailable(
                self._what,
                why=f"the server sent an event of more than {_EVENT_MAX_BYTES} bytes",
                fix="Check that the server address is an API server's",
            )

    def finish(self) -> None:
        """Say that no chunk follows. Half an event means that the connection was cut."""
        if any(piece.strip() for piece in self._pieces):
            raise Unavailable(
                self._what,
                why="the connection was cut in the middle of an event",
                fix="Watch again",
            )

    def _event(self, line: _Line) -> WatchEvent[T] | Bookmark:
        if line.type == "BOOKMARK":
            metadata = self._bookmarks.decode(line.object).metadata
            ends = metadata.annotations.get(_INITIAL_EVENTS_END) == "true"
            return Bookmark(metadata.resource_version, initial_events_end=ends)
        return WatchEvent(Change(line.type), self._decoder.object(line.object))
