"""
Decide what garbage collection does about one object: delete it, cut it loose, or let its own deletion finish.

The rules are the Kubernetes garbage collector's. An object goes once all of its owners are gone; an owner that cannot
be looked up keeps it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOREGROUND = "foregroundDeletion"
"""The finalizer of an owner that waits for its dependents to go first."""
ORPHAN = "orphan"
"""The finalizer of an owner whose dependents are to be kept."""


class Ownership(StrEnum):
    """What became of an owner that an object names."""

    LIVING = "living"  # there, even if it is being deleted in the background
    WAITING = "waiting"  # being deleted, and waiting for its dependents to go first
    ABSENT = "absent"  # not there, or another object has its name
    UNKNOWN = "unknown"  # of a kind that is not served: nobody can say


@dataclass(frozen=True, slots=True)
class Owner:
    """One entry of ``ownerReferences``."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Where an object is kept."""

    group: str
    plural: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """An object, as far as collecting it is concerned."""

    key: Key
    uid: str
    version: str
    owners: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def waits_for_dependents(self) -> bool:
        return self.deleting and FOREGROUND in self.finalizers

    def blocks(self, owner: Thing) -> bool:
        return any(ref.uid == owner.uid and ref.blocks for ref in self.owners)


@dataclass(frozen=True, slots=True)
class Delete:
    thing: Thing
    cascade: str
    why: str


@dataclass(frozen=True, slots=True)
class KeepOwners:
    """Write the object's owners as these, and no others."""

    thing: Thing
    owners: tuple[Owner, ...]
    why: str


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    thing: Thing
    finalizer: str
    why: str


Action = Delete | KeepOwners | DropFinalizer


def decide(
    thing: Thing, ownership: Mapping[str, Ownership], dependents: Iterable[Thing]
) -> tuple[Action, ...]:
    """
    Return what to do, in order, about ``thing``.

    ``ownership`` tells of its owners by UID, ``dependents`` are the objects that name it as an owner: they are only
    asked for when they matter, since there may be thousands.
    """
    if thing.deleting:
        return _finish_deletion(thing, dependents)
    states = [ownership[owner.uid] for owner in thing.owners]
    if not states or Ownership.UNKNOWN in states:
        return ()
    if Ownership.LIVING in states:
        return _forget_the_gone(thing, ownership)
    if Ownership.WAITING not in states:
        return (Delete(thing, _wished_cascade(thing), why="all of its owners are gone"),)
    if in_order := _sorted(dependents):
        return _delete_depth_first(thing, in_order)
    return (Delete(thing, _wished_cascade(thing), why="an owner waits for it"),)


def _sorted(things: Iterable[Thing]) -> list[Thing]:
    return sorted(things, key=lambda thing: thing.key)


def _finish_deletion(thing: Thing, dependents: Iterable[Thing]) -> tuple[Action, ...]:
    if ORPHAN in thing.finalizers:
        cut = (
            KeepOwners(
                dependent,
                tuple(owner for owner in dependent.owners if owner.uid != thing.uid),
                why="its owner was deleted and left it behind",
            )
            for dependent in _sorted(dependents)
        )
        return (*cut, DropFinalizer(thing, ORPHAN, why="its dependents are orphans now"))
    if FOREGROUND in thing.finalizers and not any(d.blocks(thing) for d in dependents):
        return (DropFinalizer(thing, FOREGROUND, why="no dependent blocks its deletion"),)
    return ()


def _forget_the_gone(thing: Thing, ownership: Mapping[str, Ownership]) -> tuple[Action, ...]:
    # An owner that waits for its dependents must be let go of, or it would wait for ever.
    kept = tuple(owner for owner in thing.owners if ownership[owner.uid] is Ownership.LIVING)
    if kept == thing.owners:
        return ()
    return (KeepOwners(thing, kept, why="an owner is gone, and another one keeps it"),)


def _delete_depth_first(thing: Thing, dependents: list[Thing]) -> tuple[Action, ...]:
    delete = Delete(thing, "Foreground", why="an owner waits for it, and it has dependents itself")
    if not any(dependent.waits_for_dependents for dependent in dependents):
        return (delete,)
    # Objects may own each other in a circle: stop blocking, or all of them would wait for each other.
    unblocked = tuple(replace(owner, blocks=False) for owner in thing.owners)
    if unblocked == thing.owners:
        return (delete,)
    # The delete has to see the version that this patch makes: it comes with the next look.
    return (KeepOwners(thing, unblocked, why="its owner and its dependent wait for each other"),)


def _wished_cascade(thing: Thing) -> str:
    if ORPHAN in thing.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in thing.finalizers else "Background"
