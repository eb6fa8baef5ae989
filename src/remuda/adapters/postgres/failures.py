"""What can go wrong with an embedded PostgreSQL, and the sentence that its log stands for. Pure."""

from __future__ import annotations

import re

from remuda.model.errors import RemudaError, Retry

_LOG_LINES_SHOWN = 6


class EmbeddedError(RemudaError):
    """The embedded PostgreSQL is not running."""


class EmbeddedBusy(EmbeddedError):
    """Another process uses the directory. It may be gone later."""


class EmbeddedRefused(EmbeddedError):
    """The directory, the account or this machine cannot be used. Only a person can help."""

    retry = Retry.NEVER


class EmbeddedFailed(EmbeddedError):
    """PostgreSQL was started and did not come up, or ended by itself."""


# What the programs write (they run in the C locale) -> what is wrong, what to do, whether time may heal it.
_CAUSES: tuple[tuple[str, str, str, type[EmbeddedError]], ...] = (
    (
        r"No space left on device|Disk quota exceeded",
        "the disk is full",
        "Make room and start again; nothing that was committed is lost",
        EmbeddedFailed,
    ),
    (
        r"could not bind [^\n]*Address already in use|could not create any TCP/IP sockets",
        "the port is in use by another program",
        "Give another port, or none: the unix socket needs no port",
        EmbeddedFailed,
    ),
    (
        r'lock file "[^"]*" already exists',
        "another PostgreSQL runs in the directory",
        "Stop it first, or use another directory",
        EmbeddedBusy,
    ),
    (
        r"pre-existing shared memory block",
        "processes of an earlier PostgreSQL still run",
        "Wait until they have ended, or end them, and start again",
        EmbeddedBusy,
    ),
    (
        r"database files are incompatible with server",
        "the data was written by another version of PostgreSQL",
        "Use the version that wrote it, dump the database there and restore it here",
        EmbeddedRefused,
    ),
    (
        r"has wrong ownership|has invalid permissions|Permission denied",
        "a file or directory is not accessible to the account that PostgreSQL runs as",
        "Give the directory and all that is in it to that account (chown -R), with mode 0700",
        EmbeddedRefused,
    ),
    (
        r"could not locate a valid checkpoint record|invalid checkpoint record|PANIC:",
        "the data directory is damaged",
        "Restore it from a backup; keep the damaged one aside",
        EmbeddedRefused,
    ),
    (
        r"Cannot allocate memory|could not map anonymous shared memory|out of memory",
        "there is not enough memory",
        "Free some, or give the embedded PostgreSQL less",
        EmbeddedFailed,
    ),
)


def failure(what: str, log: str, *, log_path: str) -> EmbeddedError:
    """Return the error that a log's text stands for; an unknown one quotes the end of the log."""
    for pattern, why, fix, kind in _CAUSES:
        if re.search(pattern, log):
            return kind(what, why=f"{why} ({_last(log)})", fix=fix)
    return EmbeddedFailed(what, why=_last(log, _LOG_LINES_SHOWN), fix=f"Its log is {log_path}")


def _last(log: str, lines: int = 1) -> str:
    """Return the end of the log on one line, the loudest lines if there are any."""
    written = [line.strip() for line in log.splitlines() if line.strip()]
    loud = [line for line in written if re.search(r"\b(FATAL|PANIC|error):", line)]
    shown = loud[:lines] or written[-lines:]
    return " / ".join(shown).rstrip(".") or "it said nothing"
