"""Tart's home: local VMs, the cache of images, and ``tmp``, which most commands clean."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.tart.failures import does_not_exist
from tests.support.tart.locks import is_locked
from tests.support.tart.vms import Vm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@dataclass(frozen=True, slots=True)
class Home:
    """The folder, and where things are in it."""

    folder: Path
    stand_in: Path
    """What tart does not have: faults, the journal, leases, guests' own folders."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Home:
        folder = Path(env.get("TART_HOME") or Path(env["HOME"]) / ".tart")
        home = cls(folder, Path(env.get("TART_STAND_IN") or folder / ".stand-in"))
        for part in (home.vms, home.tmp, home.images, home.stand_in):
            part.mkdir(parents=True, exist_ok=True)
        return home

    @property
    def vms(self) -> Path:
        return self.folder / "vms"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def images(self) -> Path:
        return self.folder / "cache" / "OCIs"

    @property
    def leases(self) -> Path:
        return self.stand_in / "dhcpd_leases"

    def clean_tmp(self) -> None:
        """Delete what nobody holds. This is how a pull that was killed loses its resumable folder."""
        for entry in self.tmp.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if not is_locked(entry):
                    remove(entry)

    def vm(self, name: str) -> Vm:
        return Vm(name, self.vms / name)

    def local(self) -> Iterator[Vm]:
        """Give the VMs that are whole, by name."""
        for folder in sorted(self.vms.iterdir()):
            vm = Vm(folder.name, folder)
            if vm.initialized:
                yield vm

    def open_local(self, name: str) -> Vm:
        if not name or "/" in name or name in {".", ".."}:
            raise does_not_exist(name)
        vm = self.vm(name)
        vm.validate()
        return vm

    def put(self, source: Path, name: str) -> None:
        """Move a whole VM to its name. What had the name is replaced at once."""
        target = self.vms / name
        if target.exists():
            exchange(source, target)
            remove(source)
        else:
            source.rename(target)


def exchange(one: Path, other: Path) -> None:
    """Swap two folders in one step, where the system can; else with a moment between."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only here, and every call of this program would pay for it

        libc = ctypes.CDLL(None, use_errno=True)
        names = (os.fsencode(one), os.fsencode(other))
        if not libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
            return
    aside = one.with_name(f"{one.name}.replaced")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file and leave its holes holes."""
    with source.open("rb") as read, target.open("wb") as write:
        length = os.fstat(read.fileno()).st_size
        write.truncate(length)
        at = 0
        while at < length:
            try:
                at = os.lseek(read.fileno(), at, os.SEEK_DATA)
            except OSError:  # only a hole is left
                return
            end = os.lseek(read.fileno(), at, os.SEEK_HOLE)
            while at < end:
                os.lseek(write.fileno(), at, os.SEEK_SET)
                at += os.sendfile(write.fileno(), read.fileno(), at, min(end - at, 1 << 24))
