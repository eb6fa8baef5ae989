"""
What guests may reach, held by pf.

The rules are live in ``com.apple/remuda.runners``, which Apple's main rules call, so they work as soon as they are
loaded. The block in pf.conf has them loaded as ``remuda.runners`` as well, at boot, before anything of ours runs. An
anchor that is only appended to pf.conf would be called after the next boot and not before; and loading all of pf.conf
now would drop what macOS put in for the network of running VMs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide import pf, pf_conf
from remuda.hosts.decide.parts import pf_shared as shared
from remuda.hosts.decide.running import run_script
from remuda.hosts.decide.step import Harm, Probe, Problem, Step
from remuda.hosts.guards import ALL, Guards
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from remuda.hosts.decide.facts import Fact, Facts
    from remuda.hosts.decide.pf import Anchor
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "firewall"
JOB: Final = shared.daemon("dev.remuda.pf", pf.RUNNERS)
CONF: Final = shared.file_fact("pf-conf", pf_conf.PATH)
RULES_FILE: Final = shared.file_fact("pf-rules-file", f"{pf.ANCHORS_FOLDER}/{pf.RUNNERS}")
LIVE: Final = shared.rules_fact("pf-live", f"com.apple/{pf.RUNNERS}")
BOOTED: Final = shared.rules_fact("pf-booted", pf.RUNNERS)


@dataclass(frozen=True, slots=True)
class FirewallPart:
    """An anchor of pf, its block in pf.conf, and a job that keeps the rules live."""

    scripts: shared.PfScripts
    guards: Guards = ALL
    name: str = NAME
    facts: tuple[Fact[object], ...] = (
        CONF,
        RULES_FILE,
        LIVE,
        BOOTED,
        shared.MAIN,
        shared.ENABLED,
        shared.HELD,
        shared.SESSION,
        shared.HELPER_FILE,
        *shared.daemon_facts(JOB),
    )

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        anchor = pf.runners(config.guests_may_reach)
        return b"\0".join(
            (anchor.text.encode(), pf_conf.BLOCK.encode(), self.scripts.keep.encode(), JOB.plist())
        )

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        anchor = pf.runners(wanted.fleet.guests_may_reach)
        conf, session = facts.of(CONF), facts.of(shared.SESSION)
        if conf is None or not pf_conf.calls_apple(conf):
            return (_NO_APPLE,)
        if session is not None and session in pf.GUESTS_V4:
            return (OVERLAP,)
        return (
            *self._rules_file(facts, anchor),
            *self._conf(conf),
            *_main(facts),
            *self._live(facts, anchor),
            *shared.daemon_step(self.scripts, JOB, facts),
        )

    def _rules_file(self, facts: Facts, anchor: Anchor) -> tuple[Step, ...]:
        old = facts.of(RULES_FILE)
        if old == anchor.text:
            return ()
        return (
            Step(
                name="firewall-rules",
                reason=f"{anchor.file} is not there"
                if old is None
                else f"{anchor.file} has other rules",
                diff=shared.diff(anchor.file, old or "", anchor.text),
                apply=(shared.put_checked(self.scripts, anchor),),
                verify=(shared.same_file(anchor.file, anchor.text),),
            ),
        )

    def _conf(self, old: str) -> tuple[Step, ...]:
        new = pf_conf.with_block(old) if self.guards.strip_blocks else pf_conf.appended(old)
        if old == new:
            return ()
        return (
            Step(
                name="firewall-conf",
                reason=f"{pf_conf.PATH} has not exactly one block of ours, at its end: {pf_conf.history(old)}",
                diff=shared.diff(pf_conf.PATH, old, new),
                apply=(shared.put_conf(self.scripts, pf_conf.PATH, old, new),),
                verify=(shared.same_file(pf_conf.PATH, new),),
            ),
        )

    def _live(self, facts: Facts, anchor: Anchor) -> tuple[Step, ...]:
        attached = pf_conf.calls(pf.RUNNERS, facts.of(shared.MAIN))
        wrong = (
            *(("pf is off",) if not facts.of(shared.ENABLED) else ()),
            *(("pf is on for others only",) if not facts.of(shared.HELD) else ()),
            *(
                (f"{anchor.live} has other rules",)
                if pf.labels(facts.of(LIVE)) != anchor.labels
                else ()
            ),
            *(
                (f"{anchor.name} has other rules",)
                if attached and pf.labels(facts.of(BOOTED)) != anchor.labels
                else ()
            ),
        )
        if not wrong:
            return ()
        places = (anchor.live, *((anchor.name,) if attached else ()))
        return (
            Step(
                name="firewall-live",
                reason=f"guests are not held back as they should be: {', '.join(wrong)}",
                diff=tuple(f"+ pfctl -a {place} -f {anchor.file}" for place in places),
                apply=(run_script("pf", self.scripts.keep, anchor.name),),
                verify=(
                    *(shared.live(anchor, place) for place in places),
                    Probe(command=shared.ENABLED.command, judge=_judge_enabled),
                    Probe(command=shared.HELD.command, judge=_judge_held),
                    Probe(command=shared.MAIN.command, judge=_judge_main),
                ),
            ),
        )


def _main(facts: Facts) -> tuple[Step, ...]:
    """Load all of pf.conf where it once failed to load and the main rules are not Apple's: nothing else mends that."""
    if pf_conf.calls_apple(facts.of(shared.MAIN)):
        return ()
    return (
        Step(
            name="firewall-main",
            reason="the main rules of pf do not call Apple's anchors: neither NAT nor our rules work",
            diff=(f"+ pfctl -f {pf_conf.PATH}",),
            apply=(
                Command(words=("pfctl", "-nf", pf_conf.PATH), root=True),
                Command(words=("pfctl", "-f", pf_conf.PATH), root=True),
            ),
            verify=(Probe(command=shared.MAIN.command, judge=_judge_main),),
            harm=Harm.VMS,
        ),
    )


def _judge_enabled(ran: Ran) -> str:
    return "" if shared.ENABLED.parse(ran) else "pf is still off. Look at what `sudo pfctl -E` says"


def _judge_held(ran: Ran) -> str:
    if shared.HELD.parse(ran):
        return ""
    return "pf is on for others only, and stops with them. Look at what `sudo pfctl -s References` shows"


def _judge_main(ran: Ran) -> str:
    if pf_conf.calls_apple(shared.MAIN.parse(ran)):
        return ""
    return f'the main rules of pf do not call "com.apple/*". Look at what `sudo pfctl -nf {pf_conf.PATH}` says'


_NO_APPLE: Final = Problem(
    name=NAME,
    what="The firewall for guests cannot be set up",
    why=f"{pf_conf.PATH} is not there or has lost Apple's anchors, without which guests have no network",
    fix=f"Restore Apple's {pf_conf.PATH}, of a Mac with the same macOS, and try again",
)
OVERLAP: Final = Problem(
    name=NAME,
    what="The firewall for guests cannot be set up",
    why=f"this session comes from {pf.GUESTS_V4}, which is where macOS puts guests: the rules would lock us out",
    fix="Reach the host over another network, and never from one of its guests",
)
