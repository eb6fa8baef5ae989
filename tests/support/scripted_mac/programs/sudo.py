"""
Sudo as a Mac has it: it reads its own files, asks for a password on stdin, counts wrong ones and locks the account.

It runs as root already; the first word is the number of the account that called it.
"""

from __future__ import annotations

import os
import sys

from tests.support.scripted_mac.programs.ended import Exit

USER, UID = "m1", 501
FOLDER = "/etc/sudoers.d"
LOCKED_AFTER = 5
TRIES = 3


def rules(path: str) -> list[tuple[str, bool]]:
    """Return who may, and whether without a password. Raises for what is no rule."""
    found = []
    with open(path) as file:  # noqa: PTH123 - pathlib takes longer to load than all of this
        lines = file.read().split("\n")
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        who, _, rest = text.partition(" ")
        said = rest.replace(" ", "").replace("(ALL:ALL)", "(ALL)")
        if said not in ("ALL=(ALL)ALL", "ALL=(ALL)NOPASSWD:ALL"):
            raise Exit(1, f"{path}:{number}:1: syntax error")
        found.append((who, "NOPASSWD" in said))
    return found


def visudo(words: list[str]) -> int:
    """Check one file: ``visudo -cf FILE``."""
    if words[:1] not in (["-cf"], ["-c"]):
        raise Exit(1, "visudo: only -cf FILE is known here")
    path = words[-1]
    if not os.path.isfile(path):  # noqa: PTH113 - as above
        raise Exit(1, f"visudo: unable to open {path}: No such file or directory")
    rules(path)
    sys.stdout.write(f"{path}: parsed OK\n")
    return 0


def passwordless() -> bool:
    """Whether the account may become root without a password. One bad file spoils all of them, as it does there."""
    granted = rules("/etc/sudoers")
    for name in sorted(os.listdir(FOLDER)):  # noqa: PTH208 - as above
        if "." in name or name.endswith("~"):
            continue
        path = f"{FOLDER}/{name}"
        about = os.stat(path)  # noqa: PTH116 - as above
        if about.st_uid != 0 or about.st_mode & 0o022:
            raise Exit(1, f"sudo: {path} is owned by uid {about.st_uid} or writable by others")
        granted += rules(path)
    return (USER, True) in granted


def sudo(words: list[str]) -> int:
    """Run a command as root, if that is allowed."""
    caller, words = int(words[0]), words[1:]
    flags: list[str] = []
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag == "--":
            break
        flags.append(flag)
        if flag in ("-p", "-u", "-g"):
            flags.append(words.pop(0))
    if caller not in (0, UID):
        raise Exit(1, "sudo: you do not exist in the passwd database")
    if caller == UID and not passwordless():
        _ask(flags)
    if not words:
        return 0
    os.environ.update(
        HOME="/var/root", USER="root", LOGNAME="root", SUDO_USER=USER, SUDO_UID=str(UID)
    )
    os.environ["PATH"] = "/usr/bin:/bin:/usr/sbin:/sbin"
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)  # noqa: S606 - this is what sudo is for
    except OSError:
        raise Exit(1, f"sudo: {words[0]}: command not found") from None


def _ask(flags: list[str]) -> None:
    if "-n" in flags:
        raise Exit(1, "sudo: a password is required")
    if "-S" not in flags:
        raise Exit(1, "sudo: a terminal is required to read the password")
    wrong = 0
    for _ in range(TRIES):
        given = _line()
        if given is None:
            why = (
                f"sudo: {wrong} incorrect password attempt"
                if wrong
                else "sudo: no password was provided"
            )
            raise Exit(1, why)
        if _right(given):
            return
        wrong += 1
        sys.stderr.write("Sorry, try again.\n")
    raise Exit(1, f"sudo: {wrong} incorrect password attempts")


def _right(given: bytes) -> bool:
    from tests.support.scripted_mac.programs.model import (  # noqa: PLC0415 - as above
        changed,
    )

    with changed() as state:
        if state["wrong_passwords"] >= LOCKED_AFTER:
            return False
        right = given == state["password"].encode("latin-1")
        state["wrong_passwords"] = 0 if right else state["wrong_passwords"] + 1
    return bool(right)


def _line() -> bytes | None:
    """Read one line and not a byte more: what follows is for the command."""
    line = b""
    while byte := os.read(0, 1):
        if byte == b"\n":
            return line
        line += byte
    return line or None
