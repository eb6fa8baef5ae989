"""
The host's side of a VM's mailbox: one job in, one exit out.

The guest is hostile, and it writes into the same folder: nothing in it is followed, waited for, executed or believed
without bounds. What is odd is named and otherwise counts as not there. A job config is a secret: it is gone from the
folder at most a second after the guest took it. Every call blocks, for no longer than a local disk takes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.agent.decide.verdict import GuestExit
from remuda.control.durable import (
    UNFINISHED,
    make_durable,
    open_folder,
    remove,
    usable,
    write_whole,
)
from remuda.control.untrusted import (
    Bounds,
    NotAFile,
    exists,
    is_file,
    measure,
    overfull,
    read_file,
    read_part,
    read_tail,
    remove_tree,
)
from remuda.model.errors import RemudaError
from remuda.model.job_files import FILES_MAX_BYTES
from remuda.model.mailbox import (
    ENDED,
    EXIT,
    FILES_IN,
    FILES_NOTE,
    FILES_OUT,
    FILES_TAKEN,
    JOB,
    LOG,
    READY,
    STARTED,
    STOP,
    TAKES_FILES,
    Holds,
    holding,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from remuda.control.untrusted import Measured
    from remuda.ports.clock import Clock

EXIT_MAX_BYTES: Final = 16 * 1024
EXIT_CODE_MAX: Final = 255
READY_MAX_BYTES: Final = 4096
REASON_MAX_CHARS: Final = 200
LOG_TAIL_MAX_BYTES: Final = 64 * 1024
LOG_TAIL_MAX_LINES: Final = 200
_UNFINISHED_OUT: Final = f".{FILES_OUT}.new"
"""The guest's own name of the archive that it packs."""
BOUNDS: Final = Bounds(
    bytes_max=64 * 1024 * 1024,
    entries_max=256,
    large=frozenset(
        {
            FILES_IN,
            FILES_TAKEN,
            FILES_OUT,
            _UNFINISHED_OUT,
            *(f"{UNFINISHED}{name}" for name in (FILES_IN, FILES_OUT)),
        }
    ),
    large_bytes_max=2 * FILES_MAX_BYTES + 64 * 1024,  # and what blocks round up
)
"""What a guest may put into its mailbox. One that wants to fill the host's disk is ended."""
_COPIED_BYTES: Final = 1024 * 1024
LOOK_S: Final = 0.25
"""How often to look whether a job was taken. A job may stay for a second after that; a look may come late."""


class HostMailboxError(RemudaError):
    """The mailbox cannot be used."""


