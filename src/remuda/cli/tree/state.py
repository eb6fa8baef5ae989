"""What ``remuda up`` writes down about itself while it runs, for ``remuda status`` and for whoever waits for it."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING

import msgspec

from remuda.cli.tree.folder import write_whole

if TYPE_CHECKING:
    from remuda.cli.tree.folder import Folder


class PartState(msgspec.Struct, frozen=True, kw_only=True):
    """One part, as its keeper knows it. Whether it lives now is asked of the system, not read here."""

    address: str
    restarts: int = 0
    last_error: str = ""
    last_error_at: datetime | None = None


class TreeState(msgspec.Struct, frozen=True, kw_only=True):
    """The tree, as its keeper knows it."""

    pid: int
    started_at: datetime
    driver: str
    why_driver: str
    isolated: bool
    pool: str
    vms: int
    parts: dict[str, PartState]
    github: str = ""
    """How GitHub is connected, in words; empty: it is not."""
    ready: bool = False
    """Whether all was up once since the start."""
    remark: str = ""
    """What of the wishes of this start was not done, and why; empty: nothing."""


def write_state(folder: Folder, state: TreeState) -> None:
    write_whole(folder.state_file, msgspec.json.format(msgspec.json.encode(state)) + b"\n")


def read_state(folder: Folder) -> TreeState | None:
    """Return what was written last; None: nothing that can be read, and all of it can be asked again."""
    try:
        return msgspec.json.decode(folder.state_file.read_bytes(), type=TreeState)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
