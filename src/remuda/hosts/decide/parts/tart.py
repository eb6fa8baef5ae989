"""Tart, from its own release archive. Put there at the first boot; drift leaves it alone, for the sake of VMs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.running import run_script, said
from remuda.hosts.decide.step import Harm, Probe, Problem, Step, proof
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "tart"
PROGRAM: Final = "/usr/local/bin/tart"
BUNDLE: Final = "/usr/local/lib/tart.app"
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\S*")
_UPLOAD_S: Final = 900.0


def _version(ran: Ran) -> str:
    """Return its version; "" if there is none that runs."""
    shown = ran.stdout.decode(errors="replace").strip()
    return shown if ran.code == 0 and _VERSION.fullmatch(shown) else ""


# By env: a program that is not there is code 127 with it, whoever runs the command.
TART: Final = Fact(
    name=NAME, command=Command(words=("/usr/bin/env", PROGRAM, "--version")), parse=_version
)


@dataclass(frozen=True, slots=True)
class TartPart:
    script: str
    name: str = NAME
    facts: tuple[Fact[object], ...] = field(default=(TART,))

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        """For the first boot only: replacing it under VMs would end them."""
        del config
        return None

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        version, archive, seen = wanted.fleet.tart_version, wanted.fleet.tart, facts.of(TART)
        if seen == version:
            return ()
        return (
            Step(
                name=NAME,
                reason=f"Tart {seen} is there and {version} is wanted"
                if seen
                else "there is no Tart that runs",
                diff=(
                    *((f"- {BUNDLE} {seen}",) if seen else ()),
                    f"+ {BUNDLE} {version}",
                    f"  {PROGRAM} (0755) runs it",
                ),
                apply=(
                    run_script(
                        NAME,
                        self.script,
                        version,
                        archive.sha256,
                        BUNDLE,
                        PROGRAM,
                        stdin=archive,
                        timeout_s=_UPLOAD_S,
                    ),
                ),
                **proof(Probe(command=TART.command, judge=_judge(version))),
                harm=Harm.VMS if seen else Harm.NONE,
            ),
        )


def _judge(version: str) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        return (
            ""
            if _version(ran) == version
            else f"`tart --version` does not say {version} ({said(ran)})"
        )

    return judged
