"""
Root without a password for the account that we log in with: everything else stands on it.

Sudo counts wrong passwords, and an account that is locked by us stays locked for ever, because we would try again. So
a password is tried only when there is one, once, and never by itself again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.passwords import check_password
from remuda.hosts.decide.running import said
from remuda.hosts.decide.step import Probe, Problem, Step, proof
from remuda.model.errors import BadInput, Retry
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

SUDO: Final = "sudo"
_USER: Final = re.compile(r"[a-z_][-a-z0-9_]{0,31}")
_WRONG: Final = re.compile(
    rb"incorrect password|no password was provided|Sorry, try again", re.IGNORECASE
)

# ``-n`` never asks, so it never counts as a wrong password.
_ASK: Final = Command(words=("sudo", "-n", "true"))

PASSWORDLESS: Final = Fact(name=SUDO, command=_ASK, parse=lambda ran: ran.code == 0)


@dataclass(frozen=True, slots=True)
class SudoPart:
    """A file of one line below ``/etc/sudoers.d``."""

    script: str
    name: str = SUDO
    facts: tuple[Fact[object], ...] = (PASSWORDLESS,)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        """For the first boot only: it needs the password, which is not at hand later."""
        del config
        return None

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        if facts.of(PASSWORDLESS):
            return ()
        user, password = check_user(wanted.own.user), wanted.own.password
        if password is None or not password:
            return (_NO_PASSWORD,)
        check_password(password)
        path, line = f"/etc/sudoers.d/{user}-nopasswd", f"{user} ALL=(ALL) NOPASSWD: ALL"
        words = ("sudo", "-S", "-p", "", "/bin/sh", "-c", self.script, "remuda-sudoers")
        # Sudo reads one line, byte by byte; the script behind it closes stdin before it does anything.
        line_in = Secret(password.reveal() + b"\n")
        return (
            Step(
                name=SUDO,
                reason="sudo asks for a password, and nothing else can be done without root",
                diff=(f"+ {path} (0440)", f"+   {line}"),
                apply=(Command(words=(*words, path, line), stdin=line_in),),
                **proof(Probe(command=_ASK, judge=_judge)),
                explain=_explain,
                retry=Retry.NEVER,
            ),
        )


def check_user(name: str) -> str:
    """Return an account's name that may be part of a path and of a line of sudoers. Raises ``BadInput``."""
    if not _USER.fullmatch(name):
        raise BadInput(
            f"The account {name!r} cannot be used",
            why="it becomes part of a file's name and of a line of sudoers: small letters, digits, - and _ only",
            fix="Give the short name of the account, as `id -un` shows it on the Mac",
        )
    return name


def _judge(ran: Ran) -> str:
    if ran.code == 0:
        return ""
    return f"sudo still asks for a password ({said(ran)}). Look at /etc/sudoers and /etc/sudoers.d"


def _explain(ran: Ran) -> str:
    if _WRONG.search(ran.stderr):
        return (
            "the account's password is wrong, or the account may not use sudo. It is not tried again, because that"
            " would lock the account. Give the right password: `remuda host prepare` asks for it"
        )
    return ""


_NO_PASSWORD: Final = Problem(
    name=SUDO,
    what="There is no way to become root on the host",
    why="sudo asks for a password and none is known. Guessing would lock the account, so nothing was tried",
    fix="Give the account's password (passwordSecretRef of the Host), or run `remuda host prepare`, which asks for it",
)
