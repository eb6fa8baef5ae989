"""
The directory of an embedded PostgreSQL: who owns it, who uses it, and whether it can be used at all.

    home/            0700, of the account that PostgreSQL runs as
      lock           held by the server and every process of it, so it is free exactly when all of them are gone
      data/          PGDATA; made under another name and renamed, so it is never half-made by us
      run/           the unix socket
      password       0600, for TCP
      postgres.log   what the server said
      bin/           a copy of the programs, only where the account cannot reach the installed ones

Everything here blocks a little; ``embedded`` calls it from a thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from remuda.adapters.postgres.binaries import MAJOR
from remuda.adapters.postgres.failures import EmbeddedBusy, EmbeddedRefused

SOCKET_PORT = 5432
"""The number in the socket's name when there is no TCP port. Nothing listens on it."""
SOCKET_PATH_MAX = 103 if sys.platform == "darwin" else 107
"""What fits into a unix socket's address, without its closing zero byte."""
_PRIVATE = 0o700
_LOG_KEPT_BYTES = 1_000_000
_START = "The embedded PostgreSQL cannot start"


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged account that PostgreSQL runs as when we are root."""

    uid: int
    gid: int
    name: str


@dataclass(frozen=True, slots=True)
class Home:
    """Names of what is in the directory."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def making(self) -> Path:
        return self.root / "data.making"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    @property
    def password(self) -> Path:
        return self.root / "password"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def programs(self) -> Path:
        return self.root / "bin"


def account_for(home: Home, user: str) -> Account | None:
    """
    Choose whom PostgreSQL runs as: ourselves, or, because it refuses root, somebody else.

    As root, data that exists is run by its owner, so nothing changes hands between two starts.
    """
    owner = _owner(home.data)
    if os.geteuid() != 0:
        if owner not in {None, os.geteuid()}:
            raise _refused(
                f"{home.data} belongs to user {owner}, not to {os.geteuid()}",
                "Run as its owner, or use another directory",
            )
        return None
    if owner is None:
        return _account(user or "nobody")
    wanted = _account(user) if user else None
    if owner == 0 or (wanted is not None and wanted.uid != owner):
        to = wanted.name if wanted else "nobody"
        raise _refused(f"{home.data} belongs to user {owner}", f"Run: chown -R {to} {home.root}")
    return _account(owner)


def make_home(home: Home, account: Account | None) -> None:
    """Make the directory if it is missing. One that is new or empty is given to the account; modes are never opened."""
    try:
        home.root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        if account is not None and not any(home.root.iterdir()):
            os.chown(home.root, account.uid, account.gid, follow_symlinks=False)
    except OSError as error:
        raise _refused(
            f"{home.root} cannot be made or read ({error.strerror})",
            "Give a directory that is yours, or make its parent writable to you",
        ) from None


