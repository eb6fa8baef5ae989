"""What stands in the way of making a pool's runners: what is said about it, and what is done all the same. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.pools.decide.actions import Cause, CreateRunner, MarkRunner, ReapRunner
from remuda.pools.decide.conditions import Wanted
from remuda.pools.holdback import RUNNERS_FAIL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.kube.runner_pod import RunnerTemplate
    from remuda.pools.decide.actions import Action
    from remuda.pools.holdback import Refusal


def of_what_worked(
    wanted: tuple[CreateRunner, ...], bad: str, worked: str
) -> tuple[tuple[CreateRunner, ...], str]:
    """
    Return what to make while no Pod can be made from the spec, and say it: all of it from the template that worked.

    Jobs go on to end. If nobody took their runners' places, a slip in a template would empty the pool.
    """
    if not worked:
        return (), bad
    instead = tuple(replace(create, template=worked) for create in wanted)
    said = f"{bad} Until then runners are made from template {worked}, the last that worked."
    return instead, said


def may_be_tried(
    wanted: tuple[CreateRunner, ...],
    known: Mapping[str, RunnerTemplate],
    refusals: Mapping[str, Refusal],
) -> tuple[CreateRunner, ...]:
    """Return the runners to make of those that are wanted: of a template that is refused, as many as may be tried."""
    left = {template: refusal.tries for template, refusal in refusals.items()}
    tried = []
    for create in wanted:
        if create.template not in known or not left.get(create.template, 1):
            continue
        tried.append(create)
        if create.template in left:
            left[create.template] -= 1
    return tuple(tried)


def trouble_of(
    bad: str, refusals: Mapping[str, Refusal], template: str, wanted: Sequence[CreateRunner]
) -> Wanted | None:
    """Say what a person must mend before a runner can be made."""
    if bad:
        return Wanted("Degraded", "True", "TemplateRefused", bad)
    for asked in (template, *(create.template for create in wanted)):
        refusal = refusals.get(asked)
        if refusal is not None and (wanted or refusal.lasts):
            return Wanted("Degraded", "True", refusal.reason, refusal.why)
    return None


def permitted(actions: tuple[Action, ...], trouble: Wanted | None) -> tuple[Action, ...]:
    """
    Return what may be done, beside making runners.

    While none can be made nobody is retired for a roll either: there would be nothing to take its place.
    """
    others = (action for action in actions if not isinstance(action, CreateRunner))
    return tuple(action for action in others if trouble is None or not _is_for_roll(action))


def _is_for_roll(action: Action) -> bool:
    if isinstance(action, ReapRunner):
        return action.cause is Cause.ROLL
    return isinstance(action, MarkRunner)


def with_trouble(conditions: tuple[Wanted, ...], trouble: Wanted | None) -> tuple[Wanted, ...]:
    if trouble is None:
        return conditions
    if trouble.reason == RUNNERS_FAIL and any(
        c.type == trouble.type and c.status == trouble.status for c in conditions
    ):
        return conditions  # a roll that is stuck says more: what it waits for, and what is done meanwhile
    return (*(c for c in conditions if c.type != "Degraded"), trouble)
