"""
The login of the account at the screen, by itself, after every boot: VMs start only where somebody is logged in.

Nothing here may be taken on trust. A wrong password is accepted by every command, and then macOS seals the file and
never logs in again; so the step ends only when the session is there *and* the file was read back unsealed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide import kcpassword
from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import pid_of, unreadable
from remuda.hosts.decide.parts.sudo import check_user
from remuda.hosts.decide.running import run_script, said
from remuda.hosts.decide.step import Harm, Probe, Problem, Step, proof
from remuda.hosts.guards import ALL, Guards
from remuda.model.errors import Retry
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "auto-login"
SESSION_WITHIN_S: Final = 120.0
_ABSENT, _UNTRIED = 3, 4
_AQUA: Final = re.compile(r"^\s*session = Aqua$", re.MULTILINE)
_PREFERENCES: Final = "/Library/Preferences/com.apple.loginwindow"

# The whole answer is 100 KB of services; what is asked for stands at its head.
_SESSION: Final = 'launchctl print "gui/$(id -u)" 2>&1 | sed -n 1,12p'
# Its content is secret: it must reach nothing but ``_kcpassword``.
_READ: Final = (
    f"if [ -e {kcpassword.PATH}.remuda-untried ]; then exit {_UNTRIED}; fi; "
    f"if [ -e {kcpassword.PATH} ]; then exec cat {kcpassword.PATH}; else exit {_ABSENT}; fi"
)


def _session(ran: Ran) -> bool:
    return bool(_AQUA.search(ran.stdout.decode(errors="replace")))


def _kcpassword(ran: Ran) -> Secret | None:
    """Return what the file holds; nothing in it if macOS has not tried that yet."""
    if ran.code == _ABSENT:
        return None
    if ran.code == _UNTRIED:
        return Secret(b"")
    if ran.code != 0:
        raise unreadable(kcpassword.PATH, f"code {ran.code}")
    return Secret(ran.stdout)


def _user(ran: Ran) -> str:
    if ran.code == 0:
        return ran.stdout.decode(errors="replace").strip()
    if b"does not exist" in ran.stderr:
        return ""
    raise unreadable("the automatic login", said(ran))


def _running(ran: Ran) -> bool:
    return pid_of(ran.stdout.decode(errors="replace")) is not None


def _filevault(ran: Ran) -> bool:
    shown = ran.stdout.decode(errors="replace")
    if not shown.startswith("FileVault is "):
        raise unreadable("FileVault", said(ran))
    return not shown.startswith("FileVault is Off")


SESSION: Final = Fact(
    name="session", command=run_script("session", _SESSION, root=False), parse=_session
)
KCPASSWORD: Final = Fact(
    name="kcpassword", command=run_script("kcpassword", _READ), parse=_kcpassword
)
LOGIN_USER: Final = Fact(
    name="auto-login-user",
    command=Command(words=("defaults", "read", _PREFERENCES, "autoLoginUser")),
    parse=_user,
)
LOGINWINDOW: Final = Fact(
    name="loginwindow",
    command=Command(words=("launchctl", "print", "system/com.apple.loginwindow")),
    parse=_running,
)
FILEVAULT: Final = Fact(
    name="filevault", command=Command(words=("fdesetup", "status")), parse=_filevault
)


@dataclass(frozen=True, slots=True)
class AutoLoginPart:
    """Apple's file, the preference that names the account, and a login window that has read both."""

    script: str
    seen_script: str
    guards: Guards = ALL
    name: str = NAME
    facts: tuple[Fact[object], ...] = field(
        default=(SESSION, KCPASSWORD, LOGIN_USER, LOGINWINDOW, FILEVAULT)
    )

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        """For the first boot only: it ends the session that VMs live in."""
        del config
        return None

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        if facts.of(FILEVAULT):
            return (_FILEVAULT_ON,)
        user, password = check_user(wanted.own.user), wanted.own.password
        if password is None or not password:
            wrong = _wrong(facts, user, None, self.guards)
            return (_no_password(wrong),) if wrong else ()
        wrong = _wrong(facts, user, password, self.guards)
        return (self._step(user, password, wrong),) if wrong else ()

    def _step(self, user: str, password: Secret, wrong: str) -> Step:
        content = kcpassword.encode(password)
        step = Step(
            name=NAME,
            reason=wrong,
            diff=(
                f"  {kcpassword.PATH}: the password of {user} (hidden), 0600",
                f"+ {_PREFERENCES} autoLoginUser = {user}",
                "  the login window starts anew: whoever is logged in at the screen is logged out",
            ),
            apply=(
                run_script(
                    NAME, self.script, user, kcpassword.PATH, stdin=content, timeout_s=240.0
                ),
            ),
            **proof(
                Probe(
                    command=run_script("auto-login-seen", self.seen_script, user, kcpassword.PATH),
                    judge=_judge(user, password),
                    within_s=SESSION_WITHIN_S,
                    hopeless=_sealed,
                )
            ),
            harm=Harm.VMS,
            retry=Retry.NEVER,
        )
        return step if self.guards.read_back else replace(step, check=None, verify=())


