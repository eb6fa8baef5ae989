"""One at a time among replicas. A lock makes work cheap, never safe: its holder may be paused, so writes are fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Locks(Protocol):
    """Named locks that end with the process or the connection that holds them."""

    async def run_alone(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """
        Wait for the lock, then run ``work`` until it ends, is cancelled, or the lock is lost.

        When the lock is lost, ``work`` is cancelled and this returns; call it again to wait anew.
        """
        ...
