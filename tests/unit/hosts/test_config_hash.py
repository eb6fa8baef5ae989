"""The hash of the fleet's configuration: it moves with what drift applies, and with nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from ipaddress import ip_network

import pytest

from remuda.hosts.decide.drift import config_hash, drift_parts
from remuda.hosts.decide.facts import Facts
from remuda.hosts.decide.plan import plan
from remuda.hosts.decide.wanted import BuilderTools, FleetConfig, OwnConfig
from remuda.hosts.parts import PARTS
from remuda.kube.host import Role
from remuda.ports.host_shell import Ran
from tests.unit.hosts.a_mac import a_fleet, a_wanted, an_own, an_upload

HASHED = {
    "agent": replace(a_fleet(), agent=an_upload("another agent")),
    "dispatch_url": replace(a_fleet(), dispatch_url="https://other.example.org"),
    "agent_flags": replace(a_fleet(), agent_flags=(("--resync", "60"),)),
    "guests_may_reach": replace(a_fleet(), guests_may_reach=()),
    "ssh_from": replace(a_fleet(), ssh_from=(ip_network("203.0.113.0/24"),)),
    "dhcp_lease_s": replace(a_fleet(), dhcp_lease_s=900),
    "log_bytes_max": replace(a_fleet(), log_bytes_max=1024 * 1024),
    "builder_tools": replace(a_fleet(), builder_tools=BuilderTools(packer_version="1.15.0")),
}
FIRST_BOOT_ONLY = {
    "tart": replace(a_fleet(), tart=an_upload("another tart")),
    "tart_version": replace(a_fleet(), tart_version="9.9.9"),
}
OWN = {
    "node", "user", "fleet", "role", "password", "kubeconfig", "provider_id", "cpus", "memory", "vms", "builder",
}  # fmt: skip


def test_every_field_is_the_fleets_or_the_hosts_own_and_is_classified_here() -> None:
    assert {field.name for field in fields(FleetConfig)} == HASHED.keys() | FIRST_BOOT_ONLY.keys()
    assert {field.name for field in fields(OwnConfig)} == OWN
    assert not OWN & (HASHED.keys() | FIRST_BOOT_ONLY.keys())


@pytest.mark.parametrize("field", sorted(HASHED))
def test_the_hash_moves_with(field: str) -> None:
    assert config_hash(HASHED[field], PARTS) != config_hash(a_fleet(), PARTS)


@pytest.mark.parametrize("field", sorted(FIRST_BOOT_ONLY))
def test_the_hash_does_not_move_with_what_drift_leaves_alone(field: str) -> None:
    assert config_hash(FIRST_BOOT_ONLY[field], PARTS) == config_hash(a_fleet(), PARTS)


def test_each_change_gives_a_hash_of_its_own() -> None:
    hashes = [config_hash(fleet, PARTS) for fleet in (a_fleet(), *HASHED.values())]
    assert len(set(hashes)) == len(hashes)


def test_the_same_configuration_has_the_same_hash() -> None:
    assert config_hash(a_fleet(), PARTS) == config_hash(a_fleet(), PARTS)


def test_the_order_of_options_does_not_matter() -> None:
    one = replace(a_fleet(), agent_flags=(("--resync", "60"), ("--heartbeat", "5")))
    other = replace(a_fleet(), agent_flags=(("--heartbeat", "5"), ("--resync", "60")))
    assert config_hash(one, PARTS) == config_hash(other, PARTS)


def test_a_part_is_hashed_exactly_if_drift_applies_it() -> None:
    applied = drift_parts(a_fleet(), PARTS)
    assert [part.name for part in applied] == [
        "power", "ssh-reachability", "log-bound", "firewall", "ssh-guard", "dhcp", "agent", "builder-tools",
    ]  # fmt: skip
    for part in PARTS:
        without = tuple(each for each in PARTS if each is not part)
        moved = config_hash(a_fleet(), without) != config_hash(a_fleet(), PARTS)
        assert moved is (part in applied), part.name


def test_nothing_of_a_hosts_own_is_in_it() -> None:
    # fleet_state is not even given it; what it renders for "any host" must not depend on which.
    state = b"".join(part.fleet_state(a_fleet()) or b"" for part in PARTS)
    for own in (an_own(), an_own(Role.BUILDER)):
        for value in (own.node, own.provider_id, own.memory):
            assert value.encode() not in state


def test_drift_without_root_says_so_and_tries_nothing() -> None:
    answers = {"sudo": Ran(code=1, stderr=b"sudo: a password is required\n")}
    decided = plan(Facts(answers), a_wanted(), drift_parts(a_fleet(), PARTS))
    assert decided.steps == ()
    assert [problem.name for problem in decided.problems] == ["sudo"]