def _wrong(facts: Facts, user: str, password: Secret | None, guards: Guards) -> str:
    """Say what keeps the account from being logged in after every boot; "" if nothing does."""
    content, named = facts.of(KCPASSWORD), facts.of(LOGIN_USER)
    if content is None:
        return f"there is no {kcpassword.PATH}, so nobody is logged in after a boot"
    if guards.read_back and (taken := _not_taken(content, password)):
        return taken
    if named != user:
        return f"the automatic login is {f'for {named}' if named else 'off'}, not for {user}"
    return "" if facts.of(SESSION) or not guards.read_back else _nobody(facts, user)


def _not_taken(content: Secret, password: Secret | None) -> str:
    """Say what macOS made of the password, if it did not log in by it; "" if it did."""
    if not content:
        return f"the password in {kcpassword.PATH} was not tried by macOS yet: whoever wrote it was stopped before"
    if kcpassword.is_sealed(content):
        return f"macOS has sealed {kcpassword.PATH}: the password in it was wrong, and nobody is logged in any more"
    if password is not None and kcpassword.decode(content) != password:
        return f"{kcpassword.PATH} holds another password than the account's"
    return ""


def _nobody(facts: Facts, user: str) -> str:
    if not facts.of(LOGINWINDOW):
        return "the login window does not run, so nobody is logged in at the screen"
    return f"{user} is not logged in at the screen"


def _parted(ran: Ran) -> tuple[bytes, bytes, bytes]:
    """Return the lines about the session and the account, and what the file holds."""
    session, _, rest = ran.stdout.partition(b"\n")
    named, _, content = rest.partition(b"\n")
    return session, named, content


def _sealed(ran: Ran) -> bool:
    """Say whether macOS has refused the password: it does not try it again, however long anybody waits."""
    return ran.code == 0 and kcpassword.is_sealed(Secret(_parted(ran)[2]))


def _judge(user: str, password: Secret) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        if ran.code != 0:
            return f"the session could not be looked at ({said_safely(ran)})"
        session, named, content = _parted(ran)
        wrong = _judge_file(Secret(content), password)
        if wrong:
            return wrong
        if named != f"user {user}".encode():
            return f"the automatic login is not for {user}. Look for a management profile that forbids it"
        if session == b"session untried":
            return (
                "macOS has not tried the password yet: the session from before is still there. Look at the screen (by"
                " VNC), log out whoever is there, and run it again"
            )
        if session != b"session Aqua":
            return (
                "the account is still not logged in at the screen. Look at the screen (by VNC): a dialogue of the setup"
                " may be waiting there. Then run it again"
            )
        return ""

    return judged


def _judge_file(content: Secret, password: Secret) -> str:
    if not content:
        return f"{kcpassword.PATH} is gone again. Look for a management profile that forbids automatic login"
    if kcpassword.is_sealed(content):
        return (
            f"macOS has sealed {kcpassword.PATH}: the password is wrong, and no VM will ever start on this host."
            " Find the right password, then run `remuda host prepare` with it"
        )
    if kcpassword.decode(content) != password:
        return f"somebody else wrote {kcpassword.PATH} at the same moment. Run it again"
    return ""


def said_safely(ran: Ran) -> str:
    """Return how a command failed, without what it printed: that may be secret."""
    shown = " ".join(ran.stderr.decode(errors="replace").split())[:200]
    return f"code {ran.code}: {shown}" if shown else f"code {ran.code}"


def _no_password(wrong: str) -> Problem:
    return Problem(
        name=NAME,
        what="No VM can start on the host",
        why=f"{wrong}, and without the account's password that cannot be mended",
        fix="Give the account's password (passwordSecretRef of the Host), or run `remuda host prepare`, which asks for"
        " it",
    )


_FILEVAULT_ON: Final = Problem(
    name=NAME,
    what="No VM can start on the host after a boot",
    why="FileVault is on, and with it macOS logs nobody in by itself",
    fix="Switch it off on the host with `sudo fdesetup disable`, then run this again",
)
