"""
One look at one pool: observe, decide and reserve, in one turn of the event loop.

Nothing here waits. So no sibling pool can decide on the same free start slots: what one takes is reserved, by name,
before the other looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from remuda.kube.pool_view import pool_of
from remuda.kube.proven import as_proven
from remuda.kube.runner_pod import Placement, RunnerTemplate, TemplateRefused, runner_template
from remuda.model.runner import Phase, Runner
from remuda.pools.decide.actions import CreateRunner
from remuda.pools.decide.conflicts import label_conflicts
from remuda.pools.decide.one_pass import Surroundings, decide
from remuda.pools.decide.starting import is_timed, since
from remuda.pools.start_slots import StartSlots
from remuda.pools.status import with_conditions, with_counts, with_proven, with_roll_waiting
from remuda.pools.trouble import may_be_tried, of_what_worked, permitted, trouble_of, with_trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from remuda.control.cache import Key
    from remuda.kube.runner_pool import RunnerPool, RunnerPoolStatus
    from remuda.model.pool import Pool
    from remuda.pools.decide.actions import Action
    from remuda.pools.decide.one_pass import Decision
    from remuda.pools.decide.starting import Watched
    from remuda.pools.holdback import Refusal
    from remuda.pools.hosts import Hosts
    from remuda.pools.reins import Reins

_SUFFIX_CHARS = 8
_NO_REFUSALS: Mapping[str, Refusal] = {}


@dataclass(frozen=True, slots=True)
class Creation:
    """A runner to make, under a name that is reserved for it."""

    placeholder: Runner
    pod: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What one look at a pool came to."""

    pool: RunnerPool
    decision: Decision
    actions: tuple[Action, ...]
    """What to do beside the creations."""
    creations: tuple[Creation, ...]
    status: RunnerPoolStatus


