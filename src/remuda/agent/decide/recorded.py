"""
What the agent wrote down about a Pod's VM and about an image, as data. Pure.

A state is written before the step that it allows, so after a crash the record never says less than what happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from enum import StrEnum
from typing import Final

from remuda.ports.vms import golden_name, vm_name


class State(StrEnum):
    """How far a VM is, at least."""

    CLONING = "cloning"
    """A disk may be there, perhaps half of it. It has never booted."""
    CLONED = "cloned"
    """The disk is whole and has its size. It has never booted."""
    STARTED = "started"
    """It may have booted. Whatever is seen from here on, it is never booted again."""
    DELIVERING = "delivering"
    """A job may be in its mailbox."""
    DELIVERED = "delivered"
    """A job is or was in its mailbox."""
    EXITED = "exited"
    """It is over, with a verdict. Something may be left on the host."""
    CLEARED = "cleared"
    """It is over, and it was seen that nothing is left. The verdict stays until the Pod is gone."""
    REFUSED = "refused"
    """The Pod failed before anything was made for it. Whatever bears its VM's name is not ours."""


MAY_FOLLOW: Final[dict[State | None, frozenset[State]]] = {
    None: frozenset({State.CLONING, State.REFUSED}),
    State.CLONING: frozenset({State.CLONING, State.CLONED, State.EXITED}),
    State.CLONED: frozenset({State.CLONING, State.STARTED, State.EXITED}),
    # Back to CLONED there is no way: that would boot a disk twice.
    State.STARTED: frozenset({State.STARTED, State.DELIVERING, State.EXITED}),
    State.DELIVERING: frozenset({State.STARTED, State.DELIVERED, State.EXITED}),
    State.DELIVERED: frozenset({State.DELIVERED, State.EXITED}),
    State.EXITED: frozenset({State.CLEARED}),
    State.CLEARED: frozenset(),
    State.REFUSED: frozenset(),
}
"""Which state may be written over which: the second guard of "a disk boots once", beside the table of ``lifecycle``."""

OVER: Final = frozenset({State.EXITED, State.CLEARED, State.REFUSED})
"""The states that have a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a Pod ended. Written once, never changed."""

    succeeded: bool
    exit_code: int
    reason: str
    """One word, for the container's status."""
    message: str
    """A sentence, for people."""
    finished_at: datetime
    files_note: str = ""
    """Why files that were to come back of its job did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmRecord:
    """What is known about the VM of one Pod."""

    pod_uid: str
    namespace: str
    pod: str
    image: str
    state: State
    accepted_at: datetime
    """When the record began."""
    started_at: datetime | None = None
    ready_at: datetime | None = None
    """When its guest said that it is ready, as first seen."""
    job_id: str = ""
    job_kind: str = ""
    """As in the job: ``github`` or ``local``. Dispatch hears the output and the end of a local one from us."""
    delivered_at: datetime | None = None
    job_deadline: datetime | None = None
    job_files: bool = False
    """Whether files are to come back of its job."""
    verdict: Verdict | None = None

    @property
    def vm(self) -> str:
        return vm_name(self.pod_uid)

    def __post_init__(self) -> None:
        if (self.verdict is not None) != (self.state in OVER):
            raise ValueError("what is over has a verdict, and nothing else has")


class ImageState(StrEnum):
    """How far an image is, at least."""

    FETCHING = "fetching"
    """It is being pulled, or its golden is being made. What is there may be half of it."""
    READY = "ready"
    """Its golden is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """What is known about an image that this agent fetched. What others fetched has no record, and is not ours."""

    image: str
    state: ImageState
    wanted_at: datetime
    """When a Pod or a roll last wanted it, give or take how often that is written down."""
    found: bool = False
    """Whether it was on the host before we first fetched it. Then only the golden is ours: who pulled it needs it."""

    @property
    def golden(self) -> str:
        return golden_name(self.image)
