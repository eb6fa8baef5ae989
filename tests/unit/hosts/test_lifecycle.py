"""What a Host needs next: a table of cases, and rules that hold in every combination."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from remuda.hosts.decide.lifecycle import (
    AT_ONCE,
    HARMFUL,
    Do,
    Limits,
    NodeState,
    Phase,
    Seen,
    decide,
    is_empty,
)

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
LIMITS = Limits()
LONG_AGO, JUST_NOW = NOW - timedelta(hours=5), NOW - timedelta(seconds=5)
HASH, OLD = "new", "old"

READY: dict[str, Any] = {
    "phase": Phase.READY,
    "config_hash": HASH,
    "converged_at": LONG_AGO,
    "node": NodeState.READY,
    "node_since": LONG_AGO,
}
DRIFTED = {**READY, "config_hash": OLD}
EMPTY = {"cordoned": True, "cordoned_at": LONG_AGO}
RENTED = {"rented": True, "returnable": True}


def failed(times: int, ago: timedelta = timedelta(minutes=5)) -> dict[str, Any]:
    return {"failed_hash": HASH, "attempts": times, "failed_at": NOW - ago}


@pytest.mark.parametrize(
    ("given", "do", "phase", "reason"),
    [
        # --- a machine to have
        ({}, Do.BOOTSTRAP, Phase.BOOTSTRAPPING, "Bootstrapping"),
        ({**RENTED, "has_machine": False}, Do.ADOPT, Phase.ADOPTING, "Adopting"),
        ({**RENTED, "has_machine": False, "paused": True}, Do.REST, Phase.PENDING, "Paused"),
        # --- bootstrap
        (failed(1, timedelta(seconds=10)), Do.REST, Phase.BOOTSTRAPPING, "Retrying"),
        (failed(2), Do.BOOTSTRAP, Phase.BOOTSTRAPPING, "Bootstrapping"),
        (failed(3), Do.REBOOT, Phase.BOOTSTRAPPING, "Rebooting"),
        ({**failed(3), "rebooted": True}, Do.BOOTSTRAP, Phase.BOOTSTRAPPING, "Bootstrapping"),
        ({**failed(8), "rebooted": True}, Do.REST, Phase.FAILED, "BootstrapFailed"),
        ({**failed(8), "rebooted": True, **RENTED}, Do.RELEASE, Phase.RELEASING, "BootstrapFailed"),
        ({**failed(8), **RENTED, "returnable": False}, Do.REST, Phase.FAILED, "BootstrapFailed"),
        ({**failed(AT_ONCE), **RENTED}, Do.REST, Phase.FAILED, "NeedsAPerson"),
        (failed(AT_ONCE, timedelta(days=9)), Do.REST, Phase.FAILED, "NeedsAPerson"),
        ({**DRIFTED, **failed(AT_ONCE, timedelta(days=9))}, Do.REST, Phase.FAILED, "NeedsAPerson"),
        (
            {**READY, "node": NodeState.MISSING, **failed(AT_ONCE, timedelta(days=9))},
            Do.REST,
            Phase.FAILED,
            "NeedsAPerson",
        ),
        (
            {**failed(8, timedelta(minutes=31)), "rebooted": True},
            Do.BOOTSTRAP,
            Phase.BOOTSTRAPPING,
            "Bootstrapping",
        ),
        ({**failed(8), "failed_hash": OLD}, Do.BOOTSTRAP, Phase.BOOTSTRAPPING, "Bootstrapping"),
        # --- its own spec
        ({**READY, "changed": True}, Do.BOOTSTRAP, Phase.UPDATING, "Updating"),
        ({**DRIFTED, "changed": True}, Do.BOOTSTRAP, Phase.UPDATING, "Updating"),
        ({**READY, "changed": True, "granted": False}, Do.REST, Phase.READY, "WaitsForRoll"),
        ({**READY, "changed": True, "phase": Phase.DRAINING}, Do.DRAIN, Phase.DRAINING, "Draining"),
        ({**READY, "changed": True, **failed(5)}, Do.REST, Phase.FAILED, "UpdateFailed"),
        # --- the host key
        ({**READY, "key_refused": True}, Do.REST, Phase.FAILED, "HostKeyChanged"),
        ({"key_refused": True, **failed(AT_ONCE)}, Do.REST, Phase.FAILED, "HostKeyChanged"),
        # --- rest
        (READY, Do.REST, Phase.READY, "Ready"),
        ({**READY, "paused": True}, Do.REST, Phase.READY, "Paused"),
        ({**READY, "node": NodeState.NOT_READY}, Do.REST, Phase.NOT_READY, "NodeNotReady"),
        (
            {**READY, "node": NodeState.MISSING, "node_since": JUST_NOW},
            Do.REST,
            Phase.NOT_READY,
            "NodeNotReady",
        ),
        (
            {**READY, "node": NodeState.MISSING},
            Do.BOOTSTRAP,
            Phase.BOOTSTRAPPING,
            "Bootstrapping",
        ),
        (
            {**READY, "node": NodeState.MISSING, "granted": False},
            Do.REST,
            Phase.NOT_READY,
            "WaitsForRoll",
        ),
        (
            {**DRIFTED, "node": NodeState.MISSING, "granted": False, **failed(4)},
            Do.REST,
            Phase.NOT_READY,
            "WaitsForRoll",
        ),
        ({**READY, **EMPTY}, Do.UNDRAIN, Phase.READY, "Undraining"),
        ({**READY, "cordoned": True}, Do.REST, Phase.READY, "Ready"),
        ({**READY, **failed(5)}, Do.REST, Phase.READY, "Ready"),
        ({**READY, "identity_due": True}, Do.UPDATE, Phase.UPDATING, "RenewingIdentity"),
        (
            {**READY, "identity_due": True, "phase": Phase.DRAINING},
            Do.DRAIN,
            Phase.DRAINING,
            "Draining",
        ),
        (
            {**READY, "identity_due": True, "phase": Phase.DRAINING, **EMPTY},
            Do.UPDATE,
            Phase.UPDATING,
            "RenewingIdentity",
        ),
        (
            {**READY, "identity_due": True, **failed(1, timedelta(0))},
            Do.REST,
            Phase.READY,
            "RenewalFailed",
        ),
        ({**READY, "identity_due": True, **failed(1)}, Do.UPDATE, Phase.UPDATING, "RenewingIdentity"),
        ({**READY, "identity_due": True, **failed(5)}, Do.REST, Phase.READY, "RenewalFailed"),
        (
            {**READY, "identity_due": True, **failed(AT_ONCE, timedelta(days=9))},
            Do.REST,
            Phase.READY,
            "RenewalFailed",
        ),
        # --- an update
        (DRIFTED, Do.UPDATE, Phase.UPDATING, "Updating"),
        (
            {**DRIFTED, "granted": False, "held_back": "others are"},
            Do.REST,
            Phase.READY,
            "WaitsForRoll",
        ),
        ({**DRIFTED, "phase": Phase.DRAINING, "vm_pods": 1}, Do.DRAIN, Phase.DRAINING, "Draining"),
        ({**DRIFTED, "phase": Phase.DRAINING}, Do.DRAIN, Phase.DRAINING, "Draining"),
        (
            {**DRIFTED, "phase": Phase.DRAINING, "cordoned": True, "cordoned_at": JUST_NOW},
            Do.DRAIN,
            Phase.DRAINING,
            "Draining",
        ),
        ({**DRIFTED, "phase": Phase.DRAINING, **EMPTY}, Do.UPDATE, Phase.UPDATING, "Updating"),
        ({**DRIFTED, **failed(2)}, Do.UPDATE, Phase.UPDATING, "Updating"),
        ({**DRIFTED, **failed(2, timedelta(0))}, Do.REST, Phase.UPDATING, "Retrying"),
        ({**DRIFTED, **failed(5)}, Do.REST, Phase.FAILED, "UpdateFailed"),
        ({**DRIFTED, **failed(5), **RENTED}, Do.REST, Phase.FAILED, "UpdateFailed"),
        ({**DRIFTED, **failed(5), "failed_hash": OLD}, Do.UPDATE, Phase.UPDATING, "Updating"),
        ({**DRIFTED, **failed(5, timedelta(hours=1))}, Do.UPDATE, Phase.UPDATING, "Updating"),
        # --- proven, or not
        (
            {**READY, "phase": Phase.UPDATING, "converged_at": JUST_NOW},
            Do.REST,
            Phase.UPDATING,
            "WaitsForNode",
        ),
        ({**READY, "phase": Phase.UPDATING}, Do.REST, Phase.READY, "Ready"),
        (
            {**READY, "phase": Phase.UPDATING, "node": NodeState.NOT_READY},
            Do.GIVE_UP,
            Phase.FAILED,
            "NotHealthy",
        ),
        (
            {**READY, "phase": Phase.FAILED, "node": NodeState.NOT_READY, **failed(8)},
            Do.REST,
            Phase.FAILED,
            "NotHealthy",
        ),
        (
            {**READY, "phase": Phase.DRAINING, "node": NodeState.NOT_READY, **failed(8, timedelta(hours=1))},
            Do.DRAIN,
            Phase.DRAINING,
            "Draining",
        ),
        (
            {
                **READY,
                "phase": Phase.DRAINING,
                "node": NodeState.NOT_READY,
                **EMPTY,
                **failed(8, timedelta(hours=1)),
            },
            Do.UPDATE,
            Phase.UPDATING,
            "Retrying",
        ),
        # --- leaving
        ({"deleting": True}, Do.FORGET, Phase.RELEASING, "Deleted"),
        ({**READY, "deleting": True}, Do.DRAIN, Phase.DRAINING, "Draining"),
        ({**READY, "deleting": True, **EMPTY}, Do.FORGET, Phase.RELEASING, "Deleted"),
        ({**READY, "deleting": True, "paused": True, **EMPTY}, Do.FORGET, Phase.RELEASING, "Deleted"),
        ({**READY, "deleting": True, **EMPTY, "vm_pods": 1}, Do.DRAIN, Phase.DRAINING, "Draining"),
        ({**READY, "deleting": True, **EMPTY, **RENTED}, Do.RELEASE, Phase.RELEASING, "Deleted"),
        (
            {**READY, "deleting": True, **EMPTY, **RENTED, "has_machine": False},
            Do.FORGET,
            Phase.RELEASING,
            "Deleted",
        ),
        ({**READY, "phase": Phase.RELEASING, **EMPTY, **RENTED}, Do.RELEASE, Phase.RELEASING, "Releasing"),
    ],
)  # fmt: skip
def test_the_next_thing(given: dict[str, Any], do: Do, phase: Phase, reason: str) -> None:
    decision = decide(Seen(wanted_hash=HASH, **given), LIMITS, NOW)

    assert (decision.do, decision.phase, decision.reason) == (do, phase, reason)


def every_look() -> list[Seen]:
    """Return looks in which every fact meets every other."""
    base = Seen(wanted_hash=HASH, node_since=LONG_AGO)
    flags = ("deleting", "paused", "rented", "has_machine", "key_refused", "granted", "rebooted")
    axes: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(flags, (False, True)),
        "phase": tuple(Phase),
        "config_hash": ("", OLD, HASH),
        "attempts": (0, 8),
        "node": tuple(NodeState),
        "cordoned": (False, True),
        "vm_pods": (0, 1),
    }
    looks = []
    for number, values in enumerate(product(*axes.values())):
        if (
            number % 7
        ):  # every seventh: 7 shares no factor with any axis' length, so every pair still meets
            continue
        given = dict(zip(axes, values, strict=True))
        failed_at = LONG_AGO if given["attempts"] else None
        given |= {"failed_hash": HASH if given["attempts"] else "", "failed_at": failed_at}
        given |= {"cordoned_at": LONG_AGO if given["cordoned"] else None}
        looks.append(replace(base, **given))
    return looks


LOOKS = every_look()


def test_nothing_that_ends_vms_is_done_while_there_is_one_or_one_may_come() -> None:
    for seen in LOOKS:
        decision = decide(seen, LIMITS, NOW)
        if decision.do in HARMFUL:
            assert is_empty(seen, LIMITS, NOW), seen
        if decision.do in (Do.UPDATE, Do.BOOTSTRAP) and seen.phase is Phase.DRAINING:
            assert is_empty(seen, LIMITS, NOW) or seen.config_hash == HASH, seen


def test_a_static_host_is_never_given_back() -> None:
    assert all(decide(seen, LIMITS, NOW).do is not Do.RELEASE for seen in LOOKS if not seen.rented)


def test_a_paused_host_is_left_alone_until_it_is_deleted() -> None:
    paused = [seen for seen in LOOKS if seen.paused and not seen.deleting]

    assert paused
    assert {decide(seen, LIMITS, NOW).do for seen in paused} == {Do.REST}


def test_a_deleted_host_is_emptied_and_then_goes() -> None:
    does = {decide(seen, LIMITS, NOW).do for seen in LOOKS if seen.deleting}

    assert does == {Do.DRAIN, Do.RELEASE, Do.FORGET}


def test_a_host_that_may_not_change_is_not_changed() -> None:
    for seen in LOOKS:
        held = not seen.granted and seen.config_hash == OLD
        if held and not (seen.deleting or seen.paused) and seen.phase is not Phase.RELEASING:
            assert decide(seen, LIMITS, NOW).do in (Do.REST, Do.UNDRAIN, Do.ADOPT), seen


def test_every_decision_is_a_sentence_and_comes_back() -> None:
    for seen in LOOKS:
        decision = decide(replace(seen, held_back="it waits"), LIMITS, NOW)
        assert decision.why
        assert not decision.why.endswith(".")
        assert decision.look_again > timedelta(0)
