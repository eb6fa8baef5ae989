"""
Apple's file of the automatic login, ``/etc/kcpassword``: the password behind a key that everybody knows.

It hides nothing, so it is root's alone. When the password in it is wrong, macOS replaces it with the word
``<sealed>``, says so nowhere, and never logs in by itself again.
"""

from __future__ import annotations

from itertools import cycle
from typing import Final

from remuda.hosts.decide.passwords import check_password
from remuda.model.secret import Secret

PATH: Final = "/etc/kcpassword"
_KEY: Final = bytes.fromhex("7d895223d2bcddeaa3b91f")
_SEALED: Final = b"<sealed>"


def encode(password: Secret) -> Secret:
    """
    Return the file's bytes. Raises ``BadInput`` for a password that no Mac can have.

    Zeros fill it up to the next multiple of the key's length. There is at least one, because it ends the password: one
    that is a multiple already gets a whole block of them.
    """
    check_password(password)
    plain = password.reveal()
    padded = plain + b"\0" * (len(_KEY) - len(plain) % len(_KEY))
    return Secret(_turned(padded))


def decode(content: Secret) -> Secret:
    """Return the password of a file's bytes, whoever wrote it: what comes after the first zero is of no account."""
    return Secret(_turned(content.reveal()).partition(b"\0")[0])


def is_sealed(content: Secret) -> bool:
    """Whether macOS has tried the password in this file, and refused it."""
    return decode(content).reveal().startswith(_SEALED)


def _turned(these: bytes) -> bytes:
    return bytes(byte ^ key for byte, key in zip(these, cycle(_KEY), strict=False))
