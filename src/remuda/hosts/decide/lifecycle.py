"""
What one Host needs next, decided from what is known of it. Pure: a look comes in, one thing to do goes out.

A ladder, top to bottom: deletion, pause, a machine to have, a host key to trust, a bootstrap, an update, and rest.
Nothing that could end a VM (an update that says so, a reboot, a release) is done before the host is empty: its Node
takes no Pod any more, and no Pod with a VM is left. However long that takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime


class Phase(StrEnum):
    """How far a Host is, in one word."""

    PENDING = "Pending"
    ADOPTING = "Adopting"
    BOOTSTRAPPING = "Bootstrapping"
    READY = "Ready"
    NOT_READY = "NotReady"
    DRAINING = "Draining"
    UPDATING = "Updating"
    FAILED = "Failed"
    RELEASING = "Releasing"


class Do(StrEnum):
    """The one thing to do now."""

    REST = "rest"
    ADOPT = "adopt"
    BOOTSTRAP = "bootstrap"
    UPDATE = "update"
    DRAIN = "drain"
    """See to it that the Node takes no new Pod, and wait."""
    UNDRAIN = "undrain"
    REBOOT = "reboot"
    GIVE_UP = "give-up"
    """Note that the configuration failed, although it was applied."""
    RELEASE = "release"
    FORGET = "forget"
    """Remove what was made for the Host, and let it go."""


HARMFUL: Final = frozenset({Do.REBOOT, Do.RELEASE, Do.FORGET})
"""What ends every VM of a host. A bootstrap and an update say themselves whether they would."""


AT_ONCE: Final = 1000
"""So many attempts are noted where a second one would do harm (a locked account): none until a person has looked."""


class NodeState(StrEnum):
    MISSING = "missing"
    NOT_READY = "not-ready"
    READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How patient we are."""

    reboot_after: int = 3
    """Failed bootstraps after which the host is rebooted, once. 0: never."""
    bootstraps_max: int = 8
    """Failed bootstraps after which a rented Mac goes back, and a static host is given up."""
    updates_max: int = 5
    """Failed updates after which a host is given up."""
    pause: timedelta = timedelta(seconds=60)
    """Between two attempts."""
    retry_after: timedelta = timedelta(minutes=30)
    """After which a host that was given up is tried once more."""
    node_missing: timedelta = timedelta(minutes=2)
    """How long a Node may be missing before the host is bootstrapped again."""
    stable: timedelta = timedelta(seconds=60)
    """
    How long a Node must have been Ready on a new configuration before that counts as good.

    Longer than the control plane takes to see that a Node is silent (its agent may be replaced without a drain, and
    until then the Node is Ready by what the old one said).
    """
    healthy_within: timedelta = timedelta(minutes=10)
    """How long after a new configuration that may take."""
    drain_settles: timedelta = timedelta(seconds=10)
    """After a cordon: what was being scheduled at that moment arrives within this."""
    look_again: timedelta = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a Host, its machine, its Node and its Pods."""

    phase: Phase = Phase.PENDING
    deleting: bool = False
    paused: bool = False
    rented: bool = False
    returnable: bool = True
    """A rented Mac whose pool is known."""
    has_machine: bool = True
    wanted_hash: str = "new"
    config_hash: str = ""
    converged_at: datetime | None = None
    failed_hash: str = ""
    failed_at: datetime | None = None
    attempts: int = 0
    rebooted: bool = False
    reached: bool = True
    """Whether anybody could log in to bring it the wanted configuration: what fails before is not that one's fault."""
    key_refused: bool = False
    """Another host key than the pinned one was shown: a person must say which one is right."""
    changed: bool = False
    """Its spec is another than the one that was found in place, or a person wants all of it looked at again."""
    identity_due: bool = False
    """The agent's credential must be replaced soon."""
    node: NodeState = NodeState.MISSING
    node_since: datetime | None = None
    """Since when it is so."""
    cordoned: bool = False
    cordoned_at: datetime | None = None
    """When we did that. None: we did not, and so it is not ours to undo."""
    vm_pods: int = 0
    """Pods with a VM on this host, asked for just now."""
    granted: bool = True
    """Whether the roll over the fleet lets this host change now."""
    held_back: str = ""
    """Why not, if not."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing to do, the phase that says so, and why."""

    do: Do
    phase: Phase
    reason: str
    """One CamelCase word, for conditions."""
    why: str
    """A sentence, without its full stop."""
    look_again: timedelta = timedelta(seconds=60)