def try_lock(home: Home) -> int | None:
    """Take the lock and write our pid into it. None means somebody has it."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(home.lock, flags, 0o600)
    except OSError as error:
        raise _refused(
            f"{home.lock} cannot be written ({error.strerror})",
            "Give a directory that is yours, on a disk that is not full or read-only",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(lock)
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise _refused(
                f"{home.lock} cannot be locked ({error.strerror})", "Use a local disk with room"
            ) from None
        return None
    return lock


def holder_is_alive(home: Home) -> bool:
    """
    Tell whether the directory is in use: the process that started the server lives, and so does the server.

    If either is gone, what still holds the lock is the rest of a server that is about to end.
    """
    holder, server = _first_number(home.lock), _first_number(home.pid_file)
    return holder is not None and _is_alive(holder) and (server is None or _is_alive(server))


def in_use(home: Home) -> EmbeddedBusy:
    holder, server = _first_number(home.lock), _first_number(home.pid_file)
    who = f"process {holder or 'unknown'}" + (f", PostgreSQL is process {server}" if server else "")
    return EmbeddedBusy(
        _START,
        why=f"{home.root} is in use by {who}",
        fix="Stop that process, or use another directory; one directory serves one instance",
    )


def check_data(home: Home) -> bool:
    """Tell whether there is data to start with; refuse what is not ours to use or to repair."""
    if not home.data.exists():
        return False
    try:
        names = {entry.name for entry in home.data.iterdir()}
        version = (home.data / "PG_VERSION").read_text().strip() if "PG_VERSION" in names else ""
    except OSError as error:
        raise _refused(
            f"{home.data} cannot be read ({error.strerror})", "Run as the owner of it"
        ) from None
    if not version or not (home.data / "global" / "pg_control").exists():
        raise _refused(
            f"{home.data} is no whole PostgreSQL data directory",
            "Move it away (a new one is made), or put back the backup it came from",
        )
    if version != str(MAJOR):
        raise _refused(
            f"{home.data} was written by PostgreSQL {version}, this is {MAJOR}",
            f"Start it with PostgreSQL {version}, dump it, move it away and restore the dump here",
        )
    return True


def clear_what_the_dead_left(home: Home, socket_folder: Path) -> None:
    """
    Remove what would stop a start after a crash. The caller holds the lock.

    PostgreSQL sees by itself that the pid in its own file is dead, but not that the number is by now somebody else's.
    Then our own pid is written there: PostgreSQL knows that its parent is no server, and goes on to its other checks.
    """
    shutil.rmtree(home.making, ignore_errors=True)
    server = _first_number(home.pid_file)
    if server is not None and _is_alive(server):
        if _may_be_server_of(server, home.data):
            raise in_use(home)
        lines = home.pid_file.read_text().splitlines(keepends=True)
        home.pid_file.write_text("".join([f"{os.getpid()}\n", *lines[1:]]))
    for left in socket_folder.glob(".s.PGSQL.*"):
        left.unlink(missing_ok=True)


def socket_path(home: Home, port: int) -> Path:
    """Return where the socket is: in a folder inside the home, or a short one where that name is too long."""
    path = home.root / "run" / f".s.PGSQL.{port}"
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        digest = hashlib.sha256(os.fsencode(home.root)).hexdigest()[:16]
        return Path("/tmp") / f"remuda-{digest}" / path.name  # noqa: S108 - checked to be ours and private
    return path


def socket_folder(home: Home, port: int, account: Account | None) -> Path:
    """Make the private folder of the socket, or see that it is one."""
    folder = socket_path(home, port).parent
    owner = account.uid if account else os.geteuid()
    try:
        folder.mkdir(mode=_PRIVATE, exist_ok=True)
        if account is not None and folder.lstat().st_uid == 0:
            os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    except OSError as error:
        raise _refused(
            f"{folder} cannot be made ({error.strerror})", "Give a directory that is yours"
        ) from None
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != owner or stat.S_IMODE(seen.st_mode) & 0o077:
        raise _refused(
            f"{folder}, where the socket goes, is not a private directory of user {owner}",
            "Remove it, or use a directory with a shorter name",
        )
    return folder


def open_log(home: Home) -> int:
    """Open the log for appending, a long one anew. What PostgreSQL is told to log does not grow with its work."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(home.log, flags, 0o600)
    if os.fstat(log).st_size > _LOG_KEPT_BYTES:
        os.ftruncate(log, 0)
    return log


def read_log(home: Home, start: int) -> str:
    with contextlib.suppress(OSError), home.log.open("rb") as log:
        log.seek(start)
        return log.read(_LOG_KEPT_BYTES).decode(errors="replace")
    return ""


def server_state(home: Home) -> tuple[int | None, str]:
    """Return the pid and the word for its state that the server keeps in its own file ("starting", "ready", …)."""
    try:
        lines = home.pid_file.read_text().splitlines()
        return int(lines[0]), lines[7].strip() if len(lines) > 7 else ""  # noqa: PLR2004 - its eighth line
    except (OSError, ValueError, IndexError):
        return None, ""


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refused(f"{path} cannot be read ({error.strerror})", "Run as its owner") from None


def _account(user: str | int) -> Account:
    try:
        found = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
    except KeyError:
        if isinstance(user, int):
            return Account(user, user, str(user))
        raise _refused(f"there is no user {user}", "Give a user that exists") from None
    if found.pw_uid == 0:
        raise _refused("PostgreSQL refuses to run as root", "Give an unprivileged user")
    return Account(found.pw_uid, found.pw_gid, found.pw_name)


def _first_number(file: Path) -> int | None:
    try:
        return int(file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _may_be_server_of(pid: int, data: Path) -> bool:
    """Tell whether a living process may be the server of the data; in doubt it may."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
        except FileNotFoundError:
            return False
        except OSError:
            return True
    seen = subprocess.run(  # noqa: S603 - a number, no shell
        ["/bin/ps", "-p", str(pid), "-o", "comm="],
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
    )
    return seen.returncode != 0 or seen.stdout.strip().endswith("postgres")


def _refused(why: str, fix: str) -> EmbeddedRefused:
    return EmbeddedRefused(_START, why=why, fix=fix)
