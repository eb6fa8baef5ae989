"""The App's own credential: a key that signs short-lived tokens. The key is shown nowhere, not even in a repr."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.ports.clock import Clock

_BACK_DATED_S: Final = 60
"""Our clock may be ahead of GitHub's, and a token from the future is refused."""
_LIFE_S: Final = 540
"""From now on. GitHub refuses a token that ends more than ten minutes from its own now."""
_KEPT_S: Final = 240.0
_BITS_MIN: Final = 2048


@dataclass(frozen=True, slots=True)
class _Signed:
    text: str = field(repr=False)
    until: float


class AppKey:
    """Signs as the App. A signature is kept for a few minutes: it takes a millisecond of the CPU."""

    def __init__(self, app_id: str, pem: str, clock: Clock) -> None:
        self._app_id = app_id
        self._key = _read(pem)
        self._clock = clock
        self._signed: _Signed | None = None

    def __repr__(self) -> str:
        return f"AppKey({self._app_id!r})"

    def token(self) -> str:
        """Return a token of the App itself, good for some minutes."""
        at = self._clock.monotonic()
        if self._signed is None or at >= self._signed.until:
            self._signed = _Signed(self._sign(self._clock.now()), at + _KEPT_S)
        return self._signed.text

    def forget(self) -> None:
        """Sign anew next time: GitHub refused the token, perhaps because a clock jumped."""
        self._signed = None

    def _sign(self, now: datetime) -> str:
        seconds = int(now.timestamp())
        claims = {"iat": seconds - _BACK_DATED_S, "exp": seconds + _LIFE_S, "iss": self._app_id}
        return jwt.encode(claims, self._key, algorithm="RS256")


def _read(pem: str) -> RSAPrivateKey:
    what, fix = (
        "The GitHub App's private key cannot be used",
        "Generate a private key on the App's settings page and give the file as it was downloaded",
    )
    fault = "it is not a PEM file with a private key, or it has a passphrase"
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if key is not None and not isinstance(key, RSAPrivateKey):
        fault = "it is not an RSA key"
    elif key is not None and key.key_size < _BITS_MIN:
        fault = "it is shorter than 2048 bits"
    elif key is not None:
        return key
    raise BadInput(what, why=fault, fix=fix)
