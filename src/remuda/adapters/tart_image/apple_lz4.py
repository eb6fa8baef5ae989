"""
LZ4 in Apple's framing, which is not the LZ4 frame format.

A stream is blocks and an end: ``bv41`` + raw size + packed size + LZ4 block; ``bv4-`` + size + plain bytes; ``bv4$``.
Numbers have 32 bits, little endian. A block of Apple's encoder may point back into what came before it, up to 64 KiB.
The blocks that we write do not, so any decoder reads them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import lz4.block  # type: ignore[import-untyped]  # its C module carries no types

from remuda.adapters.tart_image.errors import BadImage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKED: Final = b"bv41"
PLAIN: Final = b"bv4-"
END: Final = b"bv4$"
BLOCK_BYTES: Final = 64 * 1024
"""As large as Apple's encoder makes them."""
_HISTORY_BYTES: Final = 64 * 1024
_RAW_MAX_BYTES: Final = 4 * 1024 * 1024
"""More than any encoder in use writes; keeps a lying header from asking for gigabytes."""
_MAGIC_BYTES: Final = 4
_NUMBERS: Final = {PACKED: struct.Struct("<II"), PLAIN: struct.Struct("<I")}
"""What follows a block's magic: its raw size, and, if it is packed, its packed size."""
_WHAT: Final = "A disk layer cannot be unpacked"
_FIX: Final = "Push the image again; if it persists, the registry or a proxy changes what it stores"


def pack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pack a stream, piece by piece: no piece is larger than what fits in memory twice."""
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), BLOCK_BYTES):
            yield _block(view[start : start + BLOCK_BYTES])
    yield END


def _block(raw: memoryview) -> bytes:
    packed: bytes = lz4.block.compress(raw, store_size=False)
    if len(packed) < len(raw):
        return PACKED + struct.pack("<II", len(raw), len(packed)) + packed
    return PLAIN + struct.pack("<I", len(raw)) + raw


class Unpacker:
    """Takes a packed stream in pieces of any size and gives its raw bytes. It holds one block at most."""

    def __init__(self, *, raw_bytes: int) -> None:
        self._left = raw_bytes
        """How many raw bytes may still come: what the image says about this layer."""
        self._waiting = b""
        """The beginning of a block of which the rest did not come yet."""
        self._history = b""
        self._ended = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Give what became whole with this piece."""
        came = self._waiting + piece if self._waiting else piece
        taken = 0
        with memoryview(came) as view:
            while (step := self._next(view, taken)) is not None:
                raw, taken = step
                if raw:
                    yield raw
        self._waiting = came[taken:]

    def finish(self) -> None:
        """Say that nothing more comes. Raises BadImage if something is missing."""
        if not self._ended:
            raise _bad("the layer ends in the middle")
        if self._left:
            raise _bad(f"{self._left} bytes fewer came out than the image promises")

    def _next(self, came: memoryview, at: int) -> tuple[bytes, int] | None:
        """Return the block that starts here and where the next one starts; nothing, if it is not whole yet."""
        magic = bytes(came[at : at + _MAGIC_BYTES])
        if self._ended and magic:
            raise _bad("something follows the end")
        if len(magic) < _MAGIC_BYTES:
            return None
        if magic == END:
            self._ended = True
            return b"", at + _MAGIC_BYTES
        if magic not in _NUMBERS:
            raise _bad(f"a block begins with {magic!r}")
        return self._body(magic, came, at + _MAGIC_BYTES)

    def _body(self, magic: bytes, came: memoryview, at: int) -> tuple[bytes, int] | None:
        numbers = _NUMBERS[magic]
        body = at + numbers.size
        if len(came) < body:
            return None
        sizes = numbers.unpack_from(came, at)
        raw_bytes, stored_bytes = sizes[0], sizes[-1]
        self._check(raw_bytes, stored_bytes)
        end = body + stored_bytes
        if len(came) < end:
            return None
        with came[body:end] as stored:
            raw = bytes(stored) if magic == PLAIN else self._unpack(stored, raw_bytes)
        self._left -= raw_bytes
        self._remember(raw)
        return raw, end

    def _check(self, raw_bytes: int, stored_bytes: int) -> None:
        if not 0 < raw_bytes <= _RAW_MAX_BYTES:
            raise _bad(f"a block says that it holds {raw_bytes} bytes")
        if raw_bytes > self._left:
            raise _bad("more bytes come out than the image promises")
        if not 0 < stored_bytes <= raw_bytes + raw_bytes // 255 + 16:
            raise _bad(f"a block of {raw_bytes} bytes says that it takes {stored_bytes}")

    def _unpack(self, stored: memoryview, raw_bytes: int) -> bytes:
        try:
            raw: bytes = lz4.block.decompress(
                stored, uncompressed_size=raw_bytes, dict=self._history
            )
        except (lz4.block.LZ4BlockError, ValueError):
            raise _bad("a block is not LZ4") from None
        if len(raw) != raw_bytes:
            raise _bad(f"a block of {raw_bytes} bytes holds {len(raw)}")
        return raw

    def _remember(self, raw: bytes) -> None:
        if len(raw) >= _HISTORY_BYTES:
            self._history = raw[-_HISTORY_BYTES:]
        else:
            self._history = (self._history + raw)[-_HISTORY_BYTES:]


def _bad(why: str) -> BadImage:
    return BadImage(_WHAT, why=why, fix=_FIX)
