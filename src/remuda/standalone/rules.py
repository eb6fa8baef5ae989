"""What the verbs ask of a kind: the shape of its rules. The rules themselves are in ``builtin`` and ``custom``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.standalone.metadata import subdomain_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.standalone.errors import Cause
    from remuda.standalone.objects import Obj


@dataclass(frozen=True, slots=True)
class Context:
    """What rules may look at beside the object: other objects, the time, and chance."""

    find: Callable[[str, str, str, str], Obj | None]
    """By group, plural, namespace and name; what is accepted but not yet durable counts."""
    clock: Clock
    ids: Ids


def _leave(_: Obj, __: Context) -> None:
    """Add nothing to a new object."""


def _leave_update(_: Obj, __: Obj, ___: Context) -> None:
    """Add nothing to a changed object."""


def _accept(_: Obj) -> Iterable[Cause]:
    return ()


def _accept_update(_: Obj, __: Obj) -> Iterable[Cause]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is special about a kind. ``prepare_*`` may replace top-level keys, never change what is below them."""

    prepare_create: Callable[[Obj, Context], None] = _leave
    prepare_update: Callable[[Obj, Obj, Context], None] = _leave_update
    """New, old."""
    create_causes: Callable[[Obj], Iterable[Cause]] = _accept
    update_causes: Callable[[Obj, Obj], Iterable[Cause]] = _accept_update
    """New, old; also for writes to ``status``."""
    name_fault: Callable[[str], str | None] = subdomain_fault
    has_generation: bool = False
    """Whether the server counts changes of the spec."""
    generation_keys: tuple[str, ...] = ("spec",)
    """Top-level keys whose change counts; none means all but metadata and status."""
    needs_version_on_update: bool = False
    create_on_update: bool = False
    returns_deleted: bool = False
    """Whether a delete answers with the object instead of a Status."""
    status_keeps_metadata: bool = False
    """Whether a write to ``status`` leaves labels, annotations and finalizers alone."""
    grace_period_s: Callable[[Obj, int | None], int] | None = None
    """For kinds that end gracefully: how long it takes, given what was asked for."""
    strategic_patches: bool = True
