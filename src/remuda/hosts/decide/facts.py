"""
What is known of a host: each fact is one command and the parser of what it says.

A fact has no opinion. What it cannot read is an error of its own, told from "it is not there": a plan made from a
misread host would change what was right. A fact that needs root says ``Unseen`` while there is no root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from remuda.ports.host_shell import Command, Ran

T_co = TypeVar("T_co", covariant=True)


class FactUnreadable(RemudaError):
    """The host answered, and the answer has no meaning to us. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Generic[T_co]):
    """One question, with the parser of its answer."""

    name: str
    command: Command
    parse: Callable[[Ran], T_co]
    """Raises ``FactUnreadable`` for what cannot be read."""


class Facts:
    """The answers of one look at a host."""

    def __init__(self, answers: Mapping[str, Ran]) -> None:
        self._answers: Final = dict(answers)

    def of(self, fact: Fact[T_co]) -> T_co:
        """Return what the fact's answer means."""
        return fact.parse(self._answers[fact.name])


def distinct(facts: Iterable[Fact[object]]) -> tuple[Fact[object], ...]:
    """Return each fact once, in the order of their names."""
    by_name: dict[str, Fact[object]] = {}
    for fact in facts:
        known = by_name.setdefault(fact.name, fact)
        assert known.command == fact.command, f"two facts are called {fact.name}"
    return tuple(by_name[name] for name in sorted(by_name))
