"""
The scripted Mac's programs, served: each is a few lines of shell that ask here, because a Python per command is slow.

A request is a number and that many words, each ended by a NUL: who asks, where, the program, and its words. The answer
is a text for the shell that asked, ended by a NUL: what to print, and the code to exit with.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import socketserver
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, "/usr/libexec/mac")

from tests.support.scripted_mac.programs import (
    internet,
    launchd,
    model,
    packet_filter,
    small,
    sudo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "visudo": sudo.visudo,
    "launchctl": launchd.launchctl,
    "killall": launchd.killall,
    "pgrep": launchd.pgrep,
    "pfctl": packet_filter.pfctl,
    "curl": internet.curl,
    **small.PROGRAMS,
}
SHELL_SAYS: dict[str, Callable[[list[str]], str]] = {
    "sudo-judge": sudo.judge,
    "sudo-password": sudo.judge_password,
}
"""These answer with a text for the shell by themselves."""


def answer(words: list[str]) -> str:
    """Return what the shell that asked shall do."""
    model.CALLER[0], folder, name, words = words[0], words[1], words[2], words[3:]
    os.chdir(folder)
    if name in SHELL_SAYS:
        return SHELL_SAYS[name](words)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = PROGRAMS[name](words)
        except model.Exit as ended:
            code = ended.code
            err.write(ended.said + "\n")
    said = [
        f"printf %s {shlex.quote(text)}{to}"
        for text, to in ((out.getvalue(), ""), (err.getvalue(), " >&2"))
        if text
    ]
    return "; ".join([*said, f"exit {code}"])


class Asked(socketserver.StreamRequestHandler):
    """One program that runs."""

    def handle(self) -> None:
        count = int(self._word())
        words = [self._word() for _ in range(count)]
        try:
            said = answer(words)
        except Exception:  # noqa: BLE001 - a fault of ours is shown to the test, whatever it is
            said = f"printf %s {shlex.quote(traceback.format_exc())} >&2; exit 70"
        self.wfile.write(said.encode("latin-1", "replace") + b"\0")

    def _word(self) -> str:
        held = b""
        while (byte := self.rfile.read(1)) not in (b"\0", b""):
            held += byte
        return held.decode("latin-1")


def main() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Asked) as server:
        new = Path("/.mac/port.new")
        new.write_text(f"port={server.server_address[1]}\n")
        new.rename("/.mac/port")
        server.serve_forever()


if __name__ == "__main__":
    main()
