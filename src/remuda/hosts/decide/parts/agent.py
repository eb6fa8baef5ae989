"""
The agent: its program, its credential and its launchd job.

It is loaded so that a bad one is noticed and the last good one is put back: a host is never left without an agent.

Builders run it too, so that the fleet sees whether they live; but it offers no VMs, and it collects no garbage. That is
so twice over: ``--disable-vm-gc`` is there for builders and for nobody else, and with ``--vms=0`` no Pod is ever placed
there, so there is nothing that it could own and collect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.agent_job import (
    DATA,
    GC_OFF,
    KUBECONFIG,
    LABEL,
    LOG,
    MARK,
    PROGRAM,
    agent_job,
    any_host,
)
from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import arguments_of, unreadable
from remuda.hosts.decide.parts.sudo import check_user
from remuda.hosts.decide.running import run_script, said
from remuda.hosts.decide.step import Harm, Probe, Problem, Step, proof
from remuda.hosts.guards import ALL, Guards
from remuda.kube.host import Role
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "agent"
STABLE_S: Final = 20
"""Longer than launchd waits before it starts a job again: a crash loop shows another process within it."""
WAIT_S: Final = 90
LINES_MAX: Final = 3
LINE_MAX: Final = 300
_UPLOAD_S: Final = 900.0
_PLIST: Final = f"/Library/LaunchDaemons/{LABEL}.plist"
_SUMS: Final = ("program", "plist", "kubeconfig")


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """SHA-256 of the files now, and of those that were proven to run together."""

    now: Mapping[str, str]
    proven: Mapping[str, str]
    pid: int | None


def _seen(ran: Ran) -> AgentSeen:
    lines = dict(
        line.split(" ", 1)
        for line in ran.stdout.decode(errors="replace").splitlines()
        if " " in line
    )
    if ran.code != 0 or not {*_SUMS, "pid"} <= lines.keys():
        raise unreadable("the agent", said(ran))
    pid = lines["pid"]
    return AgentSeen(
        now={name: lines[name] for name in _SUMS},
        proven={k.removeprefix("proven-"): v for k, v in lines.items() if k.startswith("proven-")},
        pid=int(pid) if pid.isdigit() else None,
    )


PLIST: Final = Fact(
    name="agent-plist",
    command=Command(words=("cat", _PLIST)),
    parse=lambda ran: ran.stdout if ran.code == 0 else b"",
)


@dataclass(frozen=True, slots=True)
class AgentPart:
    """Three files and one job, changed together or not at all."""

    seen_script: str
    stage_script: str
    load_script: str
    put_script: str
    guards: Guards = ALL
    name: str = NAME
    seen: Fact[AgentSeen] = field(init=False)

    def __post_init__(self) -> None:
        command = run_script(
            "agent-seen", self.seen_script, LABEL, PROGRAM, _PLIST, KUBECONFIG, MARK
        )
        object.__setattr__(self, "seen", Fact(name=NAME, command=command, parse=_seen))

    @property
    def facts(self) -> tuple[Fact[object], ...]:
        return (self.seen, PLIST)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        """Both roles' jobs for a host that is nobody's, and the program: what of them is a host's own is the same."""
        jobs = (agent_job(config, any_host(role), self.guards).plist() for role in sorted(Role))
        return b"\0".join((config.agent.sha256.encode(), self.load_script.encode(), *jobs))

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        check_user(wanted.own.user)
        seen, before = facts.of(self.seen), facts.of(PLIST)
        after = agent_job(wanted.fleet, wanted.own, self.guards).plist()
        if wanted.own.kubeconfig is None and seen.now["kubeconfig"] == "absent":
            return (_NO_CREDENTIAL,)
        reasons = _reasons(seen, wanted, after)
        if not reasons:
            return ()
        return (
            Step(
                name=NAME,
                reason="; ".join(reasons),
                diff=_diff(seen, wanted, before, after),
                apply=self._apply(seen, wanted, after),
                **proof(Probe(command=self.seen.command, judge=_judge(wanted, after))),
                # VMs outlive the agent; but one that becomes a builder's lets go of them.
                harm=Harm.VMS if _turns(before, after) else Harm.NONE,
                explain=_explain,
            ),
        )

    def _apply(self, seen: AgentSeen, wanted: Wanted, plist: bytes) -> tuple[Command, ...]:
        agent, own = wanted.fleet.agent, wanted.own
        program, credential = _program_differs(seen, wanted), _credential_differs(seen, wanted)
        commands: list[Command] = []
        if credential and own.kubeconfig is not None:
            staged = f"{KUBECONFIG}.staged"
            commands.append(
                run_script(
                    "put-file", self.put_script, staged, "0600", own.user, stdin=own.kubeconfig
                )
            )
        if program:
            stage = (self.stage_script, PROGRAM, agent.sha256)
            commands.append(run_script("agent-stage", *stage, stdin=agent, timeout_s=_UPLOAD_S))
        args = (LABEL, PROGRAM, _PLIST, KUBECONFIG, MARK, own.user, LOG, DATA, agent.sha256)
        flags = ("new" if program else "keep", "new" if credential else "keep")
        # Twice: what is put back must stay up too. Each time launchd lets go of the old one within a minute, and every
        # look takes its time.
        load = run_script(
            "agent-load",
            self.load_script,
            *args,
            *flags,
            str(STABLE_S),
            str(WAIT_S),
            stdin=plist,
            timeout_s=2.0 * WAIT_S + 300.0,
        )
        return (*commands, load)


