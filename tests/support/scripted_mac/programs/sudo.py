"""
Sudo as a Mac has it: it reads its own files, asks for a password on stdin, counts wrong ones and locks the account.

The shell that asks is root already. It is told either to run the command or to fail.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.scripted_mac.programs.model import UID, USER, Exit, changed, fail, say

FOLDER = Path("/etc/sudoers.d")
RULE = re.compile(r"(\S+)\s+ALL\s*=\s*\(ALL(?::\s*ALL)?\)\s*(NOPASSWD:\s*)?ALL")
LOCKED_AFTER = 5
TRIES = 3
BECOME = f"export HOME=/var/root USER=root LOGNAME=root SUDO_USER={USER} PATH=/usr/bin:/bin:/usr/sbin:/sbin"


def rules(path: Path) -> list[tuple[str, bool]]:
    """Return who may, and whether without a password. Raises for what is no rule."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        match = RULE.fullmatch(text)
        if not match:
            fail(1, f"{path}:{number}:1: syntax error")
        found.append((match[1], bool(match[2])))
    return found


def visudo(words: list[str]) -> int:
    """Check one file: ``visudo -cf FILE``."""
    if words[:1] != ["-cf"]:
        fail(1, "visudo: only -cf FILE is known here")
    path = Path(words[-1])
    if not path.is_file():
        fail(1, f"visudo: unable to open {path}: No such file or directory")
    rules(path)
    say(f"{path}: parsed OK")
    return 0


def passwordless() -> bool:
    """Whether the account may become root without a password. One bad file spoils all of them, as it does there."""
    granted = rules(Path("/etc/sudoers"))
    for path in sorted(FOLDER.iterdir()):
        if "." in path.name or path.name.endswith("~"):
            continue
        about = path.stat()
        if about.st_uid != 0 or about.st_mode & 0o022:
            fail(1, f"sudo: {path} is owned by uid {about.st_uid} or writable by others")
        granted += rules(path)
    return (USER, True) in granted


def judge(words: list[str]) -> str:
    """Return what the shell does with the words of sudo: the first is the number of who called it."""
    try:
        return _judged(int(words[0]), words[1:])
    except Exit as ended:
        return _fails(ended.said)


def _judged(caller: int, words: list[str]) -> str:
    flags, rest = [], list(words)
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        flags.append(flag)
        if flag == "--":
            break
        if flag in ("-p", "-u", "-g"):
            flags.append(rest.pop(0))
    run = f'{BECOME}; shift {len(flags) + 1}; exec "$@"'
    if caller == 0 or (caller == UID and passwordless()):
        return run
    if "-n" in flags:
        return _fails("sudo: a password is required")
    if "-S" not in flags:
        return _fails("sudo: a terminal is required to read the password")
    none = 'echo "sudo: no password was provided" >&2'
    return (
        f"for try in {' '.join(map(str, range(TRIES)))}; do "
        f'if ! IFS= read -r line; then {none}; exit 1; fi; ask root / sudo-password "$line"; eval "$answer"; '
        f'if [ "$right" = yes ]; then {run}; fi; echo "Sorry, try again." >&2; done; '
        f'echo "sudo: {TRIES} incorrect password attempts" >&2; exit 1'
    )


def judge_password(words: list[str]) -> str:
    """Return whether this is the account's password, and count it if it is not."""
    with changed() as state:
        locked = state["wrong_passwords"] >= LOCKED_AFTER
        right = not locked and words[0] == state["password"]
        state["wrong_passwords"] = 0 if right else state["wrong_passwords"] + 1
    return f"right={'yes' if right else 'no'}"


def _fails(said: str) -> str:
    return f"echo '{said}' >&2; exit 1"
