"""The host's three names: a person at the screen, in a shell and in the network sees the Node's name."""

from __future__ import annotations

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

NAME: Final = "hostname"
_KINDS: Final = ("ComputerName", "HostName", "LocalHostName")


def _name(ran: Ran) -> str:
    shown = ran.stdout.decode(errors="replace").strip()
    if ran.code == 0:
        return shown
    if "not set" in shown or b"not set" in ran.stderr:
        return ""
    raise unreadable("its name (scutil)", said(ran))


_FACTS: Final = tuple(
    Fact(name=kind, command=Command(words=("scutil", "--get", kind)), parse=_name)
    for kind in _KINDS
)


@dataclass(frozen=True, slots=True)
class HostnamePart:
    name: str = NAME
    facts: tuple[Fact[object], ...] = field(default=_FACTS)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        """For the first boot only: the name is the host's own."""
        del config
        return None

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        steps: list[Step] = []
        for kind, fact in zip(_KINDS, _FACTS, strict=True):
            name, seen = _wanted_name(kind, wanted.own.node), facts.of(fact)
            if seen == name:
                continue
            steps.append(
                Step(
                    name=f"{NAME}-{kind}",
                    reason=f"{kind} is {repr(seen) if seen else 'not set'}, and the Node is called {name}",
                    diff=(*((f"- {kind} {seen}",) if seen else ()), f"+ {kind} {name}"),
                    apply=(Command(words=("scutil", "--set", kind, name), root=True),),
                    **proof(Probe(command=fact.command, judge=_judge(kind, name))),
                )
            )
        return tuple(steps)


def _wanted_name(kind: str, node: str) -> str:
    # Bonjour's name is one label of DNS.
    return node.replace(".", "-") if kind == "LocalHostName" else node


def _judge(kind: str, name: str) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        seen = _name(ran)
        return "" if seen == name else f"{kind} is {seen!r} and did not become {name!r}"

    return judged
