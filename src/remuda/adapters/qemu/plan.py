"""What the driver tells the keeper of a guest, and what the keeper writes down: files in the guest's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

PLAN: Final = "plan.json"
UP: Final = "up"
"""The guest's CPU has begun to run."""
STOP: Final = "stop"
"""The driver wants the guest to be asked to end."""
QUIT: Final = "quit"
"""The driver wants QEMU to end."""
END: Final = "end.json"
DISK: Final = "disk-used"
MADE: Final = "snapshot-made"
MARKS: Final = (UP, STOP, QUIT, END, DISK, MADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run of one guest."""

    argv: list[str]
    """Of QEMU, with the descriptors still to be put in."""
    mailbox: str = ""
    """Where the mailbox is; empty: it has none, and nothing that the guest says is kept."""
    identity: dict[str, str] = field(default_factory=dict)
    """Who the guest is, once it asks (``channel.Identity``); empty: it is not told."""
    incoming: str = ""
    """The snapshot to start from; empty: it boots."""
    snapshot: str = ""
    """Where to put a snapshot of the guest the moment it asks who it is; then it ends."""
    limit_s: float = 0.0
    """How long it may take; 0: as long as it likes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run ended, in the words of ``Ending``."""

    how: str
    why: str = ""


def write_plan(folder: Path, plan: Plan) -> None:
    """Write what the keeper is to do, for this user alone: a guest's seed is in it."""
    file = folder / PLAN
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps(asdict(plan)))


def read_plan(folder: Path) -> Plan:
    return Plan(**json.loads((folder / PLAN).read_text()))


def write_end(folder: Path, end: End) -> None:
    unfinished = folder / f"{END}.new"
    unfinished.write_text(json.dumps(asdict(end)))
    unfinished.rename(folder / END)


def read_end(folder: Path) -> End | None:
    """Return what the keeper wrote; None: it did not come to that."""
    try:
        return End(**json.loads((folder / END).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
