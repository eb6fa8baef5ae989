"""Seeded names and chance: one stream per actor, so that one more actor does not shift another's luck."""

from __future__ import annotations

import random
from uuid import UUID

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class SeededIds:
    """
    One actor's stream. Implements ``remuda.ports.ids.Ids``.

    The stream depends on the seed and on the actor's name alone (text seeds are hashed with SHA-512 by ``random``), so
    neither PYTHONHASHSEED nor another actor changes it.
    """

    def __init__(self, seed: int, actor: str) -> None:
        self._seed, self._actor = seed, actor
        self.random = random.Random(f"{seed}/{actor}")  # noqa: S311 - replays must be predictable

    def stream(self, name: str) -> SeededIds:
        """Return another stream of this actor, for chance that must not disturb its names."""
        return SeededIds(self._seed, f"{self._actor}/{name}")

    def uid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def suffix(self, length: int = 5) -> str:
        return "".join(self.random.choices(SUFFIX_LETTERS, k=length))

    def secret(self, length_bytes: int = 32) -> bytes:
        return self.random.randbytes(length_bytes)

    def fraction(self) -> float:
        return self.random.random()
