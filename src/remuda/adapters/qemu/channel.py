"""
The mailbox of a QEMU guest as bytes on a serial line: what the host says, and what it is willing to hear. Pure.

The guest is hostile: it says what it likes, in any order and any amount. Only the files that a guest writes into a
mailbox are understood, by their names, each within its size and only so often. The first word that is not, and the
guest is not heard any more: there is no way back from half a message.

A message is a line and, where the line ends with a size, that many bytes. From the guest: ``who`` (it asks who it is),
``put NAME SIZE``, ``log SIZE`` (more of runner.log), ``disk PERCENT``; ``begin SIZE SHA256`` (of the archive that is to
come back, from its first byte on, whatever came of it before) and then ``files SIZE`` (more of it).
From the host: ``id …``, ``put NAME SIZE``, ``rm NAME``, ``off``, ``knows files``; ``begin NAME SIZE SHA256``,
``more NAME SIZE`` and at its end ``done NAME`` (a file that is too large to be put at once).

Images and hosts are of different versions. A guest leaves out what the host says that it does not understand, so a host
may say anything new; a guest says ``begin``, ``files`` and ``put ended`` only to a host that ``knows files``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from remuda.model.mailbox import ENDED, EXIT, FILES_IN, JOB, READY, STARTED, STOP

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES_MAX: Final = {READY: 4096, STARTED: 4096, ENDED: 16 * 1024, EXIT: 16 * 1024}
"""What a guest may put into its mailbox, and how large each file may be."""
TIMES_MAX: Final = 16
"""How often it may put each."""
CHUNK_MAX_BYTES: Final = 64 * 1024
"""How much more of its log it may send at once."""
CHUNKS_MAX: Final = 10_000_000
"""How often: a guest looks five times a second, so that is three weeks of a job that never stops printing."""
FILE_CHUNKS_MAX: Final = 100_000
"""The same, of the archive that is to come back: many more than it has, if each is as large as it may be."""
DISKS_MAX: Final = 100_000
"""How often it may say how full its disk is; each time a file is written."""
JOB_MAX_BYTES: Final = 4 * 1024 * 1024
LINE_MAX_BYTES: Final = 96
_LINE: Final = re.compile(
    rb"(?:(?P<who>who)|put (?P<name>[a-z.]{1,16}) (?P<size>[0-9]{1,7})"
    rb"|(?P<part>log|files) (?P<more>[0-9]{1,7})|disk (?P<percent>[0-9]{1,3})"
    rb"|begin (?P<all>[0-9]{1,9}) (?P<sha256>[0-9a-f]{64}))\Z"
)
_PERCENT_MAX: Final = 100


class Garbled(Exception):
    """The guest said something that no guest of ours says. The text says what, and quotes none of it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The guest asks who it is: it is up, and has done nothing yet that makes it differ from its siblings."""


@dataclass(frozen=True, slots=True)
class Put:
    """The guest puts a file into its mailbox."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class MoreLog:
    """The guest's runner wrote this to its log."""

    content: bytes


@dataclass(frozen=True, slots=True)
class MoreFiles:
    """The next of the archive that is to come back. All of it comes before the exit."""

    content: bytes


@dataclass(frozen=True, slots=True)
class FilesBegin:
    """The archive that is to come back follows, from its first byte on."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DiskUsed:
    """How full the guest's disk is."""

    percent: int


Message: TypeAlias = Asked | Put | MoreLog | FilesBegin | MoreFiles | DiskUsed


