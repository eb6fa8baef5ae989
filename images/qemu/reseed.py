"""
The program ``remuda-reseed``: a guest's random numbers made new, for Linux on x86-64.

A guest that goes on from a snapshot has its siblings' random numbers until its kernel is told otherwise. A shell cannot
do that: it takes two ioctls on /dev/urandom, RNDADDENTROPY with the seed and RNDRESEEDCRNG so that it counts at once.
Neither busybox nor Debian's cloud kernel brings it, so here it is, one instruction per line.
"""

from __future__ import annotations

import struct

_LOAD = 0x400000
_HEADERS = 64 + 56
_CODE = (
    "b802000000",  # mov eax, 2: open
    "488d3d@path",  # lea rdi, [path]
    "be02000000",  # mov esi, 2: to read and write
    "31d2",  # xor edx, edx
    "0f05",  # syscall
    "4989c4",  # mov r12, rax
    "4881ec00010000",  # sub rsp, 256: room for the entropy count, the size, and the seed
    "31c0",  # xor eax, eax: read
    "31ff",  # xor edi, edi: standard input
    "488d742408",  # lea rsi, [rsp + 8]
    "ba40000000",  # mov edx, 64
    "0f05",  # syscall
    "83f820",  # cmp eax, 32
    "0f8c@fail",  # jl fail: that is no seed
    "89442404",  # mov [rsp + 4], eax: its size in bytes
    "c1e003",  # shl eax, 3
    "890424",  # mov [rsp], eax: and in bits
    "b810000000",  # mov eax, 16: ioctl
    "4c89e7",  # mov rdi, r12
    "be03520840",  # mov esi, RNDADDENTROPY
    "4889e2",  # mov rdx, rsp
    "0f05",  # syscall
    "85c0",  # test eax, eax
    "0f85@fail",  # jnz fail
    "b810000000",  # mov eax, 16: ioctl
    "4c89e7",  # mov rdi, r12
    "be07520000",  # mov esi, RNDRESEEDCRNG
    "31d2",  # xor edx, edx
    "0f05",  # syscall
    "85c0",  # test eax, eax
    "0f85@fail",  # jnz fail
    "31ff",  # xor edi, edi
    "b83c000000",  # mov eax, 60: exit
    "0f05",  # syscall
    "@fail:",
    "bf01000000",  # mov edi, 1
    "b83c000000",  # mov eax, 60: exit
    "0f05",  # syscall
    "@path:",
)


def program() -> bytes:
    """Return it as an executable file."""
    code = _assembled() + b"/dev/urandom\0"
    size = _HEADERS + len(code)
    start = _LOAD + _HEADERS
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOAD, _LOAD, size, size, 0x1000)
    return header + segment + code


def _assembled() -> bytes:
    """Put the distances in: a reference takes four bytes, and counts from its own end."""
    places: dict[str, int] = {}
    at = 0
    for line in _CODE:
        raw, _, label = line.partition("@")
        at += len(raw) // 2
        if label.endswith(":"):
            places[label[:-1]] = at
        elif label:
            at += 4
    code = b""
    for line in _CODE:
        raw, _, label = line.partition("@")
        code += bytes.fromhex(raw)
        if label and not label.endswith(":"):
            code += struct.pack("<i", places[label] - len(code) - 4)
    return code
