"""What the screen can ask and do beside looking: explain something, pause a pool's rollout or let it go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from remuda.cli import pool_changes
from remuda.cli.changing import kube_of
from remuda.cli.explain import explained

if TYPE_CHECKING:
    from remuda.cli.finding import Where
    from remuda.ports.api import Explanation


class Hands(Protocol):
    """They raise RemudaError."""

    async def explain(self, kind: str, name: str) -> Explanation: ...

    async def set_paused(self, pool: str, *, paused: bool) -> str:
        """Pause a pool's rollout, or let it go on; returns what was done as a sentence."""
        ...


@dataclass(frozen=True, slots=True)
class FleetHands:
    """What the commands ``explain`` and ``pools`` do."""

    where: Where

    async def explain(self, kind: str, name: str) -> Explanation:
        return await explained(self.where, kind, name)

    async def set_paused(self, pool: str, *, paused: bool) -> str:
        decide = pool_changes.pause if paused else pool_changes.resume
        async with kube_of(self.where) as kube:
            changed = await pool_changes.change(kube, self.where.namespace(), pool, decide)
        return changed.sentence
