"""What the scripted Mac remembers beside its files: one JSON text, changed under a lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tests.support.scripted_mac.programs.ended import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = Path("/.mac/state.json")
LOCK = Path("/.mac/lock")
USER, UID = "m1", 501


def fail(code: int, said: str) -> NoReturn:
    raise Exit(code, said)


def read() -> dict[str, Any]:
    """Return the state, to be looked at only."""
    found: dict[str, Any] = json.loads(STATE.read_text())
    return found


@contextlib.contextmanager
def changed() -> Iterator[dict[str, Any]]:
    """Change the state: all of it or, when the program fails, nothing."""
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read()
        before = json.dumps(state, sort_keys=True)
        yield state
        after = json.dumps(state, sort_keys=True, indent=1)
        if json.dumps(state, sort_keys=True) != before:
            new = STATE.with_suffix(".new")
            new.write_text(after)
            new.rename(STATE)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
