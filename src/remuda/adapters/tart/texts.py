"""
What Tart says, read: its JSON, its errors, its progress, its log. Pure.

Versions differ in which fields they show and whether a size is a number or a text. Only what is needed is looked at,
and what is needed and not there is an error, never a guess.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from remuda.adapters.commands import last_words
from remuda.ports.vms import (
    HostUnfit,
    NoSlot,
    NoSpace,
    NotThere,
    Refused,
    StillRunning,
    VmsError,
)

USAGE: Final = 64
_SAID_MAX_CHARS: Final = 600
_GB: Final = 1_000_000_000
_CRASH: Final = re.compile(rb"guest has stopped the virtual machine due to error: ?([^\r\n]*)")
_PERCENT: Final = re.compile(rb"(?<![\d.])(\d{1,3})(?:\.\d+)?\s*%")
_DF: Final = re.compile(r"\s(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s+\d{1,3}%")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

_KINDS: Final[tuple[tuple[re.Pattern[str], type[VmsError]], ...]] = tuple(
    (re.compile(words, re.IGNORECASE), kind)
    for words, kind in (
        (r"no space left|ENOSPC|disk (is )?full|out of (disk )?space", NoSpace),
        (r"(not|isn.t) enough (free |disk )?space", NoSpace),
        (r"exceeds the system limit", NoSlot),
        (r"is already running|VM \"[^\"]*\" is running", StillRunning),
        (r"the specified VM \"[^\"]*\" does not exist", NotThere),
        (r"code: 404|MANIFEST_UNKNOWN|NAME_UNKNOWN|failed to parse remote name", Refused),
        (r"should have \d+ .* at minimum|tart\.disk\.v1", Refused),
        (r"HostKey|VZErrorDomain.{0,20}-9\b|softnet.*(setuid|passwordless)", HostUnfit),
    )
)
"""By its words, whatever the verb; the first that fits. Their order matters where one text holds two."""

_FIXES: Final[dict[type[VmsError], str]] = {
    NoSpace: "Make room on the host's disk",
    NoSlot: "Wait until a VM of this host has ended",
    StillRunning: "Stop it first, if it may be stopped",
    NotThere: "Begin from the start",
    Refused: "Check the image and the size that the Pod asks for",
    HostUnfit: "See that a user is logged in at the host's screen and that tart can start a VM by hand",
}


def checked_name(name: str) -> str:
    """Return a name that cannot be taken for an option, a path or an image. Raises Refused."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise Refused(
            f"Nothing was done to {name[:200]!r}",
            why="that is no name of a VM",
            fix="Use letters, digits, dots and dashes, beginning with a letter or a digit",
        )
    return name


def error_of(what: str, code: int, said: bytes) -> VmsError:
    """Return what a call that failed means."""
    text = last_words(said, _SAID_MAX_CHARS)
    kind = next((kind for words, kind in _KINDS if words.search(text)), VmsError)
    if kind is VmsError and code == USAGE:
        kind = Refused
    why = text or (f"signal {-code} ended tart" if code < 0 else f"tart ended with {code}")
    fix = _FIXES.get(kind, "It is tried again; try the same on the host by hand to see more")
    return kind(what, why=why.rstrip("."), fix=fix)


def is_not_running(code: int, said: bytes) -> bool:
    return code != 0 and b"is not running" in said


def is_half(said: bytes) -> bool:
    """Say whether a VM's folder is there and not all of its files."""
    return b"is missing some of its files" in said or b"nvram.bin" in said


# --- JSON -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of ``tart list``."""

    name: str
    is_local: bool
    running: bool
    size_bytes: int


def read_list(raw: bytes) -> tuple[Listed, ...]:
    """Read a listing. Raises VmsError if a part of it cannot be read: a shorter list would be a lie."""
    rows = _loaded("list", raw)
    if isinstance(rows, dict):  # a list with something around it
        rows = next((value for value in rows.values() if isinstance(value, list)), None)
    if not isinstance(rows, list):
        raise _unreadable("list", "it is no list")
    return tuple(map(_listed, rows))


def _listed(row: object) -> Listed:
    fields = _fields(row)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise _unreadable("list", "an entry has no name")
    source = fields.get("source")
    is_local = source.lower() == "local" if isinstance(source, str) else "/" not in name
    return Listed(name, is_local, _running(fields), _size_bytes(fields.get("size")))


def read_running(raw: bytes) -> bool:
    """Read from ``tart get`` whether the VM runs."""
    fields = _fields(_loaded("get", raw))
    if "running" not in fields and "state" not in fields:
        raise _unreadable("get", "it does not say whether the VM runs")
    return _running(fields)


def _running(fields: dict[str, Any]) -> bool:
    return fields.get("running") is True or str(fields.get("state", "")).lower() == "running"


def _fields(row: object) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise _unreadable("list or get", "an entry is no object")
    return {str(key).lower(): value for key, value in row.items()}


def _size_bytes(size: object) -> int:
    """Read gigabytes, as a number or a text. What cannot be read is 0: nothing is decided by it alone."""
    try:
        return max(0, int(float(str(size)) * _GB))
    except (ValueError, OverflowError):
        return 0


def _loaded(verb: str, raw: bytes) -> Any:  # noqa: ANN401 - JSON of any shape; each reader checks its own
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise _unreadable(verb, f"it is no JSON: {last_words(raw[:80])!r}") from None


def _unreadable(verb: str, why: str) -> VmsError:
    return VmsError(
        f"What tart {verb} says cannot be read",
        why=why,
        fix="Check that the version of tart on this host is one that Remuda knows",
    )


# --- other words ------------------------------------------------------------------------------------------------------


def percent(line: bytes) -> int | None:
    """Read how far a pull is; None: the line is about something else."""
    found = _PERCENT.findall(line)
    return min(100, int(found[-1])) if found else None


def used_share(df: str) -> float | None:
    """Read from ``df -k`` how full the disk is: by blocks, not by inodes; what is not available is used."""
    found = _DF.search(df)
    if found is None or int(found[1]) == 0:
        return None
    return min(1.0, max(0.0, 1.0 - int(found[3]) / int(found[1])))


def crash(log: bytes) -> str | None:
    """Return why the guest crashed, if its log says so: the exit code of a crash is 0, as of a halt."""
    found = _CRASH.search(log)
    return None if found is None else last_words(found[1], _SAID_MAX_CHARS)


def last_of(log: bytes) -> str:
    """Return the last words of a log, fit to be shown."""
    return last_words(log, _SAID_MAX_CHARS)
