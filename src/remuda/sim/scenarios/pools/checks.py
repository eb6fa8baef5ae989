"""What must hold of pools, at every change of the store. The names are those of INVARIANTS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from remuda.kube.names import OWNER, POOL
from remuda.model.runner import Phase
from remuda.sim.checkers import Fencing
from remuda.sim.fleet.statuses import TERMINAL
from remuda.sim.scenarios.pools.seen import is_runner
from remuda.sim.scenarios.pools.stage import CONTROLLERS, LEASE, SPACE

if TYPE_CHECKING:
    from remuda.model.runner import Runner
    from remuda.sim.checkers import Observed
    from remuda.sim.fleet.dispatch import FakeDispatch
    from remuda.sim.scenarios.pools.seen import Seen
    from remuda.standalone.objects import Obj


class NoKill:
    """From the moment a runner carries its job's owner until the job ends, nothing deletes it."""

    invariant = "S2 no kill"

    def __init__(self, dispatch: FakeDispatch) -> None:
        self._dispatch = dispatch

    def look(self, change: Observed) -> str | None:
        before = change.event.previous
        if change.plural != "pods" or before is None or not is_runner(before):
            return None
        if (before.get("status") or {}).get("phase") in TERMINAL or _is_deleting(before):
            return None
        if change.event.change != "DELETED" and not _is_deleting(change.event.object):
            return None
        job = self._dispatch.running(before["metadata"]["uid"])
        if job is not None:
            return f"{change.event.key} was deleted while {job.name} ran on it"
        owner = label_of(before, OWNER)
        return f"{change.event.key} was deleted although it is {owner}'s" if owner else None


def label_of(obj: Obj, label: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(label, ""))


