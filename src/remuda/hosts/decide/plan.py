"""
Decide what a host still needs: facts in, steps out.

While there is no passwordless sudo, only the part that makes it has a say: every fact that needs root is unseen, and a
plan made from what was not seen would change what is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.hosts.decide.facts import Fact, Facts, distinct
from remuda.hosts.decide.parts.sudo import PASSWORDLESS, SUDO
from remuda.hosts.decide.step import Harm, Part, Problem, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.hosts.decide.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is still to do on one host. Empty: it is as wanted."""

    steps: tuple[Step, ...] = ()
    problems: tuple[Problem, ...] = ()
    """What no step mends. Steps are carried out all the same: they make it no worse."""

    @property
    def empty(self) -> bool:
        return not self.steps and not self.problems

    @property
    def harm(self) -> Harm:
        """What carrying it out could do to VMs that run on the host."""
        return Harm.VMS if any(step.harm is Harm.VMS for step in self.steps) else Harm.NONE


def facts_needed(parts: Iterable[Part]) -> tuple[Fact[object], ...]:
    """Return every fact that a plan of these parts is made from, each once."""
    return distinct((PASSWORDLESS, *(fact for part in parts for fact in part.facts)))


def plan(facts: Facts, wanted: Wanted, parts: Iterable[Part]) -> Plan:
    """
    Return what the host still needs, in the order of the parts.

    Raises ``FactUnreadable``, and ``BadInput`` for what cannot be wanted.
    """
    rooted = facts.of(PASSWORDLESS)
    asked = tuple(part for part in parts if rooted or part.name == SUDO)
    if not asked:
        return Plan(problems=(_NO_ROOT,))
    said = tuple(each for part in asked for each in part.steps(facts, wanted))
    steps = tuple(each for each in said if isinstance(each, Step))
    names = [step.name for step in steps]
    assert len(names) == len(set(names)), f"two steps have one name: {names}"
    return Plan(steps=steps, problems=tuple(each for each in said if isinstance(each, Problem)))


_NO_ROOT = Problem(
    name=SUDO,
    what="Nothing can be changed on the host",
    why="sudo asks for a password again, though it did not when the host was set up",
    fix="Run `remuda host prepare` for it, with the account's password",
)
