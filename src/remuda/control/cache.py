"""
The objects of one kind, held in memory and found by what controllers ask for. No I/O, no time.

Reads are snapshots in key order. The objects are shared with everyone who reads them and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from remuda.kube.meta import Resource

if TYPE_CHECKING:
    from remuda.kube.core import Pod

T = TypeVar("T", bound=Resource)

IndexFunction = Callable[[T], Iterable[str]]
"""Names the values under which an object is found in one index. Pure: it is asked again when the object goes."""


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """Which object of a kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(resource: Resource) -> Key:
    return Key(resource.metadata.namespace, resource.metadata.name)


class Cache(Generic[T]):
    """Objects by key, and by any number of indexes."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, set[Key]]] = {}

    def index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index over what is held now and later."""
        assert name not in self._functions, f"there is an index {name} already"
        self._functions[name] = function
        held = self._indexes[name] = {}
        for key, item in self._objects.items():
            for value in function(item):
                held.setdefault(value, set()).add(key)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def all(self) -> tuple[T, ...]:
        return tuple(self._objects[key] for key in sorted(self._objects))

    def sorted_keys(self) -> list[Key]:
        return sorted(self._objects)

    def found(self, index: str, value: str) -> tuple[T, ...]:
        """Return the objects that an index has under a value."""
        return tuple(self._objects[key] for key in sorted(self._indexes[index].get(value, ())))

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, new: T) -> bool:
        """Hold an object. Returns whether it is news."""
        key = key_of(new)
        old = self._objects.get(key)
        if old is not None:
            if old.uid == new.uid and old.resource_version == new.resource_version:
                return False
            self._unindex(key, old)
        self._objects[key] = new
        for name, function in self._functions.items():
            for value in function(new):
                self._indexes[name].setdefault(value, set()).add(key)
        return True

    def drop(self, key: Key) -> bool:
        """Forget an object. Returns whether it was there."""
        old = self._objects.pop(key, None)
        if old is None:
            return False
        self._unindex(key, old)
        return True

    def replace(self, objects: Mapping[Key, T]) -> list[Key]:
        """Hold exactly these. Returns the keys of all that differ from what was held, in order."""
        gone = [key for key in self._objects if key not in objects]
        changed = [key for key, item in objects.items() if self.put(item)]
        for key in gone:
            self.drop(key)
        return sorted((*changed, *gone))

    def _unindex(self, key: Key, old: T) -> None:
        for name, function in self._functions.items():
            for value in function(old):
                held = self._indexes[name][value]
                held.discard(key)
                if not held:
                    del self._indexes[name][value]


def by_label(label: str) -> IndexFunction[Resource]:
    """Find objects by the value of one label, such as the pool's."""

    def function(resource: Resource) -> Iterable[str]:
        value = resource.metadata.labels.get(label)
        return () if value is None else (value,)

    return function


def by_owner_uid(resource: Resource) -> Iterable[str]:
    """Find objects by the UIDs of those that own them."""
    return {reference.uid for reference in resource.metadata.owner_references}


def by_node(pod: Pod) -> Iterable[str]:
    """Find Pods by the Node they are bound to; those that are bound to none are under the empty name."""
    return (pod.spec.node_name,)
