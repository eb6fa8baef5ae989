"""Decide what one herd needs next. Pure: what was seen comes in, data goes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.ports.kube import Seen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.sim.scenarios.keep_n.things import ConfigMap


@dataclass(frozen=True, slots=True)
class CreateHorse:
    name: str
    brand: str
    why: str


@dataclass(frozen=True, slots=True)
class DeleteHorse:
    name: str
    seen: Seen
    """It is deleted only if it is still as it was when this was decided: idle."""
    why: str


Action = CreateHorse | DeleteHorse


def decide(herd: ConfigMap, horses: Iterable[ConfigMap]) -> tuple[Action, ...]:
    """Return what to do. Acting twice on the same view, or on an old one, collides instead of doubling."""
    present = {horse.name: horse for horse in horses}
    # Names are predictable: two leaders, or one that forgot, create the same horse and not two.
    wanted = [f"{herd.name}-{number}" for number in range(herd.copies)]
    deletions = tuple(
        DeleteHorse(name, Seen(uid=horse.uid, resource_version=horse.resource_version), why)
        for name, horse in sorted(present.items())
        if (why := _superfluous(herd, horse, wanted))
    )
    creations = tuple(
        CreateHorse(name, herd.brand, why=f"{herd.name} has {len(present)} of {herd.copies}")
        for name in wanted
        if name not in present
    )
    return deletions + creations


def _superfluous(herd: ConfigMap, horse: ConfigMap, wanted: list[str]) -> str:
    if horse.rider or horse.metadata.deletion_timestamp is not None:
        return ""  # a ride is worth more than an exact herd
    if horse.name not in wanted:
        return f"{herd.name} has no place for it"
    if horse.brand != herd.brand:
        return f"it carries brand {horse.brand}, the herd's is {herd.brand}"
    return ""