def _is_deleting(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


class Recent:
    """The largest value of late: what is acted on may have been seen a while ago."""

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._values: dict[str, list[tuple[float, int]]] = {}

    def put(self, key: str, at_s: float, value: int) -> None:
        values = self._values.setdefault(key, [])
        if not values or values[-1][1] != value:
            values.append((at_s, value))

    def most(self, key: str, now: float) -> int:
        values = self._values[key]
        # What came last before the window still held at its beginning.
        while len(values) > 1 and values[1][0] <= now - self._lag_s:
            del values[0]
        return max(value for _, value in values)


class Caps:
    """No runner is made beyond what its pool asked for within the last ``lag_s``, and never beyond its maximum."""

    invariant = "S3 caps"

    def __init__(self, seen: Seen, *, lag_s: float) -> None:
        self._seen = seen
        self._asked = Recent(lag_s)

    def look(self, change: Observed) -> str | None:
        if change.plural == "runnerpools" and change.event.change != "DELETED":
            name = change.event.object["metadata"]["name"]
            self._asked.put(name, change.at_s, self._seen.replicas(name))
        if change.event.change != "ADDED" or self._seen.after is None:
            return None
        pool = self._seen.pool_of[self._seen.after.uid]
        if pool not in self._seen.pools:
            return None  # it is gone since; the sweep takes its runners
        alive, most = len(self._seen.alive(pool)), self._asked.most(pool, change.at_s)
        scaling = self._seen.pools[pool].spec.autoscaling
        if scaling.enabled and scaling.max_replicas is not UNSET:
            most = min(most, scaling.max_replicas)
        return f"{pool} has {alive} runners and may have {most}" if alive > most else None


class WarmThroughRoll:
    """Once a pool has been whole, a roll never takes away more than its cap. For pools that no job turns over."""

    invariant = "S4 warm through a roll"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._whole: set[str] = set()
        self.is_on = True
        """Off while jobs turn runners over: then what is missing is not the roll's doing."""
        self.worst: dict[str, int] = {}

    def look(self, change: Observed) -> str | None:
        pool = self._pool_of(change)
        if not pool or pool not in self._seen.pools:
            self._whole.discard(pool)
            return None
        unavailable, cap = self._seen.unavailable(pool), self._seen.cap(pool)
        if unavailable == 0:
            self._whole.add(pool)
        if not self.is_on or pool not in self._whole:
            return None
        self.worst[pool] = max(unavailable, self.worst.get(pool, 0))
        if unavailable <= cap:
            return None
        return f"{unavailable} runners of {pool} are unavailable, and the cap is {cap}"

    def _pool_of(self, change: Observed) -> str:
        about = self._seen.after or self._seen.before
        if about is not None:
            return self._seen.pool_of.get(about.uid, "") or label_of(change.event.object, POOL)
        is_pool = change.plural == "runnerpools"
        return change.event.object["metadata"]["name"] if is_pool else ""


class OwnRetires:
    """
    The operator marks nobody while as many as the cap are marked, or were and are not replaced yet.

    What jobs and faults take away is not its doing. What becomes warm counts as a replacement, whatever it was for, and
    a cap counts for ``lag_s`` after it was lowered: this may be too kind, never too strict.
    """

    invariant = "S4 warm through a roll"

    def __init__(self, seen: Seen, *, lag_s: float) -> None:
        self._seen = seen
        self._caps = Recent(lag_s)
        self._retired: dict[str, dict[str, None]] = {}
        """By pool: the UIDs of runners that were marked and not replaced yet, first come first."""

    def look(self, change: Observed) -> str | None:
        before, after = self._seen.before, self._seen.after
        if before is None or after is None:
            return None
        pool = self._seen.pool_of[after.uid]
        if pool not in self._seen.pools:
            return None
        self._caps.put(pool, change.at_s, self._seen.cap(pool))
        retired = self._retired.setdefault(pool, {})
        retires = change.writer in CONTROLLERS and self._retires(pool, before, after)
        self._forget(retired, before, after)
        # No more can be away on the roll's account than were away before this: a pool that shrank needs no replacement.
        away = max(0, self._seen.unavailable(pool) - (1 if retires else 0))
        while len(retired) > away:
            del retired[next(iter(retired))]
        if not retires:
            return None
        retired[after.uid] = None
        cap = self._caps.most(pool, change.at_s)
        return (
            f"{len(retired)} of {pool} are retired, the cap is {cap}"
            if len(retired) > cap
            else None
        )

    def _retires(self, pool: str, before: Runner, after: Runner) -> bool:
        marks = before.mark is None and after.mark is not None
        return marks and after.is_idle and self._seen.is_stale(pool, after)

    @staticmethod
    def _forget(retired: dict[str, None], before: Runner, after: Runner) -> None:
        if after.is_alive and (after.mark is None or after.phase is Phase.BUSY):
            retired.pop(after.uid, None)  # taken back, or its job came first
        if before.phase is Phase.STARTING and after.phase is not Phase.STARTING and retired:
            del retired[next(iter(retired))]


def fencing() -> Fencing:
    return Fencing(f"{SPACE}/{LEASE}", CONTROLLERS)


class FailStatic:
    """While dispatch cannot be asked, nobody lowers what is wanted."""

    invariant = "S9 fail static"

    GRACE_S = 30.0
    """What was decided on the last answer may still be written."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._replicas: dict[str, int] = {}
        self.down_since: float | None = None

    def look(self, change: Observed) -> str | None:
        if change.plural != "runnerpools" or change.event.change == "DELETED":
            return None
        name = change.event.object["metadata"]["name"]
        before, after = self._replicas.get(name, 0), self._seen.replicas(name)
        self._replicas[name] = after
        if change.writer not in CONTROLLERS or self.down_since is None or after >= before:
            return None
        if change.at_s < self.down_since + self.GRACE_S:
            return None
        return f"{name} was lowered from {before} to {after} while dispatch was silent"


class GoesLast:
    """A deleted pool's object goes after its runners: none of them is left that is not itself going."""

    invariant = "V4 finalizers drain"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def look(self, change: Observed) -> str | None:
        if change.plural != "runnerpools" or change.event.change != "DELETED":
            return None
        name = change.event.object["metadata"]["name"]
        left = sorted(r.name for r in self._seen.of(name) if r.deleting_since is None)
        return f"{name} went before {', '.join(left)}" if left else None
