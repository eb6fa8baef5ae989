"""
Bounded logs. launchd keeps a job's log open, for appending, so it is emptied in place and never renamed.

Apple's own newsyslog renames: the job would go on writing to the renamed file, which grows without a bound, out of
sight. See ``files/log-bound.sh``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.daemons import LOGS, Daemon, DaemonScripts, DaemonSeen, daemon_fact
from remuda.hosts.decide.launchd import Job

if TYPE_CHECKING:
    from remuda.hosts.decide.facts import Fact, Facts
    from remuda.hosts.decide.step import Problem, Step
    from remuda.hosts.decide.wanted import FleetConfig, Wanted

NAME: Final = "log-bound"
PATH: Final = "/usr/local/bin/remuda-log-bound"
LABEL: Final = "dev.remuda.log-bound"


def job(bytes_max: int) -> Job:
    return Job(
        label=LABEL,
        program=("/bin/sh", PATH, LOGS, str(bytes_max)),
        keys=(("RunAtLoad", True), ("StartInterval", 60)),
    )


@dataclass(frozen=True, slots=True)
class LogsPart:
    """One small daemon."""

    text: str
    scripts: DaemonScripts
    name: str = NAME
    fact: Fact[DaemonSeen] = field(init=False)

    def __post_init__(self) -> None:
        seen = daemon_fact(LABEL, PATH, job(0).path, self.scripts.seen)
        object.__setattr__(self, "fact", seen)

    @property
    def facts(self) -> tuple[Fact[object], ...]:
        return (self.fact,)

    def _daemon(self, config: FleetConfig) -> Daemon:
        return Daemon(path=PATH, text=self.text, job=job(config.log_bytes_max))

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        return self._daemon(config).state

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        return self._daemon(wanted.fleet).steps(facts.of(self.fact), NAME, self.scripts)
