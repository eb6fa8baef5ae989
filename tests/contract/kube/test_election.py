"""Leader election on real Leases: one leads, and the next takes over when it should and not before."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.election import ElectionSettings, LeaderElector
from remuda.kube.core import LEASE
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.ports.kube import Kube
    from tests.support.raw import Raw
    from tests.support.space import Space

LEASE_S = 2


class Candidate:
    """One replica of a controller."""

    def __init__(self, kube: Kube, space: Space, identity: str) -> None:
        settings = ElectionSettings(
            namespace=space.name,
            name="leader",
            identity=identity,
            lease_duration_s=LEASE_S,
            renew_deadline_s=1.0,
            retry_s=0.1,
        )
        self.identity = identity
        self.elector = LeaderElector(kube, settings, clock=SystemClock(), ids=SystemIds())
        self.terms = 0

    async def run(self) -> None:
        await self.elector.run(self._lead)

    async def _lead(self) -> None:
        self.terms += 1
        await asyncio.Event().wait()

    async def leads(self) -> bool:
        return self.elector.is_leader


@asynccontextmanager
async def running(candidate: Candidate) -> AsyncIterator[asyncio.Task[None]]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(candidate.run(), name=candidate.identity)
        yield task
        task.cancel()


async def test_the_first_of_two_leads_alone_and_its_lease_says_so(kube: Kube, space: Space) -> None:
    first, second = Candidate(kube, space, "first"), Candidate(kube, space, "second")
    async with running(first):
        await eventually(first.leads)
        async with running(second):
            renewed = (await kube.get(LEASE, "leader", namespace=space.name)).spec.renew_time

            async def has_renewed_for_longer_than_a_lease() -> bool:
                assert not second.elector.is_leader
                lease = await kube.get(LEASE, "leader", namespace=space.name)
                assert lease.spec.holder_identity == "first"
                assert lease.spec.lease_duration_seconds == LEASE_S
                return bool(
                    lease.spec.renew_time != renewed and int(lease.resource_version) > start + 10
                )

            start = int((await kube.get(LEASE, "leader", namespace=space.name)).resource_version)
            await eventually(has_renewed_for_longer_than_a_lease)
    assert (first.terms, second.terms) == (1, 0)


async def test_a_released_lease_is_taken_at_once(kube: Kube, space: Space) -> None:
    first, second = Candidate(kube, space, "first"), Candidate(kube, space, "second")
    async with running(first) as leading:
        await eventually(first.leads)
        async with running(second):
            leading.cancel()

            await eventually(second.leads, within_s=LEASE_S - 0.5)

            lease = await kube.get(LEASE, "leader", namespace=space.name)
            assert lease.spec.holder_identity == "second"
    lease = await kube.get(LEASE, "leader", namespace=space.name)
    assert not lease.spec.holder_identity, "both have gone, and given it back"


async def test_a_dead_leaders_lease_runs_out_and_its_successor_counts_on(
    kube: Kube, raw: Raw, space: Space
) -> None:
    """The holder is a process that was killed: the Lease says that it leads, and nobody renews it."""
    spec = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": LEASE_S,
        "leaseTransitions": 4,
        "acquireTime": "2026-11-15T20:00:00.000000Z",
        "renewTime": "2026-11-15T20:00:00.000000Z",
    }
    (await raw.post(space.path("leases"), {"metadata": {"name": "leader"}, "spec": spec})).ok()
    heir, clock = Candidate(kube, space, "heir"), SystemClock()
    started = clock.monotonic()

    async with running(heir):
        await eventually(heir.leads)

        assert clock.monotonic() - started >= LEASE_S, "an old time in a Lease proves nothing"
        lease = await kube.get(LEASE, "leader", namespace=space.name)
        assert lease.spec.holder_identity == "heir"
        assert lease.spec.lease_transitions == 5
        assert heir.elector.transitions == 5


async def test_a_leader_whose_lease_was_taken_stops(kube: Kube, raw: Raw, space: Space) -> None:
    leader = Candidate(kube, space, "leader")
    async with running(leader):
        await eventually(leader.leads)

        usurped = {"spec": {"holderIdentity": "usurper", "leaseTransitions": 9}}
        (await raw.merge(space.path("leases", "leader"), usurped)).ok()

        async def has_stopped() -> bool:
            return not leader.elector.is_leader

        await eventually(has_stopped, within_s=1.5)
        lease = await kube.get(LEASE, "leader", namespace=space.name)
        assert lease.spec.holder_identity == "usurper"


async def test_of_many_candidates_exactly_one_leads(kube: Kube, space: Space) -> None:
    candidates = [Candidate(kube, space, f"candidate-{number}") for number in range(8)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(c.run(), name=c.identity) for c in candidates]

        async def somebody_leads() -> bool:
            leaders = [c for c in candidates if c.elector.is_leader]
            assert len(leaders) <= 1
            return len(leaders) == 1

        await eventually(somebody_leads)
        taken = await kube.get(LEASE, "leader", namespace=space.name)

        async def has_been_renewed() -> bool:
            await somebody_leads()
            lease = await kube.get(LEASE, "leader", namespace=space.name)
            assert lease.spec.holder_identity == taken.spec.holder_identity
            return int(lease.resource_version) > int(taken.resource_version) + 2

        await eventually(has_been_renewed)
        for task in tasks:
            task.cancel()

    assert (
        sum(candidate.terms for candidate in candidates) >= 1
    )  # others may have led while the first ones left
