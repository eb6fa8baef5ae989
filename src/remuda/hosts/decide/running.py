"""How the parts say commands: a script with its arguments, or a program by its path."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.ports.host_shell import Command, Stdin

if TYPE_CHECKING:
    from remuda.ports.host_shell import Ran

BUSY: Final = 75
"""The code of a change that was not begun, because another is under way: it can always be tried again."""
SAID_MAX: Final = 400
"""Of what a command said, how much is shown to a person."""


def run_script(
    name: str,
    text: str,
    *args: str,
    root: bool = True,
    stdin: Stdin = b"",
    timeout_s: float = 60.0,
) -> Command:
    """
    Return the command that runs a script's text with these arguments.

    The text goes as a word, so stdin is free for what must be in no word. ``remuda-NAME`` is what ``ps`` shows.
    """
    words = ("/bin/sh", "-c", text, f"remuda-{name}", *args)
    return Command(words=words, root=root, stdin=stdin, timeout_s=timeout_s)


def one_at_a_time(command: Command, text: str) -> Command:
    """Return the command that makes this change when no other of its kind, root's or the account's, is under way."""
    lock = "/var/run/remuda.lock" if command.root else ".remuda.lock"  # in the account's home
    return replace(
        command, words=("/bin/sh", "-c", text, "remuda-one-at-a-time", lock, *command.words)
    )


def said(ran: Ran) -> str:
    """Return what a command that failed said, short enough for a sentence."""
    text = (ran.stderr.strip() or ran.stdout.strip()).decode(errors="replace")
    shown = " ".join(text.split())
    if len(shown) > SAID_MAX:
        shown = "…" + shown[-SAID_MAX:]
    return f"code {ran.code}: {shown}" if shown else f"code {ran.code}"
