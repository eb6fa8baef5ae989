"""
What the operator sees of a fleet: reflectors of everything it needs, and reads by what decisions ask for.

One reign has one view, listed afresh. Reads are from memory and cost what one pool costs, never the fleet: Pods are
found by pool and, while they start, by fleet; a Pod is translated to a Runner once per version.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.control.cache import by_label, key_of
from remuda.control.reflector import Reflector
from remuda.kube.core import NODE, POD, RUNTIME_CLASS, SERVICE_ACCOUNT
from remuda.kube.names import FLEET, POOL, RUNNER
from remuda.kube.node_view import NOT_READY, UNSCHEDULABLE, is_draining, unhealthy_reason
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.kube.runner_view import phase_of, runner_of
from remuda.model.runner import Phase
from remuda.ports.kube import Query

if TYPE_CHECKING:
    from remuda.control.cache import Key
    from remuda.kube.core import Node, Pod, RuntimeClass, ServiceAccount
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.runner import Runner
    from remuda.pools.settings import PoolSettings
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

Wake = Callable[[str], None]
"""Told the name of a pool that may have news. It must not wait."""


@dataclass(frozen=True, slots=True)
class FleetNodes:
    """What a fleet's hosts are good for, in numbers."""

    healthy: int = 0
    filtered: Mapping[str, int] = field(default_factory=dict)
    """How many take no new runner, by reason."""


@dataclass(frozen=True, slots=True)
class _NodeFacts:
    """What of a Node matters to pools. A heartbeat changes none of it."""

    fleet: str
    draining: bool
    unhealthy: str


