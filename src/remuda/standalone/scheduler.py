"""
The scheduler: carries out what ``decide.scheduling`` decided.

Every pass places all Pods that are due from one reading of Pods and Nodes. A Pod that fits nowhere is told why in its
condition and in an Event, and is tried again when something changed that could help it (after a back-off), or after
five minutes in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from remuda.kube.times import micro_time
from remuda.model.errors import BadInput
from remuda.standalone.bell import Bell
from remuda.standalone.decide.scheduling import Ask, Bind, Wait, decide
from remuda.standalone.errors import StatusError
from remuda.standalone.metadata import time_text
from remuda.standalone.node_rooms import NodeRooms
from remuda.standalone.objects import Obj, name_of, namespace_of, uid_of
from remuda.standalone.schedulable import (
    SCHEDULER_NAME,
    is_over,
    read_ask,
    waits_for_node,
)

if TYPE_CHECKING:
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.standalone.decide.scheduling import Action
    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.rest import Rest
    from remuda.standalone.store import Store, StoredEvent

BACKOFF_FIRST_S, BACKOFF_MAX_S = 1.0, 10.0
RETRY_ANYWAY_S = 300.0
_AT_ONCE_MAX = 32
"""Pods that are decided about in one go: thousands would keep everybody else waiting for seconds."""
_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(slots=True)
class _Tried:
    """A Pod that was tried and did not get a Node."""

    spec: Obj
    """The Pod's spec then: a changed Pod is tried afresh."""
    changes: int
    """How many helpful changes there had been."""
    at: float
    tries: int = 1

    def due_at(self, changes: int) -> float:
        if changes > self.changes:
            doubled = BACKOFF_FIRST_S * (1 << min(self.tries - 1, 10))
            return self.at + min(doubled, BACKOFF_MAX_S)
        return self.at + RETRY_ANYWAY_S


