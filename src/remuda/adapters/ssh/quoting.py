"""
A list of words as one line for the shell on the other side.

SSH carries a line, and the account's shell there reads it: zsh on a Mac, bash or another on older ones. Every word is
put between single quotes, also one that looks harmless: zsh reads ``=ls`` as the path of ``ls``, which the standard
library's ``shlex.quote`` leaves bare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from remuda.ports.host_shell import Command

LINE_BYTES_MAX: Final = 200_000
"""OpenSSH takes packets up to 256 KiB and hangs up over a longer one."""
PID_MARK: Final = b"remuda-pid "
"""Begins the line of stderr with the number of the process, so that it can be ended whoever it runs as."""


def quoted(word: str) -> str:
    """Return the word so that a shell reads back exactly it."""
    assert "\0" not in word, "a word of a command cannot hold a NUL"
    return "'" + word.replace("'", "'\\''") + "'"


def line_of(command: Command) -> bytes:
    """Return what the account's shell is given. The shell becomes the program: nothing is left between."""
    words = ("/usr/bin/sudo", "-n", "--", *command.words) if command.root else command.words
    assert not words[0].startswith("-"), "the first word is a program, not an option"
    marked = f"printf '{PID_MARK.decode()}%s\\n' \"$$\" >&2; exec "
    line = marked + " ".join(map(quoted, words))
    said = line.encode("utf-8", "surrogateescape")
    assert len(said) <= LINE_BYTES_MAX, "what is this long goes through stdin"
    return said


def without_pid(stderr: bytes) -> tuple[bytes, int | None]:
    """Take the line with the number of the process out of stderr. None: it was not said."""
    start = stderr.find(PID_MARK)
    end = stderr.find(b"\n", start)
    if start < 0 or end < 0 or not stderr[start + len(PID_MARK) : end].isdigit():
        return stderr, None
    number = int(stderr[start + len(PID_MARK) : end])
    return stderr[:start] + stderr[end + 1 :], number
