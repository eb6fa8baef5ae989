"""What a pool's conditions say. No ages and no times in them: a state that stays the same reads the same. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.pools.decide.trial import can_fall_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner
    from remuda.pools.decide.brake import Blocked
    from remuda.pools.decide.counts import Counts

NAMES_MAX = 5
"""So many runners are named; the rest is a number."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A condition as it should be; since when is the writer's business."""

    type: str
    status: str
    reason: str
    message: str


def ready(pool: Pool, counts: Counts, runners: Sequence[Runner]) -> Wanted:
    """Say whether a job would find a runner, and which runners find no host."""
    homeless = _homeless(runners) if counts.starting else ""
    if counts.warm:
        have = f"{counts.warm} of {pool.replicas} runners can take a job now{homeless}."
        return Wanted("Ready", "True", "Warm", have)
    if not pool.replicas and not counts.alive:
        return Wanted("Ready", "True", "Empty", "The pool wants no runners.")
    if counts.alive and counts.busy == counts.alive and not counts.missing:
        every = (
            f"All {counts.busy} runners hold jobs."
            if counts.busy > 1
            else "Its runner holds a job."
        )
        return Wanted("Ready", "False", "NoWarmRunner", every)
    parts = (
        (counts.busy, "busy"),
        (counts.starting, "starting"),
        (counts.missing, "missing"),
        (counts.marked, "leaving"),
    )
    state = ", ".join(f"{number} {what}" for number, what in parts if number)
    none = f"No runner is warm: {state or 'all are leaving'}{homeless}."
    return Wanted("Ready", "False", "NoWarmRunner", none)


def _homeless(runners: Sequence[Runner]) -> str:
    """Say how many runners the scheduler has no host for, and why. Of several reasons one, always the same."""
    reasons = [r.unschedulable_why for r in runners if r.unschedulable_since and r.is_alive]
    if not reasons:
        return ""
    why = min(reasons).rstrip(". ")
    find = "finds" if len(reasons) == 1 else "find"
    return f"; {len(reasons)} {find} no host" + (f": {why}" if why else "")


def rolling(pool: Pool, counts: Counts, stuck: str) -> Wanted:
    """Say how far a roll is and what it waits for."""
    if not counts.stale:
        return Wanted("Rolling", "False", "UpToDate", "All runners are of the current template.")
    left = f"{counts.stale} of {counts.alive} runners are of an older template"
    if stuck:
        return Wanted("Rolling", "True", "Stuck", f"{left}; nobody else is retired: {stuck}.")
    if pool.paused:
        return Wanted("Rolling", "True", "Paused", f"{left}; the roll is paused.")
    if counts.unavailable >= counts.roll_cap:
        wait = f"{counts.unavailable} unavailable, {counts.roll_cap} allowed"
        return Wanted("Rolling", "True", "Replacing", f"{left}; waiting for replacements ({wait}).")
    return Wanted("Rolling", "True", "Retiring", f"{left}; the busy ones go when their jobs end.")


def draining(pool: Pool, busy: Sequence[str] = (), terminating: Sequence[str] = ()) -> Wanted:
    """Say whom a deleted pool waits for."""
    if not pool.deleting:
        return Wanted("Draining", "False", "NotDeleted", "The pool is not being deleted.")
    if busy:
        who = f"Waiting for {_people(len(busy), 'busy runner')}: {_names(busy)}."
        return Wanted("Draining", "True", "AwaitingJobs", who)
    if terminating:
        who = f"Waiting for hosts to clean up after {_names(terminating)}."
        return Wanted("Draining", "True", "AwaitingHosts", who)
    return Wanted("Draining", "True", "Releasing", "No runner is awaited any more.")


def degraded(pool: Pool, stuck: str, blocked: Blocked) -> Wanted:
    """Say what a person should look at."""
    if stuck:
        limit = f"{pool.progress_deadline.total_seconds():.0f} s"
        text = (
            f"No replacement became warm within {limit}, so the roll retires nobody else: {stuck}."
        )
        return Wanted("Degraded", "True", "RollStuck", text + _fallback(pool))
    if blocked == "no_healthy_node":
        text = (
            f"Fleet {pool.fleet} has no healthy node, so missing runners cannot be made. A node counts while it is"
            f" labelled remuda.dev/fleet={pool.fleet}, Ready, not cordoned and without pressure."
        )
        return Wanted("Degraded", "True", "NoHealthyNode", text)
    if blocked == "fleet_view_error":
        text = f"The state of fleet {pool.fleet} cannot be read, so missing runners are not made."
        return Wanted("Degraded", "True", "FleetUnreadable", text)
    return Wanted("Degraded", "False", "AsExpected", "Nothing needs attention.")


def _fallback(pool: Pool) -> str:
    if not can_fall_back(pool):
        return ""
    return f" Runners that end are replaced from template {pool.proven}, the last that worked, beyond the roll's cap."


def labels_conflict(conflict: str) -> Wanted:
    """Say whether an older pool serves the same labels."""
    if conflict:
        return Wanted("LabelsConflict", "True", "SameLabels", conflict)
    text = "No older pool serves the same set of labels."
    return Wanted("LabelsConflict", "False", "Unique", text)


def _names(names: Sequence[str]) -> str:
    in_order = sorted(names)
    shown = ", ".join(in_order[:NAMES_MAX])
    more = len(in_order) - NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _people(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
