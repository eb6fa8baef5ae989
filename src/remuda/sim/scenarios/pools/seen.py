"""The fleet as the store has it, kept change by change: what the checkers of this package count in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from remuda.kube.core import Pod, ServiceAccount
from remuda.kube.names import POOL, RUNNER
from remuda.kube.runner_pod import template_hash
from remuda.kube.runner_pool import RunnerPool
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase
from remuda.sim.scenarios.pools.stage import PODS

if TYPE_CHECKING:
    from remuda.model.runner import Runner
    from remuda.sim.checkers import Observed
    from remuda.standalone.objects import Obj


class Seen:
    """What is there after each change, and was before it. Added before the checkers that read it; finds no fault."""

    invariant = "the fleet as it is"

    def __init__(self) -> None:
        self.pools: dict[str, RunnerPool] = {}
        self.templates: dict[str, str] = {}
        """The hash of what each pool makes now."""
        self.runners: dict[str, Runner] = {}
        """By UID."""
        self.pool_of: dict[str, str] = {}
        self.accounts: set[str] = set()
        self.before: Runner | None = None
        self.after: Runner | None = None
        """The runner that the last change was about, before and after it."""

    def look(self, change: Observed) -> str | None:
        self.before = self.after = None
        gone = change.event.change == "DELETED"
        obj = change.event.object
        match change.plural:
            case "runnerpools":
                self._pool(obj, gone=gone)
            case "pods" if is_runner(obj):
                self._runner(obj, gone=gone)
            case "serviceaccounts" if is_runner(obj):
                account = msgspec.convert(obj, ServiceAccount)
                (self.accounts.discard if gone else self.accounts.add)(account.name)
        return None

    def _pool(self, obj: Obj, *, gone: bool) -> None:
        pool = msgspec.convert(obj, RunnerPool)
        if gone:
            self.pools.pop(pool.name, None)
            return
        self.pools[pool.name] = pool
        self.templates[pool.name] = template_hash(pool, PODS)

    def _runner(self, obj: Obj, *, gone: bool) -> None:
        pod = msgspec.convert(obj, Pod)
        self.before = self.runners.get(pod.uid)
        if gone:
            self.runners.pop(pod.uid, None)
            self.pool_of.pop(pod.uid, None)
            return
        self.after = self.runners[pod.uid] = runner_of(pod)
        self.pool_of[pod.uid] = pod.labels.get(POOL, "")

    # --- counting -----------------------------------------------------------------------------------------------

    def of(self, pool: str) -> list[Runner]:
        return [runner for uid, runner in self.runners.items() if self.pool_of[uid] == pool]

    def alive(self, pool: str) -> list[Runner]:
        return [runner for runner in self.of(pool) if runner.is_alive]

    def is_stale(self, pool: str, runner: Runner) -> bool:
        return runner.template != self.templates[pool]

    def unavailable(self, pool: str) -> int:
        """Count what a roll takes away, whoever took it: missing, not warm, or asked to make room."""
        serving = 0
        for runner in self.alive(pool):
            leaving = runner.mark is not None and self.is_stale(pool, runner)
            if runner.phase is Phase.BUSY or (runner.phase is Phase.WARM and not leaving):
                serving += 1
        return max(0, self.replicas(pool) - serving)

    def replicas(self, pool: str) -> int:
        return self.pools[pool].spec.replicas

    def cap(self, pool: str) -> int:
        spec = self.pools[pool].spec
        return max(1, spec.rollout.max_concurrent_percent * spec.replicas // 100)


def is_runner(obj: Obj) -> bool:
    return (obj["metadata"].get("labels") or {}).get(RUNNER) == "true"