class Scheduler:
    """Finds a Node for every Pod that waits for one."""

    def __init__(self, rest: Rest, store: Store, clock: Clock, ids: Ids) -> None:
        self._rest, self._store, self._clock, self._ids = rest, store, clock, ids
        self._pods, self._nodes, self._events = (
            _kind(rest, plural) for plural in ("pods", "nodes", "events")
        )
        self._tried: dict[str, _Tried] = {}
        self._rooms = NodeRooms()
        self._changes = 0
        self._bell = Bell()

    async def run(self) -> None:
        stops = (
            self._store.follow(self._pods, self._note_pod),
            self._store.follow(self._nodes, self._note_node),
        )
        try:
            self._rooms.read(self._store.objects(self._nodes), self._store.objects(self._pods))
            while True:
                await self._bell.heard(await self._schedule())
        finally:
            for stop in stops:
                stop()

    # --- What wakes it ------------------------------------------------------------------------------------------------

    def _note_pod(self, event: StoredEvent) -> None:
        pod, before = event.object, event.previous
        if event.change == "DELETED":
            self._tried.pop(uid_of(pod), None)
            self._rooms.forget_pod(uid_of(pod))
            if pod["spec"].get("nodeName"):
                self._helpful()
            return
        self._rooms.note_pod(pod)
        if pod["spec"].get("nodeName"):
            if is_over(pod) and before is not None and not is_over(before):
                self._helpful()
        elif before is None or before["spec"] != pod["spec"]:
            self._bell.ring()

    def _note_node(self, event: StoredEvent) -> None:
        if event.change == "DELETED":
            self._rooms.forget_node(name_of(event.object))
        elif event.previous is None or _offer(event.previous) != _offer(event.object):
            self._rooms.note_node(event.object)
            self._helpful()

    def _helpful(self) -> None:
        self._changes += 1
        if self._tried:
            self._bell.ring()

    # --- One pass -----------------------------------------------------------------------------------------------------

    async def _schedule(self) -> float | None:
        """Try every Pod that is due; return in how many seconds the next one will be."""
        waiting = [pod for pod in self._store.objects(self._pods) if waits_for_node(pod)]
        now = self._clock.monotonic()
        due = [pod for pod in waiting if self._due_at(pod, now) <= now]
        due.sort(key=_turn)
        for at in range(0, len(due), _AT_ONCE_MAX):
            await self._place(due[at : at + _AT_ONCE_MAX])
        left = [uid_of(pod) for pod in waiting if uid_of(pod) in self._tried]
        self._tried = {uid: self._tried[uid] for uid in left}
        now = self._clock.monotonic()
        return min(
            (max(0.0, one.due_at(self._changes) - now) for one in self._tried.values()),
            default=None,
        )

    async def _place(self, due: list[Obj]) -> None:
        changes = self._changes
        by_uid = {uid_of(pod): pod for pod in due}
        for action in self._decide(due):
            await self._apply(by_uid[action.ask.uid], action, changes)

    def _due_at(self, pod: Obj, now: float) -> float:
        tried = self._tried.get(uid_of(pod))
        if tried is None or tried.spec != pod["spec"]:
            return now
        return tried.due_at(self._changes)

    def _decide(self, due: list[Obj]) -> list[Action]:
        asks: list[Ask] = []
        actions: list[Action] = []
        for pod in due:
            try:
                asks.append(read_ask(pod))
            except BadInput as error:
                actions.append(Wait(_nameless_ask(pod), str(error)))
        return [*actions, *decide(asks, self._rooms.places())]

    # --- Carrying it out ----------------------------------------------------------------------------------------------

    async def _apply(self, pod: Obj, action: Action, changes: int) -> None:
        try:
            match action:
                case Bind(ask, node, _) if not self._still_fits(ask, node):
                    self._bell.ring()  # the next pass finds it another place
                case Bind(ask, node, why):
                    await self._rest.bind(ask.namespace, ask.name, node, uid=ask.uid)
                    self._tried.pop(ask.uid, None)
                    await self._say(pod, "Normal", "Scheduled", why)
                case Wait(_, why):
                    self._note_failure(pod, changes)
                    await self._refuse(pod, why)
                case _:
                    assert_never(action)
        except StatusError:
            # The Pod changed or went meanwhile, or the disk failed: it is tried again after its back-off.
            self._note_failure(pod, changes - 1)

    def _still_fits(self, ask: Ask, node: str) -> bool:
        """Ask again just before binding: a pass is long where every write waits for the disk, and Nodes change."""
        place = self._rooms.place(node)
        return place is not None and isinstance(decide([ask], [place])[0], Bind)

    def _note_failure(self, pod: Obj, changes: int) -> None:
        uid, now = uid_of(pod), self._clock.monotonic()
        tried = self._tried.get(uid)
        tries = tried.tries + 1 if tried and tried.spec == pod["spec"] else 1
        self._tried[uid] = _Tried(pod["spec"], changes, now, tries)

    async def _refuse(self, pod: Obj, why: str) -> None:
        condition = _condition(pod)
        if condition and (condition.get("status"), condition.get("message")) == ("False", why):
            return  # said already: writing it again would only wake everybody up
        now = time_text(self._clock.now())
        was_false = condition is not None and condition.get("status") == "False"
        written: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastProbeTime": None,
            "lastTransitionTime": condition.get("lastTransitionTime")
            if condition and was_false
            else now,
        }
        if "generation" in pod["metadata"]:
            written["observedGeneration"] = pod["metadata"]["generation"]
        change = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [written]}}
        await self._rest.patch(
            self._pods,
            namespace_of(pod),
            name_of(pod),
            msgspec.json.encode(change),
            _STRATEGIC,
            subresource="status",
        )
        await self._say(pod, "Warning", "FailedScheduling", why)

    async def _say(self, pod: Obj, kind: str, reason: str, message: str) -> None:
        meta = pod["metadata"]
        now = self._clock.now()
        event: Obj = {
            "metadata": {"name": f"{meta['name'][:230]}.{self._ids.suffix(16)}"},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
            "action": "Binding" if kind == "Normal" else "Scheduling",
            "eventTime": micro_time(now),
            "firstTimestamp": None,
            "lastTimestamp": None,
            "reason": reason,
            "message": message,
            "type": kind,
            "reportingComponent": SCHEDULER_NAME,
            "reportingInstance": SCHEDULER_NAME,
            "source": {},
        }
        try:
            await self._rest.create(self._events, meta["namespace"], event)
        except StatusError:
            return  # an Event is a courtesy: its loss must not cost the Pod its place


def _kind(rest: Rest, plural: str) -> ResourceKind:
    return next(k for k in rest.kinds if (k.group, k.plural) == ("", plural))


def _condition(pod: Obj) -> dict[str, Any] | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == "PodScheduled"), None)


def _offer(node: Obj) -> tuple[object, ...]:
    """Return what scheduling reads of a Node: heartbeats change none of it."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
    )


def _turn(pod: Obj) -> tuple[int, str, str, str]:
    """Order Pods as ``decide`` does."""
    created = pod["metadata"].get("creationTimestamp", "")
    return -pod["spec"].get("priority", 0), created, namespace_of(pod), name_of(pod)


def _nameless_ask(pod: Obj) -> Ask:
    return Ask(namespace=namespace_of(pod), name=name_of(pod), uid=uid_of(pod))
