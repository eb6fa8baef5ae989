"""
Every version that the API server had of a namespace's pools, runners and accounts, in order.

Three watches, merged by resource version: etcd counts all writes on one scale, so the merged order is the true one, and
what a check sees at each step is a moment that really was. The predicates are this file's own: a judge does not ask
the code that it judges.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.kube.core import POD, SERVICE_ACCOUNT, Pod
from remuda.kube.runner_pool import RUNNER_POOL, RunnerPool
from remuda.ports.kube import Bookmark, Change, Query
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

RUNNERS = "remuda.dev/runner=true"
POOL = "remuda.dev/pool"
TEMPLATE = "remuda.dev/template"
OWNER = "remuda.dev/owner"
MARK = "remuda.dev/drain-eligible"
DELIVERED = "remuda.dev/JobDelivered"
KINDS: dict[str, Kind[Resource]] = {"pods": POD, "pools": RUNNER_POOL, "accounts": SERVICE_ACCOUNT}


@dataclass(frozen=True, slots=True)
class Step:
    """One write: the object after it (or as it last was), and when its news came, on the loop's clock."""

    version: int
    kind: str
    change: Change
    object: Resource
    at: float


@dataclass(slots=True)
class Instant:
    """What the API server held after a step."""

    step: Step | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    pools: dict[str, RunnerPool] = field(default_factory=dict)
    accounts: dict[str, Resource] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        self.step = step
        held: dict[str, Resource] = getattr(self, step.kind)
        if step.change is Change.DELETED:
            held.pop(step.object.name, None)
        else:
            held[step.object.name] = step.object

    def runners(self, pool: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.labels.get(POOL) == pool]


class Recorder:
    """Follows one namespace from now on. A hole in what it saw is a failure, never a guess."""

    def __init__(self, kube: Kube, namespace: str, clock: Clock) -> None:
        self._kube, self._namespace, self._clock = kube, namespace, clock
        self._steps: list[Step] = []
        self.now = Instant()
        """The newest of each kind, as it came: kinds may be a moment apart. For live use, not for checks."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in KINDS:
                group.create_task(self._follow(name), name=f"recorder of {name}")

    async def caught_up(self) -> tuple[Step, ...]:
        """Wait until all that is there now has been seen, and return everything so far in its true order."""
        for name, kind in KINDS.items():
            listing = await self._kube.list(kind, self._query(name))
            there = {item.name: int(item.resource_version) for item in listing.items}
            version = int(listing.resource_version)
            await eventually(lambda n=name, t=there, v=version: self._has(n, t, v))  # type: ignore[misc]
        return tuple(sorted(self._steps, key=lambda step: step.version))

    async def _has(self, name: str, there: dict[str, int], version: int) -> bool:
        held: dict[str, Resource] = getattr(self.now, name)
        behind = any(
            key not in held or int(held[key].resource_version) < seen for key, seen in there.items()
        )
        gone = any(
            key not in there and int(item.resource_version) <= version for key, item in held.items()
        )
        return not behind and not gone

    async def _follow(self, name: str) -> None:
        listing = await self._kube.list(KINDS[name], self._query(name))
        for item in listing.items:
            self._note(name, Change.ADDED, item)
        since = listing.resource_version
        while (
            True
        ):  # a watch ends after a while; the next goes on where it ended, and Expired ends the test
            async with self._kube.watch(KINDS[name], self._query(name), since=since) as batches:
                async for batch in batches:
                    for event in batch:
                        if isinstance(event, Bookmark):
                            since = event.resource_version
                            continue
                        since = event.object.resource_version
                        self._note(name, event.change, event.object)

    def _note(self, name: str, change: Change, item: Resource) -> None:
        step = Step(int(item.resource_version), name, change, item, self._clock.monotonic())
        self._steps.append(step)
        self.now.take(step)

    def _query(self, name: str) -> Query:
        return Query(namespace=self._namespace, labels="" if name == "pools" else RUNNERS)


def replay(steps: tuple[Step, ...]) -> Iterator[Instant]:
    """Give the same ``Instant`` again and again, moved on by one step each time."""
    instant = Instant()
    for step in steps:
        instant.take(step)
        yield instant


# --- what a runner is, by CONTRACTS -----------------------------------------------------------------------------------


def is_alive(pod: Pod) -> bool:
    over = pod.status.phase in {"Succeeded", "Failed"}
    return not over and pod.metadata.deletion_timestamp is None


def is_busy(pod: Pod) -> bool:
    return OWNER in pod.labels or any(
        c.type == DELIVERED and c.status == "True" for c in pod.status.conditions
    )


def is_idle(pod: Pod) -> bool:
    return is_alive(pod) and not is_busy(pod)


def is_warm(pod: Pod) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    return ready and pod.status.phase == "Running" and is_idle(pod)


def is_stale(pool: RunnerPool, pod: Pod) -> bool:
    """Go by the image, whatever the hash is made of: tests only ever change the image."""
    return pod.spec.containers[0].image != pool.spec.image


# --- what must hold at each instant -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Who of a pool cannot take a job, as CONTRACTS counts it."""

    missing: int
    starting: int
    marked: int

    @property
    def total(self) -> int:
        return self.missing + self.starting + self.marked


def hashes_of(steps: tuple[Step, ...]) -> dict[str, str]:
    """Return the template hash that went with each image, from the runners that were made of it."""
    pods = [step.object for step in steps if isinstance(step.object, Pod)]
    return {pod.spec.containers[0].image: pod.labels[TEMPLATE] for pod in pods}


def unavailable(pool: RunnerPool, runners: list[Pod], hashes: dict[str, str]) -> Unavailable:
    idle = [pod for pod in runners if is_idle(pod)]
    stale = [pod for pod in idle if is_stale(pool, pod)]
    target = hashes.get(pool.spec.image)
    return Unavailable(
        missing=max(0, pool.spec.replicas - sum(map(is_alive, runners))),
        starting=sum(not is_warm(pod) for pod in idle if not is_stale(pool, pod)),
        marked=sum(MARK in pod.labels and pod.labels[MARK] == target for pod in stale),
    )


def cap_of(pool: RunnerPool) -> int:
    return max(1, pool.spec.rollout.max_concurrent_percent * pool.spec.replicas // 100)
