"""
What each Node offers and what its Pods take of it, kept up to date as they change.

Reading all Pods for every Pod that is placed would make a large fleet slow, so this keeps the sums. They are only a
cache of the store: ``read`` makes them from nothing, and every committed change passes through ``note_*``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.model.errors import BadInput
from remuda.standalone.objects import Obj, name_of, uid_of
from remuda.standalone.schedulable import Amounts, filled, is_over, read_place, read_requests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.standalone.decide.scheduling import Place


class NodeRooms:
    """The Nodes as places for Pods."""

    def __init__(self) -> None:
        self._empty: dict[str, Place] = {}
        """Nodes by name, as if nobody was on them. One that cannot be read is not here: it takes nobody."""
        self._taken: dict[str, dict[str, Amounts]] = {}
        """By Node and Pod UID. A Pod may name a Node that is not there (yet)."""
        self._node_of: dict[str, str] = {}
        self._filled: dict[str, Place] = {}

    def read(self, nodes: Iterable[Obj], pods: Iterable[Obj]) -> None:
        """Start over from a listing."""
        for known in (self._empty, self._taken, self._node_of, self._filled):
            known.clear()
        for node in nodes:
            self.note_node(node)
        for pod in pods:
            self.note_pod(pod)

    def places(self) -> list[Place]:
        return [self._place(name) for name in sorted(self._empty)]

    def place(self, name: str) -> Place | None:
        """Return one Node as it is now; None if it is gone, or cannot be read."""
        return self._place(name) if name in self._empty else None

    def _place(self, name: str) -> Place:
        if name not in self._filled:
            taken = self._taken.get(name)
            empty = self._empty[name]
            self._filled[name] = filled(empty, taken.values()) if taken else empty
        return self._filled[name]

    def note_node(self, node: Obj) -> None:
        name = name_of(node)
        self._filled.pop(name, None)
        try:
            self._empty[name] = read_place(node)
        except BadInput:
            self._empty.pop(name, None)

    def forget_node(self, name: str) -> None:
        self._filled.pop(name, None)
        self._empty.pop(name, None)

    def note_pod(self, pod: Obj) -> None:
        node, uid = pod["spec"].get("nodeName"), uid_of(pod)
        if not node or is_over(pod):
            self.forget_pod(uid)
        elif uid not in self._node_of:  # what a Pod asks for does not change once it is there
            self._node_of[uid] = node
            self._taken.setdefault(node, {})[uid] = _requests(pod)
            self._filled.pop(node, None)

    def forget_pod(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        del self._taken[node][uid]
        if not self._taken[node]:
            del self._taken[node]
        self._filled.pop(node, None)


def _requests(pod: Obj) -> Amounts:
    try:
        return read_requests(pod)
    except BadInput:
        return {}  # bound by hand, past the scheduler: it takes a Pod's place and nothing else
