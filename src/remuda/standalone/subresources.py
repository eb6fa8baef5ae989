"""Subresources that are verbs of their own: binding, eviction, scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.standalone.bodies import check_body
from remuda.standalone.errors import Cause, StatusError, bad_request, invalid, not_found
from remuda.standalone.metadata import required
from remuda.standalone.patching import check_content_type, patched
from remuda.standalone.rest import DEFAULT_WRITE, Rest, WriteOptions

if TYPE_CHECKING:
    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj


async def bind(rest: Rest, namespace: str, name: str, binding: Obj) -> None:
    """Assign a Pod to the node that a Binding names."""
    check_body("Binding", binding)
    target = binding.get("target") or {}
    node = target.get("name") or ""
    if not node:
        raise invalid("", "Binding", name, [required("target.name")])
    if target.get("kind") not in {None, "", "Node"}:
        cause = Cause(
            "target.kind",
            "FieldValueNotSupported",
            f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"',
        )
        raise invalid("", "Binding", name, [cause])
    uid = (binding.get("metadata") or {}).get("uid") or ""
    await rest.bind(namespace, name, node, uid=uid)


async def evict(rest: Rest, kind: ResourceKind, namespace: str, name: str, eviction: Obj) -> None:
    """Delete a Pod by way of its eviction subresource. There are no disruption budgets here to ask."""
    check_body("Eviction", eviction)
    options = eviction.get("deleteOptions") or {}
    conditions = options.get("preconditions") or {}
    await rest.delete(
        kind,
        namespace,
        name,
        uid=conditions.get("uid") or "",
        resource_version=conditions.get("resourceVersion") or "",
        cascade=options.get("propagationPolicy") or "",
        grace_s=options.get("gracePeriodSeconds"),
    )


# --- Scale ------------------------------------------------------------------------------------------------------------


def scale_of(kind: ResourceKind, obj: Obj) -> Obj:
    """Show an object as an ``autoscaling/v1`` Scale; 500, as the real server, if it has no number of replicas."""
    assert kind.scale is not None
    if _at(obj, kind.scale.spec_replicas) is None:
        why = f'the spec replicas field "{kind.scale.spec_replicas}" does not exist'
        raise StatusError(500, "InternalError", f"Internal error occurred: {why}")
    return _scale(kind, obj)


def _scale(kind: ResourceKind, obj: Obj) -> Obj:
    assert kind.scale is not None
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Obj = {"replicas": _at(obj, kind.scale.status_replicas) or 0}
    if kind.scale.label_selector:
        status["selector"] = _at(obj, kind.scale.label_selector) or ""
    replicas = _at(obj, kind.scale.spec_replicas)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": replicas} if replicas else {},  # a Scale leaves its zero out
        "status": status,
    }


async def put_scale(
    rest: Rest,
    kind: ResourceKind,
    namespace: str,
    name: str,
    scale: Obj,
    options: WriteOptions = DEFAULT_WRITE,
) -> Obj:
    """Change the number of replicas by way of a Scale."""
    assert kind.scale is not None
    obj = rest.store.latest(kind, namespace, name)
    if obj is None:
        raise not_found(kind.group, kind.plural, name)
    check_body("Scale", scale)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("Scale: spec.replicas is not a whole number")
    if replicas < 0:
        message = f"Invalid value: {replicas}: should be a non-negative integer"
        cause = Cause("spec.replicas", "FieldValueInvalid", message)
        raise invalid("autoscaling", "Scale", name, [cause])
    meta = dict(obj["metadata"])
    given = scale.get("metadata") or {}
    meta["resourceVersion"] = given.get("resourceVersion") or meta["resourceVersion"]
    if given.get("uid"):
        meta["uid"] = given["uid"]
    changed = _with(obj | {"metadata": meta}, _steps(kind.scale.spec_replicas), replicas)
    stored = await rest.update(kind, namespace, name, changed, options=options)
    return scale_of(kind, stored)


async def patch_scale(
    rest: Rest, kind: ResourceKind, place: tuple[str, str], body: bytes, content_type: str
) -> Obj:
    obj = rest.store.latest(kind, *place)
    if obj is None:
        raise not_found(kind.group, kind.plural, place[1])
    sort = check_content_type(content_type, strategic=True)
    scale = patched(_scale(kind, obj), body, sort, strategic=kind)
    return await put_scale(rest, kind, *place, scale)


def _steps(json_path: str) -> list[str]:
    """Read the simple JSONPaths that CRDs allow here, such as ``.spec.replicas``."""
    return [step for step in json_path.split(".") if step]


def _at(obj: Any, json_path: str) -> Any:  # noqa: ANN401 - JSON
    for step in _steps(json_path):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _with(obj: Obj, steps: list[str], value: Any) -> Obj:  # noqa: ANN401 - JSON
    head, *rest = steps
    return obj | {head: _with(obj.get(head) or {}, rest, value) if rest else value}
