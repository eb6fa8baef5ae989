"""What the scripted Mac remembers beside its files: one JSON text, which tests read and write as well."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = Path("/.mac/state.json")
USER, UID, STAFF = "m1", 501, 20
CALLER = [USER]
"""Who runs the program that is being answered."""


class Exit(Exception):
    """A program ends with this code, after saying this."""

    def __init__(self, code: int, said: str = "") -> None:
        super().__init__(said)
        self.code, self.said = code, said


def fail(code: int, said: str) -> NoReturn:
    raise Exit(code, said)


def is_root() -> bool:
    return CALLER[0] == "root"


def read() -> dict[str, Any]:
    """Return the state, to be looked at only."""
    found: dict[str, Any] = json.loads(STATE.read_text())
    return found


@contextlib.contextmanager
def changed() -> Iterator[dict[str, Any]]:
    """Change the state: all of it or, when the program fails, nothing."""
    before = STATE.read_text()
    state = json.loads(before)
    yield state
    after = json.dumps(state, sort_keys=True, indent=1)
    if after != before:
        new = STATE.with_suffix(".new")
        new.write_text(after)
        new.rename(STATE)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
