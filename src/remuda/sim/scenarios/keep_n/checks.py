"""What must hold on the ranch, seen from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.sim.scenarios.keep_n.things import CONFIG_MAP, HERD_LABEL, HORSE_LABEL, NAMESPACE

if TYPE_CHECKING:
    from remuda.sim.checkers import Observed
    from remuda.standalone.objects import Obj
    from remuda.standalone.store import Store


def label_of(obj: Obj, label: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(label, ""))


class Caps:
    """A herd never has more live horses than it asks for."""

    invariant = "S3 caps"

    def __init__(self) -> None:
        self._horses: dict[str, set[str]] = {}
        self._copies: dict[str, int] = {}

    def look(self, change: Observed) -> str | None:
        obj = change.event.object
        if herd := label_of(obj, HERD_LABEL):
            self._copies[herd] = int(obj["data"]["copies"])
        herd = label_of(obj, HORSE_LABEL)
        if change.plural != "configmaps" or not herd:
            return None
        horses = self._horses.setdefault(herd, set())
        if change.event.change == "DELETED":
            horses.discard(change.event.key)
            return None
        horses.add(change.event.key)
        if change.event.change == "ADDED" and len(horses) > self._copies[herd]:
            return f"{herd} has {len(horses)} horses and asks for {self._copies[herd]}"
        return None


class NoKill:
    """No horse goes while it is ridden."""

    invariant = "S2 no kill"

    def look(self, change: Observed) -> str | None:
        before = change.event.previous
        if change.event.change != "DELETED" or before is None:
            return None
        rider = str((before.get("data") or {}).get("rider", ""))
        return f"{change.event.key} was taken from under {rider}" if rider else None


class AsAsked:
    """In the end each herd has exactly the horses that it asks for, with its own brand, and none is ridden."""

    invariant = "V8 converged"

    def __init__(self, store: Store) -> None:
        self._store = store

    def look(self) -> str | None:
        found = self._store.objects(CONFIG_MAP, NAMESPACE)
        herds = [obj for obj in found if label_of(obj, HERD_LABEL)]
        for herd in herds:
            name = herd["metadata"]["name"]
            horses = [obj for obj in found if label_of(obj, HORSE_LABEL) == name]
            if wrong := _wrong(herd["data"], horses):
                return f"{name}: {wrong}"
        return None if herds else "there is no herd"


def _wrong(asked: dict[str, str], horses: list[Obj]) -> str:
    if len(horses) != int(asked["copies"]):
        return f"{len(horses)} horses instead of {asked['copies']}"
    for horse in horses:
        name, data = horse["metadata"]["name"], horse["data"]
        if data.get("rider"):
            return f"{name} is still ridden"
        if data["brand"] != asked["brand"]:
            return f"{name} carries brand {data['brand']} instead of {asked['brand']}"
    return ""
