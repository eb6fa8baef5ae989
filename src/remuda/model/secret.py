"""Bytes that must be shown to nobody: no log, no error, no diff and no dump of an object holds them by accident."""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

HIDDEN: Final = "(hidden)"


class Secret:
    """A password, a key or a token. Only ``reveal`` gives the bytes, so every use of them can be found by its name."""

    __slots__ = ("_hidden",)

    def __init__(self, hidden: bytes) -> None:
        self._hidden = hidden

    def reveal(self) -> bytes:
        """Return the bytes. Whoever calls this hands them to stdin or a file of mode 0600, and to nothing else."""
        return self._hidden

    def __bool__(self) -> bool:
        return bool(self._hidden)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and compare_digest(self._hidden, other._hidden)

    def __hash__(self) -> int:
        return hash(self._hidden)

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled: its bytes would be on disk or on a wire")
