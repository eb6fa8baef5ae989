"""QEMU's own line, as its keeper uses it: ask, and take note of what happened. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

LINE_MAX_BYTES: Final = 1024 * 1024


class QmpBroken(Exception):
    """QEMU says things that are none: its guest may have taken it over."""


@dataclass(slots=True)
class Qmp:
    """What was heard from QEMU, and what is still to be said to it."""

    running: bool = False
    """Whether its CPUs ran at any time."""
    paused: bool = False
    """Whether they wait for us, at the last look."""
    no_room: bool = False
    """Whether they were halted because the host's disk did not take what the guest wrote."""
    shutdown: str = ""
    """Why it ended, in QEMU's words; empty: it has not said so."""
    answers: dict[str, Any] = field(default_factory=dict)
    """By the question. ``{"error": …}`` where it said no."""
    to_say: bytearray = field(default_factory=bytearray)
    _raw: bytearray = field(default_factory=bytearray)

    def ask(self, command: str, **arguments: Any) -> None:  # noqa: ANN401 - JSON
        """Ask, once; the answer will be in ``answers``."""
        self.answers.pop(command, None)
        question = {"execute": command, "id": command}
        if arguments:
            question["arguments"] = arguments  # type: ignore[assignment] # JSON
        self.to_say += json.dumps(question).encode() + b"\n"

    def feed(self, raw: bytes) -> None:
        self._raw += raw
        while (end := self._raw.find(b"\n")) >= 0:
            line = bytes(self._raw[:end])
            del self._raw[: end + 1]
            self._heard(line)
        if len(self._raw) > LINE_MAX_BYTES:
            raise QmpBroken

    def _heard(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            raise QmpBroken from None
        if not isinstance(said, dict):
            raise QmpBroken
        if "QMP" in said:
            self.ask("qmp_capabilities")
            self.ask("query-status")
        elif said.get("event") == "SHUTDOWN":
            self.shutdown = str(said.get("data", {}).get("reason", "unknown"))
        elif said.get("event") == "BLOCK_IO_ERROR":
            self.no_room = self.no_room or said.get("data", {}).get("action") == "stop"
        elif isinstance(said.get("id"), str):
            self.answers[said["id"]] = said.get("return", {"error": said.get("error")})
            self._looked()

    def _looked(self) -> None:
        status = self.answers.get("query-status")
        if isinstance(status, dict):
            self.running = self.running or status.get("running") is True
            self.paused = status.get("status") == "paused"
