"""
One Pod as a row: how many containers are ready, and one word for what it is doing.

The word follows kubectl's own order of precedence, which people read without thinking: a container's reason (Error,
Completed, ImagePullBackOff) tells more than the phase, and Terminating more than either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.standalone.ages import age
from remuda.standalone.objects import metadata

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.standalone.objects import Obj

_NONE: Final = "<none>"
_TERMINAL: Final = ("Succeeded", "Failed")


def pod_cells(obj: Obj, now: datetime) -> list[Any]:
    """Return the cells of a Pod's row."""
    meta, spec, status = metadata(obj), obj.get("spec", {}), obj.get("status", {})
    ready, wanted = _ready(obj)
    return [
        meta.get("name", ""),
        f"{ready}/{wanted}",
        pod_status(obj),
        _restarts(obj, now),
        age(meta.get("creationTimestamp"), now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _gates(obj),
    ]


def pod_status(obj: Obj) -> str:
    """Return the one word."""
    status = obj.get("status", {})
    phase = str(status.get("phase", ""))
    reason = str(status.get("reason") or phase)
    if _condition(obj, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    starting = _init_word(obj)
    if starting and _condition(obj, "Initialized").get("status") != "True":
        reason = starting
    else:
        reason = _container_word(obj) or reason
    if "deletionTimestamp" in metadata(obj):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if phase not in _TERMINAL:
            return "Terminating"
    return reason


def _init_word(obj: Obj) -> str:
    """Say which init container is still to finish, or failed; "" if none."""
    containers = obj.get("spec", {}).get("initContainers") or ()
    always = {c.get("name") for c in containers if c.get("restartPolicy") == "Always"}
    for i, one in enumerate(obj.get("status", {}).get("initContainerStatuses") or ()):
        state = one.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if one.get("name") in always and one.get("started"):
            continue
        if ended is not None:
            return f"Init:{_end_word(ended)}"
        waiting = (state.get("waiting") or {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{i}/{len(containers)}"
    return ""


def _end_word(ended: Obj) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _container_word(obj: Obj) -> str:
    """Let the first container with something to say speak; a Pod that is still running is not Completed."""
    word, running = "", False
    for one in reversed(obj.get("status", {}).get("containerStatuses") or ()):
        state = one.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            word = str(state["waiting"]["reason"])
        elif state.get("terminated") is not None:
            word = _end_word(state["terminated"])
        elif one.get("ready") and state.get("running") is not None:
            running = True
    if word == "Completed" and running:
        return "Running" if _condition(obj, "Ready").get("status") == "True" else "NotReady"
    return word


def _condition(obj: Obj, kind: str) -> Obj:
    conditions = obj.get("status", {}).get("conditions") or ()
    found: Obj = next((c for c in conditions if c.get("type") == kind), {})
    return found


def _ready(obj: Obj) -> tuple[int, int]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    sidecars = {
        c.get("name")
        for c in spec.get("initContainers") or ()
        if c.get("restartPolicy") == "Always"
    }
    running = [
        *(status.get("containerStatuses") or ()),
        *(s for s in status.get("initContainerStatuses") or () if s.get("name") in sidecars),
    ]
    ready = sum(
        bool(s.get("ready") and (s.get("state") or {}).get("running") is not None) for s in running
    )
    return ready, len(spec.get("containers") or ()) + len(sidecars)


def _restarts(obj: Obj, now: datetime) -> str:
    status = obj.get("status", {})
    containers = status.get("containerStatuses") or status.get("initContainerStatuses") or ()
    count = sum(one.get("restartCount", 0) for one in containers)
    ended = [
        ((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        for one in containers
    ]
    last = max((moment for moment in ended if moment), default="")
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def _gates(obj: Obj) -> str:
    gates = obj.get("spec", {}).get("readinessGates") or ()
    if not gates:
        return _NONE
    held = sum(
        _condition(obj, gate.get("conditionType", "")).get("status") == "True" for gate in gates
    )
    return f"{held}/{len(gates)}"
