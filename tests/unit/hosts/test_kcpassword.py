"""Apple's file of the automatic login, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.hosts.decide.kcpassword import decode, encode, is_sealed
from remuda.model.errors import BadInput
from remuda.model.secret import Secret

KEY = "7d895223d2bcddeaa3b91f"

VECTORS = [
    pytest.param(b"", KEY, id="nothing is a block of zeros"),
    pytest.param(b"runner", "0ffc3c4db7ceddeaa3b91f", id="six letters"),
    pytest.param(b"hello", "15ec3e4fbdbcddeaa3b91f", id="five letters"),
    pytest.param(b"abcdefghij", "1ceb3147b7daba82cad31f", id="ten leave one zero"),
    pytest.param(
        b"abcdefghijk", "1ceb3147b7daba82cad374" + KEY, id="eleven get a whole block more"
    ),
    pytest.param(
        b"abcdefghijkl", "1ceb3147b7daba82cad37411895223d2bcddeaa3b91f", id="twelve fill two blocks"
    ),
    pytest.param(
        b"abcdefghijkabcdefghijk",
        "1ceb3147b7daba82cad374" * 2 + KEY,
        id="twenty-two get a third block",
    ),
    pytest.param("pässwörd".encode(), "0d4af650a1cb1e5cd1dd1f", id="letters of two bytes"),
]


@pytest.mark.parametrize(("password", "content"), VECTORS)
def test_the_bytes_are_apples(password: bytes, content: str) -> None:
    assert encode(Secret(password)).reveal().hex() == content
    assert decode(Secret(bytes.fromhex(content))) == Secret(password)


@given(st.binary().filter(lambda held: not set(held) & {0, 10, 13}))
def test_any_password_comes_back(password: bytes) -> None:
    content = encode(Secret(password))
    assert decode(content).reveal() == password
    assert len(content.reveal()) % 11 == 0
    assert len(content.reveal()) > len(password)


def test_what_other_tools_pad_differently_is_read_the_same() -> None:
    twelve = bytes.fromhex("0ffc3c4db7ceddeaa3b91f7d")
    assert decode(Secret(twelve)) == Secret(b"runner")


@pytest.mark.parametrize(
    ("content", "sealed"),
    [
        pytest.param(bytes.fromhex("41fa3742bed9b9d4a3b91f"), True, id="what macOS writes"),
        pytest.param(encode(Secret(b"<sealed>")).reveal(), True, id="the same by our own hand"),
        pytest.param(encode(Secret(b"runner")).reveal(), False, id="a password"),
        pytest.param(
            encode(Secret(b"sealed")).reveal(), False, id="a password that sounds like it"
        ),
        pytest.param(b"", False, id="an empty file"),
    ],
)
def test_a_sealed_file_is_recognised(*, content: bytes, sealed: bool) -> None:
    assert is_sealed(Secret(content)) is sealed


@pytest.mark.parametrize(
    ("password", "why"),
    [
        pytest.param(b"canary\0more", "NUL", id="a zero in it"),
        pytest.param(b"canary\n", "line break", id="a line break behind it"),
        pytest.param(b"canary\r\nmore", "line break", id="a line break in it"),
    ],
)
def test_a_password_that_no_mac_can_have_is_refused_and_not_shown(
    password: bytes, why: str
) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        encode(Secret(password))
    assert "canary" not in str(refused.value)
