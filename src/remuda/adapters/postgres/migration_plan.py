"""Which migrations are to be run, or why none may be. Pure: files and rows in, steps or a fault out."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9]+(?:_[a-z0-9]+)*)\.sql")
_NO_TRANSACTION = "-- remuda: no transaction"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def in_transaction(self) -> bool:
        """Almost all are. CREATE INDEX CONCURRENTLY cannot be: its file says so in its first line."""
        return self.sql.split("\n", 1)[0].rstrip() != _NO_TRANSACTION

    @property
    def statements(self) -> tuple[str, ...]:
        """The file as it is sent: whole in a transaction, else statement by statement."""
        if self.in_transaction:
            return (self.sql,)
        pieces = re.split(r";[ \t]*(?:\n|$)", self.sql)
        return tuple(piece.strip() for piece in pieces if _without_comments(piece))

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """One row of ``schema_migrations``."""

    number: int
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no migration may be run."""

    why: str
    fix: str


def migrations_of(files: Mapping[str, str]) -> tuple[Migration, ...] | Fault:
    """Read file names and texts; every number from 1 on must be there exactly once."""
    found: list[Migration] = []
    for file_name, text in sorted(files.items()):
        matched = _FILE_NAME.fullmatch(file_name)
        if matched is None:
            return Fault(
                f"{file_name} is no name of a migration", "Name it like 0007_add_limits.sql"
            )
        found.append(Migration(int(matched[1]), matched[2], text.replace("\r\n", "\n")))
    for expected, migration in enumerate(found, 1):
        if migration.number != expected:
            return Fault(
                f"the migrations skip or repeat a number: {migration} where {expected:04} was expected",
                "Number the files from 0001 on, each number once",
            )
    return tuple(found)


def plan(
    applied: Iterable[Applied], available: Iterable[Migration]
) -> tuple[Migration, ...] | Fault:
    """Return what is to be run, in order; nothing if the database is up to date."""
    files = {migration.number: migration for migration in available}
    rows = sorted(applied, key=lambda row: row.number)
    newest = max(files, default=0)
    for expected, row in enumerate(rows, 1):
        if row.number > newest:
            return Fault(
                f"the database has migration {row.number:04}_{row.name}, this version ends at {newest:04}",
                "Use the version of Remuda that migrated it, or a newer one",
            )
        if row.number != expected:
            return Fault(
                f"the database lacks migration {files[expected]} but has {row.number:04}_{row.name}",
                "Restore the rows of schema_migrations, or the database, from a backup",
            )
        if row.sha256 != files[row.number].sha256:
            return Fault(
                f"migration {files[row.number]} is not what was run on this database (its checksum differs)",
                "Put the file back as it was released, and make the change in a new migration",
            )
    return tuple(files[number] for number in sorted(files) if number > len(rows))


def _without_comments(sql: str) -> str:
    return "\n".join(line for line in sql.splitlines() if not line.startswith("--")).strip()
