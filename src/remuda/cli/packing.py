"""
Pack a folder to be sent to a runner: files, folders, and links that stay inside it. Nothing is ever followed.

What no runner can use (sockets, pipes, devices, links that lead elsewhere) is left out and named. Rights and times go
along; who owns a file on the sender's machine is nobody's concern.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import stat
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

_LEVEL: Final = 6
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UploadFailed(RemudaError):
    """A folder cannot be sent."""


class Stopped(Exception):
    """Somebody asked us to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A folder as one archive."""

    size_bytes: int
    sha256: str
    files: int
    left_out: tuple[str, ...]
    """What is not in it, each with a reason."""


def leads_outside(name: str, target: str) -> bool:
    """Say whether a link of that name, from the top of a tree on, leads out of the tree, by its words alone."""
    if target.startswith("/"):
        return True
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return reached == ".." or reached.startswith("../")


def pack(folder: Path, out: BinaryIO, *, bytes_max: int, is_stopped: Callable[[], bool]) -> Packed:
    """Write a folder into an archive. Raises UploadFailed, and Stopped if somebody asked us to end."""
    bounded = _Bounded(out, bytes_max)
    packing = _Packing(folder, is_stopped)
    try:
        with tarfile.open(
            fileobj=bounded, mode="w:gz", format=tarfile.GNU_FORMAT, compresslevel=_LEVEL
        ) as tar:
            packing.run(tar)
    except _TooLarge:
        size = bytes_max / 1024**2
        raise UploadFailed(
            f"The folder {folder} cannot be sent",
            why=f"it has more than {size:g} MiB, packed",
            fix="Send a smaller folder, and fetch the rest in the command",
        ) from None
    except OSError as error:
        place = packing.at or folder
        raise UploadFailed(
            f"The folder {folder} cannot be sent",
            why=f"{place}: {error.strerror or 'it changed while it was read'}",
            fix="Make it readable, take it away, or send another folder",
        ) from None
    return Packed(
        size_bytes=bounded.size,
        sha256=bounded.digest.hexdigest(),
        files=packing.files,
        left_out=tuple(packing.left_out),
    )


class _TooLarge(Exception):
    """The archive is larger than it may be."""


class _Bounded(io.RawIOBase):
    """What is written, counted."""

    def __init__(self, out: BinaryIO, bytes_max: int) -> None:
        super().__init__()
        self._out, self._bytes_max = out, bytes_max
        self.size, self.digest = 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer of any kind
        content = bytes(data)
        self.size += len(content)
        if self.size > self._bytes_max:
            raise _TooLarge
        self.digest.update(content)
        self._out.write(content)
        return len(content)


class _Packing:
    def __init__(self, folder: Path, is_stopped: Callable[[], bool]) -> None:
        self._folder, self._is_stopped = folder, is_stopped
        self.files = 0
        self.left_out: list[str] = []
        self.at: Path | None = None
        """What is being packed: an error is about that."""

    def run(self, tar: tarfile.TarFile) -> None:
        for path, name, found in self._tree():
            self.at = path
            if self._is_stopped():
                raise Stopped
            if stat.S_ISDIR(found.st_mode):
                tar.addfile(_info(name, tarfile.DIRTYPE, found))
            elif stat.S_ISREG(found.st_mode):
                self._add_file(tar, path, name)
            elif stat.S_ISLNK(found.st_mode):
                self._add_link(tar, path, name, found)
            else:
                self.left_out.append(f"{name}: it is no file")
        self.at = None

    def _tree(self) -> Iterator[tuple[Path, str, os.stat_result]]:
        """Walk in order, folders before what is in them."""
        waiting = [(self._folder, "")]
        while waiting:
            folder, above = waiting.pop()
            self.at = folder
            inner = []
            for path in sorted(folder.iterdir()):
                name = f"{above}{path.name}"
                found = path.lstat()
                yield path, name, found
                if stat.S_ISDIR(found.st_mode):
                    inner.append((path, f"{name}/"))
            waiting += reversed(inner)

    def _add_file(self, tar: tarfile.TarFile, path: Path, name: str) -> None:
        with os.fdopen(os.open(path, _OPEN), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                self.left_out.append(f"{name}: it is no file")
                return
            info = _info(name, tarfile.REGTYPE, found)
            info.size = found.st_size
            tar.addfile(info, stream)
        self.files += 1

    def _add_link(self, tar: tarfile.TarFile, path: Path, name: str, found: os.stat_result) -> None:
        target = str(path.readlink())
        if leads_outside(name, target):
            self.left_out.append(f"{name}: it is a link that leads out of the folder")
            return
        info = _info(name, tarfile.SYMTYPE, found)
        info.linkname = target
        tar.addfile(info)


def _info(name: str, kind: bytes, found: os.stat_result) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = stat.S_IMODE(found.st_mode) & 0o777
    info.mtime = max(0, int(found.st_mtime))
    return info


def shown_size(size: int) -> str:
    """Say a size to people."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
