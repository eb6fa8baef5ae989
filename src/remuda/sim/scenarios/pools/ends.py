"""What must be so in the end, once nothing fails any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.model.runner import Phase, Runner

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool
    from remuda.sim.checkers import Liveness
    from remuda.sim.fleet.dispatch import FakeDispatch
    from remuda.sim.scenarios.pools.seen import Seen

LINGER_S = 180.0
"""How long the last writes may take once all is as it should be: a sweep after its grace, and a status."""


class AsAsked:
    """Every pool has exactly the runners that it asks for: warm, of its template, unmarked; and its status says so."""

    invariant = "V8 converged"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def look(self) -> str | None:
        if not self._seen.pools:
            return "there is no pool"
        for name, pool in sorted(self._seen.pools.items()):
            if wrong := self._wrong(name, pool):
                return f"{name}: {wrong}"
        strays = sorted(
            runner.name
            for uid, runner in self._seen.runners.items()
            if self._seen.pool_of[uid] not in self._seen.pools
        )
        return f"{strays[0]} has no pool" if strays else None

    def _wrong(self, name: str, pool: RunnerPool) -> str:
        if pool.metadata.deletion_timestamp is not None:
            return "it is still being deleted"
        runners, wanted = self._seen.of(name), self._seen.replicas(name)
        if len(runners) != wanted:
            return f"{len(runners)} runners instead of {wanted}"
        for runner in runners:
            if wrong := self._wrong_with(name, runner):
                return f"{runner.name} {wrong}"
        status = pool.status
        if status.observed_generation != pool.metadata.generation:
            return f"its status is about generation {status.observed_generation}"
        shown = (status.replicas, status.warm, status.busy, status.stale)
        return "" if shown == (wanted, wanted, 0, 0) else f"its status shows {shown}"

    def _wrong_with(self, pool: str, runner: Runner) -> str:
        if runner.phase is not Phase.WARM or not runner.is_alive:
            return f"is {runner.phase.value}"
        if self._seen.is_stale(pool, runner):
            return "is stale"
        return "is still marked" if runner.mark is not None else ""


class JobsDone:
    """Every job ran to its end: none was lost, none was killed."""

    invariant = "V2 no job is lost"

    def __init__(self, dispatch: FakeDispatch) -> None:
        self._dispatch = dispatch

    def look(self) -> str | None:
        if killed := self._dispatch.killed():
            return f"{killed[0].name} was killed"
        if waiting := self._dispatch.unfinished():
            return f"{len(waiting)} jobs are not done, such as {waiting[0].name}"
        return None


class NoOrphans:
    """Every ServiceAccount has its Pod."""

    invariant = "V3 no orphans"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def look(self) -> str | None:
        pods = {runner.name for runner in self._seen.runners.values()}
        orphans = sorted(self._seen.accounts - pods)
        return f"ServiceAccount {orphans[0]} has no Pod" if orphans else None


def all_ends(seen: Seen, dispatch: FakeDispatch) -> tuple[Liveness, ...]:
    """Return what every story ends with."""
    return AsAsked(seen), JobsDone(dispatch), NoOrphans(seen)
