"""
What an image needs before VMs can be cloned from it: what is recorded x what is seen of its golden -> one action. Pure.

A golden is used only if our record says that it is whole. Whoever else may have made one of that name: it is not used,
and it is not replaced.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from remuda.agent.decide.lifecycle import Observed
from remuda.agent.decide.recorded import ImageState


class ImageAction(StrEnum):
    """One step, under the lock of its image."""

    USE = "use"
    """Clone from it."""
    FETCH = "fetch"
    """Write FETCHING; check that it fits; pull; make the golden; write READY. Then look again."""
    DISCARD = "discard"
    """The golden may be half of one: delete it. "Not there" is success. Then look again."""
    REFUSE = "refuse"
    """Its golden's name is taken by a VM that is not ours: say so, and wait for a person."""
    LOOK_AGAIN = "look again"
    """Do nothing before it was seen, or before whoever runs it has stopped. Retried with back-off."""


_A = ImageAction
_COLUMNS: Final = (Observed.ABSENT, Observed.STOPPED, Observed.RUNNING, Observed.UNKNOWN)
# fmt: off
_TABLE: Final = {
    #                     not there  stopped      runs            cannot be seen
    None:                (_A.FETCH,  _A.REFUSE,   _A.REFUSE,      _A.LOOK_AGAIN),
    ImageState.FETCHING: (_A.FETCH,  _A.DISCARD,  _A.LOOK_AGAIN,  _A.LOOK_AGAIN),
    # A golden that somebody runs changes while it is cloned.
    ImageState.READY:    (_A.FETCH,  _A.USE,      _A.LOOK_AGAIN,  _A.LOOK_AGAIN),
}
# fmt: on


def next_step(recorded: ImageState | None, golden: Observed) -> ImageAction:
    """Return the one step that brings an image further."""
    return _TABLE[recorded][_COLUMNS.index(golden)]
