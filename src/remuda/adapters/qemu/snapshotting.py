"""
How a guest's state is saved: what QEMU is to be asked next, given what it answered. Pure.

A snapshot is taken of a guest that was never told who it is, and it goes with the golden's disk. So it must not have
written to its disk yet: the clones' overlays begin where the golden's disk ends, not where that guest was.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Step(StrEnum):
    """What to ask next; where QEMU has a command of that name, that."""

    HALT = "stop"
    LOOK_AT_DISK = "query-blockstats"
    SEND_FILE = "getfd"
    SAVE = "migrate"
    LOOK = "query-migrate"
    DONE = "done"
    FAILED = "failed"


_ORDER: Final = (Step.HALT, Step.LOOK_AT_DISK, Step.SEND_FILE, Step.SAVE, Step.LOOK)


class Snapshotting:
    """How far it is."""

    def __init__(self) -> None:
        self._asked: Step | None = None
        self.why = ""
        """Why it failed."""

    def step(self, answers: Mapping[str, Any]) -> Step | None:
        """Return what to ask now; None: wait for the answer. To be called again and again; each step comes once."""
        if self._asked in (Step.DONE, Step.FAILED):
            return None
        if self._asked is None:
            return self._ask(_ORDER[0])
        if self._asked.value not in answers:
            return None
        answer = answers[self._asked.value]
        self.why = _wrong(self._asked, answer)
        if self.why:
            return self._ask(Step.FAILED)
        if self._asked is Step.LOOK:
            return self._ask(Step.DONE if _status(answer) == "completed" else Step.LOOK)
        return self._ask(_ORDER[_ORDER.index(self._asked) + 1])

    def _ask(self, step: Step) -> Step:
        self._asked = step
        return step


def _wrong(step: Step, answer: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(answer, dict) and answer.get("error"):
        return f"QEMU refused to {step.value}"
    if step is Step.LOOK_AT_DISK and not _untouched(answer):
        return "the guest wrote to its disk before it knew who it was"
    if step is Step.LOOK and _status(answer) in ("failed", "cancelled"):
        return "its state could not be written"
    return ""


def _untouched(stats: Any) -> bool:  # noqa: ANN401 - JSON
    disks = stats if isinstance(stats, list) else []
    return all(disk.get("stats", {}).get("wr_operations") == 0 for disk in disks)


def _status(answer: Any) -> str:  # noqa: ANN401 - JSON
    return str(answer.get("status", "")) if isinstance(answer, dict) else ""
