"""What is said of a Host in its status: a phase, conditions, and sentences that say what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from remuda.hosts.decide.lifecycle import Do, Phase
from remuda.hosts.status import (
    BOOTSTRAPPED,
    CONVERGED,
    DRAINING,
    MACHINE,
    READY,
    ROLL_HALTED,
    condition,
    with_condition,
)

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.hosts.decide.lifecycle import Decision
    from remuda.hosts.decide.roll import Roll
    from remuda.kube.host import Host, HostStatus

_NAMED_MAX: Final = 3
_FIXES: Final = {
    "Paused": "Remove the annotation when the work on it is done",
    "HostKeyChanged": "Find out whether the host was installed anew. If so, look up its key on its own screen"
    " (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and annotate the Host with"
    " remuda.dev/accept-host-key=SHA256:…",
    "BootstrapFailed": "Mend what it says; then annotate the Host with remuda.dev/retry=true, or wait half an hour",
    "UpdateFailed": "Mend what it says; then annotate the Host with remuda.dev/retry=true, or wait half an hour",
    "NeedsAPerson": "Mend what it says; then annotate the Host with remuda.dev/retry=true",
    "RenewalFailed": "Mend what it says; then annotate the Host with remuda.dev/retry=true",
    "NotHealthy": "Look at the agent's log on the host (/var/log/remuda/agent.log); then annotate the Host with"
    " remuda.dev/retry=true",
    "NodeNotReady": "Look at the agent's log on the host (/var/log/remuda/agent.log)",
}
"""What a person can do, by the reason. Where there is none, there is nothing to do but wait."""
_TRIES: Final = frozenset({Do.BOOTSTRAP, Do.UPDATE})
_TRIED: Final = frozenset(
    {"Retrying", "BootstrapFailed", "UpdateFailed", "NeedsAPerson", "RenewalFailed"}
)
_MACHINE_DEEDS: Final = frozenset({Do.ADOPT, Do.REBOOT, Do.RELEASE})
_FINE: Final = frozenset({"Taken", "Returned"})


@dataclass(frozen=True, slots=True)
class Telling:
    """What is said in one pass."""

    phase: Phase
    reason: str
    text: str
    pods: tuple[str, ...]
    """With a VM, if the host is being drained."""
    halted: str
    """Why the roll that this host waits for stands still; empty if it does not wait, or the roll goes on."""
    well: bool
    """It is as it should be: what failed before counts no more."""


def telling(decision: Decision, host: Host, pods: tuple[str, ...], fleet: Roll) -> Telling:
    """Return what to say of a Host that this was decided for."""
    text = f"{decision.why[0].upper()}{decision.why[1:]}."
    failed = condition(host.status, CONVERGED)
    tried = decision.do in _TRIES or decision.reason in _TRIED
    if tried and failed is not None and failed.status == "False":
        text = f"{text} {failed.message}"
    held = condition(host.status, MACHINE)
    if decision.do in _MACHINE_DEEDS and held is not None and held.reason not in _FINE:
        text = f"{text} {held.message}"
    if decision.do is Do.DRAIN and pods:
        named = ", ".join(pods[:_NAMED_MAX]) + (" …" if len(pods) > _NAMED_MAX else "")
        text = f"{text} Still there: {named}."
    if fix := _FIXES.get(decision.reason):
        text = f"{text} {fix}."
    waits = host.name in fleet.waiting and host.name not in fleet.granted
    return Telling(
        phase=decision.phase,
        reason=decision.reason,
        text=text,
        pods=pods if decision.do is Do.DRAIN else (),
        halted=fleet.halted if waits else "",
        well=decision.phase is Phase.READY and decision.reason == "Ready",
    )


def with_telling(status: HostStatus, said: Telling, now: datetime) -> HostStatus:
    """Return the status with what is said. What stays as it was is the same object."""
    if status.phase != said.phase.value:
        status = replace(status, phase=said.phase.value)
    if said.well and (status.failed_config_hash or status.rebooted):
        status = replace(status, failed_config_hash="", failed_at=None, attempts=0, rebooted=False)
    is_ready = "True" if said.phase is Phase.READY else "False"
    status = with_condition(status, READY, is_ready, said.reason, said.text, now)
    if condition(status, BOOTSTRAPPED) is None:
        text = "It has never been as it should be."
        status = with_condition(status, BOOTSTRAPPED, "False", "NotYet", text, now)
    status = _draining(status, said, now)
    if said.halted or condition(status, ROLL_HALTED) is not None:
        status = _halted(status, said, now)
    return status


def _draining(status: HostStatus, said: Telling, now: datetime) -> HostStatus:
    drains = said.reason == "Draining"
    if not drains and condition(status, DRAINING) is None:
        return status
    value, reason = ("True", "Draining") if drains else ("False", "NotDraining")
    text = said.text if drains else "It may take VMs, as far as the host operator goes."
    return with_condition(status, DRAINING, value, reason, text, now)


def _halted(status: HostStatus, said: Telling, now: datetime) -> HostStatus:
    if said.halted:
        text = (
            f"{said.halted[0].upper()}{said.halted[1:]}. This host keeps what it has. Mend the configuration, or look"
            f" at the hosts that failed and annotate them with remuda.dev/retry=true."
        )
        return with_condition(status, ROLL_HALTED, "True", "RollHalted", text, now)
    return with_condition(status, ROLL_HALTED, "False", "NotHalted", "No roll is halted.", now)
