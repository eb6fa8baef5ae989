"""
Takes secrets out of what a host said, before anything else is done with it.

Before: a text that was cut, joined or quoted first may hold a part of a secret, or another spelling of it, which nobody
finds any more.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.model.secret import HIDDEN, Secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.hosts.decide.wanted import Wanted
    from remuda.ports.host_shell import Ran

_SECRET_BYTES_MIN: Final = 4
"""A shorter secret is not searched for in what a command said: it would hide half of every sentence."""
_HELD: Final = re.compile(rb"\b(client-key-data|token|password)[\"']?\s*:\s*[\"']?([^\s\"',}\]]+)")
"""What is secret in a kubeconfig, be it YAML or JSON."""


def secrets_of(wanted: Wanted) -> tuple[Secret, ...]:
    """Return every secret that is sent to this host, and those inside of them."""
    own = wanted.own
    token = own.builder.registration_token if own.builder else None
    inside = _inside(own.kubeconfig) if own.kubeconfig else ()
    return tuple(secret for secret in (own.password, own.kubeconfig, token, *inside) if secret)


def _inside(kubeconfig: Secret) -> tuple[Secret, ...]:
    found: list[Secret] = []
    for match in _HELD.finditer(kubeconfig.reveal()):
        found.append(Secret(match[2]))
        if match[1] == b"client-key-data":
            try:
                found.append(Secret(base64.b64decode(match[2], validate=True)))
            except binascii.Error:
                continue
    return tuple(found)


def scrubbed(text: str, secrets: Iterable[Secret]) -> str:
    """Return the text without any of these secrets, should a program have said one."""
    return _without(text.encode(errors="surrogateescape"), secrets).decode(errors="surrogateescape")


def clean(ran: Ran, secrets: Iterable[Secret]) -> Ran:
    """Return what a command said without any of these secrets. Its meaning may be lost with them: it is for people."""
    known = tuple(secrets)
    return replace(ran, stdout=_without(ran.stdout, known), stderr=_without(ran.stderr, known))


def _without(said: bytes, secrets: Iterable[Secret]) -> bytes:
    shapes = {shape for secret in secrets for shape in _shapes(secret.reveal())}
    # The longest first: else a part spoils the whole.
    for shape in sorted(shapes, key=lambda shape: (-len(shape), shape)):
        if len(shape) >= _SECRET_BYTES_MIN:
            said = said.replace(shape, HIDDEN.encode())
    return said


def _shapes(plain: bytes) -> set[bytes]:
    """Return a secret as programs say it: whole, without its last newline, in one line, and line by line."""
    lines = (line.strip() for line in plain.splitlines())
    return {plain, plain.strip(), b" ".join(plain.split()), *lines}