class _Exit(msgspec.Struct, frozen=True):
    """What a guest says about its end. Only the code has to be right; the rest counts if it can be read."""

    code: int
    reason: object = ""
    finished_at: object = None
    files: object = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What a mailbox shows at one moment."""

    ready: bool = False
    """The guest waits for a job."""
    takes_files: bool = False
    """It says that it knows what to do with files. One of an older image would run a job without them."""
    started: bool = False
    """The guest has read its job."""
    holds: Holds = Holds.NOTHING
    """By names alone: whatever bears the name of a job, a job was there. In doubt, it had its one job."""
    ended: GuestExit | None = None
    """How its job ended, if the guest packs what the job left, or did."""
    exit: GuestExit | None = None
    """How all of it ended: the guest says nothing more."""
    odd: tuple[str, ...] = ()
    """What was refused, as sentences. A file that was being written may be right at the next look."""
    overfull: str = ""
    """Why it holds more than it may; empty: it does not."""


class HostMailbox:
    """The mailbox of one VM, at the place that its driver gives it."""

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = make_durable) -> None:
        self._folder = folder
        self._sync = sync

    def make(self) -> None:
        """Make it, empty, before its VM boots for the only time. What an earlier try left is removed."""
        with self._usable("made"):
            remove_tree(self._folder)
            self._folder.mkdir(mode=0o700, parents=True)

    def remove(self) -> None:
        """Remove it and whatever the guest left in it, once its VM is stopped. Gone already is success."""
        with self._usable("removed"):
            remove_tree(self._folder)

    def look(self) -> Signs:
        """Say what is there."""
        odd: list[str] = []
        with self._usable("looked at"), self._opened() as folder:
            too_much = overfull(folder, BOUNDS)
            held = _held(folder)
            shown = {name for name in (READY, STARTED) if _there(folder, name, odd)}
            takes_files = READY in shown and _takes_files(folder)
            ended, said = (_exit(folder, name, odd) for name in (ENDED, EXIT))
        return Signs(
            ready=READY in shown,
            takes_files=takes_files,
            started=STARTED in shown,
            holds=held,
            ended=ended,
            exit=said,
            odd=tuple(odd),
            overfull=too_much,
        )

    def put_job(self, document: bytes) -> None:
        """Put the one job in. A mailbox that holds or held anything takes none."""
        with self._usable("written to"), self._opened() as folder:
            held = _held(folder)
            if held is not Holds.NOTHING:
                raise HostMailboxError(
                    "The job was not put into the mailbox",
                    why=f"the mailbox holds {held.value} already",
                    fix="The VM is ended and its Pod replaced; the job goes to another",
                )
            write_whole(folder, JOB, document, sync=self._sync)

    def put_files(self, source: Path) -> None:
        """Put what the job needs in, before the job. To do it twice is no error."""
        unfinished = f"{UNFINISHED}{FILES_IN}"
        with self._usable("written to"), self._opened() as folder, source.open("rb") as stream:
            remove(folder, unfinished)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(unfinished, flags, 0o600, dir_fd=folder), "wb") as copy:
                shutil.copyfileobj(stream, copy, _COPIED_BYTES)
                copy.flush()
                self._sync(copy.fileno())
            os.rename(unfinished, FILES_IN, src_dir_fd=folder, dst_dir_fd=folder)

    def put_stop(self) -> None:
        """Tell the guest to end."""
        with self._usable("written to"), self._opened() as folder:
            write_whole(folder, STOP, b"", sync=self._sync)

    def take_job_back(self) -> None:
        """Remove the job, and what a killed writer left of one. There may be none."""
        with self._usable("cleared"), self._opened() as folder:
            for name in (JOB, f"{UNFINISHED}{JOB}", FILES_IN, f"{UNFINISHED}{FILES_IN}"):
                # What is no file is the guest's own, and holds no job of ours.
                with contextlib.suppress(NotAFile):
                    if is_file(folder, name):
                        remove(folder, name)

    def log_tail(self) -> str:
        """Return the last lines of the runner's log; empty: there is none that may be read."""
        with self._usable("read"), self._opened() as folder:
            try:
                tail = read_tail(folder, LOG, LOG_TAIL_MAX_BYTES)
            except NotAFile:
                return ""
        if tail is None:
            return ""
        content, whole = tail
        if not whole:  # the first line is a part of one
            content = content.partition(b"\n")[2]
        lines = content.decode(errors="replace").split("\n")
        ended = 1 if lines[-1] == "" else 0
        return "\n".join(lines[-(LOG_TAIL_MAX_LINES + ended) :])

    def log_part(self, offset: int, size_max: int) -> bytes | None:
        """Return some of the runner's log, from a place in it; None: there is none that may be read."""
        with self._usable("read"), self._opened() as folder:
            try:
                return read_part(folder, LOG, offset, size_max)
            except NotAFile:
                return None

    def log_measured(self) -> Measured | None:
        """Say how long the runner's log is; None: there is none that may be read."""
        return self._measured(LOG)

    def files_measured(self) -> Measured | None:
        """Say how large the archive is that the guest left; None: there is none that may be read."""
        return self._measured(FILES_OUT)

    def files_part(self, offset: int, size_max: int) -> bytes:
        """Return some of that archive, from a place in it; nothing: there is no more that may be read."""
        with self._usable("read"), self._opened() as folder:
            try:
                return read_part(folder, FILES_OUT, offset, size_max) or b""
            except NotAFile:
                return b""

    def _measured(self, name: str) -> Measured | None:
        with self._usable("read"), self._opened() as folder:
            try:
                return measure(folder, name)
            except NotAFile:
                return None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open it. The guest may have locked it, so that nobody sees what it hides there, or takes its job back."""
        mode = self._folder.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:  # noqa: PLR2004 - all that its owner may do
            self._folder.chmod(0o700)
        with open_folder(self._folder) as folder:
            yield folder

    def _usable(self, done: str) -> AbstractContextManager[None]:
        return usable(
            HostMailboxError,
            f"The mailbox {self._folder} cannot be {done}",
            fix="See that its folder is there, belongs to the agent's user, and that the disk is not full",
        )


async def take_back_once_read(mailbox: HostMailbox, clock: Clock) -> Signs:
    """Wait until the guest has taken its job, and remove it. Returns what the mailbox showed then."""
    while True:
        signs = mailbox.look()
        if signs.holds is not Holds.JOB or signs.exit is not None or signs.started:
            mailbox.take_job_back()
            return signs
        await clock.sleep(LOOK_S)


def _held(folder: int) -> Holds:
    """Ask for the names that matter: a guest may have put a million others there."""
    return holding([name for name in (JOB, STOP, STARTED, EXIT) if exists(folder, name)])


def _there(folder: int, name: str, odd: list[str]) -> bool:
    try:
        return is_file(folder, name)
    except NotAFile as error:
        odd.append(str(error))
        return False


def _takes_files(folder: int) -> bool:
    try:
        said = read_file(folder, READY, READY_MAX_BYTES) or b""
    except NotAFile:
        return False
    return TAKES_FILES.encode() in said.split()


def _files_note(folder: int) -> str:
    try:
        said = read_file(folder, FILES_NOTE, EXIT_MAX_BYTES) or b""
    except NotAFile:
        return ""
    return _reason(said.decode(errors="replace"))


def _exit(folder: int, name: str, odd: list[str]) -> GuestExit | None:
    try:
        content = read_file(folder, name, EXIT_MAX_BYTES)
        if content is None:
            return None
        said = msgspec.json.decode(content, type=_Exit)
    except NotAFile as error:
        odd.append(str(error))
        return None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        odd.append(f"{name} is not what a guest writes there")
        return None
    if not 0 <= said.code <= EXIT_CODE_MAX:
        odd.append(f"{name} names a code that is no exit code")
        return None
    return GuestExit(
        code=said.code,
        reason=_reason(said.reason),
        finished_at=_time(said.finished_at),
        files_note=_reason(said.files) or _files_note(folder),
    )


def _reason(said: object) -> str:
    text = said if isinstance(said, str) else ""
    return "".join(c if c.isprintable() else " " for c in text[:REASON_MAX_CHARS])


def _time(said: object) -> datetime | None:
    try:
        at = msgspec.convert(said, datetime)
    except msgspec.ValidationError:
        return None
    return at if at.tzinfo is not None else None
