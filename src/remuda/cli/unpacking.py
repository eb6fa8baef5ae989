"""
Unpack what came back from a runner. It is hostile: the job may have written whatever it liked into the archive.

Only files, folders and links that stay inside are taken, below the places that were asked for. Names are looked up in
open folders and no link is followed on the way, so nothing outside is written, whatever was there before. What is
refused is named; the rest is written all the same.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import itertools
import os
import posixpath
import tarfile
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.cli.packing import Stopped
from remuda.model.errors import RemudaError
from remuda.model.job_files import covers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import IO, BinaryIO

UNPACKED_MAX_BYTES: Final = 4 * 1024**3
ENTRIES_MAX: Final = 200_000
NAMES_MAX_BYTES: Final = 32 * 1024 * 1024
"""How much all names may have together: they are kept until the end."""
_PIECE_BYTES: Final = 64 * 1024
_READ_MAX_BYTES: Final = _PIECE_BYTES
"""More than any header has: one that claims more would be read into memory."""
_DEPTH_MAX: Final = 100
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_THE_WAY: Final = frozenset({errno.ELOOP, errno.ENOTDIR})
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DownloadFailed(RemudaError):
    """What came back cannot be unpacked, or not written here."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to come back, and where to."""

    path: str
    """From the folder that the job ran in."""
    into: Path


@dataclass(slots=True)
class Unpacked:
    """What was written."""

    files: int = 0
    size_bytes: int = 0
    into: list[Path] = field(default_factory=list)
    """The places that something was written to."""
    refused: list[str] = field(default_factory=list)
    """What was in the archive and was not written, each with a reason."""
    _found: set[str] = field(default_factory=set)

    def missing(self, wanted: Sequence[Wanted]) -> list[str]:
        """Return the paths of which nothing was in the archive."""
        return [each.path for each in wanted if each.path not in self._found]

    def saw(self, path: str) -> None:
        self._found.add(path)

    def wrote(self, into: Path) -> None:
        self.files += 1
        if into not in self.into:
            self.into.append(into)


class _Refused(Exception):
    """One entry is not written. The text says why."""


class _Bounded(io.RawIOBase):
    """
    The unpacked bytes of an archive, of which only so many exist and only so many are read at once.

    Everything that takes long reads them, so here it ends when somebody asks us to.
    """

    def __init__(self, archive: BinaryIO, bytes_max: int, is_stopped: Callable[[], bool]) -> None:
        super().__init__()
        self._stream = gzip.GzipFile(fileobj=archive, mode="rb")
        self._bytes_max, self._is_stopped = bytes_max, is_stopped

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _READ_MAX_BYTES:
            raise tarfile.ReadError("an entry makes no sense")
        self._check(self._stream.tell() + size)
        if self._is_stopped():
            raise Stopped
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise tarfile.ReadError("an entry makes no sense")
        self._check(offset)
        if offset < self._stream.tell():
            self._stream.rewind()
        while (left := offset - self._stream.tell()) > 0 and self.read(min(left, _PIECE_BYTES)):
            pass  # piece by piece: a few bytes of an archive may stand for gigabytes
        return self._stream.tell()

    def tell(self) -> int:
        return self._stream.tell()

    def drain(self) -> None:
        """Read to the end: only there it shows whether all was as it was packed."""
        while self.read(_PIECE_BYTES):
            pass

    def _check(self, at: int) -> None:
        if at > self._bytes_max + _READ_MAX_BYTES:
            raise tarfile.ReadError(f"it has more than {self._bytes_max} bytes, unpacked")


def unpack(
    archive: BinaryIO,
    wanted: Sequence[Wanted],
    *,
    bytes_max: int = UNPACKED_MAX_BYTES,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Unpacked:
    """
    Write what was asked for. Raises DownloadFailed, and Stopped if somebody asked us to end.

    What was written before that stays; each file of it is whole.
    """
    done = Unpacked()
    unpacking = _Unpacking(wanted, done, bytes_max)
    try:
        bounded = _Bounded(archive, bytes_max, is_stopped)
        with tarfile.open(fileobj=bounded, mode="r:") as tar:
            unpacking.run(tar)
        bounded.drain()
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, RecursionError) as error:
        raise DownloadFailed(
            "The files that came back cannot be unpacked",
            why=str(error) or type(error).__name__,
            fix="See what the job did with them, and run it again",
        ) from None
    except OSError as error:
        raise DownloadFailed(
            "The files that came back cannot be written",
            why=f"{error.filename or 'the disk'}: {error.strerror or type(error).__name__}",
            fix="Make room, or name another folder: --download PATH:FOLDER",
        ) from None
    return done


