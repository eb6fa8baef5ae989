"""Jobs of launchd as property lists. Made by ``plistlib``, so no value needs escaping by us. See launchd.plist(5)."""

from __future__ import annotations

import plistlib
import re
from dataclasses import dataclass
from typing import Final
from xml.parsers.expat import ExpatError

from remuda.hosts.decide.facts import FactUnreadable

DAEMONS: Final = "/Library/LaunchDaemons"
_PID: Final = re.compile(r"^\s*pid = ([0-9]+)$", re.MULTILINE)

Value = bool | int | str | list[str] | dict[str, str] | dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of the system's launchd."""

    label: str
    program: tuple[str, ...]
    keys: tuple[tuple[str, Value], ...] = ()
    """Everything else, by launchd's own names."""

    @property
    def path(self) -> str:
        return f"{DAEMONS}/{self.label}.plist"

    def plist(self) -> bytes:
        """Return the file's bytes: always the same for the same job."""
        whole: dict[str, Value] = {"Label": self.label, "ProgramArguments": list(self.program)}
        whole.update(self.keys)
        return plistlib.dumps(whole, sort_keys=True)


def arguments_of(plist: bytes) -> tuple[str, ...]:
    """Return what a job's file runs, with its arguments; nothing if the file is none of launchd's."""
    try:
        whole = plistlib.loads(plist)
    except (plistlib.InvalidFileException, ValueError, OverflowError, ExpatError):
        return ()
    words = whole.get("ProgramArguments") if isinstance(whole, dict) else None
    if not isinstance(words, list):
        return ()
    return tuple(word for word in words if isinstance(word, str))


def pid_of(printed: str) -> int | None:
    """Return the process of a job as ``launchctl print`` shows it; None if it has none."""
    found = _PID.search(printed)
    return int(found[1]) if found else None


def unreadable(what: str, shown: str) -> FactUnreadable:
    """Say that a command answered what it never answers."""
    return FactUnreadable(
        f"What the host says of {what} cannot be read",
        why=f"it answered {shown[:200]!r}",
        fix="Nothing was changed. Look at the host: this is not a macOS that we know",
    )
