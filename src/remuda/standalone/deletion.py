"""What a delete does to an object before it may go: preconditions, grace, cascade finalizers. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.kube.times import parse_time
from remuda.standalone.errors import StatusError
from remuda.standalone.metadata import marked_for_deletion, time_text

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj
    from remuda.standalone.rules import Rules

_GRACE_MAX_S = 1 << 31
"""Beyond 68 years, which would leave the calendar."""
_CASCADE_FINALIZER = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def check_preconditions(kind: ResourceKind, obj: Obj, uid: str, resource_version: str) -> None:
    """Refuse a delete that was meant for what the object no longer is."""
    meta = obj["metadata"]
    for what, asked, actual, guess in (
        ("UID", uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", resource_version, meta["resourceVersion"], "modified"),
    ):
        if asked and asked != actual:
            # The real server names the kind here, not the resource.
            qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
            raise StatusError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {qualified} "{meta["name"]}": the {what} in the precondition '
                f"({asked}) does not match the {what} in record ({actual}). The object might have been {guess}",
                name=meta["name"],
                group=kind.group,
                kind=kind.kind,
            )


def with_cascade(obj: Obj, cascade: str) -> Obj:
    """
    Set the finalizer that lets the collector finish a foreground or orphaning delete; return ``obj`` if it has it.

    An explicit Background takes such a finalizer away again; the empty cascade leaves it to what is there.
    """
    present = obj["metadata"].get("finalizers") or []
    wanted = [one for one in present if one not in _CASCADE_FINALIZER.values()]
    if finalizer := _CASCADE_FINALIZER.get(cascade):
        wanted = [*wanted, finalizer]
    if not cascade or sorted(wanted) == sorted(present):
        return obj
    meta = {key: value for key, value in obj["metadata"].items() if key != "finalizers"}
    if wanted:
        meta["finalizers"] = wanted
    return obj | {"metadata": meta}


def mark(obj: Obj, rules: Rules, now: datetime, grace_s: int | None) -> tuple[Obj, bool]:
    """Return the object with its deletion timestamp, and whether somebody (a Pod's node) still has to end it."""
    if "deletionTimestamp" in obj["metadata"]:
        return _shorten(obj, now, grace_s) if rules.grace_period_s else (obj, False)
    asked_s = rules.grace_period_s(obj, grace_s) if rules.grace_period_s else 0
    period_s = min(asked_s, _GRACE_MAX_S)
    ends = time_text(now + timedelta(seconds=period_s))
    return marked_for_deletion(obj, at=ends, grace_s=period_s), period_s > 0


def _shorten(obj: Obj, now: datetime, grace_s: int | None) -> tuple[Obj, bool]:
    """Of an object that is ending already, the time left may only become less."""
    meta = obj["metadata"]
    left_s = meta.get("deletionGracePeriodSeconds", 0)
    if left_s == 0:
        return obj, False
    period_s = left_s if grace_s is None else (1 if grace_s < 0 else grace_s)
    if period_s >= left_s:
        return obj, True
    ends = parse_time(meta["deletionTimestamp"]) + timedelta(seconds=period_s - left_s)
    if ends < now:
        ends, period_s = now, min(period_s, 1)
    return marked_for_deletion(obj, at=time_text(ends), grace_s=period_s), period_s > 0


def terminating_namespace(namespace: Obj, now: datetime) -> Obj:
    """Return the Namespace as its deletion leaves it: marked, for the namespace controller to empty."""
    if "deletionTimestamp" in namespace["metadata"]:
        return namespace
    return namespace | {
        "metadata": namespace["metadata"] | {"deletionTimestamp": time_text(now)},
        "status": (namespace.get("status") or {}) | {"phase": "Terminating"},
    }


def finalizers(kind: ResourceKind, obj: Obj) -> list[str]:
    """Return all that holds an object back; a Namespace has finalizers in its spec as well."""
    held: list[str] = list(obj["metadata"].get("finalizers") or ())
    if (kind.group, kind.plural) == ("", "namespaces"):
        held += (obj.get("spec") or {}).get("finalizers") or ()
    return held


def is_released(kind: ResourceKind, old: Obj, new: Obj) -> bool:
    """Tell whether a change takes away the last thing that held an object that is being deleted."""
    if "deletionTimestamp" not in old["metadata"] or finalizers(kind, new):
        return False
    return not old["metadata"].get("deletionGracePeriodSeconds")
