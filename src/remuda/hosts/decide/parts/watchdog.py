"""The host's own watch over SSH: a host that nobody can log in to is one that nobody can mend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.daemons import LOGS, Daemon, DaemonScripts, DaemonSeen, daemon_fact
from remuda.hosts.decide.launchd import Job

if TYPE_CHECKING:
    from remuda.hosts.decide.facts import Fact, Facts
    from remuda.hosts.decide.step import Problem, Step
    from remuda.hosts.decide.wanted import FleetConfig, Wanted

NAME: Final = "ssh-reachability"
PATH: Final = "/usr/local/bin/remuda-ssh-reachability"
LOG: Final = f"{LOGS}/ssh-reachability.log"
JOB: Final = Job(
    label="dev.remuda.ssh-reachability",
    program=("/bin/sh", PATH),
    keys=(("RunAtLoad", True), ("StartInterval", 60), ("StandardErrorPath", LOG)),
)


@dataclass(frozen=True, slots=True)
class WatchdogPart:
    """One small daemon."""

    text: str
    scripts: DaemonScripts
    name: str = NAME
    fact: Fact[DaemonSeen] = field(init=False)

    def __post_init__(self) -> None:
        seen = daemon_fact(JOB.label, PATH, JOB.path, self.scripts.seen)
        object.__setattr__(self, "fact", seen)

    @property
    def facts(self) -> tuple[Fact[object], ...]:
        return (self.fact,)

    @property
    def _daemon(self) -> Daemon:
        return Daemon(path=PATH, text=self.text, job=JOB)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        del config
        return self._daemon.state

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        del wanted
        return self._daemon.steps(facts.of(self.fact), NAME, self.scripts)
