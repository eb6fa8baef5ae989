"""What is new about a pool, told once: as an Event for who looks at the pool, in the log for who looks later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from remuda.kube.runner_pool import RUNNER_POOL

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPoolStatus
    from remuda.pools.memory import PoolMemory
    from remuda.pools.reins import Reins
    from remuda.pools.turn import Turn

log = structlog.get_logger(__name__)


class News:
    """Tells of each trouble that begins, and of each template that a pool falls back from."""

    def __init__(self, reins: Reins) -> None:
        self._events = reins.events

    def tell(self, turn: Turn, memory: PoolMemory) -> None:
        self._say_troubles(turn)
        self._say_fallback(turn, memory)

    def _say_troubles(self, turn: Turn) -> None:
        """Post an Event about the pool for each trouble that begins, and log it: Events are gone after an hour."""
        before = _troubles(turn.pool.status)
        for kind, (reason, message) in sorted(_troubles(turn.status).items()):
            if before.get(kind, ("", ""))[0] == reason:
                continue
            if kind == "Draining" and "Draining" in before:
                continue
            spoken = "PoolDraining" if kind == "Draining" else reason
            warning = kind != "Draining"
            say = log.warning if warning else log.info
            say("pool has news", pool=turn.pool.name, reason=spoken, why=message)
            self._events.record(RUNNER_POOL, turn.pool, spoken, message, warning=warning)

    def _say_fallback(self, turn: Turn, memory: PoolMemory) -> None:
        """Post one Event for each template that a pool falls back from."""
        target = turn.status.template_hash
        fell = [c for c in turn.creations if c.placeholder.template != target]
        if fell and memory.fell_back_from != target:
            memory.fell_back_from = target
            text = (
                f"Template {target} is on trial: beyond the roll's cap, runners are made from template"
                f" {fell[0].placeholder.template}, the last that worked."
            )
            log.info("pool has news", pool=turn.pool.name, reason="FellBack", why=text)
            self._events.record(RUNNER_POOL, turn.pool, "FellBack", text)


def _troubles(status: RunnerPoolStatus) -> dict[str, tuple[str, str]]:
    kinds = {"Degraded", "Draining", "LabelsConflict"}
    return {
        c.type: (c.reason, c.message)
        for c in status.conditions
        if c.type in kinds and c.status == "True"
    }
