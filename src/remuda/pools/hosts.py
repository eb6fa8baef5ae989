"""
Hosts on which nothing starts: collects how starts went, has it judged, and says so on the Nodes.

The judgement is ``decide.avoidance``. What it remembers of a host is kept in a condition of its Node, so a new leader
goes on from there; the outcomes of single starts are not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from msgspec.structs import replace

from remuda.control.conditions import set_condition
from remuda.kube.core import NODE
from remuda.kube.names import FLEET
from remuda.kube.node_view import starts_failing
from remuda.kube.patches import JsonPatch
from remuda.kube.runner_pod import Placement
from remuda.kube.runner_view import is_busy
from remuda.model.runner import Phase
from remuda.pools.decide.avoidance import (
    Avoidance,
    StartOutcome,
    avoidance,
    condition_of,
    host_seen,
    worth_keeping,
)
from remuda.ports.kube import Conflict, KubeError, NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.control.cache import Key
    from remuda.kube.core import Node
    from remuda.kube.meta import Condition
    from remuda.kube.patches import JsonValue
    from remuda.model.runner import Runner
    from remuda.pools.decide.avoidance import SetStartsFailing
    from remuda.pools.reins import Reins

log = structlog.get_logger(__name__)

LOOP: Final = "hosts"
_PROBE_S: Final = 120.0
"""How long a runner that was sent to probe a host may take to be seen there."""
_OUTCOMES_MAX: Final = 4096
"""When so many outcomes are held, only those worth keeping are."""


class Hosts:
    """Knows where new runners should not go. ``run`` judges and writes; reads are at once."""

    def __init__(self, reins: Reins) -> None:
        self._reins, self._view = reins, reins.view
        self._outcomes: list[StartOutcome] = []
        self._judged: dict[str, str] = {}
        """Runners whose start was judged: their UIDs, by name, while their Pods are there."""
        self._known: dict[str, tuple[str, Condition]] = {}
        """What was last written on Nodes, with the version that shows it or that it was written over."""
        self._avoidance: dict[str, Avoidance] = {}
        self._probes: dict[str, float] = {}
        self._view.pods.on_change(self._pod_changed)

    # --- Outcomes ----------------------------------------------------------------------------------------------------

    def start_failed(self, runner: Runner, at: datetime) -> None:
        """Take note of a start that was given up."""
        self._note(runner, at, started=False)

    def _pod_changed(self, key: Key) -> None:
        runner = self._view.runner(key.name)
        if runner is None:
            self._judged.pop(key.name, None)
            return
        if not runner.node or self._judged.get(runner.name) == runner.uid:
            return
        if runner.warm_at is not None:
            self._note(runner, runner.warm_at, started=True)
        elif runner.phase is Phase.ENDED and self._never_started(runner):
            ended_at = runner.end.at if runner.end else None
            self._note(runner, ended_at or self._reins.clock.now(), started=False)

    def _never_started(self, runner: Runner) -> bool:
        """Say whether a runner ended without having been ready. One that ended well, or had a job, was."""
        pod = self._view.pod(runner.name)
        return pod is not None and pod.status.phase == "Failed" and not is_busy(pod)

    def _note(self, runner: Runner, at: datetime, *, started: bool) -> None:
        self._judged[runner.name] = runner.uid
        self._outcomes.append(StartOutcome(runner.node, runner.uid, started, at, runner.template))
        if len(self._outcomes) > _OUTCOMES_MAX:
            self._outcomes = list(worth_keeping(self._outcomes))
        node = self._view.node(runner.node)
        if node is not None and not started:
            self._judge(node.labels.get(FLEET, ""))

    # --- Reading -----------------------------------------------------------------------------------------------------

    def placement(self, fleet: str) -> Placement:
        """Say where one new runner should not go. Now and then it is sent to see whether a host works again."""
        known = self._avoidance.get(fleet)
        if known is None or not self._reins.settings.guards.avoidance:
            return Placement()
        # Suspects are only shunned: after a bad image they may be the only hosts with room.
        avoid, shun = tuple(sorted(known.avoid)), tuple(sorted(known.suspects))
        now = self._reins.clock.monotonic()
        probe = known.probe
        if not probe or self._probes.get(probe, float("-inf")) + _PROBE_S > now:
            return Placement(avoid, shun=shun)
        self._probes[probe] = now
        log.info("host probed", node=probe, fleet=fleet)
        return Placement(avoid, probe, shun)

    # --- Judging -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Judge all fleets now and then, until cancelled."""
        settings, health = self._reins.settings, self._reins.health
        with health.watched(LOOP, max(60.0, settings.hosts_s * 4)):
            while True:
                await self._judge_all()
                await health.pause(LOOP, settings.hosts_s)

    async def _judge_all(self) -> None:
        self._outcomes = list(worth_keeping(self._outcomes))
        self._known = {n: known for n, known in self._known.items() if self._view.node(n)}
        fleets = {pool.spec.fleet for pool in self._view.pools()}
        for gone in sorted(self._avoidance.keys() - fleets):
            del self._avoidance[gone]
            self._reins.metrics.forget_fleet(gone)
        for fleet in sorted(fleets):
            judged = self._judge(fleet)
            self._reins.metrics.avoided(fleet, len(judged.avoid))
            self._reins.metrics.fleet(fleet, self._view.fleet_nodes(fleet).filtered)
            for change in judged.changes:
                await self._write(change)
            await self._restore(fleet)

    def _judge(self, fleet: str) -> Avoidance:
        nodes = [self._newest(node) for node in self._view.nodes_of(fleet)]
        judged = avoidance(
            [host_seen(node) for node in nodes],
            self._outcomes,
            self._reins.clock.now(),
            starting_on=self._view.starting_on(fleet),
        )
        self._avoidance[fleet] = judged
        return judged

    def _newest(self, node: Node) -> Node:
        """Return the Node with what is known to be written on it, where it does not show that: not yet, or no more."""
        before, condition = self._known.get(node.name, ("", None))
        shown = starts_failing(node)
        if shown is not None and node.resource_version != before:
            self._known[node.name] = (node.resource_version, shown)
            return node
        if condition is None:
            return node
        others = tuple(c for c in node.status.conditions if c.type != condition.type)
        return replace(node, status=replace(node.status, conditions=(*others, condition)))

    # --- Writing -----------------------------------------------------------------------------------------------------

    async def _restore(self, fleet: str) -> None:
        """Write a condition again that was wiped off a Node by one who writes all of them."""
        for node in self._view.nodes_of(fleet):
            before, condition = self._known.get(node.name, ("", None))
            if condition is None or node.resource_version == before or starts_failing(node):
                continue
            if condition.status == "True":
                await self._patch(node, condition)

    async def _write(self, change: SetStartsFailing) -> None:
        node = self._view.node(change.node)
        if node is None or not self._reins.settings.guards.avoidance:
            return
        conditions = self._newest(node).status.conditions
        after = set_condition(conditions, condition_of(change), self._reins.clock.now())
        condition = next(c for c in after if c.type == condition_of(change).type)
        if not await self._patch(node, condition):
            return
        reason = "HostAvoided" if change.failing else "HostUsedAgain"
        self._reins.events.record(NODE, node, reason, condition.message, warning=change.failing)
        log.warning("host judged", node=node.name, failing=change.failing, why=change.why)

    async def _patch(self, node: Node, condition: Condition) -> bool:
        """Write one condition of a Node, the others as they are. What fails is done again with the next judgement."""
        operations = _operations(node, msgspec.to_builtins(condition))
        try:
            await self._reins.kube.patch(NODE, node.name, operations, subresource="status")
        except (Conflict, NotFound):
            return False  # a heartbeat came in between, or it is gone
        except KubeError as error:
            log.warning("condition of a host not written", node=node.name, error=str(error))
            return False
        self._known[node.name] = (node.resource_version, condition)
        return True


def _operations(node: Node, condition: JsonValue) -> JsonPatch:
    test: dict[str, JsonValue] = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": node.resource_version,
    }
    kinds = [c.type for c in node.status.conditions]
    assert isinstance(condition, dict)
    if not kinds:
        change: dict[str, JsonValue] = {
            "op": "add",
            "path": "/status/conditions",
            "value": [condition],
        }
    elif condition["type"] in kinds:
        place = kinds.index(str(condition["type"]))
        change = {"op": "replace", "path": f"/status/conditions/{place}", "value": condition}
    else:
        change = {"op": "add", "path": "/status/conditions/-", "value": condition}
    return JsonPatch((test, change))
