"""
Where a store's writes become durable: one SQLite file, in a directory of our own, for one process at a time.

Objects, the history of changes and the revision go into one transaction, so a watch can resume across a crash. It
knows rows and files; what they mean is the store's business. Every call blocks; the store calls it from a thread.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import msgspec

from remuda.model.errors import BadInput, RemudaError
from remuda.standalone.store import HISTORY_MAX, Change, KindKey, StoredEvent, encode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from remuda.standalone.objects import Obj

FILE_NAME = "store.sqlite3"
LOCK_NAME = "lock"
_APPLICATION_ID = 0x52656D75  # "Remu": marks the file as ours
_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE revision (newest INTEGER NOT NULL);
INSERT INTO revision VALUES (0);
CREATE TABLE objects (
    grp TEXT NOT NULL, plural TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (grp, plural, key)
) WITHOUT ROWID;
CREATE TABLE events (
    revision INTEGER PRIMARY KEY, grp TEXT NOT NULL, plural TEXT NOT NULL, change TEXT NOT NULL,
    body BLOB NOT NULL, previous BLOB
);
CREATE INDEX events_by_kind ON events (grp, plural, revision);
CREATE TABLE floors (
    grp TEXT NOT NULL, plural TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (grp, plural)
) WITHOUT ROWID;
"""

_decode = msgspec.json.Decoder().decode


class JournalFailed(RemudaError):
    """A batch of writes could not be made durable. Nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a journal held when it was opened."""

    revision: int
    objects: list[tuple[KindKey, Obj]]
    events: list[StoredEvent]
    """In revision order."""
    floors: list[tuple[KindKey, int]]


class Journal:
    """An open journal. Holds the directory's lock until it is closed."""

    def __init__(self, directory: Path, *, history_max: int = HISTORY_MAX) -> None:
        self._directory = directory
        self._history_max = history_max
        self._since_trim: Counter[KindKey] = Counter()
        _make_private(directory)
        self._lock = _take_lock(directory)
        try:
            self._db = _open(directory)
        except BaseException:
            os.close(self._lock)
            raise

    def load(self) -> Loaded:
        """Read everything back."""
        try:
            ((revision,),) = self._db.execute("SELECT newest FROM revision")
            objects = [
                ((grp, plural), _decode(body))
                for grp, plural, body in self._db.execute("SELECT grp, plural, body FROM objects")
            ]
            rows = self._db.execute(
                "SELECT revision, change, grp, plural, body, previous FROM events ORDER BY revision"
            )
            events = [
                StoredEvent(
                    at, cast("Change", change), (grp, plural), _decode(body), _maybe(previous)
                )
                for at, change, grp, plural, body, previous in rows
            ]
            floors = [
                ((grp, plural), floor)
                for grp, plural, floor in self._db.execute(
                    "SELECT grp, plural, revision FROM floors"
                )
            ]
        except (sqlite3.Error, ValueError) as error:
            raise _unusable(self._directory / FILE_NAME, str(error)) from error
        # History of former runs counts: a process that is often restarted must trim it, too.
        self._since_trim.update(event.kind for event in events)
        return Loaded(revision, objects, events, floors)

    def append(self, batch: list[StoredEvent]) -> None:
        """Make a batch durable, whole or not at all."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._write(batch)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise JournalFailed(
                f"The control plane could not store {len(batch)} changes in {self._directory}",
                why=str(error),
                fix="Free disk space or repair the disk, then try again; nothing was changed",
            ) from error

    def _write(self, batch: list[StoredEvent]) -> None:
        self._db.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            (
                (
                    e.revision,
                    *e.kind,
                    e.change,
                    e.body(),
                    encode(e.previous) if e.previous else None,
                )
                for e in batch
            ),
        )
        # Only the last state of each object counts: a hot object is written once per batch.
        final = {(event.kind, event.key): event for event in batch}
        self._db.executemany(
            "DELETE FROM objects WHERE grp = ? AND plural = ? AND key = ?",
            ((*kind, key) for (kind, key), e in final.items() if e.change == "DELETED"),
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)",
            ((*kind, key, e.body()) for (kind, key), e in final.items() if e.change != "DELETED"),
        )
        self._db.execute("UPDATE revision SET newest = ?", (batch[-1].revision,))
        self._trim(event.kind for event in batch)

    def _trim(self, kinds: Iterable[KindKey]) -> None:
        """Drop history beyond the window. In strides: each trim costs a search."""
        self._since_trim.update(kinds)
        stride = max(1, self._history_max // 8)
        for kind in [kind for kind, count in self._since_trim.items() if count >= stride]:
            del self._since_trim[kind]
            self._trim_kind(kind)

    def _trim_kind(self, kind: KindKey) -> None:
        beyond = self._db.execute(
            "SELECT revision FROM events WHERE grp = ? AND plural = ? ORDER BY revision DESC LIMIT 1 OFFSET ?",
            (*kind, self._history_max),
        ).fetchone()
        if beyond is None:
            return
        self._db.execute(
            "DELETE FROM events WHERE grp = ? AND plural = ? AND revision <= ?", (*kind, *beyond)
        )
        self._db.execute("INSERT OR REPLACE INTO floors VALUES (?, ?, ?)", (*kind, *beyond))

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)


def _maybe(body: bytes | None) -> Obj | None:
    return None if body is None else _decode(body)


def _make_private(directory: Path) -> None:
    """Make the directory if need be; nobody else may read the secrets in it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise BadInput(
            f"The data directory {directory} cannot be used",
            why=str(error),
            fix="Choose a directory that belongs to you with --data",
        ) from error


def _take_lock(directory: Path) -> int:
    handle = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise BadInput(
            f"The data directory {directory} is in use",
            why="another control plane holds its lock",
            fix="Stop the other one, or choose another directory with --data",
        ) from error
    return handle


def _open(directory: Path) -> sqlite3.Connection:
    path = directory / FILE_NAME
    path.touch(mode=0o600)
    # The thread that commits is another one than the thread that loads; never both at once.
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db, path)
    except sqlite3.Error as error:
        db.close()
        raise _unusable(path, str(error)) from error
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    ((application,),) = db.execute("PRAGMA application_id")
    ((version,),) = db.execute("PRAGMA user_version")
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_schema")
    if tables and application != _APPLICATION_ID:
        raise _unusable(path, "it is a database of another program")
    if tables and version != _SCHEMA_VERSION:
        raise _unusable(
            path, f"its schema is version {version}, this program knows {_SCHEMA_VERSION}"
        )
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if not tables:
        db.executescript(
            f"BEGIN; PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_SCHEMA_VERSION};"
            f"{_SCHEMA} COMMIT;"
        )
    ((verdict,),) = db.execute("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise _unusable(path, verdict)


def _unusable(path: Path, why: str) -> BadInput:
    return BadInput(
        f"The store {path} cannot be read",
        why=why,
        fix="Restore it from a backup, or move it away to start with an empty control plane",
    )
