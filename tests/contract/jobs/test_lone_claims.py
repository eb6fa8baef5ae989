"""The claim of one Pod has a way of its own through the database. It leads where the way of many leads."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from remuda.dispatch.decide.fairness import AGEING
from remuda.model.job import Os, Size
from remuda.ports.jobs import Claimed, WarmRunner
from tests.support.jobs import START, Store, a_job, memory_store, postgres_store

if TYPE_CHECKING:
    from asyncpg import Record

    from remuda.adapters.postgres.pool import Database
    from remuda.model.job import JobSpec

TENANTS: Final = ("acme", "bolt", "core")
MANY: Final = """
SELECT * FROM claim_choose('linux', 1, '{1}', ARRAY[$1], ARRAY['linux'], ARRAY[$2::timestamptz], ARRAY[$3],
    $4, $5, $6, $7, $8, $9, $10)
"""
HOLD: Final = "UPDATE jobs SET hold_until = $2 WHERE id = ANY ($1) AND state = 'queued'"
RANK: Final = """
SELECT claim_rank(used_vcpus, used_memory_mib, vcpus, memory_mib, $3::timestamptz - greatest($2, last_claimed_at), $4)
FROM limits WHERE tenant = $1 AND os = 'linux'
"""
ONE: Final = (
    "SELECT * FROM claim_choose_one('linux', $1, 'linux', $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)


def some_job(dice: random.Random, number: int) -> JobSpec:
    tenant = dice.choice(TENANTS)
    return a_job(
        number,
        tenant=tenant,
        repository=f"{tenant}/{dice.randrange(3)}",
        size=Size(dice.randint(1, 4), dice.choice((512, 4096, 40960))),
        os=dice.choices((Os.LINUX, Os.DARWIN), (9, 1))[0],
        queued_at=START + timedelta(seconds=dice.randrange(3000)),
    )


async def fill(store: Store, dice: random.Random, jobs: int = 40) -> None:
    for tenant in TENANTS:
        await store.limit(tenant, vcpus=dice.randint(3, 30))
    await store.queue(*(some_job(dice, number) for number in range(jobs)))
    store.clock.forward(3000 + dice.randrange(5000))


@pytest.mark.parametrize("seed", range(6))
async def test_one_pod_after_the_other_gets_what_the_twin_in_memory_gives(
    database: Database, seed: int
) -> None:
    stores = (memory_store(), postgres_store(database))
    given: list[list[str]] = []
    for store in stores:
        await fill(store, random.Random(seed))  # noqa: S311 - a seed replays it
        answers = [
            await store.jobs.claim(WarmRunner(f"pod-{n}", f"uid-{n}", "linux", f"r-{n}"))
            for n in range(45)
        ]
        given.append([a.job.spec.id if isinstance(a, Claimed) else str(a.reason) for a in answers])
    assert given[0] == given[1]
    assert any("/" in one for one in given[0]), "nobody got a job"


@pytest.mark.parametrize("seed", range(6))
async def test_the_way_of_one_chooses_as_the_way_of_many(database: Database, seed: int) -> None:
    """Also where the limits changed since the turns were put in order, so that another tenant's turn is before it."""
    dice = random.Random(seed)  # noqa: S311 - a seed replays it
    store = postgres_store(database)
    await fill(store, dice)
    for number in range(8):
        await store.jobs.claim(WarmRunner(f"pod-{number}", f"uid-{number}", "linux", ""))
    chosen = 0
    async with database.connection() as c:
        held = [f"forge/{dice.randrange(40)}" for _ in range(10)]
        await c.execute(HOLD, held, store.clock.now() + timedelta(seconds=1))
        for _ in range(60):
            tenant = dice.choice((*TENANTS, "nobody"))
            oldest = START + timedelta(seconds=dice.randrange(3000))
            rank = await c.fetchval(RANK, tenant, oldest, store.clock.now(), AGEING)
            bound = dice.choice((float("inf"), rank, dice.uniform(-2, 1)))
            passed = [f"forge/{dice.randrange(40)}" for _ in range(dice.randrange(20))]
            repositories = [f"{t}/{dice.randrange(3)}" for t in TENANTS if dice.random() < 0.3]
            turn = (tenant, oldest, "m", bound, oldest, dice.choice("az"))
            asked = (*turn, store.clock.now(), AGEING)
            many: Record | None = await c.fetchrow(MANY, *asked, repositories, passed)
            one: Record | None = await c.fetchrow(ONE, *asked, repositories, passed)
            assert many == one, asked
            assert one is not None
            chosen += len(one["chosen"])
    assert 0 < chosen < 60, "each of both must come up"