def attempts(seen: Seen) -> int:
    """Return how often the wanted configuration failed: what an older one did counts no more."""
    return seen.attempts if seen.failed_hash == seen.wanted_hash else 0


def needs_a_person(seen: Seen) -> bool:
    """Say whether trying again makes it worse: no time heals that."""
    return attempts(seen) >= AT_ONCE


def is_given_up(seen: Seen, limits: Limits) -> bool:
    most = limits.updates_max if seen.config_hash else limits.bootstraps_max
    return attempts(seen) >= most


def is_healthy(seen: Seen, limits: Limits, now: datetime) -> bool:
    """Say whether the Node has been Ready for long enough, counted from the last change."""
    if seen.node is not NodeState.READY or seen.node_since is None:
        return False
    since = max(seen.node_since, seen.converged_at or seen.node_since)
    return now - since >= limits.stable


def is_empty(seen: Seen, limits: Limits, now: datetime) -> bool:
    """Say whether no VM is on the host and none can come."""
    if seen.vm_pods:
        return False
    if seen.node is NodeState.MISSING:
        return True
    settled = seen.cordoned_at is None or now - seen.cordoned_at >= limits.drain_settles
    return seen.cordoned and settled


def decide(seen: Seen, limits: Limits, now: datetime) -> Decision:
    """Return what this Host needs next."""
    for rung in (_left_alone, _machine, _configuration):
        if (decision := rung(seen, limits, now)) is not None:
            return decision
    return _rest(seen, limits, now)


def _left_alone(seen: Seen, limits: Limits, now: datetime) -> Decision | None:
    if seen.deleting:
        return _leave(seen, limits, now)
    if seen.paused:
        why = "the annotation remuda.dev/paused is set: nothing is done to this host"
        return Decision(Do.REST, seen.phase, "Paused", why, limits.look_again)
    return None


def _machine(seen: Seen, limits: Limits, now: datetime) -> Decision | None:
    """See to it that there is a machine, and that it is the right one."""
    if not seen.has_machine:
        return Decision(Do.ADOPT, Phase.ADOPTING, "Adopting", "it has no Mac yet")
    if seen.phase is Phase.RELEASING and seen.rented and seen.returnable:
        return _when_empty(seen, limits, now, _release("Releasing", "its Mac is being returned"))
    if seen.key_refused:
        why = (
            "another SSH host key was shown than the one that is pinned, and nothing is sent to it"
        )
        return Decision(Do.REST, Phase.FAILED, "HostKeyChanged", why, limits.look_again)
    return None


def _configuration(seen: Seen, limits: Limits, now: datetime) -> Decision | None:
    """See to it that the machine is as wanted."""
    if not seen.config_hash:
        return _bootstrap(seen, limits, now, "it was never bootstrapped")
    if node_is_gone(seen, limits, now) and not seen.changed:
        return _bootstrap(seen, limits, now, "its Node is gone")
    if seen.changed:
        # All parts: a runner that becomes a builder needs what is given at the first boot only.
        why = "its Host was changed, or a person asked to look at all of it"
        return _update(seen, limits, now, Do.BOOTSTRAP, why)
    if seen.config_hash != seen.wanted_hash:
        return _update(seen, limits, now, Do.UPDATE, "the fleet's configuration changed")
    return _renewal(seen, limits, now) if seen.identity_due else None


# --- Leaving ---------------------------------------------------------------------------------------------------------


def _leave(seen: Seen, limits: Limits, now: datetime) -> Decision:
    if seen.rented and seen.has_machine and seen.returnable:
        return _when_empty(seen, limits, now, _release("Deleted", "the Host was deleted"))
    gone = Decision(Do.FORGET, Phase.RELEASING, "Deleted", "the Host was deleted")
    return _when_empty(seen, limits, now, gone)


def _release(reason: str, why: str) -> Decision:
    return Decision(Do.RELEASE, Phase.RELEASING, reason, why, timedelta(seconds=30))