@dataclass(slots=True)
class Hearing:
    """What was heard from one guest so far."""

    _raw: bytearray = field(default_factory=bytearray)
    _awaited: tuple[str, int] | None = None
    """The file whose bytes come next, and how many; of the log and of the archive it is a part."""
    _times: dict[str, int] = field(default_factory=dict)

    def feed(self, raw: bytes) -> Iterator[Message]:
        """Take what came and yield what it makes whole. Raises Garbled, and then must not be fed again."""
        self._raw += raw
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> Message | None:
        if self._awaited is None:
            line = self._line()
            if line is None:
                return None
            small = self._began(line)
            if small is not None:
                return small
        return self._whole()

    def _line(self) -> bytes | None:
        end = self._raw.find(b"\n", 0, LINE_MAX_BYTES + 1)
        if end < 0:
            if len(self._raw) > LINE_MAX_BYTES:
                raise Garbled("a line is too long")
            return None
        line = bytes(self._raw[:end])
        del self._raw[: end + 1]
        return line

    def _began(self, line: bytes) -> Message | None:
        """Understand a line; None: bytes follow."""
        found = _LINE.match(line)
        if found is None:
            raise Garbled("a line is none that a guest says")
        if found["who"]:
            self._count("who", TIMES_MAX)
            return Asked()
        if found["percent"]:
            self._count("disk", DISKS_MAX)
            if int(found["percent"]) > _PERCENT_MAX:
                raise Garbled("a disk is more than full")
            return DiskUsed(int(found["percent"]))
        if found["all"]:
            self._count("begin", TIMES_MAX)
            return FilesBegin(int(found["all"]), found["sha256"].decode())
        if found["part"]:
            times_max = CHUNKS_MAX if found["part"] == b"log" else FILE_CHUNKS_MAX
            self._awaits(found["part"].decode(), int(found["more"]), CHUNK_MAX_BYTES, times_max)
            return None
        known = found["name"].decode()
        if known not in SIZES_MAX:
            raise Garbled("a file has a name that no guest's file has")
        self._awaits(known, int(found["size"]), SIZES_MAX[known], TIMES_MAX)
        return None

    def _awaits(self, name: str, size: int, size_max: int, times_max: int) -> None:
        if size > size_max:
            raise Garbled(f"what is said of {name} is larger than {size_max} bytes")
        self._count(name, times_max)
        self._awaited = (name, size)

    def _count(self, what: str, times_max: int) -> None:
        self._times[what] = self._times.get(what, 0) + 1
        if self._times[what] > times_max:
            raise Garbled(f"the same was said more than {times_max} times")

    def _whole(self) -> Message | None:
        assert self._awaited is not None
        name, size = self._awaited
        if len(self._raw) < size:
            return None
        content = bytes(self._raw[:size])
        del self._raw[:size]
        self._awaited = None
        if name == "log":
            return MoreLog(content)
        return MoreFiles(content) if name == "files" else Put(name, content)


# --- what the host says -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a guest is: no two have one of these in common."""

    host_name: str
    machine_id: str
    """32 hex digits."""
    mac: str
    seed: str
    """Of the guest's random numbers, as hex."""

    def __post_init__(self) -> None:
        assert re.fullmatch(r"[a-z0-9-]{1,63}", self.host_name)
        assert re.fullmatch(r"[0-9a-f]{32}", self.machine_id)
        assert re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", self.mac)
        assert re.fullmatch(r"[0-9a-f]{128}", self.seed)


def you_are(identity: Identity, now_s: int) -> bytes:
    """Tell the guest who it is and what time it is: one that starts from a snapshot knows neither."""
    words = (identity.host_name, identity.machine_id, identity.mac, str(now_s), identity.seed)
    return f"id {' '.join(words)}\n".encode()


def put(name: str, content: bytes) -> bytes:
    """Put a file into the guest's mailbox."""
    assert name in (JOB, STOP)
    return f"put {name} {len(content)}\n".encode() + content


def begin(name: str, size_bytes: int, sha256: str) -> bytes:
    """Say of a file whose parts follow how much it is and what: the guest takes it as a whole or not at all."""
    assert name == FILES_IN
    return f"begin {name} {size_bytes} {sha256}\n".encode()


def more(name: str, content: bytes) -> bytes:
    """Send the next part of a file that is not in the guest's mailbox before ``done``."""
    assert name == FILES_IN
    assert content, "the end of a file is said by another word"
    return f"more {name} {len(content)}\n".encode() + content


def done(name: str) -> bytes:
    """Put the file into the guest's mailbox whose parts were sent."""
    assert name == FILES_IN
    return f"done {name}\n".encode()


def remove(name: str) -> bytes:
    """Have the guest remove a file that the host took back."""
    assert name == JOB
    return f"rm {name}\n".encode()


KNOWS_FILES: Final = b"knows files\n"
"""Tell the guest that it may say what hosts of older versions would take for nonsense."""
OFF: Final = b"off\n"
"""Have the guest power off."""
