"""
The garbage collector: carries out what ``decide.collection`` decided.

It keeps one index, of who names whom as an owner, because nothing else can answer "whose owner is this?" without
reading every object. Changes only say which objects to look at; what is decided is decided on the object as it is now,
and every write carries the UID and version that were seen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from remuda.standalone.bell import Bell
from remuda.standalone.decide.collection import (
    FOREGROUND,
    ORPHAN,
    Action,
    Delete,
    DropFinalizer,
    KeepOwners,
    Key,
    Owner,
    Ownership,
    Thing,
    decide,
)
from remuda.standalone.errors import StatusError
from remuda.standalone.objects import Obj, uid_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.standalone.kinds import Kinds, ResourceKind
    from remuda.standalone.rest import Rest
    from remuda.standalone.store import Store, StoredEvent

_AT_ONCE_MAX = 64
"""Objects handled side by side: their writes then share one sync of the disk."""

_RETRY_FIRST_S, _RETRY_MAX_S = 1.0, 30.0
_NOT_FOUND = 404
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


class Collector:
    """Deletes what nobody owns any more."""

    def __init__(self, rest: Rest, store: Store, kinds: Kinds) -> None:
        self._rest, self._store, self._kinds = rest, store, kinds
        self._owners: dict[Key, tuple[str, ...]] = {}
        self._dependents: dict[str, set[Key]] = {}
        self._gone: set[str] = set()
        """UIDs of owners that were seen to go and still have dependents: their kinds may be gone as well."""
        self._suspects: set[Key] = set()
        self._unresolved: set[Key] = set()
        """Objects with an owner of a kind that is not served (yet)."""
        self._by_place: dict[tuple[str, str], ResourceKind] = {}
        self._by_name: dict[tuple[str, str], ResourceKind] = {}
        """Kinds that were looked up, until the CRDs change."""
        self._bell = Bell()

    async def run(self) -> None:
        stop = self._store.subscribe(self._note)
        try:
            self._read_all()
            retry_s = _RETRY_FIRST_S
            while True:
                failed = await self._work_off()
                if not failed:
                    retry_s = _RETRY_FIRST_S
                    await self._bell.heard()
                    continue
                await self._bell.heard(retry_s)
                retry_s = min(retry_s * 2, _RETRY_MAX_S)
                self._suspects |= failed
        finally:
            stop()

    # --- What to look at ----------------------------------------------------------------------------------------------

    def _read_all(self) -> None:
        for kind in self._kinds:
            for obj in self._store.objects(kind):
                key = _key((kind.group, kind.plural), obj)
                self._index(key, obj)
                if key in self._owners or _waits(obj):
                    self._suspects.add(key)

    def _note(self, event: StoredEvent) -> None:
        before, after = event.previous, event.object
        if before is not None and event.change != "DELETED" and _concerns_nobody(before, after):
            return
        key = _key(event.kind, event.object)
        if event.change == "DELETED":
            self._forget(key)
            if dependents := self._dependents.get(uid_of(after)):
                self._gone.add(uid_of(after))
                self._suspects |= dependents
            self._suspect_owners(after)
        else:
            self._note_change(key, before, after)
        if event.kind == _CRDS:
            self._suspects |= self._unresolved
            self._unresolved.clear()
            self._by_place.clear()
            self._by_name.clear()
        if self._suspects:
            self._bell.ring()

    def _note_change(self, key: Key, before: Obj | None, after: Obj) -> None:
        owners_before = before["metadata"].get("ownerReferences") if before else None
        if after["metadata"].get("ownerReferences") != owners_before:
            self._index(key, after)
            self._suspects.add(key)
            if before is not None:
                self._suspect_owners(before)  # one of them may have waited for this object
        if _waits(after) and (before is None or not _waits(before)):
            self._suspects.add(key)
            self._suspects |= self._dependents.get(uid_of(after), set())

    def _index(self, key: Key, obj: Obj) -> None:
        self._forget(key)
        uids = tuple(ref["uid"] for ref in obj["metadata"].get("ownerReferences") or ())
        if uids:
            self._owners[key] = uids
            for uid in uids:
                self._dependents.setdefault(uid, set()).add(key)

    def _forget(self, key: Key) -> None:
        self._unresolved.discard(key)
        for uid in self._owners.pop(key, ()):
            named = self._dependents[uid]
            named.discard(key)
            if not named:
                del self._dependents[uid]
                self._gone.discard(uid)

    def _suspect_owners(self, obj: Obj) -> None:
        """Look at those owners that were waiting for this object to go."""
        for owner in _owners(obj):
            kind = self._owner_kind(owner)
            if kind is None:
                continue
            key = _owner_key(kind, obj, owner)
            found = self._store.get(kind, key.namespace, key.name)
            if found is not None and _waits(found):
                self._suspects.add(key)

    # --- What to do ---------------------------------------------------------------------------------------------------

    async def _work_off(self) -> set[Key]:
        """Handle every suspect, and those that turn up meanwhile. Returns those to be tried again."""
        failed: set[Key] = set()
        while self._suspects:
            batch = sorted(self._suspects)[:_AT_ONCE_MAX]
            self._suspects.difference_update(batch)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._collect(key), name=f"collect {key.plural}/{key.name}")
                    for key in batch
                ]
            failed.update(key for key, task in zip(batch, tasks, strict=True) if not task.result())
        return failed

    async def _collect(self, key: Key) -> bool:
        thing = self._find(key)
        if thing is None:
            return True
        ownership = self._ownerships(thing)
        if Ownership.UNKNOWN in ownership.values():
            self._unresolved.add(key)
        dependents = (self._find(one) for one in sorted(self._dependents.get(thing.uid, ())))
        try:
            for action in decide(thing, ownership, (one for one in dependents if one)):
                await self._apply(action)
        except StatusError as error:
            # Somebody else was faster, or the disk failed: look again at what is there then.
            return error.code == _NOT_FOUND
        return True

    def _find(self, key: Key) -> Thing | None:
        kind = self._kind(key)
        obj = self._store.get(kind, key.namespace, key.name) if kind else None
        return None if obj is None else _thing(key, obj)

    def _kind(self, key: Key) -> ResourceKind | None:
        place = key.group, key.plural
        if place not in self._by_place:
            found = next((k for k in self._kinds if (k.group, k.plural) == place), None)
            if found is None:
                return None
            self._by_place[place] = found
        return self._by_place[place]

    def _owner_kind(self, owner: Owner) -> ResourceKind | None:
        named = owner.api_version, owner.kind
        if named not in self._by_name:
            found = self._kinds.of_object(*named)
            if found is None:
                return None
            self._by_name[named] = found
        return self._by_name[named]

    def _ownerships(self, thing: Thing) -> dict[str, Ownership]:
        """Tell of all owners, by UID. Of two references to one UID, of which one is wrong, the other counts."""
        found: dict[str, Ownership] = {}
        for owner in thing.owners:
            state = self._ownership(thing, owner)
            if state is not Ownership.ABSENT or owner.uid not in found:
                found[owner.uid] = state
        return found

    def _ownership(self, thing: Thing, owner: Owner) -> Ownership:
        if owner.uid in self._gone:
            return Ownership.ABSENT
        kind = self._owner_kind(owner)
        if kind is None or (kind.namespaced and not thing.key.namespace):
            return (
                Ownership.UNKNOWN
            )  # an object of the cluster cannot be owned by one of a namespace
        found = self._store.get(kind, thing.key.namespace if kind.namespaced else "", owner.name)
        if found is None or uid_of(found) != owner.uid:
            return Ownership.ABSENT
        waits = _thing(thing.key, found).waits_for_dependents
        return Ownership.WAITING if waits else Ownership.LIVING

    async def _apply(self, action: Action) -> None:
        match action:
            case Delete(thing, cascade, _):
                await self._delete(thing, cascade)
            case KeepOwners(thing, owners, _):
                kept = {owner.uid: owner for owner in owners}
                await self._patch(thing, "ownerReferences", self._references(thing, kept))
            case DropFinalizer(thing, finalizer, _):
                left = [one for one in thing.finalizers if one != finalizer]
                await self._patch(thing, "finalizers", left)
            case _:
                assert_never(action)

    async def _delete(self, thing: Thing, cascade: str) -> None:
        kind, key = self._kind(thing.key), thing.key
        assert kind is not None, "what was found has a kind"
        await self._rest.delete(
            kind,
            key.namespace,
            key.name,
            uid=thing.uid,
            resource_version=thing.version,
            cascade=cascade,
        )

    async def _patch(self, thing: Thing, field: str, value: list[Any]) -> None:
        kind, key = self._kind(thing.key), thing.key
        assert kind is not None, "what was found has a kind"
        change = {
            "metadata": {"uid": thing.uid, "resourceVersion": thing.version, field: value or None}
        }
        body = msgspec.json.encode(change)
        await self._rest.patch(kind, key.namespace, key.name, body, "application/merge-patch+json")

    def _references(self, thing: Thing, kept: dict[str, Owner]) -> list[dict[str, Any]]:
        """Return the references to keep, as they were written, with what was decided about blocking."""
        kind = self._kind(thing.key)
        found = self._store.get(kind, thing.key.namespace, thing.key.name) if kind else None
        written = found["metadata"].get("ownerReferences") or [] if found else []
        return [
            ref | ({} if kept[ref["uid"]].blocks else _not_blocking(ref))
            for ref in written
            if ref["uid"] in kept
        ]


def _not_blocking(reference: dict[str, Any]) -> dict[str, Any]:
    return {"blockOwnerDeletion": False} if reference.get("blockOwnerDeletion") else {}


def _key(kind: tuple[str, str], obj: Obj) -> Key:
    meta = obj["metadata"]
    return Key(*kind, meta.get("namespace", ""), meta["name"])


def _owner_key(kind: ResourceKind, dependent: Obj, owner: Owner) -> Key:
    namespace = dependent["metadata"].get("namespace", "") if kind.namespaced else ""
    return Key(kind.group, kind.plural, namespace, owner.name)


def _owners(obj: Obj) -> Iterable[Owner]:
    for ref in obj["metadata"].get("ownerReferences") or ():
        blocks = bool(ref.get("blockOwnerDeletion"))
        yield Owner(ref["apiVersion"], ref["kind"], ref["name"], ref["uid"], blocks)


def _thing(key: Key, obj: Obj) -> Thing:
    meta = obj["metadata"]
    return Thing(
        key=key,
        uid=meta["uid"],
        version=meta["resourceVersion"],
        owners=tuple(_owners(obj)),
        finalizers=tuple(meta.get("finalizers") or ()),
        deleting="deletionTimestamp" in meta,
    )


def _concerns_nobody(before: Obj, after: Obj) -> bool:
    """Say that a change is none of the collector's business, as nearly all are: no owners, no deletion, no CRD."""
    old, new = before["metadata"], after["metadata"]
    return (
        "deletionTimestamp" not in new
        and "ownerReferences" not in new
        and "ownerReferences" not in old
        and after["kind"] != "CustomResourceDefinition"
    )


def _waits(obj: Obj) -> bool:
    meta = obj["metadata"]
    finalizers = meta.get("finalizers") or ()
    return "deletionTimestamp" in meta and (FOREGROUND in finalizers or ORPHAN in finalizers)
