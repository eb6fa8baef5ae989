"""What must hold of pools at every version that the API server had. Each check returns what broke it, as sentences."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from remuda.kube.core import Pod
from remuda.kube.runner_pool import RunnerPool
from remuda.ports.kube import Change
from tests.support.history import (
    MARK,
    POOL,
    cap_of,
    hashes_of,
    is_alive,
    is_busy,
    is_idle,
    is_stale,
    replay,
    unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.history import Instant, Step

JUST_NOW_S = 1.5
"""What changed this shortly before a write, its writer may not have seen yet."""


def over_cap(steps: tuple[Step, ...], pool: str, *, since: int, until: int) -> list[str]:
    """S4 at its strictest, for a roll that nothing else disturbs: nobody more is unavailable, at any version."""
    hashes = hashes_of(steps)
    found = []
    for instant in replay(steps):
        assert instant.step is not None
        if since <= instant.step.version <= until and pool in instant.pools:
            count = unavailable(instant.pools[pool], instant.runners(pool), hashes)
            if count.total > cap_of(instant.pools[pool]):
                found.append(f"version {instant.step.version}: {count}")
    return found


def killed(steps: tuple[Step, ...]) -> list[str]:
    """S2: a runner that holds a job is deleted by nobody before the job has ended."""
    before: dict[str, Pod] = {}
    found = []
    for step in steps:
        if not isinstance(step.object, Pod):
            continue
        pod = step.object
        seen = before.get(pod.uid)
        held = seen is not None and is_alive(seen) and is_busy(seen)
        if held and _goes(step):
            found.append(f"version {step.version}: {pod.name} was deleted with its job")
        before[pod.uid] = pod
    return found


def doubled(steps: tuple[Step, ...]) -> list[str]:
    """Nobody is created whom the pool has no place for."""
    recent = _Recent()
    found = []
    for instant in replay(steps):
        step = instant.step
        assert step is not None
        recent.take(step)
        if not isinstance(step.object, Pod) or step.change is not Change.ADDED:
            continue
        pool = step.object.labels[POOL]
        alive = sum(map(is_alive, instant.runners(pool)))
        wanted = max((_wanted(spec) for spec in recent.pools(pool)), default=0)
        if alive > wanted:
            found.append(
                f"version {step.version}: {step.object.name} is one of {alive}, {wanted} are wanted"
            )
    return found


def overreached(steps: tuple[Step, ...]) -> list[str]:
    """
    S4 among scaling and jobs that end: the roll itself takes nobody beyond the cap.

    Looks at each mark, and at each stale runner that is deleted while it lived. What the operator may not have known
    yet (another size of the pool, a job's end) is forgiven for a moment.
    """
    hashes = hashes_of(steps)
    recent = _Recent()
    found = []
    for instant, before in _pod_steps(steps, recent):
        assert instant.step is not None
        pod = instant.step.object
        assert isinstance(pod, Pod)
        pool = pod.labels[POOL]
        if not _is_retired(instant.pools.get(pool), before, instant.step):
            continue
        counts = [
            (unavailable(spec, instant.runners(pool), hashes), spec) for spec in recent.pools(pool)
        ]
        ended = recent.ended(pool)
        if all(count.total - ended > cap_of(spec) for count, spec in counts):
            found.append(f"version {instant.step.version}: {pod.name} was retired, {counts[0][0]}")
    return found


def retired(steps: tuple[Step, ...], pool: str, *, since: int) -> list[tuple[Pod, bool]]:
    """Return the idle runners that were deleted while they lived, and whether each was stale then."""
    return [
        (pod, is_stale(instant.pools[pool], pod))
        for instant, before in _pod_steps(steps, _Recent())
        if instant.step is not None
        and instant.step.version > since
        and isinstance(pod := instant.step.object, Pod)
        and pod.labels[POOL] == pool
        and before is not None
        and is_idle(before)
        and _goes(instant.step)
    ]


def leftovers(instant: Instant) -> list[str]:
    """V3, V8: one account per runner, one runner per account, and no more or fewer than wanted."""
    found = [
        f"account {name} has no Pod" for name in sorted(instant.accounts.keys() - instant.pods)
    ]
    found += [
        f"Pod {name} has no account" for name in sorted(instant.pods.keys() - instant.accounts)
    ]
    for name, pool in sorted(instant.pools.items()):
        runners = instant.runners(name)
        alive = [pod for pod in runners if is_alive(pod)]
        stale = [pod.name for pod in alive if is_stale(pool, pod)]
        if len(runners) != pool.spec.replicas or len(alive) != len(runners):
            found.append(
                f"pool {name} has {len(runners)} ({len(alive)} alive) of {pool.spec.replicas}"
            )
        if stale:
            found.append(f"pool {name} has stale runners: {', '.join(stale)}")
    homeless = {pod.labels[POOL] for pod in instant.pods.values()} - instant.pools.keys()
    return found + [f"runners of pool {name} outlive it" for name in sorted(homeless)]


class _Recent:
    """What of a pool changed just now: its specs, and the jobs that ended."""

    def __init__(self) -> None:
        self._now = 0.0
        self._pools: dict[str, deque[tuple[float, RunnerPool | None]]] = defaultdict(deque)
        self._ended: dict[str, deque[float]] = defaultdict(deque)
        self._busy: set[str] = set()

    def take(self, step: Step) -> None:
        self._now = max(self._now, step.at)
        item = step.object
        if isinstance(item, RunnerPool):
            gone = step.change is Change.DELETED
            self._pools[item.name].append((self._now, None if gone else item))
        elif isinstance(item, Pod):
            if is_busy(item) and is_alive(item):
                self._busy.add(item.uid)
            elif item.uid in self._busy:
                self._busy.discard(item.uid)
                self._ended[item.labels[POOL]].append(self._now)

    def pools(self, name: str) -> list[RunnerPool]:
        """Return the versions of a pool that were true just now, the newest first."""
        versions = self._pools[name]
        while len(versions) > 1 and versions[1][0] < self._now - JUST_NOW_S:
            versions.popleft()
        return [pool for _, pool in reversed(versions) if pool is not None]

    def ended(self, name: str) -> int:
        ends = self._ended[name]
        while ends and ends[0] < self._now - JUST_NOW_S:
            ends.popleft()
        return len(ends)


def _pod_steps(steps: tuple[Step, ...], recent: _Recent) -> Iterator[tuple[Instant, Pod | None]]:
    """Yield the instants after a Pod's change, with the Pod as it was before."""
    before: dict[str, Pod] = {}
    for instant in replay(steps):
        assert instant.step is not None
        recent.take(instant.step)
        pod = instant.step.object
        if isinstance(pod, Pod):
            yield instant, before.get(pod.uid)
            before[pod.uid] = pod


def _is_retired(pool: RunnerPool | None, before: Pod | None, step: Step) -> bool:
    """Whether this step marked a stale runner, or deleted one that lived, in a pool that goes on."""
    if pool is None or pool.metadata.deletion_timestamp is not None:
        return False
    if before is None or not is_idle(before) or not is_stale(pool, before):
        return False
    return (MARK in step.object.labels and MARK not in before.labels) or _goes(step)


def _goes(step: Step) -> bool:
    return step.change is Change.DELETED or step.object.metadata.deletion_timestamp is not None


def _wanted(pool: RunnerPool) -> int:
    return 0 if pool.metadata.deletion_timestamp is not None else pool.spec.replicas
