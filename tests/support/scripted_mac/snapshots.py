"""All of a scripted Mac that a run could change, held and put back, and compared byte by byte."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scripted_mac.place import Place

FOLDERS = (
    *(
        "private/etc",
        "private/var/log",
        "private/var/lib",
        "private/var/db",
        "Library",
        "Applications",
    ),
    *("Users/m1/Library", "usr/local", "opt"),
)
STATE = ".mac/state.json"

Entry = tuple[int, int, int, bytes]
Snapshot = dict[str, Entry]


def taken(place: Place) -> Snapshot:
    """Return every file with its mode, owner, group and content."""
    found: Snapshot = {}
    for folder in FOLDERS:
        for path in _walked(place.root / folder):
            about = path.lstat()
            held = b""
            if stat.S_ISLNK(about.st_mode):
                held = str(path.readlink()).encode()
            elif stat.S_ISREG(about.st_mode):
                held = path.read_bytes()
            name = str(path.relative_to(place.root))
            found[name] = (about.st_mode, about.st_uid, about.st_gid, held)
    found[STATE] = (0, 0, 0, (place.root / STATE).read_bytes())
    return found


def _walked(path: Path) -> list[Path]:
    if not os.path.lexists(path):  # a link may lead to where only the Mac has something
        return []
    below = (
        [each for child in sorted(path.iterdir()) for each in _walked(child)]
        if _is_folder(path)
        else []
    )
    return [path, *below]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def put_back(place: Place, snapshot: Snapshot) -> None:
    """Make the Mac what it was."""
    for folder in FOLDERS:
        shutil.rmtree(place.root / folder, ignore_errors=True)
    for name, (mode, uid, gid, held) in snapshot.items():
        path = place.root / name
        if name == STATE:
            path.write_bytes(held)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(mode):
            path.symlink_to(held.decode())
        elif stat.S_ISDIR(mode):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(held)
        os.lchown(path, uid, gid)
        if not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode))


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the names of what is not as it was."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
