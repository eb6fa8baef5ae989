"""What the agent reads of the machine that it runs on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from remuda.agent.decide.disk import DiskSpace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

log = structlog.get_logger(__name__)


def disk_space(folders: Iterable[Path]) -> DiskSpace | None:
    """
    Measure the file systems of some folders and return the fullest; None: none could be measured.

    Free is what this user may still take, not what is kept back for root. A folder that is not there yet counts as its
    nearest parent. Blocks for as long as a local disk takes.
    """
    measured = [space for folder in folders if (space := _measured(folder)) is not None]
    return min(measured, key=lambda space: space.free_ratio or 0.0, default=None)


def _measured(folder: Path) -> DiskSpace | None:
    try:
        there = next((f for f in (folder, *folder.parents) if f.exists()), None)
        if there is None:
            return None
        found = os.statvfs(there)
    except OSError as error:
        log.warning("disk not measured", folder=str(folder), error=error.strerror)
        return None
    if found.f_blocks <= 0:
        return None
    return DiskSpace(
        free_bytes=found.f_bavail * found.f_frsize, total_bytes=found.f_blocks * found.f_frsize
    )
