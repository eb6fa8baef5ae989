"""
The words in which a plan is said: parts, steps, and what each step checks, does and verifies.

A host converges to one described state from any history. A *part* is one worry of that state (automatic login, the
firewall, the agent). From the facts it makes the steps that are still needed; none if there are none. First boot and
drift use the same list of parts: a part whose wanted state is in the hash is a part that drift applies, because both
ask ``Part.fleet_state``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypedDict

from remuda.model.errors import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.facts import Fact, Facts
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Command, Ran


class Harm(StrEnum):
    """What a step could do to VMs that run on the host."""

    NONE = "none"
    VMS = "vms"
    """It ends the session or the process that VMs live in: the host is drained first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question to the host, and its judgement: ``judge`` says "" if all is well, else what is wrong, and the fix."""

    command: Command
    judge: Callable[[Ran], str]
    within_s: float = 0.0
    """How long the answer may take to become good: asked again until then. 0: it is asked once."""
    hopeless: Callable[[Ran], bool] | None = None
    """Says of an answer that it will never become good. None: nobody can say that of any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    One change of a host.

    It is run as: check (the world may have moved since the facts: if it is so already, nothing is done), apply, verify.
    Each command of ``apply`` may be killed at any moment; running the whole step again must then converge.
    """

    name: str
    """In small words, unique within a plan: ``auto-login``."""
    reason: str
    """Why it is needed now: a sentence about what was seen."""
    diff: tuple[str, ...] = ()
    """What a dry run shows: lines that begin with ``+``, ``-`` or a blank. Never a secret."""
    check: Probe | None = None
    """Says "" if nothing needs to be done after all. None: what verifies it says so before it too."""
    apply: tuple[Command, ...] = ()
    verify: tuple[Probe, ...] = ()
    """Each must say "". A failure ends the run: what comes after a step relies on it."""
    harm: Harm = Harm.NONE
    explain: Callable[[Ran], str] | None = None
    """
    What it means that a command of ``apply`` failed: what is wrong, and the fix. "": nothing is known.

    Without it, what the command said on stderr is shown.
    """
    retry: Retry = Retry.SOON
    """Whether trying a failed step again by itself can help. A wrong password tried again locks the account."""

    @property
    def checks(self) -> tuple[Probe, ...]:
        """What is asked before it. If all say "", it is left out."""
        return self.verify if self.check is None else (self.check,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a part sees wrong and no step of it can mend: only a person or a new configuration can."""

    name: str
    """In small words, as a step's."""
    what: str
    why: str
    fix: str


class Proof(TypedDict):
    """The fields of a step that ``proof`` makes."""

    check: Probe
    verify: tuple[Probe, ...]


def proof(probe: Probe) -> Proof:
    """
    Ask the same before a step and after it: what proves that it is done also says whether it needs to be done.

    It must see everything for which the step is made, or a step that is needed would be left out.
    """
    return Proof(check=probe, verify=(probe,))


class Part(Protocol):
    """One worry of a host's state."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> tuple[Fact[object], ...]:
        """What it must know. Two parts may ask for the same fact: it is gathered once."""
        ...

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        """
        Return what of the configuration this part makes of a host, rendered, for the hash. No host's own data is in it.

        None: the part is for the first boot only, is in no hash, and drift leaves it alone.
        """
        ...

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        """
        Return what is still to do, in order, and what is wrong without a remedy. Nothing, when the host is as wanted.

        Raises ``FactUnreadable``, and ``BadInput`` for what cannot be wanted.
        """
        ...
