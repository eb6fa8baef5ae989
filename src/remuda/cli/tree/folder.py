"""
The data folder of a ``remuda up``: what stands where, who may use it, and who does.

    DATA/
      up.lock         held by the one that tends the tree; its pid stands in it
      kept.json       what stays from start to start: ports, driver, the Node's name
      up.json         what the last start was told and how its parts fared
      addresses.json  where the parts are, for other commands; with them api-token (0600) and kubeconfig
      parts/NAME/     what is known of each part's process
      logs/NAME.log   what each part says; a long log begins anew, and one older is kept
      github/         the GitHub App and its key, from remuda setup github
      control-plane/  postgres/  agent/  images/   the parts' own data

Everything here blocks no longer than a disk takes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.cli.finding import Home, default_home
from remuda.model.errors import BadInput, RemudaError, Retry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOM_MIN_BYTES: Final = 256 * 1024 * 1024
"""A new database alone takes a sixth of it. With less, the first thing to fail would be a write in the middle."""
_LOG_KEPT_BYTES: Final = 8 * 1024 * 1024
_TAIL_BYTES: Final = 64 * 1024


class AlreadyUp(RemudaError):
    """Another ``remuda up`` uses the folder."""

    retry = Retry.NEVER


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stays the same from one start to the next, unless the person says otherwise."""

    node: str
    driver: str
    image: str
    vms: int
    pool: str
    qemu_accel: str = ""
    """Empty: nobody said."""
    ports: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Folder:
    """Names of what is in the folder."""

    root: Path

    @property
    def home(self) -> Home:
        """What other commands read."""
        return Home(self.root)

    @property
    def lock(self) -> Path:
        return self.root / "up.lock"

    @property
    def kept_file(self) -> Path:
        return self.root / "kept.json"

    @property
    def state_file(self) -> Path:
        return self.root / "up.json"

    @property
    def control_plane(self) -> Path:
        return self.root / "control-plane"

    @property
    def pki(self) -> Path:
        return self.control_plane / "pki"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def agent(self) -> Path:
        return self.root / "agent"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def node_kubeconfig(self) -> Path:
        return self.root / "node-kubeconfig"

    @property
    def controller_token(self) -> Path:
        return self.root / "controller-token"

    @property
    def github(self) -> Path:
        """The GitHub App of this fleet, if ``remuda setup github`` made one."""
        return self.root / "github"

    @property
    def github_settings(self) -> Path:
        return self.github / "settings.env"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def part(self, name: str) -> Path:
        return self.root / "parts" / name

    # --- what stays ---

    def kept(self) -> Kept | None:
        """Return what the last start chose; None: there was none. BadInput if it cannot be read."""
        try:
            with usable(self.root, but=(FileNotFoundError,)):
                return msgspec.json.decode(self.kept_file.read_bytes(), type=Kept)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{self.kept_file} cannot be read",
                why=str(error),
                fix="Remove that file: ports and driver are chosen anew, and no job and no pool is lost",
            ) from None

    def keep(self, kept: Kept) -> None:
        write_whole(self.kept_file, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")

    # --- logs ---

    def bound_log(self, name: str) -> None:
        """Put a long log aside and go on in an empty one, whoever writes to it: all of them append."""
        log = self.log(name)
        try:
            if log.stat().st_size <= _LOG_KEPT_BYTES:
                return
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)
        except FileNotFoundError:
            return

    def tail(self, name: str) -> str:
        """Return the end of a part's log."""
        try:
            with self.log(name).open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - _TAIL_BYTES))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""


def data_folder(told: Path | None) -> Folder:
    """Return the folder that is meant: the one that was named, or the one of this user."""
    home = default_home() if told is None else Home(told)
    return Folder(home.folder.expanduser().absolute())


def write_whole(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file: whole and durable, or not at all. What could not be written whole leaves nothing, secrets least."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


@contextmanager
def usable(root: Path, *, but: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Say what is wrong with the folder, where the system only says an error's name. ``but``: what is no fault."""
    try:
        yield
    except but:
        raise
    except OSError as error:
        raise BadInput(
            f"The data folder {root} cannot be used",
            why=f"{error.filename or root}: {error.strerror or error}",
            fix=_cure(error),
        ) from None


def _cure(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "Free disk space, and start again: nothing is lost"
    if error.errno == errno.EROFS:
        return "Make its disk writable, or choose another one with --data"
    return "See that the folder and what is in it belong to you, or choose another one with --data"


def check_room(folder: Folder, free_bytes: int) -> None:
    """Refuse to begin on a disk that is as good as full."""
    if free_bytes < ROOM_MIN_BYTES:
        raise BadInput(
            f"There is no room in {folder.root}",
            why=f"{free_bytes // 1024**2} MiB are free on its disk, and {ROOM_MIN_BYTES // 1024**2} MiB are needed",
            fix="Free disk space, or choose a folder on another disk with --data",
        )


def prepare(folder: Folder) -> None:
    """Make the folder, or see that it is one of ours and can be written."""
    root = folder.root
    with usable(root):
        # As root, PostgreSQL runs as somebody else, who must get through to its own folder; he can list nothing.
        root.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        present = {path.name for path in root.iterdir()}
        # These may be there before anything else: QEMU is only chosen where it finds an image.
        foreign = present - {folder.images.name, folder.github.name}
        if foreign and not present & {folder.lock.name, folder.kept_file.name}:
            raise BadInput(
                f"{root} is not the data folder of a remuda up",
                why=f"it holds something else ({', '.join(sorted(foreign)[:3])})",
                fix="Choose an empty or a new folder with --data",
            )
        folder.lock.touch(mode=0o600)  # first: from now on the folder is known to be ours
        for made in (folder.logs, folder.images, folder.root / "parts"):
            made.mkdir(mode=0o700, exist_ok=True)
        check_room(folder, shutil.disk_usage(root).free)


@contextmanager
def held(folder: Folder) -> Iterator[None]:
    """Keep every other ``remuda up`` out of the folder for as long as the block lasts. Raises AlreadyUp."""
    with usable(folder.root):
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(folder.lock, flags, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyUp(
                "Another remuda up is there already",
                why=f"process {holder(folder) or 'unknown'} uses {folder.root}",
                fix="Use that one (remuda status), end it (remuda down), or choose another folder with --data",
            ) from None
        with usable(folder.root):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def holder(folder: Folder) -> int | None:
    """Return the pid of the ``remuda up`` that uses the folder; None: nobody does. A pid alone proves nothing."""
    try:
        file = os.open(folder.lock, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        said = os.pread(file, 32, 0)
        return int(said) if said.strip().isdigit() else 0
    else:
        return None
    finally:
        os.close(file)
