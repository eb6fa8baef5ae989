"""
Small daemons of ours: a script of one file, and a job of launchd that runs it.

The job is taken out of launchd before its files change and put back after: killed in between, it is seen as not loaded,
and the step is made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import unreadable
from remuda.hosts.decide.running import run_script, said
from remuda.hosts.decide.step import Probe, Step, proof

if TYPE_CHECKING:
    from remuda.hosts.decide.launchd import Job
    from remuda.ports.host_shell import Ran

LOGS: Final = "/var/log/remuda"
ROOT: Final = "0:0"
"""root:wheel, in numbers: they are the same everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonScripts:
    """What handles daemons on the host."""

    put: str
    seen: str
    unload: str
    load: str


@dataclass(frozen=True, slots=True)
class DaemonSeen:
    """SHA-256 of the files, or ``absent``."""

    program: str
    plist: str
    loaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One of them, as it should be."""

    path: str
    text: str
    job: Job

    @property
    def state(self) -> bytes:
        """What it makes of a host, for the hash."""
        return b"%s\0%s\0%s" % (self.path.encode(), self.text.encode(), self.job.plist())

    def wrong(self, seen: DaemonSeen) -> str:
        """Say what is not as it should be; "" if nothing."""
        if seen.program != sha256(self.text.encode()).hexdigest():
            return f"{self.path} is {'not there' if seen.program == 'absent' else 'not ours, or an older one'}"
        if seen.plist != sha256(self.job.plist()).hexdigest():
            return f"{self.job.path} is {'not there' if seen.plist == 'absent' else 'not ours, or an older one'}"
        return "" if seen.loaded else f"launchd does not have {self.job.label}"

    def steps(self, seen: DaemonSeen, name: str, scripts: DaemonScripts) -> tuple[Step, ...]:
        """Return what installs it; nothing if it is there."""
        wrong = self.wrong(seen)
        if not wrong:
            return ()
        label, plist = self.job.label, self.job.path
        return (
            Step(
                name=name,
                reason=wrong,
                diff=(f"+ {self.path} (0755)", f"+ {plist} (0644)", f"+ {label} is loaded"),
                apply=(
                    run_script("daemon-unload", scripts.unload, label),
                    run_script(
                        "put-file", scripts.put, self.path, "0755", ROOT, stdin=self.text.encode()
                    ),
                    run_script(
                        "put-file", scripts.put, plist, "0644", ROOT, stdin=self.job.plist()
                    ),
                    run_script("daemon-load", scripts.load, label, plist, LOGS),
                ),
                **proof(
                    Probe(
                        command=daemon_fact(label, self.path, plist, scripts.seen).command,
                        judge=lambda ran: self.wrong(daemon_seen(ran)),
                    )
                ),
            ),
        )


def daemon_fact(label: str, path: str, plist: str, text: str) -> Fact[DaemonSeen]:
    """Return the question what is there of a daemon."""
    command = run_script("daemon-seen", text, label, path, plist)
    return Fact(name=label, command=command, parse=daemon_seen)


def daemon_seen(ran: Ran) -> DaemonSeen:
    lines = dict(
        line.split(" ", 1)
        for line in ran.stdout.decode(errors="replace").splitlines()
        if " " in line
    )
    if ran.code != 0 or not {"program", "plist", "loaded"} <= lines.keys():
        raise unreadable("a daemon of ours", said(ran))
    return DaemonSeen(lines["program"], lines["plist"], lines["loaded"] == "yes")
