"""
Faults on order, and a journal of what was asked and what booted.

A test writes ``faults.json``: a list, each for one verb, used once or as often as it says. The first that fits is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.support.tart.failures import TartError
from tests.support.tart.moments import now_s, pause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_SPACE = "Error: The operation couldn’t be completed. No space left on device"  # noqa: RUF001 - tart's own apostrophe
FOREVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong."""

    verb: str
    kind: str
    """hang, fail, no_space, slow, say; for run also crash, halt, deaf, no_lease; for pull and clone stall."""
    vm: str = ""
    """Only for this name; empty is any."""
    times: int = 1
    """How often; FOREVER has no end."""
    after: bool = False
    """Only when the verb has done its work."""
    text: str = ""
    code: int = 1
    seconds: float = 0.0
    stubborn: bool = False
    """A hang that asking does not end: only SIGKILL does."""
    with_child: bool = False
    """A hang whose child keeps stdout and stderr open, also when its parent is killed."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The folder through which a test and the program speak."""

    folder: Path

    def order(self, *faults: Fault) -> None:
        with self._locked() as path:
            _write(path, list(faults))

    def waiting(self) -> list[Fault]:
        """Return the faults that did not happen yet, or not often enough."""
        with self._locked() as path:
            return [fault for fault in _read(path) if fault.times != 0]

    def take(self, verb: str, vm: str, *kinds: str, after: bool = False) -> Fault | None:
        """Take the first fault that fits; one that is used up is gone."""
        with self._locked() as path:
            ordered = _read(path)
            for number, fault in enumerate(ordered):
                fits = fault.verb == verb and fault.kind in kinds and fault.after == after
                if fits and fault.vm in {"", vm} and fault.times != 0:
                    if fault.times > 0:
                        ordered[number] = replace(fault, times=fault.times - 1)
                        _write(path, ordered)
                    return fault
        return None

    def note(self, event: str, **facts: Any) -> None:  # noqa: ANN401 - whatever a test may ask for
        line = {"at": now_s(), "event": event, "pid": os.getpid(), **facts}
        raw = json.dumps(line).encode() + b"\n"
        file = os.open(self.folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, raw)  # one write: lines of several programs do not mix
        finally:
            os.close(file)

    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / "journal"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Path]:
        with (self.folder / "faults.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.folder / "faults.json"


def _read(path: Path) -> list[Fault]:
    return [Fault(**fault) for fault in json.loads(path.read_text())] if path.exists() else []


def _write(path: Path, faults: list[Fault]) -> None:
    # In one step: whoever writes may be killed at any moment, and the next one must still read.
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps([asdict(fault) for fault in faults]))
    fresh.replace(path)


def suffer(fault: Fault | None) -> None:
    """Do what the fault says, for those that any verb can have."""
    if fault is None:
        return
    match fault.kind:
        case "hang":
            _hang(fault)
        case "slow":
            pause(fault.seconds)
        case "say":
            sys.stdout.write(fault.text)
            raise TartError("", fault.code)
        case "no_space":
            raise TartError(fault.text or NO_SPACE)
        case _:
            raise TartError(fault.text or "it failed, as this test wants", fault.code)


GENERAL = ("hang", "slow", "say", "no_space", "fail")


def _hang(fault: Fault) -> None:
    if fault.with_child:
        # In our group, so that its end is the caller's to see to.
        os.posix_spawnp("sleep", ["sleep", "600"], os.environ)
    if fault.stubborn:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pause(3600)
