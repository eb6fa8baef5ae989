"""
Images of process guests: folders of this host, whose content becomes the guest's home; and one that is empty.

Nothing is fetched, kept or dropped: the folders are somebody else's.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

from remuda.ports.vms import Refused

BUILT_IN: Final = "process"
"""The image that is always there, and empty."""


class ImageFolders:
    """The images in a folder. Calls block."""

    def __init__(self, images: Path) -> None:
        self._images = images

    def source(self, image: str) -> Path | None:
        """Return what an image holds; None: nothing. Refused if there is no such image."""
        if image == BUILT_IN:
            return None
        name = PurePosixPath(image)
        inside = name.parts and not name.is_absolute() and ".." not in name.parts
        if not inside or "\0" in image or not (self._images / name).is_dir():
            raise Refused(
                f"The image {image!r} cannot be used",
                why=f"it is not a folder in {self._images}",
                fix=f"Make that folder, or use the image {BUILT_IN!r}, which is empty",
            )
        return self._images / name

    def size(self, image: str) -> int | None:
        """Return how many bytes its files have; None: there is no such image."""
        try:
            source = self.source(image)
        except Refused:
            return None
        return 0 if source is None else _size(source)


def _size(folder: Path) -> int:
    """Add up what is in a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for at, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(f"{at}/{name}").st_size
            except FileNotFoundError:
                continue
    return total
