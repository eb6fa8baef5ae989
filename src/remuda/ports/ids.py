"""Names and chance. Injected, so that a seed replays a whole run."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    """Unique names, secrets and jitter."""

    def uid(self) -> str:
        """Return a new UUID as Kubernetes writes them."""
        ...

    def suffix(self, length: int = 5) -> str:
        """Return a short lower-case name suffix, without vowels, as ``generateName`` makes them."""
        ...

    def secret(self, length_bytes: int = 32) -> bytes: ...

    def fraction(self) -> float:
        """Return a number in [0, 1), for jitter."""
        ...
