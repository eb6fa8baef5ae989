"""A runner as decisions see it: one Pod's life, without its wire format. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class Phase(StrEnum):
    """How far a runner is in its one life. It only ever moves down this list."""

    STARTING = "starting"
    """Created, maybe bound to a host, not ready for a job."""
    WARM = "warm"
    """Its guest said that it is ready, and it holds no job."""
    BUSY = "busy"
    """It holds a job, or may hold one: in doubt a runner is busy."""
    ENDED = "ended"
    """Its Pod is terminal: whatever it ran is over."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A roll asked this runner to make room. It holds for one target only."""

    target: str
    """The template hash that the roll goes to."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a runner ended, as far as its Pod says."""

    at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """One runner, as it was seen. ``uid`` and ``version`` go with every write about it."""

    name: str
    uid: str
    version: str
    template: str
    """The hash of the template that it was made from."""
    created_at: datetime
    phase: Phase
    node: str = ""
    bound_at: datetime | None = None
    """When it was given a host; a start is timed from here."""
    unschedulable_since: datetime | None = None
    unschedulable_why: str = ""
    warm_at: datetime | None = None
    """When it became ready, as long as its Pod still says so."""
    mark: Mark | None = None
    drain: bool = False
    """A person wants it to take no job."""
    deleting_since: datetime | None = None
    """Its deletion was asked for: it is left to its finalizers, whatever its phase."""
    end: End | None = None
    unready_since: datetime | None = None
    """Since when its Pod has said that it is not ready: a warm runner whose host went quiet starts anew from here."""

    @property
    def is_known(self) -> bool:
        """Whether the API server confirmed it: only then can a write name it."""
        return bool(self.uid)

    @property
    def is_alive(self) -> bool:
        """Whether it counts as one of its pool's replicas."""
        return self.phase is not Phase.ENDED and self.deleting_since is None

    @property
    def is_idle(self) -> bool:
        """Whether it provably holds no job: the only live runners that may ever be deleted."""
        return self.is_alive and self.phase is not Phase.BUSY
