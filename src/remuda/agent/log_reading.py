"""
Reading a runner's log, as a kubelet serves it: while its VM runs, after it ended, and while the one becomes the other.

A log is a stream of bytes with one scale of places, wherever it is read from: the mailbox as long as it is there, then
what the log store kept of it. The store has its part before the mailbox goes, so at no moment there is neither. The
guest writes the log and is hostile: it may be endless, cut short, or no file. What is sent is bounded.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.agent.decide.recorded import State
from remuda.agent.log_store import Kept, last_words
from remuda.agent.mailbox import HostMailbox, HostMailboxError
from remuda.model.errors import BadInput, RemudaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from pathlib import Path

    from remuda.agent.decide.recorded import VmRecord
    from remuda.agent.ledger import Threads
    from remuda.agent.log_store import DiskLogStore
    from remuda.ports.clock import Clock

CHUNK_BYTES: Final = 64 * 1024
SHOWN_MAX_BYTES: Final = 64 * 1024 * 1024
"""How much of the end of a log is shown. A file may claim to be larger than any disk."""
LOOK_S: Final = 0.25
"""How often a followed log is looked at."""
_NEVER_RAN: Final = frozenset({State.CLONING, State.CLONED})


class NoSuchLog(RemudaError):
    """No log of such a Pod is on this host."""


class NoLogYet(RemudaError):
    """The Pod is here, and its VM has not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """What of a log is wanted."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    since_s: int | None = None


class _Query(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of a request for logs, as an API server passes them on. Others are for others."""

    follow: bool = False
    timestamps: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: datetime | None = None


