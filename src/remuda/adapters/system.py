"""The real clock and real chance. The only module that may read either; everything else is handed them."""

from __future__ import annotations

import asyncio
import random
import secrets
import uuid
from datetime import UTC, datetime

# Kubernetes leaves vowels and look-alikes out of generated names, so that no word appears by chance.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class SystemClock:
    """Wall time from the machine, monotonic time and sleep from the running loop."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - this is the injected Clock

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemIds:
    """Names and secrets from the operating system's randomness."""

    def uid(self) -> str:
        return str(uuid.uuid4())  # noqa: TID251 - these are the injected ids

    def suffix(self, length: int = 5) -> str:
        return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(length))

    def secret(self, length_bytes: int = 32) -> bytes:
        return secrets.token_bytes(length_bytes)

    def fraction(self) -> float:
        return random.random()  # noqa: S311, TID251 - jitter, not a secret; this is the injected randomness