def _when_empty(seen: Seen, limits: Limits, now: datetime, then: Decision) -> Decision:
    """Do it once the host is empty; until then empty it."""
    if is_empty(seen, limits, now):
        return then
    left = "the last VM has to end first" if seen.vm_pods else "no new VM may come first"
    if seen.vm_pods > 1:
        left = f"{seen.vm_pods} VMs have to end first"
    why = f"{then.why}, and {left}"
    return Decision(Do.DRAIN, _while_draining(then), "Draining", why, limits.drain_settles)


def _while_draining(then: Decision) -> Phase:
    """Keep a host that goes back on its way: after a restart of ours nothing else may be begun with it."""
    return Phase.RELEASING if then.do is Do.RELEASE else Phase.DRAINING


# --- Bootstrap ------------------------------------------------------------------------------------------------------


def _bootstrap(seen: Seen, limits: Limits, now: datetime, why: str) -> Decision:
    if (given_up := _given_up(seen, limits, now)) is not None:
        return given_up
    failed = attempts(seen)
    if _waits(seen, limits.pause, now) and failed:
        return Decision(Do.REST, Phase.BOOTSTRAPPING, "Retrying", why, limits.pause)
    if seen.config_hash and not seen.granted:
        # It gets the wanted configuration with it, and that may be the one that the roll is halted for.
        return _held_back(seen, limits)
    if limits.reboot_after and failed >= limits.reboot_after and not seen.rebooted:
        text = f"{failed} attempts failed, and a reboot may help"
        reboot = Decision(Do.REBOOT, Phase.BOOTSTRAPPING, "Rebooting", text, limits.pause)
        return _when_empty(seen, limits, now, reboot)
    start = Decision(Do.BOOTSTRAP, Phase.BOOTSTRAPPING, "Bootstrapping", why)
    return _when_empty(seen, limits, now, start) if seen.phase is Phase.DRAINING else start


def _given_up(seen: Seen, limits: Limits, now: datetime) -> Decision | None:
    """Say what becomes of a host that failed too often, for now."""
    failed = attempts(seen)
    if needs_a_person(seen):
        return _for_a_person(limits)
    if failed >= limits.bootstraps_max:
        if seen.rented and seen.returnable and not seen.config_hash:
            text = f"{failed} attempts to bootstrap its Mac failed"
            return _when_empty(seen, limits, now, _release("BootstrapFailed", text))
        if _waits(seen, limits.retry_after, now):
            text = f"{failed} attempts failed"
            return Decision(Do.REST, Phase.FAILED, "BootstrapFailed", text, limits.look_again)
    return None


def _for_a_person(limits: Limits) -> Decision:
    text = "the last attempt failed in a way that another one makes worse, so there is none"
    return Decision(Do.REST, Phase.FAILED, "NeedsAPerson", text, limits.look_again)


def node_is_gone(seen: Seen, limits: Limits, now: datetime) -> bool:
    """Say whether the Node of a host that had one has been missing for too long."""
    if seen.node is not NodeState.MISSING or seen.node_since is None:
        return False
    since = max(seen.node_since, seen.converged_at or seen.node_since)
    return now - since >= limits.node_missing


def _waits(seen: Seen, pause: timedelta, now: datetime) -> bool:
    return seen.failed_at is not None and now - seen.failed_at < pause


# --- Update ---------------------------------------------------------------------------------------------------------


def _update(seen: Seen, limits: Limits, now: datetime, do: Do, why: str) -> Decision:
    failed = attempts(seen)
    if needs_a_person(seen):
        return _for_a_person(limits)
    if failed >= limits.updates_max and _waits(seen, limits.retry_after, now):
        text = f"{failed} attempts failed"
        return Decision(Do.REST, Phase.FAILED, "UpdateFailed", text, limits.look_again)
    if failed and _waits(seen, limits.pause, now):
        return Decision(Do.REST, Phase.UPDATING, "Retrying", why, limits.pause)
    if not seen.granted:
        return _held_back(seen, limits)
    start = Decision(do, Phase.UPDATING, "Updating", why)
    return _when_empty(seen, limits, now, start) if seen.phase is Phase.DRAINING else start