def parse_request(query: Mapping[str, str]) -> LogRequest:
    """Read the parameters of a request. Raises BadInput."""
    try:
        asked = msgspec.convert(query, _Query, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(str(error)) from None
    numbers = (asked.tail_lines, asked.limit_bytes, asked.since_seconds)
    if any(number is not None and number < 0 for number in numbers):
        raise _bad("a number in it is below 0")
    if asked.previous:
        raise _bad("a runner runs once: there is no log of an earlier run")
    since = asked.since_time
    return LogRequest(
        follow=asked.follow,
        timestamps=asked.timestamps,
        tail_lines=asked.tail_lines,
        limit_bytes=asked.limit_bytes,
        since=since if since is None or since.tzinfo else since.replace(tzinfo=UTC),
        since_s=asked.since_seconds,
    )


def _bad(why: str) -> BadInput:
    return BadInput("The log cannot be shown so", why=why, fix="Ask without that parameter")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSources:
    """Where logs are."""

    records: Callable[[], Iterable[VmRecord]]
    mailbox: Callable[[str], Path]
    """The mailbox's folder of the VM of this name."""
    store: DiskLogStore


@dataclass(frozen=True, slots=True)
class _Extent:
    """What there is of a log now."""

    start: int
    end: int
    at: datetime
    """By when it had been written."""


class LogReading:
    """The logs of this host's runners."""

    def __init__(self, sources: LogSources, threads: Threads, clock: Clock) -> None:
        self._sources, self._threads, self._clock = sources, threads, clock

    async def open(
        self, namespace: str, pod: str, request: LogRequest
    ) -> AsyncGenerator[bytes, None]:
        """Find a Pod's log and return its bytes, as they come. Raises NoSuchLog or NoLogYet."""
        record = self._find(namespace, pod)
        if record is None:
            raise NoSuchLog(
                f"There is no log of the Pod {namespace}/{pod}",
                why="this agent runs no VM for it",
                fix="Look at the Pod's events, and whether it is bound to this node",
            )
        if record.state in _NEVER_RAN:
            raise NoLogYet(
                f"There is no log of the Pod {namespace}/{pod} yet",
                why=f"its VM has not started (it is {record.state.value})",
                fix="Wait for it, or look at the Pod's events",
            )
        extent = await self._threads(lambda: self._extent(record))
        position = await self._threads(lambda: self._begin(record, extent, request.tail_lines))
        pieces = self._pieces(record, position, extent, request)
        return _shaped(pieces, request, self._since(request))

    def _find(self, namespace: str, pod: str) -> VmRecord | None:
        """Return the youngest record of that name: an older Pod's may still be here."""
        named = [r for r in self._sources.records() if (r.namespace, r.pod) == (namespace, pod)]
        return max(named, key=lambda record: record.accepted_at, default=None)

    def _since(self, request: LogRequest) -> datetime | None:
        if request.since_s is not None:
            return self._clock.now() - timedelta(seconds=request.since_s)
        return request.since

    async def _pieces(
        self, record: VmRecord, position: int, first: _Extent, request: LogRequest
    ) -> AsyncGenerator[tuple[bytes, datetime], None]:
        """Give what there is, then, if it is followed, what comes, until the runner is over and all of it was given."""
        # What is not followed ends where it ended when it was opened, however the guest plays with its file.
        left = None if request.follow else max(0, first.end - position)
        while True:
            over = not request.follow or self._is_over(
                record
            )  # first: its last words must not be missed
            while left is None or left > 0:
                place = position
                position, piece = await self._threads(partial(self._read, record, place))
                if not piece:
                    break
                if left is not None:
                    piece = piece[:left]
                    left -= len(piece)
                yield piece, first.at if place < first.end else self._clock.now()
            if over:
                return
            await self._clock.sleep(LOOK_S)

    def _is_over(self, record: VmRecord) -> bool:
        now = self._now(record)
        return now is None or now.verdict is not None

    def _now(self, record: VmRecord) -> VmRecord | None:
        return next((r for r in self._sources.records() if r.pod_uid == record.pod_uid), None)

    # --- what blocks --------------------------------------------------------------------------------------------------

    def _extent(self, record: VmRecord) -> _Extent:
        began, now = record.started_at or record.accepted_at, self._clock.now()
        try:
            live = self._mailbox(record).log_measured()
        except HostMailboxError:
            live = None
        if live is not None:
            written = _time(live.modified_s)
            at = written if written is not None and began <= written <= now else now
            return _Extent(max(0, live.size_bytes - SHOWN_MAX_BYTES), live.size_bytes, at)
        kept = self._kept(record)
        if kept is not None:
            return _Extent(kept.start, kept.end, kept.at)
        return _Extent(0, 0, began)

    def _begin(self, record: VmRecord, extent: _Extent, lines: int | None) -> int:
        """Return the place from which on there are so many lines; None: all of them."""
        if lines is None:
            return extent.start
        if lines == 0:
            return extent.end
        place, left = extent.end, lines
        while place > extent.start:
            begin = max(extent.start, place - CHUNK_BYTES)
            block = self._read(record, begin)[1][: place - begin]
            if place == extent.end and block.endswith(b"\n"):
                left += 1  # the end of the last line begins no new one
            at = len(block)
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                left -= 1
                if left == 0:
                    return begin + at + 1
            place = begin
        return extent.start

    def _read(self, record: VmRecord, position: int) -> tuple[int, bytes]:
        """Return a piece of the log from a place, and the place behind it."""
        mailbox = self._mailbox(record)
        try:
            measured = mailbox.log_measured()
            if measured is not None:
                if measured.size_bytes < position:
                    position = 0  # the guest began it anew
                position = max(position, measured.size_bytes - SHOWN_MAX_BYTES)
                live = mailbox.log_part(position, CHUNK_BYTES)
                if live is not None:
                    return position + len(live), live
        except HostMailboxError:
            pass  # the mailbox is gone, so the log was kept before
        kept = self._kept(record)
        if kept is None:
            return position, b""
        position = max(position, kept.start)
        piece = kept.content[position - kept.start :][:CHUNK_BYTES]
        return position + len(piece), piece

    def _kept(self, record: VmRecord) -> Kept | None:
        """Return what was kept; of a Pod that failed before there was anything to keep, why it failed."""
        kept = self._sources.store.kept(record.pod_uid)
        now = self._now(record)
        if kept is not None or now is None or now.verdict is None:
            return kept
        return Kept(start=0, content=last_words(now.verdict), at=now.verdict.finished_at)

    def _mailbox(self, record: VmRecord) -> HostMailbox:
        return HostMailbox(self._sources.mailbox(record.vm))


async def _shaped(
    pieces: AsyncGenerator[tuple[bytes, datetime], None],
    request: LogRequest,
    since: datetime | None,
) -> AsyncGenerator[bytes, None]:
    """Leave out what is too old or too much, and put times before lines. A line's time is when it was there at last."""
    left = request.limit_bytes
    in_line = False
    async with aclosing(pieces):
        async for piece, at in pieces:
            if since is not None and at < since:
                continue
            shaped = piece
            if request.timestamps:
                shaped, in_line = _stamped(piece, at, in_line=in_line)
            if left is not None:
                shaped = shaped[:left]
                left -= len(shaped)
            if shaped:
                yield shaped
            if left == 0:
                return


def _stamped(piece: bytes, at: datetime, *, in_line: bool) -> tuple[bytes, bool]:
    stamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
    lines = _lines(piece)
    stamped = [line if in_line and n == 0 else stamp + line for n, line in enumerate(lines)]
    return b"".join(stamped), not piece.endswith(b"\n")


def _lines(piece: bytes) -> list[bytes]:
    """Split at line feeds alone: a progress bar's carriage returns begin no line."""
    parts = piece.split(b"\n")
    return [*(part + b"\n" for part in parts[:-1]), *([parts[-1]] if parts[-1] else [])]


def _time(modified_s: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(modified_s, UTC)
    except (OverflowError, ValueError, OSError):
        return None
