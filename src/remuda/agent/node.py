"""
Keeps this host's Node: makes it, again if somebody deletes it, and has it say what is so, and soon.

What changed is written at once, and everything once in a while; a healthy host costs little. It writes only what it
changes, and conditions only if nobody wrote since it looked. Whether the host is alive is for the Lease to say.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from remuda.agent.decide.node_shown import (
    TAINT,
    changed_labels,
    check_labels,
    lacks_taint,
    new_node,
    status,
    without_times,
)
from remuda.control.backoff import Backoff
from remuda.kube.core import NODE
from remuda.kube.patches import MergePatch, merge_patch
from remuda.ports.kube import AlreadyExists, Conflict, KubeError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.agent.decide.node_shown import NodeAbout
    from remuda.agent.parts import HostState
    from remuda.control.events import EventRecorder
    from remuda.control.health import Health
    from remuda.control.reflector import Reflector
    from remuda.kube.core import Node
    from remuda.kube.patches import JsonValue
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

_LOOP: Final = "node"
_PACE_S: Final = 1.0
"""The least time between two writes: whatever goes on, others have to read it."""
_TRIES_MAX: Final = 3
"""How often a write is tried anew at once when somebody else was faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeApi:
    """How the Node is reached."""

    kube: Kube
    nodes: Reflector[Node]
    """Of this one Node; somebody else runs it."""
    events: EventRecorder


class NodeKeeper:
    """One Node, kept as ``state`` says."""

    def __init__(
        self,
        api: NodeApi,
        about: NodeAbout,
        state: Callable[[], HostState],
        *,
        clock: Clock,
        ids: Ids,
        health: Health,
    ) -> None:
        check_labels(about.settings.labels)
        self._kube, self._nodes, self._events = api.kube, api.nodes, api.events
        self._about, self._state, self._name = about, state, about.settings.node
        self._clock, self._ids, self._health = clock, ids, health
        self._backoff = Backoff(first_s=0.5, longest_s=about.settings.status_s)
        self._poked = asyncio.Event()
        self._uid = ""
        self._told_at = float("-inf")
        self._warned = ""
        self._nodes.on_change(lambda _: self._look())

    @property
    def uid(self) -> str:
        """Of the Node that there is; empty until it is known."""
        return self._uid

    def poke(self) -> None:
        """Have what changed written soon."""
        self._poked.set()

    async def register(self) -> None:
        """Make the Node, or take over the one of our name; however long the server does not answer."""
        failures = 0
        while not self._uid:
            try:
                await self._write()
            except (KubeError, TimeoutError) as error:
                failures += 1
                log.warning("node not registered", node=self._name, error=str(error))
                await self._clock.sleep(self._backoff.wait_s(failures, self._ids.fraction()))

    async def run(self) -> None:
        """Keep the Node until cancelled."""
        failures = 0
        every_s = self._about.settings.status_s
        with self._health.watched(_LOOP, 10 * every_s):
            while True:
                self._poked.clear()
                self._health.beat(_LOOP)
                try:
                    async with asyncio.timeout(every_s):
                        await self._write()
                except (KubeError, TimeoutError) as error:
                    failures += 1
                    log.warning("node not written", error=str(error) or "no answer in time")
                    wait_s = self._backoff.wait_s(failures, self._ids.fraction())
                    await self._clock.sleep(wait_s)
                    continue
                failures = 0
                await self._clock.sleep(_PACE_S)
                await self._until_poked(self._told_at + every_s)

    async def _until_poked(self, moment: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, moment - self._clock.monotonic())):
                await self._poked.wait()
        except TimeoutError:
            return

    def _look(self) -> None:
        """Look at the Node as it is now, whoever changed it."""
        node = self._nodes.get(self._name)
        if node is None:
            if self._nodes.synced:
                self._poked.set()
            return
        if self._differs(node):
            self._poked.set()

    def _differs(self, node: Node) -> bool:
        state = self._state()
        wanted = status(self._about, state, node.status, self._clock.now())
        return bool(changed_labels(self._about, state, node.labels)) or (
            without_times(wanted) != without_times(node.status)
        )

    async def _write(self) -> None:
        for _ in range(_TRIES_MAX):
            try:
                await self._write_once()
            except (Conflict, AlreadyExists, NotFound):
                continue  # somebody else was faster: look again
            else:
                return
        # Not lost: the next turn comes.

    async def _write_once(self) -> None:
        state = self._state()
        try:
            node = await self._kube.get(NODE, self._name)
        except NotFound:
            node = await self._kube.create(NODE, new_node(self._about, state, self._clock.now()))
            log.info("node made", node=self._name, again=bool(self._uid))
            self._told_at = self._clock.monotonic()
        self._uid = node.uid
        self._warn_of_taint(node)
        node = await self._write_labels(node, state)
        await self._write_status(node, state)

    async def _write_labels(self, node: Node, state: HostState) -> Node:
        changes: dict[str, JsonValue] = {}
        if wrong := changed_labels(self._about, state, node.labels):
            changes["metadata"] = {"labels": {**wrong}}
        wanted = self._about.settings.provider_id
        if wanted and not node.spec.provider_id:  # it cannot be changed once it is there
            changes["spec"] = {"providerID": wanted}
        if not changes:
            return node
        return await self._kube.patch(NODE, self._name, MergePatch(changes))

    async def _write_status(self, node: Node, state: HostState) -> None:
        now, at = self._clock.now(), self._clock.monotonic()
        wanted = status(self._about, state, node.status, now)
        same = without_times(wanted) == without_times(node.status)
        if same and at < self._told_at + self._about.settings.status_s:
            return
        after = msgspec.structs.replace(node, status=wanted)
        # Conditional: conditions and addresses go whole, and others' conditions are among them.
        patch = merge_patch(node, after, conditional=True)
        await self._kube.patch(NODE, self._name, patch, subresource="status")
        self._told_at = at

    def _warn_of_taint(self, node: Node) -> None:
        if not lacks_taint(node):
            self._warned = ""
            return
        if self._warned == node.uid:
            return
        self._warned = node.uid
        text = (
            f"The Node {self._name} lacks the taint {TAINT.key}:{TAINT.effect}: Pods that are no runners may be put"
            " here, and none of them will start. A node cannot add it to itself; an administrator can: kubectl taint"
            f" node {self._name} {TAINT.key}:{TAINT.effect}"
        )
        log.error("taint missing", node=self._name, fix=text)
        self._events.record(NODE, node, "TaintMissing", text, warning=True)
