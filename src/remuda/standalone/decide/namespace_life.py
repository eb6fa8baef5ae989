"""
Decide what a Namespace needs: its ``default`` ServiceAccount while it lives, and to be emptied when it ends.

A Namespace goes only once nothing is left in it; what has a finalizer, or a node that still has to end it, holds it.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.standalone.decide.collection import Key

FINALIZER = "kubernetes"
"""In ``spec.finalizers`` of every Namespace, until it is empty."""


@dataclass(frozen=True, slots=True)
class Content:
    """One object in a Namespace."""

    key: Key
    uid: str
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Space:
    """A Namespace, as far as its life is concerned."""

    name: str
    terminating: bool = False
    finalizers: tuple[str, ...] = ()
    has_account: bool = False


@dataclass(frozen=True, slots=True)
class AddAccount:
    namespace: str
    why: str


@dataclass(frozen=True, slots=True)
class DeleteContent:
    content: Content
    why: str


@dataclass(frozen=True, slots=True)
class Finish:
    namespace: str
    finalizers: tuple[str, ...]
    """Those that stay: they are somebody else's."""
    why: str


Action = AddAccount | DeleteContent | Finish


def decide(space: Space, contents: Iterable[Content]) -> tuple[Action, ...]:
    if not space.terminating:
        if space.has_account:
            return ()
        return (AddAccount(space.name, why="every namespace has one"),)
    left = sorted(contents, key=lambda content: content.key)
    if left:
        why = f"namespace {space.name} is being deleted"
        return tuple(DeleteContent(content, why) for content in left if not content.deleting)
    if FINALIZER not in space.finalizers:
        return ()
    others = tuple(one for one in space.finalizers if one != FINALIZER)
    return (Finish(space.name, others, why="nothing is left in it"),)
