"""
Who may open SSH to a host: never a guest; if sources are configured, only they and the session that applies this.

New rules are tried before they are kept. They are live at once and taken back by the host itself, unless a later
command confirms them: whoever is locked out cannot confirm. They keep no state and pf is told to forget the session, so
the open connection is judged packet by packet as a new one would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide import pf
from remuda.hosts.decide.parts import pf_shared as shared
from remuda.hosts.decide.parts.firewall import OVERLAP
from remuda.hosts.decide.running import run_script
from remuda.hosts.decide.step import Problem, Step

if TYPE_CHECKING:
    from remuda.hosts.decide.facts import Fact, Facts
    from remuda.hosts.decide.pf import Address, Anchor
    from remuda.hosts.decide.wanted import FleetConfig, Wanted

NAME: Final = "ssh-guard"
JOB: Final = shared.daemon("dev.remuda.sshguard", pf.SSH_GUARD)
RULES_FILE: Final = shared.file_fact("ssh-guard-file", f"{pf.ANCHORS_FOLDER}/{pf.SSH_GUARD}")
LIVE: Final = shared.rules_fact("ssh-guard-live", f"com.apple/{pf.SSH_GUARD}")
TRIAL_S: Final = 120
"""How long rules are tried. Longer than any command takes over a bad line, shorter than a person's patience."""


@dataclass(frozen=True, slots=True)
class SshGuardPart:
    """An anchor of pf that is tried before it is kept, and a job that keeps it live."""

    scripts: shared.PfScripts
    arm: str
    confirm: str
    name: str = NAME
    facts: tuple[Fact[object], ...] = (
        RULES_FILE,
        LIVE,
        shared.SESSION,
        shared.HELPER_FILE,
        *shared.daemon_facts(JOB),
    )

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        anchor = pf.ssh_guard(config.ssh_from, None)
        return b"\0".join((anchor.text.encode(), self.scripts.keep.encode(), JOB.plist()))

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        sources, session = wanted.fleet.ssh_from, facts.of(shared.SESSION)
        if sources and (session is None or session.is_link_local):
            return (_NOWHERE,)
        if session is not None and session in pf.GUESTS_V4:
            return (_GUEST,)
        anchor = pf.ssh_guard(sources, session)
        return (
            *self._rules(facts, anchor, session),
            *shared.daemon_step(self.scripts, JOB, facts),
        )

    def _rules(self, facts: Facts, anchor: Anchor, session: Address | None) -> tuple[Step, ...]:
        old = facts.of(RULES_FILE)
        if old == anchor.text and pf.labels(facts.of(LIVE)) == anchor.labels:
            return ()
        source = "" if session is None or session.is_loopback else str(session)
        where = (anchor.file, anchor.live)
        return (
            Step(
                name=NAME,
                reason=(
                    f"{anchor.file} has other rules"
                    if old != anchor.text
                    else f"{anchor.live} is not live as it should be"
                ),
                diff=shared.diff(anchor.file, old or "", anchor.text)
                or (f"+ pfctl -a {anchor.live} -f {anchor.file}",),
                apply=(
                    run_script(
                        "ssh-guard-arm",
                        self.arm,
                        *(*where, str(TRIAL_S), source),
                        stdin=anchor.text.encode(),
                    ),
                    run_script("ssh-guard-confirm", self.confirm, *where),
                ),
                verify=(
                    shared.same_file(anchor.file, anchor.text),
                    shared.live(anchor, anchor.live),
                ),
            ),
        )


_NOWHERE: Final = Problem(
    name=NAME,
    what="SSH to the host cannot be limited",
    why="where this session comes from is unknown or a link-local address, so the limit could lock us out",
    fix="Connect over plain SSH to an address that is routed, or leave the configured sources of SSH empty",
)
_GUEST: Final = Problem(
    name=NAME, what="SSH to the host cannot be limited", why=OVERLAP.why, fix=OVERLAP.fix
)
