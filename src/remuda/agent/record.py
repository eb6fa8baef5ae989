"""
Where the agent writes down what it must not forget: one file per Pod UID, one per image, durable before each step.

A file is read as it was written or not at all: what is damaged, of a later version, or not ours is named, never guessed
at, and never written over. One process at a time. Every call blocks until the disk has it: call it from one thread.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from remuda.agent.decide.recorded import MAY_FOLLOW, ImageRecord, State, VmRecord
from remuda.control.durable import (
    make_durable,
    names_in,
    open_folder,
    remove,
    sweep,
    usable,
    write_whole,
)
from remuda.control.untrusted import NotAFile, read_file
from remuda.kube.names import image_digest
from remuda.model.errors import BadInput, RemudaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

_VMS: Final = "vms"
_IMAGES: Final = "images"
_LOCK: Final = "lock"
_SUFFIX: Final = ".json"
_FORMAT: Final = "remuda.dev/agent-record/v1"
_SIZE_MAX_BYTES: Final = 64 * 1024
_UID: Final = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z-]{0,62}")
_PRIVATE: Final = 0o700

_Record = TypeVar("_Record", VmRecord, ImageRecord)


class RecordFailed(RemudaError):
    """The record could not be read or written. The step that it was to allow must not be taken."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that stands where a record should, and is none that we can read."""

    file: str
    """Its path below the folder of the records."""
    pod_uid: str
    """Whose record it would be, by its name; empty if that is none of ours."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the folder held when it was opened."""

    vms: tuple[VmRecord, ...]
    images: tuple[ImageRecord, ...]
    unreadable: tuple[Unreadable, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a file: a record, and by what to tell that it is as it was written."""

    format: str
    sha256: str
    record: msgspec.Raw


class _NoRecord(Exception):
    """What a file holds is no record of ours."""


class RecordFolder:
    """The records of one host, held by one process until ``close``. Reads all of them when it is made."""

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = make_durable) -> None:
        self._folder = folder
        self._sync = sync
        with self._usable("opened"):
            for part in (folder, folder / _VMS, folder / _IMAGES):
                make_private(part)
            with open_folder(folder) as opened:
                sync(opened)  # a record must not vanish with the folder that it is in
            self._lock = _take_lock(folder)
        try:
            self.found = self._load()
        except BaseException:
            self.close()
            raise
        self._states: dict[str, State] = {r.pod_uid: r.state for r in self.found.vms}
        self._damaged = frozenset(found.file for found in self.found.unreadable)

    def close(self) -> None:
        """Let another process have the records. To do it twice is no error."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def write(self, record: VmRecord) -> None:
        """Make a record durable. When this returns, the step that it stands for may be taken."""
        before = self._states.get(record.pod_uid)
        assert record.state in MAY_FOLLOW[before], f"{record.state} may not follow {before}"
        self._write(_VMS, _vm_file(record.pod_uid), record)
        self._states[record.pod_uid] = record.state

    def forget(self, pod_uid: str) -> None:
        """Remove a record: neither Pod nor VM is left. To do it twice is no error."""
        self._remove(_VMS, _vm_file(pod_uid))
        self._states.pop(pod_uid, None)

    def write_image(self, record: ImageRecord) -> None:
        """Make an image's record durable."""
        self._write(_IMAGES, _image_file(record.image), record)

    def forget_image(self, image: str) -> None:
        """Remove an image's record: nothing of it is on the host."""
        self._remove(_IMAGES, _image_file(image))

    # --- files --------------------------------------------------------------------------------------------------------

    def _write(self, part: str, name: str, record: VmRecord | ImageRecord) -> None:
        self._must_be_ours(part, name)
        body = msgspec.json.encode(record)
        seal = sha256(body).hexdigest()
        content = msgspec.json.encode(_File(format=_FORMAT, sha256=seal, record=msgspec.Raw(body)))
        assert len(content) <= _SIZE_MAX_BYTES, "a record must be readable again"
        with self._usable("written"), open_folder(self._folder / part) as folder:
            write_whole(folder, name, content, sync=self._sync)

    def _remove(self, part: str, name: str) -> None:
        self._must_be_ours(part, name)
        with self._usable("removed"), open_folder(self._folder / part) as folder:
            if remove(folder, name):
                self._sync(folder)

    def _must_be_ours(self, part: str, name: str) -> None:
        if f"{part}/{name}" in self._damaged:
            raise RecordFailed(
                f"The record {self._folder / part / name} was not changed",
                why="what stands there could not be read, and may still be needed",
                fix="Look at it, move it away, and restart the agent",
            )

    def _load(self) -> Found:
        unreadable: list[Unreadable] = []
        with self._usable("read"):
            vms = self._read_all(_VMS, _read_vm, unreadable)
            images = self._read_all(_IMAGES, _read_image, unreadable)
        return Found(vms=tuple(vms), images=tuple(images), unreadable=tuple(unreadable))

    def _read_all(
        self, part: str, read: Callable[[str, bytes], _Record], unreadable: list[Unreadable]
    ) -> list[_Record]:
        records: list[_Record] = []
        with open_folder(self._folder / part) as folder:
            sweep(folder)
            for name in names_in(folder):
                try:
                    content = read_file(folder, name, _SIZE_MAX_BYTES)
                    records.append(read(name, content or b""))
                except (_NoRecord, NotAFile) as error:
                    uid = _uid_of(name) if part == _VMS else ""
                    unreadable.append(Unreadable(f"{part}/{name}", uid, str(error)))
        return records

    def _usable(self, done: str) -> AbstractContextManager[None]:
        return usable(
            RecordFailed,
            f"The records in {self._folder} cannot be {done}",
            fix="Free disk space, or see that the folder belongs to the agent's user",
        )


def _vm_file(pod_uid: str) -> str:
    assert _UID.fullmatch(pod_uid), "a UID is the name of a file here"
    return f"{pod_uid}{_SUFFIX}"


def _image_file(image: str) -> str:
    return f"{image_digest(image)}{_SUFFIX}"


def _uid_of(name: str) -> str:
    uid = name.removesuffix(_SUFFIX)
    return uid if name.endswith(_SUFFIX) and _UID.fullmatch(uid) else ""


def _read_vm(name: str, content: bytes) -> VmRecord:
    record = _read(content, VmRecord)
    # Copied by hand, perhaps: then it speaks of another Pod's VM.
    if name != f"{record.pod_uid}{_SUFFIX}":
        raise _NoRecord(f"it is the record of {record.pod_uid}")
    return record


def _read_image(name: str, content: bytes) -> ImageRecord:
    record = _read(content, ImageRecord)
    if name != _image_file(record.image):
        raise _NoRecord(f"it is the record of {record.image}")
    return record


def _read(content: bytes, kind: type[_Record]) -> _Record:
    try:
        file = msgspec.json.decode(content, type=_File)
        if file.format != _FORMAT:
            raise _NoRecord(f"its format is {file.format!r}, not {_FORMAT!r}")
        body = bytes(file.record)
        if sha256(body).hexdigest() != file.sha256:
            raise _NoRecord("it is not as it was written")
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _NoRecord(f"it is no record ({error})") from None


def make_private(folder: Path) -> None:
    """Make a folder for this user alone. One that others may write to is refused: nobody knows whose records it has."""
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise BadInput(
            f"The records cannot be kept in {folder}",
            why="it is not a folder of this user's own, or others may write to it",
            fix=f"Give it to the agent's user and make it private: chmod 700 {folder}",
        )


def _take_lock(folder: Path) -> int:
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise BadInput(
            f"The records in {folder} are in use",
            why="another agent holds them",
            fix="Run one agent per host, or give each a folder of its own",
        ) from None
    return lock
