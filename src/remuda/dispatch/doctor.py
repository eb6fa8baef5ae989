"""
Looks at a running fleet for what should never be. It reads, counts and says; it mends nothing.

What it cannot read it does not count: an invariant that nobody could look at keeps its last number.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.decide.diagnosis import (
    Finding,
    Graces,
    PodFact,
    caps,
    cut_short,
    not_handed_out,
    not_requeued,
    single_use,
    stamped_alone,
)
from remuda.dispatch.decide.recovery import Sightings
from remuda.dispatch.metrics import INVARIANTS
from remuda.kube.names import OWNER, POOL
from remuda.kube.runner_view import runner_of
from remuda.model.job import JobState
from remuda.model.runner import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.dispatch.settings import RecoverySettings
    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.kube.core import Pod
    from remuda.model.job import LiveClaim, Os, Standing

log = structlog.get_logger(__name__)

_HANDED_S: Final = 15.0
"""V1 says five seconds; between two looks more may pass."""
_WAITED_S: Final = 15.0
_QUEUED_MAX: Final = 200
_ROWS_MAX: Final = 20_000
_NAMED_MAX: Final = 5
_UNUSED_TIMES: Final = 3


class Doctor:
    """Remembers what it saw at its last look: most findings count only if they stay."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts
        self._seen: Sightings[Finding] = Sightings()
        self._before: dict[tuple[str, Os], Standing] = {}
        self._said: frozenset[Finding] = frozenset()

    async def examine(self) -> Mapping[str, tuple[str, ...]]:
        """Return for each invariant what breaks it now, in sentences."""
        findings = await self._findings()
        for_s = self._seen.look(findings, self._parts.clock.monotonic())
        counted = [finding for finding in findings if for_s[finding] >= finding.grace_s]
        self._say(frozenset(counted))
        found: dict[str, list[str]] = {invariant: [] for invariant in INVARIANTS}
        for finding in counted:
            found[finding.invariant].append(finding.says)
        return {invariant: tuple(said) for invariant, said in found.items()}

    async def _findings(self) -> tuple[Finding, ...]:
        parts, now = self._parts, self._parts.clock.now()
        graces = graces_of(parts.settings.recovery)
        # The view first: what is stamped in it was claimed before the claims are read.
        pods = {pod.name: fact(pod) for pod in parts.view.pods.all()}
        claims = await parts.views.claims()
        standings = await parts.views.standings()
        queued = await parts.views.jobs(
            states={JobState.QUEUED},
            queued_before=now - timedelta(seconds=_WAITED_S),
            limit=_QUEUED_MAX,
        )
        found = [
            *single_use(claims, await parts.views.sessions(limit=_ROWS_MAX)),
            *cut_short(claims, pods),
            *caps(standings, self._before, claims, grace_s=graces.requeued_s),
            *not_handed_out(queued, standings, pods.values(), now=now, grace_s=graces.handed_s),
            *await self._without_pods(claims, pods, graces),
            *await self._registrations(),
        ]
        self._before = {(standing.tenant, standing.os): standing for standing in standings}
        return tuple(found)

    async def _without_pods(
        self, claims: tuple[LiveClaim, ...], pods: Mapping[str, PodFact], graces: Graces
    ) -> list[Finding]:
        if not self._parts.view.synced or not pods:
            return []  # an empty view says nothing about Pods
        occupied = await self._parts.views.occupied_pods()
        return [
            *not_requeued(claims, pods, graces),
            *stamped_alone(pods.values(), occupied, graces.stamped_s),
        ]

    async def _registrations(self) -> list[Finding]:
        parts = self._parts
        grace = timedelta(seconds=parts.settings.recovery.unused_s * _UNUSED_TIMES)
        unused = await parts.registrations.unused(
            noted_before=parts.clock.now() - grace, limit=_QUEUED_MAX
        )
        return [Finding("V7", f"{r.runner_name} is registered and unused") for r in unused]

    def _say(self, counted: frozenset[Finding]) -> None:
        news = sorted(counted - self._said, key=lambda finding: (finding.invariant, finding.says))
        self._said = counted
        for finding in news[:_NAMED_MAX]:
            log.error("an invariant does not hold", invariant=finding.invariant, why=finding.says)
        if len(news) > _NAMED_MAX:
            log.error("more invariants do not hold", more=len(news) - _NAMED_MAX)


def graces_of(settings: RecoverySettings) -> Graces:
    """Return how long each thing may stand: its worker's grace, and a few turns."""
    turns_s = settings.tick_s * 4
    return Graces(
        handed_s=_HANDED_S,
        requeued_s=max(settings.stale_claim_s, settings.orphan_s) + turns_s,
        pod_gone_s=settings.pod_gone_s + turns_s,
        stamped_s=settings.stamped_s + turns_s,
    )


def fact(pod: Pod) -> PodFact:
    runner = runner_of(pod)
    return PodFact(
        name=pod.name,
        uid=pod.uid,
        pool=pod.labels.get(POOL, ""),
        fit=runner.phase is Phase.WARM
        and not runner.drain
        and runner.mark is None
        and runner.deleting_since is None,
        stamped=OWNER in pod.labels,
        ended=runner.phase is Phase.ENDED,
        deleting=pod.metadata.deletion_timestamp is not None,
    )
