"""What the operator may do to runners and pools, as data. Each action says why; the shell carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.model.runner import Runner


class Cause(StrEnum):
    """Why a runner is reaped: for metrics and the reason of its Event."""

    ENDED = "ended"
    START_TIMEOUT = "start_timeout"
    UNSCHEDULABLE = "unschedulable"
    NODE_DRAIN = "node_drain"
    POOL_DRAIN = "pool_drain"
    ROLL = "roll"
    SCALE_DOWN = "scale_down"
    ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class CreateRunner:
    """Make one ServiceAccount and one Pod. The shell chooses the name and remembers it until it sees the Pod."""

    template: str
    """The hash of what it is made from: the pool's template, or the last one that worked."""
    why: str


@dataclass(frozen=True, slots=True)
class ReapRunner:
    """Report it stopped, delete the Pod if it is still as it was seen, then its ServiceAccount."""

    runner: Runner
    cause: Cause
    why: str


@dataclass(frozen=True, slots=True)
class MarkRunner:
    """Ask an idle runner to make room for the roll, if it is still as it was seen."""

    runner: Runner
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class UnmarkRunner:
    """Take a void mark away, if the runner is still as it was seen."""

    runner: Runner
    why: str


@dataclass(frozen=True, slots=True)
class ReleasePool:
    """Let the deleted pool go: nobody of it is left to wait for."""

    why: str


Action = CreateRunner | ReapRunner | MarkRunner | UnmarkRunner | ReleasePool
