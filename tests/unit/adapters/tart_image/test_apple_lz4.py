from __future__ import annotations

import struct

import lz4.block  # type: ignore[import-untyped]  # its C module carries no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.adapters.tart_image.apple_lz4 import BLOCK_BYTES, Unpacker, pack
from remuda.adapters.tart_image.errors import BadImage

HELLO = b"hello hello hello hello hello hello hello hello "


def packed(raw: bytes, dictionary: bytes = b"") -> bytes:
    """Make a block by hand, as Apple's encoder does: it may point into what came before."""
    body: bytes = lz4.block.compress(raw, store_size=False, dict=dictionary)
    return b"bv41" + struct.pack("<II", len(raw), len(body)) + body


def plain(raw: bytes) -> bytes:
    return b"bv4-" + struct.pack("<I", len(raw)) + raw


def unpack(stream: bytes, raw_bytes: int, step: int = 1 << 20) -> bytes:
    unpacker = Unpacker(raw_bytes=raw_bytes)
    out = bytearray()
    for start in range(0, len(stream), step):
        for raw in unpacker.feed(stream[start : start + step]):
            out += raw
    unpacker.finish()
    return bytes(out)


@given(
    st.lists(st.binary(max_size=300) | st.just(HELLO * 50) | st.just(bytes(BLOCK_BYTES + 7))),
    st.integers(min_value=1, max_value=5000),
)
def test_what_is_packed_comes_out_again_however_it_is_cut(pieces: list[bytes], step: int) -> None:
    raw = b"".join(pieces)
    assert unpack(b"".join(pack(pieces)), len(raw), step) == raw


def test_the_framing_is_apples_to_the_byte() -> None:
    body = lz4.block.compress(HELLO, store_size=False)
    expected = b"bv41" + bytes([len(HELLO), 0, 0, 0, len(body), 0, 0, 0]) + body + b"bv4$"
    assert b"".join(pack([HELLO])) == expected


def test_what_cannot_be_packed_is_stored_plain() -> None:
    assert b"".join(pack([b"abc"])) == b"bv4-\x03\x00\x00\x00abcbv4$"


def test_an_empty_disk_piece_is_an_end_alone() -> None:
    assert b"".join(pack([])) == b"bv4$"
    assert unpack(b"bv4$", 0) == b""


def test_a_block_may_point_back_into_the_blocks_before_it() -> None:
    chance = lz4.block.compress(HELLO * 99, store_size=False)[:40] * 20
    second = packed(chance, dictionary=chance)
    assert len(second) < len(packed(chance)), "the second block does point back"
    assert unpack(packed(chance) + second + b"bv4$", 2 * len(chance)) == chance * 2


def test_history_reaches_over_several_small_blocks_and_plain_ones() -> None:
    first, middle = bytes(range(200)), b"x" * 100
    last = packed(first, dictionary=first + middle)
    assert unpack(plain(first) + plain(middle) + last + b"bv4$", 500) == first + middle + first


@pytest.mark.parametrize(
    ("stream", "raw_bytes", "why"),
    [
        pytest.param(packed(HELLO), len(HELLO), "ends in the middle", id="no end"),
        pytest.param(packed(HELLO)[:-1], len(HELLO), "ends in the middle", id="half a block"),
        pytest.param(b"bv41\x01", 1, "ends in the middle", id="half a header"),
        pytest.param(b"", 1, "ends in the middle", id="nothing"),
        pytest.param(b"bv4$", 1, "1 bytes fewer", id="fewer bytes than promised"),
        pytest.param(packed(HELLO) + b"bv4$", 5, "more bytes come out", id="a bomb"),
        pytest.param(plain(b"abc") + b"bv4$", 2, "more bytes come out", id="a plain bomb"),
        pytest.param(b"bv4$bv4$", 0, "follows the end", id="two ends"),
        pytest.param(b"bv4$x", 0, "follows the end", id="something after the end"),
        pytest.param(b"\x04\x22\x4d\x18" + bytes(20), 9, "begins with", id="an LZ4 frame"),
        pytest.param(b"bv4-" + b"\xff" * 8, 1 << 40, "says that it holds", id="a 4 GiB block"),
        pytest.param(b"bv4-" + bytes(4), 9, "says that it holds 0", id="an empty block"),
        pytest.param(
            b"bv41" + struct.pack("<II", 10, 1 << 31), 10, "takes", id="a block that never ends"
        ),
        pytest.param(b"bv41" + struct.pack("<II", 10, 0), 10, "takes 0", id="a block of nothing"),
        pytest.param(
            b"bv41" + struct.pack("<II", 100, 4) + b"\xff\xff\xff\xff", 100, "not LZ4", id="garbage"
        ),
        pytest.param(
            b"bv41" + struct.pack("<II", 49, len(packed(HELLO)) - 12) + packed(HELLO)[12:],
            49,
            "holds 48",
            id="a block shorter than it says",
        ),
    ],
)
def test_a_stream_is_refused_for(stream: bytes, raw_bytes: int, why: str) -> None:
    with pytest.raises(BadImage, match=why):
        unpack(stream, raw_bytes)


@given(st.binary(max_size=400))
def test_no_garbage_brings_anything_but_bad_image(garbage: bytes) -> None:
    for stream in (garbage, b"bv41" + garbage, b"bv4-" + garbage, packed(HELLO)[:12] + garbage):
        try:
            unpack(stream, 100)
        except BadImage:
            pass
        else:
            assert stream.endswith(b"bv4$")