class FleetView:
    """``run`` keeps it current; nothing may act on it before ``wait_synced``."""

    def __init__(self, kube: Kube, settings: PoolSettings, *, clock: Clock, ids: Ids) -> None:
        ours = Query(namespace=settings.namespace, labels=f"{RUNNER}=true")
        how = settings.reflector
        self._namespace = settings.namespace
        self.runner_pools: Reflector[RunnerPool] = Reflector(
            kube,
            RUNNER_POOL,
            Query(namespace=settings.namespace),
            clock=clock,
            ids=ids,
            settings=how,
        )
        self.pods: Reflector[Pod] = Reflector(kube, POD, ours, clock=clock, ids=ids, settings=how)
        self.service_accounts: Reflector[ServiceAccount] = Reflector(
            kube, SERVICE_ACCOUNT, ours, clock=clock, ids=ids, settings=how
        )
        self.nodes: Reflector[Node] = Reflector(
            kube, NODE, Query(labels=FLEET), clock=clock, ids=ids, settings=how
        )
        self.runtime_classes: Reflector[RuntimeClass] = Reflector(
            kube, RUNTIME_CLASS, clock=clock, ids=ids, settings=how
        )
        self.runner_pools.index("fleet", _by_spec_fleet)
        self.pods.index("pool", by_label(POOL))
        self.pods.index("starting", _by_starting_fleet)
        self.nodes.index("fleet", by_label(FLEET))
        self._runners: dict[Key, tuple[str, Runner]] = {}
        self._node_facts: dict[Key, _NodeFacts] = {}
        self._fleet_nodes: dict[str, FleetNodes] = {}
        self._pool_of: dict[Key, str] = {}
        self._wakes: list[Wake] = []
        self.runner_pools.on_change(lambda key: self._wake(key.name))
        self.pods.on_change(self._pod_changed)
        self.service_accounts.on_change(self._service_account_changed)
        self.nodes.on_change(self._node_changed)

    # --- Following ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the server until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.runner_pools.run(), name="view: pools")
            group.create_task(self.pods.run(), name="view: pods")
            group.create_task(self.service_accounts.run(), name="view: service accounts")
            group.create_task(self.nodes.run(), name="view: nodes")
            group.create_task(self.runtime_classes.run(), name="view: runtime classes")

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once. Before that, a missing object means nothing."""
        return (
            self.runner_pools.synced
            and self.pods.synced
            and self.service_accounts.synced
            and self.nodes.synced
            and self.runtime_classes.synced
        )

    async def wait_synced(self) -> None:
        await self.runner_pools.wait_synced()
        await self.pods.wait_synced()
        await self.service_accounts.wait_synced()
        await self.nodes.wait_synced()
        await self.runtime_classes.wait_synced()

    def on_pool_news(self, wake: Wake) -> None:
        """Have ``wake`` told the name of every pool that may have news, and now and then of all."""
        self._wakes.append(wake)

    # --- Reading -----------------------------------------------------------------------------------------------------

    def pool(self, name: str) -> RunnerPool | None:
        return self.runner_pools.get(name, namespace=self._namespace)

    def pools(self) -> tuple[RunnerPool, ...]:
        return self.runner_pools.all()

    def siblings(self, fleet: str) -> tuple[RunnerPool, ...]:
        """Return the pools of a fleet, in the order of their names."""
        return self.runner_pools.found("fleet", fleet)

    def runners(self, pool: str) -> tuple[Runner, ...]:
        """Return a pool's runners as they were last seen, in the order of their names."""
        return tuple(self._runner(pod) for pod in self.pods.found("pool", pool))

    def runner(self, name: str) -> Runner | None:
        pod = self.pod(name)
        return None if pod is None else self._runner(pod)

    def pod(self, name: str) -> Pod | None:
        return self.pods.get(name, namespace=self._namespace)

    def service_account(self, name: str) -> ServiceAccount | None:
        return self.service_accounts.get(name, namespace=self._namespace)

    def starting(self, fleet: str) -> tuple[tuple[str, Runner], ...]:
        """Return the fleet's runners that are starting, each with the name of its pool."""
        found = self.pods.found("starting", fleet)
        return tuple((pod.labels[POOL], self._runner(pod)) for pod in found)

    def is_silent(self, runner: Runner) -> bool:
        """Say whether a runner's host is not ready: nothing starts there, and what was warm there only looks so."""
        node = self.nodes.get(runner.node) if runner.node else None
        return node is not None and unhealthy_reason(node) == NOT_READY

    def starting_on(self, fleet: str) -> frozenset[str]:
        """Return the hosts on which runners of the fleet are starting."""
        return frozenset(pod.spec.node_name for pod in self.pods.found("starting", fleet)) - {""}

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def nodes_of(self, fleet: str) -> tuple[Node, ...]:
        return self.nodes.found("fleet", fleet)

    def draining(self, runners: Iterable[Runner]) -> frozenset[str]:
        """Return which of these runners' hosts are on their way out. One that is not known is not."""
        names = {runner.node for runner in runners if runner.node}
        nodes = {name: self.nodes.get(name) for name in names}
        return frozenset(name for name, node in nodes.items() if node and is_draining(node))

    def unfit(self, fleet: str) -> tuple[str, ...]:
        """Return the fleet's hosts that are on their way out or not ready: what is put there goes again, or hangs."""
        reasons = {NOT_READY, UNSCHEDULABLE}
        return tuple(n.name for n in self.nodes_of(fleet) if unhealthy_reason(n) in reasons)

    def fleet_nodes(self, fleet: str) -> FleetNodes:
        """Return what the fleet's hosts are good for. Counted anew only after one of them changed in that."""
        if (known := self._fleet_nodes.get(fleet)) is None:
            reasons = Counter(unhealthy_reason(node) for node in self.nodes_of(fleet))
            known = FleetNodes(reasons.pop("", 0), reasons)
            self._fleet_nodes[fleet] = known
        return known

    def runtime_class(self, name: str) -> RuntimeClass | None:
        return self.runtime_classes.get(name)

    # --- News --------------------------------------------------------------------------------------------------------

    def _runner(self, pod: Pod) -> Runner:
        key = key_of(pod)
        known = self._runners.get(key)
        if known is not None and known[0] == pod.resource_version and known[1].uid == pod.uid:
            return known[1]
        runner = runner_of(pod)
        self._runners[key] = (pod.resource_version, runner)
        return runner

    def _pod_changed(self, key: Key) -> None:
        pod = self.pods.get(key.name, namespace=key.namespace)
        before = self._pool_of.get(key)
        if pod is None:
            self._runners.pop(key, None)
            self._pool_of.pop(key, None)
        else:
            self._pool_of[key] = pod.labels.get(POOL, "")
        for pool in sorted({before or "", self._pool_of.get(key, "")} - {""}):
            self._wake(pool)

    def _service_account_changed(self, key: Key) -> None:
        account = self.service_accounts.get(key.name, namespace=key.namespace)
        if account is not None and (pool := account.labels.get(POOL)):
            self._wake(pool)

    def _node_changed(self, key: Key) -> None:
        """Wake the pools of a host's fleet, but only if what matters to them changed."""
        node = self.nodes.get(key.name)
        before = self._node_facts.pop(key, None)
        after = None if node is None else _facts(node)
        if after is not None:
            self._node_facts[key] = after
        if before == after:
            return
        for fleet in sorted({facts.fleet for facts in (before, after) if facts is not None}):
            self._fleet_nodes.pop(fleet, None)
            for pool in self.siblings(fleet):
                self._wake(pool.name)

    def _wake(self, pool: str) -> None:
        for wake in self._wakes:
            wake(pool)


def _facts(node: Node) -> _NodeFacts:
    return _NodeFacts(node.labels.get(FLEET, ""), is_draining(node), unhealthy_reason(node))


def _by_spec_fleet(pool: RunnerPool) -> Iterable[str]:
    return (pool.spec.fleet,)


def _by_starting_fleet(pod: Pod) -> Iterable[str]:
    """Find the Pods that are starting by the fleet that they were made for."""
    fleet = pod.spec.node_selector.get(FLEET)
    if not fleet or pod.metadata.deletion_timestamp is not None:
        return ()
    if not pod.labels.get(POOL):
        return ()  # taken out of its pool by a person: no deadline ever frees the slot that it would hold
    return (fleet,) if phase_of(pod) is Phase.STARTING else ()
