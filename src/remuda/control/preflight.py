"""
The look before the leap: whether the API server answers, knows our kinds, and lets us do what we must.

Whatever is wrong is said in words and looked at again: a person may grant the right, or install the CRDs, meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from remuda.control.backoff import Backoff
from remuda.control.permissions import missing
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import KubeError, NotFound, Query

if TYPE_CHECKING:
    from remuda.control.health import Health
    from remuda.control.permissions import Need
    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

LOOP = "start"
_LIMIT_S = 60.0
_BACKOFF = Backoff(first_s=1.0, longest_s=15.0)


@dataclass(frozen=True, slots=True)
class Rights:
    """What a process must be allowed to do, and where a person finds the roles for it."""

    who: str
    namespace: str
    """Where its RunnerPools, or its other objects, are."""
    needs: tuple[Need, ...]
    manifest: str
    kind: Kind[Resource] = RUNNER_POOL
    """What must be served for it to have any work."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a process from working, for a person."""

    what: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.fix}."


class Preflight:
    """``run`` returns once nothing stands in the way; until then ``obstacle`` says what does."""

    def __init__(self, kube: Kube, rights: Rights, *, ids: Ids, health: Health) -> None:
        self._kube, self._rights = kube, rights
        self._ids, self._health = ids, health
        self.obstacle: Obstacle | None = None
        self.done = False

    async def run(self) -> None:
        with self._health.watched(LOOP, _LIMIT_S):
            failures = 0
            while (found := await self._look()) is not None:
                if found != self.obstacle:
                    log.warning("cannot start yet", what=found.what, why=found.why, fix=found.fix)
                self.obstacle = found
                failures += 1
                wait_s = _BACKOFF.wait_s(failures, self._ids.fraction())
                await self._health.pause(LOOP, wait_s)
        self.obstacle, self.done = None, True

    async def _look(self) -> Obstacle | None:
        try:
            lacking: list[Need] = []
            for need in self._rights.needs:
                lacking += await missing(self._kube, (need,))
                self._health.beat(
                    LOOP
                )  # a server that is slow to answer thirty questions is not a loop that hangs
            if lacking:
                return _not_allowed(self._rights, tuple(str(need) for need in lacking))
            await self._kube.list(self._rights.kind, Query(namespace=self._rights.namespace))
        except NotFound:
            return Obstacle(
                f"The API server knows no {self._rights.kind.name}s",
                "the custom resource definitions are not installed",
                "Apply charts/remuda/crds",
            )
        except KubeError as error:
            return Obstacle(error.what, error.why, error.fix)
        return None


def _not_allowed(rights: Rights, lacking: tuple[str, ...]) -> Obstacle:
    return Obstacle(
        f"{rights.who} may not do all that it must",
        f"it lacks {len(lacking)} permissions: " + "; ".join(lacking),
        f"Apply the roles of {rights.manifest} to its ServiceAccount",
    )