class _Unpacking:
    def __init__(self, wanted: Sequence[Wanted], done: Unpacked, bytes_max: int) -> None:
        # What names more is meant, where two paths cover the same file.
        self._wanted = sorted(wanted, key=lambda each: -len(each.path))
        self._done, self._bytes_max = done, bytes_max
        self._names_bytes = 0
        self._known: dict[str, tarfile.TarInfo] = {}
        """The files that were seen, for hard links to them."""
        self._links: list[tuple[Wanted, str, str]] = []
        self._temporary = f".remuda-{os.getpid()}.part"

    def run(self, tar: tarfile.TarFile) -> None:
        for number, member in enumerate(tar):
            if number >= ENTRIES_MAX:
                raise tarfile.ReadError(f"it has more than {ENTRIES_MAX} entries")
            cast("Any", tar).members.clear()  # which it would keep, all of them
            self._names_bytes += len(member.name) + len(member.linkname)
            if self._names_bytes > NAMES_MAX_BYTES:
                raise tarfile.ReadError(f"its names have more than {NAMES_MAX_BYTES} bytes")
            self._take(tar, member)
        for wanted, name, target in self._links:  # last: nothing is written through them
            self._guarded(name, partial(self._link, wanted, name, target))

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = posixpath.normpath(member.name)
        if member.name.startswith("/") or name.split("/")[0] == "..":
            self._refuse(name, "it lies outside of the folder that the job ran in")
            return
        wanted = next((each for each in self._wanted if covers(each.path, name)), None)
        for each in self._wanted:
            if covers(each.path, name):
                self._done.saw(each.path)
        if wanted is None:
            if not member.isdir():
                self._refuse(name, "nobody asked for it")
            return
        self._guarded(name, lambda: self._write(tar, member, wanted, name))

    def _guarded(self, name: str, write: Callable[[], None]) -> None:
        try:
            write()
        except _Refused as why:
            self._refuse(name, str(why))
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            self._refuse(name, "something else stands in its place here")
        except (ValueError, UnicodeError):
            self._refuse(name, "its name cannot be used here")

    def _refuse(self, name: str, why: str) -> None:
        self._done.refused.append(f"{name}: {why}")

    def _write(
        self, tar: tarfile.TarFile, member: tarfile.TarInfo, wanted: Wanted, name: str
    ) -> None:
        if member.isdir():
            with _folder(wanted.into, [] if name == "." else name.split("/")):
                return
        if member.issym():
            self._links.append((wanted, name, member.linkname))
            return
        if member.islnk():
            source = self._known.get(posixpath.normpath(member.linkname))
            if source is None:
                raise _Refused("it is a link to a file that did not come")
        elif member.issparse():
            raise _Refused("it says to be larger than what came of it")
        elif member.isreg():
            source = self._known[name] = member
        else:
            raise _Refused("it is no file")
        content = tar.extractfile(source)
        assert content is not None, "a file has a content"
        self._file(wanted, name, content, executable=bool(source.mode & 0o111))

    def _file(self, wanted: Wanted, name: str, content: IO[bytes], *, executable: bool) -> None:
        *above, last = name.split("/")
        with _folder(wanted.into, above) as folder, _temporary(folder, self._temporary) as rename:
            mode = 0o777 if executable else 0o666
            file = os.open(self._temporary, _NEW, mode, dir_fd=folder)
            with os.fdopen(file, "wb") as stream:
                while piece := content.read(_PIECE_BYTES):
                    self._done.size_bytes += stream.write(piece)
                    if self._done.size_bytes > self._bytes_max:  # a link may be to a large one
                        raise tarfile.ReadError(f"its files have more than {self._bytes_max} bytes")
            rename(last)
        self._done.wrote(wanted.into)

    def _link(self, wanted: Wanted, name: str, target: str) -> None:
        if not _stays(name, target, wanted.path):
            raise _Refused("it is a link that leads elsewhere")
        *above, last = name.split("/")
        with _folder(wanted.into, above) as folder, _temporary(folder, self._temporary) as rename:
            os.symlink(target, self._temporary, dir_fd=folder)
            rename(last)
        self._done.wrote(wanted.into)


def _stays(name: str, target: str, path: str) -> bool:
    """
    Say whether a link stays in what was asked for, wherever the other links of the archive lead.

    It may go up only at its beginning: there it climbs real folders. Whatever link it comes to on its way down stays
    inside itself; but to go up from where that leads is to go anywhere.
    """
    down = list(itertools.dropwhile(lambda part: part in {"", ".", ".."}, target.split("/")))
    if target.startswith("/") or ".." in down:
        return False
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return reached.split("/")[0] != ".." and covers(path, reached)


@contextlib.contextmanager
def _folder(into: Path, parts: Sequence[str]) -> Iterator[int]:
    """Open a folder below a place, which is made if need be. Only the place itself may be reached through links."""
    if len(parts) > _DEPTH_MAX:
        raise _Refused("it lies too deep")
    into.mkdir(parents=True, exist_ok=True)
    folder = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            try:
                inner = os.open(part, _FOLDER, dir_fd=folder)
            except OSError as error:
                if error.errno in _IN_THE_WAY:
                    raise _Refused(f"{part} is no folder here, or a link") from None
                raise
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _temporary(folder: int, name: str) -> Iterator[Callable[[str], None]]:
    """Have something written under another name, so that it replaces what is there and never goes through it."""

    def rename(last: str) -> None:
        os.rename(name, last, src_dir_fd=folder, dst_dir_fd=folder)

    _remove(folder, name)
    try:
        yield rename
    finally:
        _remove(folder, name)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
