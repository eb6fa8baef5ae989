"""A room in which the scripts of hosts are really run: with files of their own, and stand-ins for a Mac's programs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.hosts.scripts import script

if TYPE_CHECKING:
    from pathlib import Path

# What a script needs of a Mac, and a Linux has not, or not for everybody.
EVERYWHERE = {
    "chown": ":",
    "sleep": ":",
    "codesign": "exit 0",
    "shasum": 'exec sha256sum "$3"',
}


@dataclass(frozen=True, slots=True)
class Room:
    """One directory. ``bin`` comes first in PATH."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> Room:
        room = cls(root)
        (root / "bin").mkdir(parents=True)
        for name, text in EVERYWHERE.items():
            room.program(name, text)
        return room

    def program(self, name: str, text: str) -> Path:
        """Put a stand-in for a program in place."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def run(self, name: str, *args: str | Path, stdin: bytes = b"") -> Done:
        """Run a script as a host does: its text as a word, its arguments behind it."""
        words = ["/bin/sh", "-c", script(name), f"remuda-{name}", *map(str, args)]
        ran = subprocess.run(  # noqa: S603 - our own script
            words,
            input=stdin,
            env={"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "ROOM": str(self.root)},
            cwd=self.root,
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Done(ran.returncode, ran.stdout.decode(errors="replace"), ran.stderr.decode())


@dataclass(frozen=True, slots=True)
class Done:
    """How a script ended."""

    code: int
    stdout: str
    stderr: str