class Turns:
    """Takes turns. Keeps what is expensive to work out for as long as it holds."""

    def __init__(self, reins: Reins, hosts: Hosts) -> None:
        self._reins = reins
        self._hosts = hosts
        self._slots = StartSlots(reins)
        self._templates: dict[str, tuple[str, int, RunnerTemplate | TemplateRefused]] = {}
        self._proven: dict[str, tuple[tuple[str, int, str], RunnerTemplate | None]] = {}
        self._watched: dict[str, dict[str, tuple[datetime, float]]] = {}
        """Per pool the UIDs of starting runners: since when they say, and since when we have seen that."""
        self._conflicts: dict[str, str] | None = None
        reins.view.runner_pools.on_change(self._pools_changed)

    def template(self, pool: RunnerPool) -> RunnerTemplate | TemplateRefused:
        """Return what the pool's runners are made from, or why they cannot be."""
        uid, generation, known = self._templates.get(pool.name, ("", 0, None))
        if known is not None and (uid, generation) == (pool.uid, pool.metadata.generation):
            return known
        try:
            known = runner_template(pool, self._reins.settings.pod)
        except TemplateRefused as error:
            known = error
        self._templates[pool.name] = (pool.uid, pool.metadata.generation, known)
        return known

    def proven(self, pool: RunnerPool, current: str) -> RunnerTemplate | None:
        """Return what worked before, if runners can still be made from it and it is not what is on trial itself."""
        remembered = pool.status.proven_template
        if remembered is None:
            return None
        holds_for = (pool.uid, pool.metadata.generation, remembered.hash)
        known_for, known = self._proven.get(pool.name, (None, None))
        if known_for != holds_for:
            known = self._rendered(as_proven(pool))
            self._proven[pool.name] = (holds_for, known)
        # The operator's own settings are part of a Pod. If they alone changed, there is nothing else to fall back on.
        if known is not None and known.hash == current != remembered.hash:
            return None
        return known

    def _rendered(self, pool: RunnerPool | None) -> RunnerTemplate | None:
        try:
            return None if pool is None else runner_template(pool, self._reins.settings.pod)
        except TemplateRefused:
            return None

    def take(self, pool: RunnerPool, refusals: Mapping[str, Refusal] = _NO_REFUSALS) -> Turn:
        """Look at a pool, decide, and reserve the names of the runners to make. ``refusals`` are by template."""
        now = self._reins.clock.now()
        template = self.template(pool)
        bad = str(template) if isinstance(template, TemplateRefused) else ""
        digest = (
            pool.status.template_hash if isinstance(template, TemplateRefused) else template.hash
        )
        proven = self.proven(pool, digest)
        decision = self._decide(pool_of(pool, digest, proven.hash if proven else ""), now)
        wanted = tuple(a for a in decision.actions if isinstance(a, CreateRunner))
        if bad:
            worked = proven.hash if proven and self._reins.settings.guards.fallback else ""
            wanted, bad = of_what_worked(wanted, bad, worked)
        trouble = trouble_of(bad, refusals, digest, wanted)
        known = {t.hash: t for t in (proven, template) if isinstance(t, RunnerTemplate)}
        creations = self._reserve(pool, known, may_be_tried(wanted, known, refusals), now)
        wants = decision.counts.missing - len(creations) if decision.blocked == "fleet_cap" else 0
        self._slots.took(pool.name, len(creations), wants)
        status = replace(with_counts(pool.status, pool, decision.counts), template_hash=digest)
        if decision.worked and not bad:
            status = with_proven(status, pool, digest)
        status = with_roll_waiting(status, decision.roll_waiting_since)
        said = with_trouble(decision.conditions, trouble)
        status = with_conditions(status, said, now, pool.metadata.generation)
        self._publish(pool, decision, refused=bool(bad))
        return Turn(pool, decision, permitted(decision.actions, trouble), creations, status)

    def forget(self, pool: str) -> None:
        self._templates.pop(pool, None)
        self._proven.pop(pool, None)
        self._watched.pop(pool, None)
        self._slots.forget(pool)

    def _decide(self, pool: Pool, now: datetime) -> Decision:
        view, guards = self._reins.view, self._reins.settings.guards
        runners = view.runners(pool.name)
        if guards.expectations:
            runners = self._reins.expectations.seen(pool.name, runners)
        around = Surroundings(
            slots=self._slots.of(pool, now),
            draining_nodes=view.draining(runners),
            pool_conflict=self._conflict(pool.name),
            watched=self._watch(pool.name, runners),
        )
        return decide(pool, runners, around, now, guards=guards)

    def _watch(self, pool: str, runners: Iterable[Runner]) -> Watched:
        """Return for how long we have seen runners in the trouble that they are in, by our own clock alone."""
        now, before = self._reins.clock.monotonic(), self._watched.get(pool, {})
        after = {
            r.uid: known
            if (known := before.get(r.uid)) and known[0] == since(r)
            else (since(r), now)
            for r in runners
            if is_timed(r)
        }
        self._watched[pool] = after
        return {uid: timedelta(seconds=now - first) for uid, (_, first) in after.items()}

    def _conflict(self, pool: str) -> str:
        if self._conflicts is None:
            self._conflicts = label_conflicts(self._reins.view.pools())
        return self._conflicts.get(pool, "")

    def _pools_changed(self, _: Key) -> None:
        self._conflicts = None

    def _reserve(
        self,
        pool: RunnerPool,
        templates: Mapping[str, RunnerTemplate],
        wanted: tuple[CreateRunner, ...],
        now: datetime,
    ) -> tuple[Creation, ...]:
        creations = []
        for create in wanted:
            name = f"{pool.name}-{self._reins.ids.suffix(_SUFFIX_CHARS)}"
            template = templates[create.template]
            placement = self._placement(pool.spec.fleet, template)
            placeholder = Runner(
                name=name,
                uid="",
                version="",
                template=template.hash,
                created_at=now,
                phase=Phase.STARTING,
            )
            if self._reins.settings.guards.expectations:
                self._reins.expectations.create(pool.name, placeholder)
            creations.append(Creation(placeholder, template.pod(name, placement), create.why))
        return tuple(creations)

    def _placement(self, fleet: str, template: RunnerTemplate) -> Placement:
        placement = self._hosts.placement(fleet)
        if not template.ignores_cordons:
            return placement
        # The scheduler would put it on a cordoned host, and the drain take it away again, for ever.
        avoid = (*placement.avoid, *self._reins.view.unfit(fleet))
        return Placement(avoid, placement.prefer, placement.shun)

    def _publish(self, pool: RunnerPool, decision: Decision, *, refused: bool) -> None:
        metrics, fleet = self._reins.metrics, pool.spec.fleet
        metrics.pool(pool.name, decision.counts, pool_of(pool, "").replicas)
        metrics.fleet(fleet, self._reins.view.fleet_nodes(fleet).filtered)
        if decision.blocked:
            metrics.blocked(pool.name, decision.blocked)
        if refused:
            metrics.template_refused(pool.name)
