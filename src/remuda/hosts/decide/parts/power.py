"""No sleep, no lock and no logout by themselves: each of them ends the session that VMs live in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import unreadable
from remuda.hosts.decide.running import said
from remuda.hosts.decide.step import Probe, Problem, Step, proof
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "power"
_TIMERS: Final = ("disksleep", "displaysleep", "sleep")
_LINE: Final = re.compile(r"^ ?(disksleep|displaysleep|sleep)\s+([0-9]+)\b", re.MULTILINE)


def _timers(ran: Ran) -> dict[str, int]:
    """Read ``pmset -g custom``: of several sources of power, the shortest time counts that is not never."""
    shown = ran.stdout.decode(errors="replace")
    found: dict[str, int] = {}
    for name, minutes in _LINE.findall(shown):
        found[name] = max(found.get(name, 0), int(minutes))
    if ran.code != 0 or "sleep" not in found:
        raise unreadable("its sleep (pmset)", said(ran))
    return found


def _number(what: str) -> Callable[[Ran], int | None]:
    def parsed(ran: Ran) -> int | None:
        if ran.code != 0 and b"does not exist" in ran.stderr:
            return None
        try:
            return int(ran.stdout)
        except ValueError:
            raise unreadable(what, said(ran)) from None

    return parsed


TIMERS: Final = Fact(name="sleep", command=Command(words=("pmset", "-g", "custom")), parse=_timers)


@dataclass(frozen=True, slots=True)
class _Setting:
    """One preference that must be 0. One that is not set counts as what macOS does without it."""

    name: str
    domain: tuple[str, ...]
    key: str
    unset: int
    root: bool

    def fact(self) -> Fact[int | None]:
        words = ("defaults", *self.domain[:-1], "read", self.domain[-1], self.key)
        return Fact(
            name=self.name,
            command=Command(words=words, root=self.root),
            parse=_number(f"{self.domain[-1]} {self.key}"),
        )

    def write(self) -> Command:
        where = ("defaults", *self.domain[:-1], "write", self.domain[-1])
        return Command(words=(*where, self.key, "-int", "0"), root=self.root)


_SETTINGS: Final = (
    # Twenty minutes, if nobody chose: and a lock comes with the screen saver.
    _Setting(
        "screensaver-idle", ("-currentHost", "com.apple.screensaver"), "idleTime", 1200, root=False
    ),
    _Setting("screensaver-password", ("com.apple.screensaver",), "askForPassword", 1, root=False),
    _Setting(
        "login-screensaver",
        ("/Library/Preferences/com.apple.screensaver",),
        "loginWindowIdleTime",
        1200,
        root=True,
    ),
    _Setting(
        "auto-logout",
        ("/Library/Preferences/.GlobalPreferences",),
        "com.apple.autologout.AutoLogOutDelay",
        0,
        root=True,
    ),
)
_FACTS: Final = tuple(setting.fact() for setting in _SETTINGS)


@dataclass(frozen=True, slots=True)
class PowerPart:
    """Timers of ``pmset``, and preferences of the screen saver and of the automatic logout."""

    name: str = NAME
    facts: tuple[Fact[object], ...] = field(default=(TIMERS, *_FACTS))

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        del config
        return "\n".join((*_TIMERS, *(f"{s.domain} {s.key}" for s in _SETTINGS))).encode()

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        del wanted
        return (*_awake(facts.of(TIMERS)), *_unlocked(facts))


def _awake(timers: dict[str, int]) -> tuple[Step, ...]:
    late = [f"{name} {minutes}" for name, minutes in sorted(timers.items()) if minutes]
    if not late:
        return ()
    words = ("pmset", "-a", *(word for name in _TIMERS for word in (name, "0")))
    return (
        Step(
            name="no-sleep",
            reason=f"the host goes to sleep by itself ({', '.join(late)}, in minutes), and its VMs with it",
            diff=(*(f"- {each}" for each in late), *(f"+ {name} 0" for name in sorted(timers))),
            apply=(Command(words=words, root=True),),
            **proof(Probe(command=TIMERS.command, judge=_judge_timers)),
        ),
    )


def _judge_timers(ran: Ran) -> str:
    late = sorted(name for name, minutes in _timers(ran).items() if minutes)
    if not late:
        return ""
    return (
        f"{', '.join(late)} did not become 0. Look for a management profile that sets Energy Saver"
    )


def _unlocked(facts: Facts) -> tuple[Step, ...]:
    steps: list[Step] = []
    for setting, fact in zip(_SETTINGS, _FACTS, strict=True):
        seen = facts.of(fact)
        if (setting.unset if seen is None else seen) == 0:
            continue
        shown = f"{setting.domain[-1]} {setting.key}"
        steps.append(
            Step(
                name=setting.name,
                reason=f"{shown} is {'not set' if seen is None else seen}: the session would be locked or ended",
                diff=(*(() if seen is None else (f"- {shown} = {seen}",)), f"+ {shown} = 0"),
                apply=(setting.write(),),
                **proof(Probe(command=fact.command, judge=_judge_setting(setting))),
            )
        )
    return tuple(steps)


def _judge_setting(setting: _Setting) -> Callable[[Ran], str]:
    fact = setting.fact()

    def judged(ran: Ran) -> str:
        if fact.parse(ran) == 0:
            return ""
        return f"{setting.key} did not become 0. Look for a management profile that sets it"

    return judged
