"""
Jobs that dispatch may count as begun and that are not in a mailbox yet: on disk, so that a restart loses none.

A local job is begun at most once, by one Pod, so nobody else will ever run what is lost here. One file per Pod UID, for
this user alone. What cannot be read is named and counts as lost. Every call blocks until the disk has it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import file_digest, sha256
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.agent.record import make_private
from remuda.control.durable import (
    UNFINISHED,
    make_durable,
    names_in,
    open_folder,
    remove,
    sweep,
    usable,
    write_whole,
)
from remuda.control.untrusted import NotAFile, exists, read_file
from remuda.model.errors import RemudaError
from remuda.ports.desk import HandedJob, JobKind, UploadRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager
    from pathlib import Path

_SUFFIX: Final = ".json"
_FILES_SUFFIX: Final = ".files"
_FORMAT: Final = "remuda.dev/held-job/v1"
_SIZE_MAX_BYTES: Final = 16 * 1024 * 1024
"""More than the largest job has."""
_UID: Final = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z-]{0,62}")


class HeldJobFailed(RemudaError):
    """A job could not be kept or forgotten. One that is not kept must not be begun."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that stands where a job should, and is none."""

    file: Path
    why: str


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is written down. Its files lie beside it."""

    pod_uid: str
    job_id: str
    kind: JobKind
    runner_name: str
    document: bytes
    upload: UploadRef | None = None
    wants_files: bool = False


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a file: a job, and by what to tell that it is as it was written."""

    format: str
    sha256: str
    job: msgspec.Raw


class _NoJob(Exception):
    """What a file holds is no job of ours. The text repeats nothing of it: it may be a secret."""


class HeldJobs:
    """Those of one host."""

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = make_durable) -> None:
        self._folder, self._sync = folder, sync
        with self._usable("opened"):
            make_private(folder)
            with open_folder(folder.parent) as parent:
                sync(parent)  # a job must not vanish with the folder that it is in
            with open_folder(folder) as opened:
                sweep(opened)

    def keep(self, pod_uid: str, job: HandedJob) -> None:
        """Make it durable, over whatever a Pod had before. When this returns, it may be begun."""
        held = _Job(
            pod_uid=pod_uid,
            job_id=job.job_id,
            kind=job.kind,
            runner_name=job.runner_name,
            document=job.document,
            upload=job.upload,
            wants_files=job.wants_files,
        )
        body = msgspec.json.encode(held)
        seal = sha256(body).hexdigest()
        content = msgspec.json.encode(_File(format=_FORMAT, sha256=seal, job=msgspec.Raw(body)))
        assert len(content) <= _SIZE_MAX_BYTES, "a job must be readable again"
        with self._usable("written to"), open_folder(self._folder) as folder:
            write_whole(folder, _file(pod_uid), content, sync=self._sync)

    def get(self, pod_uid: str) -> HandedJob | Unreadable | None:
        """Return the job that a Pod holds."""
        name = _file(pod_uid)
        with self._usable("read"), open_folder(self._folder) as folder:
            try:
                content = read_file(folder, name, _SIZE_MAX_BYTES)
                return None if content is None else _read(content, pod_uid)
            except (_NoJob, NotAFile) as error:
                return Unreadable(self._folder / name, str(error))

    def drop(self, pod_uid: str) -> None:
        """Forget it, for good. To do it twice is no error."""
        with self._usable("cleared"), open_folder(self._folder) as folder:
            gone = [remove(folder, name) for name in (_file(pod_uid), _files(pod_uid))]
            remove(folder, f"{UNFINISHED}{_files(pod_uid)}")
            if any(gone):
                self._sync(folder)

    # --- its files ---

    def add_files(self, pod_uid: str, offset: int, data: bytes) -> None:
        """Put a piece of the files of a job where they belong. They are there once they are sealed."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        if offset == 0:
            flags |= os.O_TRUNC
        with self._usable("written to"), open_folder(self._folder) as folder:
            file = os.open(f"{UNFINISHED}{_files(pod_uid)}", flags, 0o600, dir_fd=folder)
            with os.fdopen(file, "wb") as stream:
                stream.seek(offset)
                stream.write(data)

    def seal_files(self, pod_uid: str, upload: UploadRef) -> bool:
        """Make them durable, if they are what was sent. False: they are not, and must be fetched anew."""
        name = _files(pod_uid)
        unfinished = f"{UNFINISHED}{name}"
        with self._usable("written to"), open_folder(self._folder) as folder:
            if not exists(folder, unfinished):
                return False  # not one piece came
            if not _is_upload(folder, unfinished, upload, sync=self._sync):
                remove(folder, unfinished)
                return False
            os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._sync(folder)
        return True

    def files(self, pod_uid: str, upload: UploadRef) -> Path | None:
        """Return where the files of a job are; None: they are not there. Those of another job are removed."""
        name = _files(pod_uid)
        with self._usable("read"), open_folder(self._folder) as folder:
            if not exists(folder, name):
                return None
            if _is_upload(folder, name, upload):
                return self._folder / name
            remove(folder, name)
            self._sync(folder)
        return None

    def drop_all_but(self, pod_uids: Collection[str]) -> tuple[str, ...]:
        """Forget what belongs to no Pod of these; return the names of the files. For what was left by a crash."""
        kept = {f"{uid}{suffix}" for uid in pod_uids for suffix in (_SUFFIX, _FILES_SUFFIX)}
        with self._usable("cleared"), open_folder(self._folder) as folder:
            ours = [n for n in names_in(folder) if n.endswith((_SUFFIX, _FILES_SUFFIX))]
            gone = tuple(name for name in ours if name not in kept)
            for name in gone:
                remove(folder, name)
            if gone:
                self._sync(folder)
        return gone

    def _usable(self, done: str) -> AbstractContextManager[None]:
        return usable(
            HeldJobFailed,
            f"The folder of held jobs, {self._folder}, cannot be {done}",
            fix="Free disk space, or see that the folder belongs to the agent's user",
        )


def _file(pod_uid: str) -> str:
    assert _UID.fullmatch(pod_uid), "a UID is the name of a file here"
    return f"{pod_uid}{_SUFFIX}"


def _files(pod_uid: str) -> str:
    return _file(pod_uid).removesuffix(_SUFFIX) + _FILES_SUFFIX


def _is_upload(
    folder: int, name: str, upload: UploadRef, *, sync: Callable[[int], None] = lambda _: None
) -> bool:
    """Say whether a file is what was sent, byte by byte: its name says only whose it is."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        digest = file_digest(stream, "sha256").hexdigest()
        sync(stream.fileno())
    return (size, digest) == (upload.size_bytes, upload.sha256)


def _read(content: bytes, pod_uid: str) -> HandedJob:
    try:
        file = msgspec.json.decode(content, type=_File)
        body = bytes(file.job)
        if file.format != _FORMAT or sha256(body).hexdigest() != file.sha256:
            raise _NoJob("it is not as it was written, or of another version")
        job = msgspec.json.decode(body, type=_Job)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _NoJob("it is no job of ours") from None
    if job.pod_uid != pod_uid:  # copied by hand, perhaps
        raise _NoJob(f"it is the job of {job.pod_uid}")
    return HandedJob(
        job_id=job.job_id,
        kind=job.kind,
        runner_name=job.runner_name,
        document=job.document,
        upload=job.upload,
        wants_files=job.wants_files,
    )
