"""News that a pool may have work, from whichever replica caused it. A hint: what is lost costs time, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager


class Wakeups(Protocol):
    """Who listens hears of every pool once for each change that may give it work."""

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[str | None]]:
        """
        Hear the names of pools.

        None means that something may have been missed (it is also the first item): look at all of them. It ends only
        with the block; lost connections are made again inside.
        """
        ...