def _program_differs(seen: AgentSeen, wanted: Wanted) -> bool:
    arrived = seen.proven.get("arrived") == wanted.fleet.agent.sha256
    return not arrived or seen.proven.get("program") != seen.now["program"]


def _credential_differs(seen: AgentSeen, wanted: Wanted) -> bool:
    given = wanted.own.kubeconfig
    return given is not None and sha256(given.reveal()).hexdigest() != seen.now["kubeconfig"]


def _reasons(seen: AgentSeen, wanted: Wanted, plist: bytes) -> list[str]:
    reasons: list[str] = []
    if seen.now["program"] == "absent":
        reasons.append("there is no agent")
    elif _program_differs(seen, wanted):
        reasons.append("the agent's program is not the fleet's, or was never seen to stay up")
    if seen.now["plist"] != sha256(plist).hexdigest():
        reasons.append(
            "the agent's launchd job is not there"
            if seen.now["plist"] == "absent"
            else "the agent's options changed"
        )
    if _credential_differs(seen, wanted):
        absent = seen.now["kubeconfig"] == "absent"
        reasons.append(f"the agent's credential is {'not there' if absent else 'another'}")
    if not reasons and any(seen.proven.get(name) != seen.now[name] for name in _SUMS):
        reasons.append("the agent was changed and not loaded since, or did not stay up")
    if not reasons and seen.pid is None:
        reasons.append("the agent does not run")
    return reasons


def _judge(wanted: Wanted, plist: bytes) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        reasons = _reasons(_seen(ran), wanted, plist)
        return (
            f"after it was loaded, {'; '.join(reasons)}. Look at {LOG} on the host"
            if reasons
            else ""
        )

    return judged


def _explain(ran: Ran) -> str:
    """Say what became of the host, and how the agent's log ended: the beginning and the end of what was said."""
    what, logged, log = ran.stderr.decode(errors="replace").partition("What it logged last:\n")
    if not logged:
        return ""
    last = [line[:LINE_MAX] for line in log.splitlines() if line.strip()][-LINES_MAX:]
    return f"{' '.join(what.split())} It logged last: {' | '.join(last)}"


def _diff(seen: AgentSeen, wanted: Wanted, before: bytes, after: bytes) -> tuple[str, ...]:
    old, new = arguments_of(before), arguments_of(after)
    lines = [f"- {word}" for word in old if word not in new]
    lines += [f"+ {word}" for word in new if word not in old]
    if not lines and before != after:
        lines.append(f"  {_PLIST} changes")
    if _program_differs(seen, wanted):
        lines.append(f"+ {PROGRAM} {wanted.fleet.agent.sha256[:12]}")
    if _credential_differs(seen, wanted):
        lines.append(f"+ {KUBECONFIG} (hidden), 0600")
    return tuple(lines)


def _turns(before: bytes, after: bytes) -> bool:
    old = arguments_of(before)
    return bool(old) and (GC_OFF in old) != (GC_OFF in arguments_of(after))


_NO_CREDENTIAL: Final = Problem(
    name=NAME,
    what="The agent cannot be started",
    why=f"there is no {KUBECONFIG} on the host and none was given",
    fix="Give a kubeconfig for system:node: and the Node's name; the operator makes one for each Host",
)