def _renewal(seen: Seen, limits: Limits, now: datetime) -> Decision | None:
    """Bring a new credential. The host has the wanted configuration, so no roll is waited for."""
    why = "the agent's credential ends soon"
    failed = attempts(seen)
    pause = limits.retry_after if failed >= limits.updates_max else limits.pause
    if needs_a_person(seen) or (failed and _waits(seen, pause, now)):
        worked = seen.phase in (Phase.READY, Phase.NOT_READY)
        if not (worked or is_healthy(seen, limits, now)):
            return None
        phase = Phase.READY if seen.node is NodeState.READY else Phase.NOT_READY
        text = f"{why}, and the attempt to bring a new one failed"
        return Decision(Do.REST, phase, "RenewalFailed", text, limits.pause)
    start = Decision(Do.UPDATE, Phase.UPDATING, "RenewingIdentity", why)
    return _when_empty(seen, limits, now, start) if seen.phase is Phase.DRAINING else start


def _held_back(seen: Seen, limits: Limits) -> Decision:
    """Wait for a turn in the roll. The host works on with what it has."""
    if seen.phase is Phase.FAILED:
        return Decision(Do.REST, Phase.FAILED, "UpdateFailed", seen.held_back, limits.look_again)
    if seen.cordoned_at is not None:
        return Decision(Do.UNDRAIN, Phase.READY, "WaitsForRoll", seen.held_back)
    phase = Phase.READY if seen.node is NodeState.READY else Phase.NOT_READY
    return Decision(Do.REST, phase, "WaitsForRoll", seen.held_back, limits.look_again)


# --- Rest -----------------------------------------------------------------------------------------------------------


def _rest(seen: Seen, limits: Limits, now: datetime) -> Decision:
    """Look whether the host is well with the configuration that is in place."""
    if seen.cordoned_at is not None and seen.node is NodeState.READY:
        why = "it is as it should be again, and may take VMs"
        phase = Phase.READY if seen.phase is Phase.DRAINING else seen.phase
        return Decision(Do.UNDRAIN, phase, "Undraining", why, timedelta(seconds=5))
    if is_healthy(seen, limits, now):
        return Decision(Do.REST, Phase.READY, "Ready", "it is as it should be", limits.look_again)
    retries = seen.phase is Phase.DRAINING and is_given_up(seen, limits)
    if seen.phase in (Phase.READY, Phase.NOT_READY, Phase.DRAINING) and not retries:
        return _not_well(seen, limits)
    return _unproven(seen, limits, now)


def _unproven(seen: Seen, limits: Limits, now: datetime) -> Decision:
    """Wait for a Node that was never well with this configuration, but not for ever."""
    since = seen.converged_at
    if since is not None and now - since < limits.healthy_within:
        phase = seen.phase if seen.phase is Phase.UPDATING else Phase.BOOTSTRAPPING
        soon = min(limits.stable, timedelta(seconds=15))
        why = "its Node is not Ready and stable yet"
        return Decision(Do.REST, phase, "WaitsForNode", why, soon)
    noted = seen.failed_at is not None and (since is None or seen.failed_at >= since)
    if not (is_given_up(seen, limits) and noted):
        minutes = limits.healthy_within.total_seconds() / 60
        text = f"its Node was not Ready and stable within {minutes:g} min of the new configuration"
        return Decision(Do.GIVE_UP, Phase.FAILED, "NotHealthy", text, limits.look_again)
    if needs_a_person(seen):
        return _for_a_person(limits)
    if _waits(seen, limits.retry_after, now):
        text = "its Node does not stay Ready with the new configuration"
        return Decision(Do.REST, Phase.FAILED, "NotHealthy", text, limits.look_again)
    text = "its Node did not become Ready; it is tried once more"
    start = Decision(Do.UPDATE, Phase.UPDATING, "Retrying", text)
    return _when_empty(seen, limits, now, start) if seen.phase is Phase.DRAINING else start


def _not_well(seen: Seen, limits: Limits) -> Decision:
    """Say what holds of a host that was well with this very configuration: that is no reason to touch it."""
    if seen.node is NodeState.READY:
        return Decision(
            Do.REST, Phase.READY, "Ready", "its Node has just become Ready", limits.stable
        )
    why = "its Node is missing" if seen.node is NodeState.MISSING else "its Node is not Ready"
    return Decision(Do.REST, Phase.NOT_READY, "NodeNotReady", why, timedelta(seconds=30))
