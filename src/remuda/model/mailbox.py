"""The mailbox between whoever fetches a job and the guest that runs it: the names of its files, and what they mean."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

# --- to the guest ---
JOB: Final = "job.json"
STOP: Final = "stop"
FILES_IN: Final = "files-in.tgz"
"""What is unpacked before the job begins. There before the job is, and gone with it."""
FILES_TAKEN: Final = ".files-in.tgz.taken"
"""The same, once the guest has taken it: until it is unpacked, the job has not begun."""
# --- from the guest ---
READY: Final = "ready"
STARTED: Final = "started"
"""Written after the job was read and before it is removed: so at no moment a taken job looks like none."""
ENDED: Final = "ended"
"""How the job ended, as in the exit, while its files are still packed: from here on its exit code is known."""
EXIT: Final = "exit.json"
"""The last word of a guest."""
LOG: Final = "runner.log"
FILES_OUT: Final = "files-out.tgz"
"""What the job left of what is to come back. There before the exit is, or not at all."""
FILES_NOTE: Final = "files-out.note"
"""Why that did not come over a guest's line, in words."""
TAKES_FILES: Final = "archives"
"""
A word in ``ready``: this guest unpacks what came with its job, and packs what is to come back. Those that say ``files``
announce nothing on their line, and know of no announcement: they are too old for both ways.
"""


class Holds(Enum):
    """What a mailbox holds."""

    NOTHING = "nothing"
    JOB = "a job"
    STOP = "a stop"
    SPENT = "a job that was taken out of it"


def holding(names: Collection[str]) -> Holds:
    """Say what a mailbox with these files holds. A name is enough: whatever bears it, no job is put next to it."""
    if JOB in names:
        return Holds.JOB
    if STARTED in names or EXIT in names:
        return Holds.SPENT
    return Holds.STOP if STOP in names else Holds.NOTHING
