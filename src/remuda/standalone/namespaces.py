"""
The namespace controller: system namespaces, a ``default`` ServiceAccount in each, and emptying those that end.

It carries out what ``decide.namespace_life`` decided. Events only say which namespace to look at.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from remuda.standalone.bell import Bell
from remuda.standalone.decide.collection import Key
from remuda.standalone.decide.namespace_life import (
    Action,
    AddAccount,
    Content,
    DeleteContent,
    Finish,
    Space,
    decide,
)
from remuda.standalone.errors import StatusError

if TYPE_CHECKING:
    from remuda.standalone.kinds import Kinds, ResourceKind
    from remuda.standalone.objects import Obj
    from remuda.standalone.rest import Rest
    from remuda.standalone.store import Store, StoredEvent

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
ACCOUNT = "default"

_AT_ONCE_MAX = 64
_RETRY_S = 1.0
_NAMESPACES = ("", "namespaces")
_ACCOUNTS = ("", "serviceaccounts")
_GONE_OR_THERE = (404, 409)


class Namespaces:
    """Furnishes and empties namespaces."""

    def __init__(self, rest: Rest, store: Store, kinds: Kinds) -> None:
        self._rest, self._store, self._kinds = rest, store, kinds
        self._suspects: set[str] = set()
        self._bell = Bell()

    async def bootstrap(self) -> None:
        """Make sure that the system namespaces are there and furnished, before anybody is served."""
        kind = self._kind(_NAMESPACES)
        for name in SYSTEM_NAMESPACES:
            if self._store.get(kind, "", name) is None:
                await self._rest.create(kind, "", {"metadata": {"name": name}})
            # One after the other and without tasks: this also runs where there is no loop yet.
            for action in decide(self._space(self._rest.get(kind, "", name)), ()):
                await self._apply(action)

    async def run(self) -> None:
        stop = self._store.subscribe(self._note)
        try:
            self._suspects.update(
                obj["metadata"]["name"] for obj in self._store.objects(self._kind(_NAMESPACES))
            )
            while True:
                failed = {name for name in self._take() if not await self._look(name)}
                self._suspects |= failed
                if failed:
                    await self._bell.heard(_RETRY_S)
                elif not self._suspects:
                    await self._bell.heard()
        finally:
            stop()

    def _take(self) -> list[str]:
        taken = sorted(self._suspects)
        self._suspects.clear()
        return taken

    def _note(self, event: StoredEvent) -> None:
        meta = event.object["metadata"]
        if event.kind == _NAMESPACES:
            if event.change == "DELETED" or (
                event.previous is not None
                and _terminating(event.previous) is _terminating(event.object)
            ):
                return
            self._suspects.add(meta["name"])
        elif event.change == "DELETED" and self._matters(event, meta.get("namespace", "")):
            self._suspects.add(meta["namespace"])
        else:
            return
        self._bell.ring()

    def _matters(self, event: StoredEvent, namespace: str) -> bool:
        """Tell whether a deletion changes what its namespace needs: an account is missing, or it may be empty now."""
        if not namespace:
            return False
        if event.kind == _ACCOUNTS and event.object["metadata"]["name"] == ACCOUNT:
            return True
        home = self._store.get(self._kind(_NAMESPACES), "", namespace)
        return home is not None and _terminating(home)

    async def _look(self, name: str) -> bool:
        """Do what the namespace needs. False: it did not all work, look again later."""
        home = self._store.get(self._kind(_NAMESPACES), "", name)
        if home is None:
            return True
        actions = decide(self._space(home), self._contents(name) if _terminating(home) else ())
        done = True
        for at in range(0, len(actions), _AT_ONCE_MAX):
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._try(action), name=f"namespace {name}")
                    for action in actions[at : at + _AT_ONCE_MAX]
                ]
            done = done and all(task.result() for task in tasks)
        return done

    def _space(self, home: Obj) -> Space:
        name = home["metadata"]["name"]
        account = self._store.get(self._kind(_ACCOUNTS), name, ACCOUNT)
        finalizers = tuple((home.get("spec") or {}).get("finalizers") or ())
        return Space(name, _terminating(home), finalizers, account is not None)

    def _contents(self, name: str) -> list[Content]:
        return [
            Content(
                Key(kind.group, kind.plural, name, obj["metadata"]["name"]),
                obj["metadata"]["uid"],
                "deletionTimestamp" in obj["metadata"],
            )
            for kind in self._kinds
            if kind.namespaced and "list" in kind.verbs
            for obj in self._store.objects(kind, name)
        ]

    async def _try(self, action: Action) -> bool:
        try:
            await self._apply(action)
        except StatusError as error:
            # Somebody did it already, or it was replaced: what is there now will be looked at again.
            return error.code in _GONE_OR_THERE
        return True

    async def _apply(self, action: Action) -> None:
        match action:
            case AddAccount(namespace, _):
                account = {"metadata": {"name": ACCOUNT}}
                await self._rest.create(self._kind(_ACCOUNTS), namespace, account)
            case DeleteContent(content, _):
                key = content.key
                kind = self._kind((key.group, key.plural))
                await self._rest.delete(kind, key.namespace, key.name, uid=content.uid)
            case Finish(namespace, finalizers, _):
                await self._finish(namespace, finalizers)
            case _:
                assert_never(action)

    async def _finish(self, name: str, finalizers: tuple[str, ...]) -> None:
        kind = self._kind(_NAMESPACES)
        home = self._rest.get(kind, "", name)
        changed = home | {"spec": home["spec"] | {"finalizers": list(finalizers)}}
        await self._rest.update(kind, "", name, changed, subresource="finalize")

    def _kind(self, key: tuple[str, str]) -> ResourceKind:
        return next(kind for kind in self._kinds if (kind.group, kind.plural) == key)


def _terminating(namespace: Obj) -> bool:
    return "deletionTimestamp" in namespace["metadata"]
