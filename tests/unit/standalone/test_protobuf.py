"""The protobuf bodies of kubectl, and what is made of broken ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.standalone.protobuf import decode

# What kubectl 1.37 sends for `create secret generic s --from-literal=a=b`, byte by byte.
SECRET = bytes.fromhex(
    "6b3873000a0c0a0276311206536563726574121d0a110a017312001a0022002a00320038004200"
    "12060a01611201621a001a002200"
)
# ... and for `create token q --audience rd --duration 20m` bound to the Pod p with the UID u.
TOKEN_REQUEST = bytes.fromhex(
    "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e52657175657374"
    "12320a100a0012001a0022002a0032003800420012180a0272641a0f0a03506f64120276311a017022017520b009"
    "1a040a0012001a002200"
)


def varint(number: int) -> bytes:
    number %= 1 << 64
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def length(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(at: int, value: int) -> bytes:
    return varint(at << 3) + varint(value)


def a_body(api_version: str, kind: str, *fields: bytes) -> bytes:
    named = length(1, api_version) + length(2, kind)
    return (
        b"k8s\x00" + length(1, named) + length(2, b"".join(fields)) + length(3, "") + length(4, "")
    )


META = length(1, length(1, "n"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            SECRET,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "s"},
                "data": {"a": "Yg=="},
            },
            id="a Secret as kubectl sends it: data becomes base64, empty fields are absent",
        ),
        pytest.param(
            TOKEN_REQUEST,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "audiences": ["rd"],
                    "expirationSeconds": 1200,
                    "boundObjectRef": {
                        "kind": "Pod",
                        "apiVersion": "v1",
                        "name": "p",
                        "uid": "u",
                    },
                },
            },
            id="a TokenRequest as kubectl sends it",
        ),
        pytest.param(
            a_body(
                "v1",
                "ConfigMap",
                META,
                length(2, length(1, "k1") + length(2, "v")),
                length(2, length(1, "empty") + length(2, "")),
                length(3, length(1, "bin") + length(2, b"\xff\x00")),
                number(4, 0),
            ),
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "n"},
                "data": {"k1": "v", "empty": ""},
                "binaryData": {"bin": "/wA="},
                "immutable": False,
            },
            id="maps keep empty values, and an explicit false is kept",
        ),
        pytest.param(
            a_body("v1", "DeleteOptions", number(1, 0), length(5, "All")),
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 0,
                "dryRun": ["All"],
            },
            id="an explicit zero is kept",
        ),
        pytest.param(
            a_body("v1", "DeleteOptions", number(1, -1)),
            {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": -1},
            id="numbers can be negative",
        ),
        pytest.param(
            a_body(
                "v1",
                "Namespace",
                META,
                length(77, "from the future"),
                varint(78 << 3 | 1) + bytes(8),
            ),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}},
            id="fields that are not known are passed over",
        ),
        pytest.param(
            a_body("v1", "Pod", META), None, id="a kind that is not known is not guessed at"
        ),
    ],
)
def test_decode(body: bytes, expected: object) -> None:
    assert decode(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="JSON"),
        pytest.param(SECRET[:-9], id="a body that is cut off"),
        pytest.param(b"k8s\x00" + b"\xff" * 11, id="a number without end"),
        pytest.param(b"k8s\x00\x0b", id="a group, which nobody uses"),
        pytest.param(
            a_body("v1", "Namespace", number(1, 1)), id="a number where a message belongs"
        ),
        pytest.param(
            a_body("v1", "DeleteOptions", length(1, "x")), id="text where a number belongs"
        ),
        pytest.param(
            a_body("v1", "Namespace", length(1, length(1, b"\xff"))), id="text that is no text"
        ),
        pytest.param(a_body("v1", "ConfigMap", length(2, number(1, 1))), id="a map with numbers"),
    ],
)
def test_what_is_broken_is_said(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(body)


@given(st.one_of(st.binary(), st.binary().map(lambda tail: SECRET[:20] + tail)))
@example(SECRET)
def test_no_body_does_anything_but_decode_or_be_refused(body: bytes) -> None:
    try:
        decoded = decode(body)
    except ValueError:
        return
    json.dumps(decoded)


@given(st.integers(0, len(SECRET) - 1), st.integers(0, 255))
def test_one_wrong_byte_is_survived(at: int, byte: int) -> None:
    body = SECRET[:at] + bytes([byte]) + SECRET[at + 1 :]
    try:
        decoded = decode(body)
    except ValueError:
        return
    assert decoded is None or decoded["kind"]
