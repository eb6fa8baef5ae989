"""Which Macs are free: never one that is claimed, however the prefixes lie to each other, and never one unwiped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.hosts.decide.adoption import (
    PENDING,
    Claim,
    NoneFree,
    Take,
    choose,
    claim_name,
    free_name,
    is_returned,
    orphans,
    returning_name,
)
from remuda.ports.machines import Image, Machine

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
SEQUOIA = Image(id="os", name="macos-sequoia-15.6", family="Sequoia")
CLAIM = Claim(
    name=claim_name("remuda-", "mini-1", "bbbbbbbb-0000"),
    zone="z",
    type="M2-M",
    family="Sequoia",
    pool_prefix="pool-",
    claim_prefix="remuda-",
)
WORKING = claim_name("remuda-", "mini-1", "aaaaaaaa-0000")


def a_mac(name: str, id_: str = "id-0") -> Machine:
    long_ago = NOW - timedelta(days=9)
    return Machine(id=id_, name=name, zone="z", type="M2-M", image=SEQUOIA, changed_at=long_ago)


@pytest.mark.parametrize("prefix", ["remuda-", "rem", "r", "remuda-mini", "remuda-mini-1"])
def test_a_pool_that_covers_claims_is_refused(prefix: str) -> None:
    choice = choose([a_mac(WORKING)], replace(CLAIM, pool_prefix=prefix), NOW)

    assert isinstance(choice, NoneFree)
    assert choice.reason == "PrefixesOverlap"
    assert "--claim-prefix" in choice.fix


PREFIXES = st.text(alphabet="ab-", min_size=1, max_size=4)


@given(claims=PREFIXES, pool=PREFIXES, host=st.text(alphabet="ab-", max_size=4))
def test_a_claimed_mac_is_never_free_and_never_counts_as_returned(
    claims: str, pool: str, host: str
) -> None:
    theirs = a_mac(claim_name(claims, host, "aaaaaaaa-0000"))
    mine = claim_name(claims, "mini", "bbbbbbbb-0000")
    claim = replace(CLAIM, name=mine, pool_prefix=pool, claim_prefix=claims)

    assert not isinstance(choose([theirs], claim, NOW), Take)
    assert not is_returned(theirs, claim)


@given(claims=PREFIXES, pool=PREFIXES)
def test_prefixes_that_do_not_overlap_leave_a_pool(claims: str, pool: str) -> None:
    claim = replace(CLAIM, pool_prefix=pool, claim_prefix=claims)
    taken = isinstance(choose([a_mac(free_name(pool, "1"))], claim, NOW), Take)

    assert taken is not (claims.startswith(pool) or pool.startswith(claims))


def test_a_mac_on_its_way_back_is_not_free_however_long_that_takes() -> None:
    parked = a_mac(returning_name("pool-", WORKING))

    assert isinstance(choose([parked], CLAIM, NOW), NoneFree)
    assert not is_returned(parked, CLAIM)
    assert isinstance(choose([a_mac(f"pool-{PENDING}dead")], CLAIM, NOW), Take)


def test_a_mac_that_stays_on_its_way_back_without_a_host_is_an_orphan() -> None:
    parked, free = a_mac(returning_name("pool-", WORKING)), a_mac("pool-1", "id-1")

    assert orphans([parked, free], [CLAIM], "remuda-") == (parked,)
    held = replace(CLAIM, name=WORKING, machine="id-0")
    assert orphans([parked, free], [held], "remuda-") == ()
