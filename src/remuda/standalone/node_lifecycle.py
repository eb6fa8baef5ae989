"""
The node controller: notices Nodes that fall silent, and carries out what ``decide.node_health`` decided.

Silence is measured from when *this process* last saw a sign of life (a renewed Lease, a fresh heartbeat), on its own
monotonic clock. So a Node with a wrong clock is judged like any other, and after a restart every Node has a full grace
before anything is said about it: the control plane itself may have been down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
import structlog

from remuda.kube.core import Node
from remuda.kube.times import whole_seconds
from remuda.standalone.bell import Bell
from remuda.standalone.decide.node_health import (
    Action,
    Decision,
    HealthRules,
    MarkUnknown,
    SetTaints,
    decide,
)
from remuda.standalone.errors import StatusError
from remuda.standalone.objects import Obj, name_of, uid_of, version_of

if TYPE_CHECKING:
    from remuda.ports.clock import Clock
    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.rest import Rest
    from remuda.standalone.store import Store, StoredEvent

_log = structlog.get_logger("remuda.standalone.node_lifecycle")

LEASE_NAMESPACE = "kube-node-lease"
_RETRY_S = 1.0
_MERGE = "application/merge-patch+json"


@dataclass(slots=True)
class _Seen:
    """The last sign of life of one Node, and when we saw it."""

    sign: tuple[str, str, str]
    at: float


class NodeLifecycle:
    """Marks silent Nodes and keeps their taints in step with their conditions. Evicts nothing."""

    def __init__(
        self, rest: Rest, store: Store, clock: Clock, rules: HealthRules | None = None
    ) -> None:
        self._rest, self._store, self._clock = rest, store, clock
        self._rules = rules or HealthRules()
        self._nodes = _kind(rest, "", "nodes")
        self._leases = _kind(rest, "coordination.k8s.io", "leases")
        self._seen: dict[str, _Seen] = {}
        self._bell = Bell()

    async def run(self) -> None:
        stops = (
            self._store.follow(self._nodes, self._note_node),
            self._store.follow(self._leases, self._note_lease),
        )
        try:
            while True:
                await self._bell.heard(await self._look_at_all())
        finally:
            for stop in stops:
                stop()

    # --- Signs of life ------------------------------------------------------------------------------------------------

    def _note_lease(self, event: StoredEvent) -> None:
        meta = event.object["metadata"]
        if event.change == "DELETED" or meta.get("namespace") != LEASE_NAMESPACE:
            return
        node = self._store.get(self._nodes, "", meta["name"])
        # A renewal only moves the moment at which silence would be too long: no reason to wake up for it,
        # unless the Node had been given up.
        if node is not None and self._listen(node) and _gave_up(node):
            self._bell.ring()

    def _note_node(self, event: StoredEvent) -> None:
        if event.change == "DELETED":
            self._seen.pop(name_of(event.object), None)
            return
        self._listen(event.object)
        if event.previous is None or _judged(event.previous) != _judged(event.object):
            self._bell.ring()

    def _listen(self, node: Obj) -> bool:
        """Note the Node's last sign of life; tell whether it is a new one."""
        name, sign = name_of(node), self._sign(node)
        seen = self._seen.get(name)
        if seen is not None and seen.sign == sign:
            return False
        self._seen[name] = _Seen(sign, self._clock.monotonic())
        return True

    def _sign(self, node: Obj) -> tuple[str, str, str]:
        lease = self._store.get(self._leases, LEASE_NAMESPACE, name_of(node))
        renewed = str((lease.get("spec") or {}).get("renewTime", "")) if lease else ""
        ready = _condition(node, "Ready")
        # What we ourselves write (Unknown) is no sign of life, and does not change the heartbeat.
        return uid_of(node), renewed, str(ready.get("lastHeartbeatTime", "")) if ready else ""

    # --- Judging ------------------------------------------------------------------------------------------------------

    async def _look_at_all(self) -> float | None:
        """Judge every Node; return in how many seconds the first of them will have been silent for too long."""
        waits: list[float] = []
        for node in self._store.objects(self._nodes):
            decision = await self._judge(node)
            if decision is None:
                waits.append(_RETRY_S)
            elif decision.look_again_after is not None:
                # Just past the limit, so that one look is enough.
                waits.append(decision.look_again_after.total_seconds() + 0.001)
        return min(waits, default=None)

    async def _judge(self, node: Obj) -> Decision | None:
        self._listen(node)
        silent_s = self._clock.monotonic() - self._seen[name_of(node)].at
        now = whole_seconds(self._clock.now())
        try:
            read = msgspec.convert(node, Node)
        except msgspec.ValidationError as error:
            # One Node that cannot be understood must not end the control plane; it is judged once it is mended.
            _log.warning("node not understood", node=name_of(node), error=str(error))
            return Decision()
        decision = decide(read, timedelta(seconds=silent_s), now, self._rules)
        try:
            version = version_of(node)
            for action in decision.actions:
                version = version_of(await self._apply(node, version, action))
        except StatusError:
            return None  # it changed meanwhile, or is gone: look again
        return decision

    async def _apply(self, node: Obj, version: int, action: Action) -> Obj:
        match action:
            case MarkUnknown(conditions, _):
                return await self._patch(
                    node, version, {"status": {"conditions": conditions}}, "status"
                )
            case SetTaints(taints, _):
                return await self._patch(node, version, {"spec": {"taints": taints or None}}, "")
            case _:
                assert_never(action)

    async def _patch(
        self, node: Obj, version: int, change: dict[str, Any], subresource: str
    ) -> Obj:
        seen = {"metadata": {"uid": uid_of(node), "resourceVersion": str(version)}}
        body = msgspec.json.encode(change | seen)
        return await self._rest.patch(
            self._nodes, "", name_of(node), body, _MERGE, subresource=subresource
        )


def _kind(rest: Rest, group: str, plural: str) -> ResourceKind:
    return next(k for k in rest.kinds if (k.group, k.plural) == (group, plural))


def _condition(node: Obj, kind: str) -> dict[str, Any] | None:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)


def _gave_up(node: Obj) -> bool:
    ready = _condition(node, "Ready")
    return ready is not None and ready.get("status") == "Unknown"


def _judged(node: Obj) -> tuple[object, ...]:
    """Return what the decision depends on, heartbeats left out."""
    spec = node.get("spec") or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    return (
        uid_of(node),
        spec.get("taints"),
        spec.get("unschedulable"),
        [(one.get("type"), one.get("status")) for one in conditions],
    )
