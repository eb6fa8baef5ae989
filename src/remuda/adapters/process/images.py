"""
Images of process guests: folders of this host, whose content becomes the guest's home; and one that is empty.

Nothing is fetched. What was asked for and found is noted, so that it is shown like an image that was pulled; to drop it
removes the note and never the folder, which somebody else made.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

from remuda.ports.vms import NotThere, Refused, SeenImage

BUILT_IN: Final = "process"
"""The image that is always there, and empty."""


class ImageFolders:
    """The images in a folder. Calls block."""

    def __init__(self, images: Path, notes: Path) -> None:
        self._images, self._notes = images, notes

    def source(self, image: str) -> Path | None:
        """Return what an image holds; None: nothing. Refused if there is no such image."""
        if image == BUILT_IN:
            return None
        name = PurePosixPath(image)
        found = self._images / name
        inside = not name.is_absolute() and ".." not in name.parts and name.parts
        if not inside or "\0" in image or not found.is_dir():
            raise Refused(
                f"The image {image!r} cannot be used",
                why=f"it is not a folder in {self._images}",
                fix=f"Make that folder, or use the image {BUILT_IN!r}, which is empty",
            )
        return found

    def size(self, image: str) -> int | None:
        try:
            source = self.source(image)
        except Refused:
            return None
        return 0 if source is None else _size(source)

    def note(self, image: str) -> None:
        self._notes.mkdir(parents=True, exist_ok=True)
        self._place(image).write_text(image)

    def noted(self, image: str) -> bool:
        return self._place(image).exists()

    def drop(self, image: str) -> None:
        try:
            self._place(image).unlink()
        except FileNotFoundError:
            raise NotThere(
                f"The image {image!r} was not dropped", why="it is not there", fix="Nothing to do"
            ) from None

    def all(self) -> tuple[SeenImage, ...]:
        refs = sorted(note.read_text() for note in self._notes.glob("*"))
        return tuple(SeenImage(ref=ref, size_bytes=self.size(ref) or 0) for ref in refs)

    def _place(self, image: str) -> Path:
        return self._notes / sha256(image.encode()).hexdigest()


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
