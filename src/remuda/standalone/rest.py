"""
The verbs of the API on plain objects: create, get, list, update, patch, delete, as the real API server means them.

Everything that decides about a write happens without waiting, so writers cannot interleave; only then is it awaited
that the write is durable. No HTTP, no JSON bytes but patches, no background work here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from remuda.kube.selectors import parse_fields, parse_labels
from remuda.standalone import builtin_pods, deletion
from remuda.standalone import metadata as meta_rules
from remuda.standalone.builtin import RULES
from remuda.standalone.custom import CRD_FINALIZER, CRDS, CustomKinds
from remuda.standalone.decoding import decoded, decoded_change
from remuda.standalone.errors import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from remuda.standalone.lists import ListOptions, list_objects
from remuda.standalone.patching import check_content_type, patched
from remuda.standalone.rules import Context, Rules
from remuda.standalone.store import kind_key
from remuda.standalone.watch import Selection

if TYPE_CHECKING:
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.standalone.kinds import Kinds, ResourceKind
    from remuda.standalone.objects import Obj
    from remuda.standalone.store import Store

_STALE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_UNCONDITIONAL = (None, "", "0")
"""Versions that mean "whatever is there"."""
_OTHER_NAMESPACE = (
    "the namespace of the provided object does not match the namespace sent on the request"
)
_GENERATE_TRIES = 8
_PLAIN_RULES = Rules()
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
NAMESPACES = ("", "namespaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a write is meant."""

    dry_run: bool = False
    field_validation: str = "Warn"
    """``Strict`` refuses unknown fields of custom resources; ``Warn`` and ``Ignore`` drop them."""


DEFAULT_WRITE = WriteOptions()


class Accepted(msgspec.Struct, frozen=True):
    """A write that was decided. ``wait``: not to be shown to anybody before the store has settled."""

    obj: Obj
    wait: bool


class Rest:
    """The verbs. ``kinds`` grows and shrinks with the CRDs in the store."""

    def __init__(self, store: Store, kinds: Kinds, clock: Clock, ids: Ids) -> None:
        self.store, self.kinds, self.clock, self.ids = store, kinds, clock, ids
        self.context = Context(self._find, clock, ids)
        self.custom = CustomKinds(store, kinds, clock)

    def _find(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        return self.store.latest(_Named(group, plural), namespace, name)

    def rules(self, kind: ResourceKind) -> Rules:
        if kind.schema is not None:
            return self.custom.rules(kind)
        return RULES.get(kind_key(kind), _PLAIN_RULES)

    # --- Reading ----------------------------------------------------------------------------------------------------

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj:
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise not_found(kind.group, kind.plural, name)
        return found

    def select(self, kind: ResourceKind, namespace: str, labels: str, fields: str) -> Selection:
        """Parse selectors; 400 if they are not understood."""
        if not labels and not fields:
            return Selection(kind, namespace)
        try:
            selectable = self.custom.selectable_fields(kind)
            by_fields = parse_fields(
                fields, group=kind.group, kind=kind.kind, selectable=selectable
            )
            return Selection(kind, namespace, parse_labels(labels), by_fields)
        except ValueError as error:
            raise bad_request(str(error)) from error

    def list(  # noqa: PLR0913 - one per option of the API
        self,
        kind: ResourceKind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
        resource_version: str = "",
        match: str = "",
    ) -> Obj:
        options = ListOptions(
            limit=limit, continue_=continue_, resource_version=resource_version, match=match
        )
        return list_objects(self.store, self.select(kind, namespace, labels, fields), options)

    # --- Creating ---------------------------------------------------------------------------------------------------

    async def create(
        self,
        kind: ResourceKind,
        namespace: str,
        obj: Obj,
        *,
        options: WriteOptions = DEFAULT_WRITE,
    ) -> Obj:
        rules = self.rules(kind)
        new = self._new(kind, namespace, obj, rules, options)
        if options.dry_run:
            return new
        stored = self.store.put(kind, new)
        await self.store.settled()
        return stored

    def _new(
        self, kind: ResourceKind, namespace: str, obj: Obj, rules: Rules, options: WriteOptions
    ) -> Obj:
        """Return the object as it would be stored, or refuse it."""
        _check_type(kind, obj)
        obj = decoded(kind, obj)
        meta = dict(obj.get("metadata") or {})
        meta_rules.check_shape(kind, meta)
        new = obj | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        if meta.pop("resourceVersion", ""):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._place(kind, namespace, meta)
        self._name(kind, namespace, meta)
        meta_rules.stamp_new(
            meta, uid=self.ids.uid(), now=self.clock.now(), generation=rules.has_generation
        )
        self._check_namespace(kind, namespace, meta.get("name", ""))
        if kind.schema is not None:
            new = self.custom.admit(kind, new, None, options.field_validation)
        rules.prepare_create(new, self.context)
        causes = _create_causes(kind, new, rules)
        if causes:
            raise invalid(kind.group, kind.kind, meta.get("name", ""), causes)
        there = self.store.latest(kind, namespace, meta["name"])
        if there is not None:
            ending = "deletionTimestamp" in there["metadata"]
            raise already_exists(kind.group, kind.plural, meta["name"], ending=ending)
        return new

    def _place(self, kind: ResourceKind, namespace: str, meta: Obj) -> None:
        """Put the request's namespace into the object; refuse another one."""
        given = meta.get("namespace") or ""
        if given and given != namespace:
            raise bad_request(_OTHER_NAMESPACE)
        if kind.namespaced:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)

    def _name(self, kind: ResourceKind, namespace: str, meta: Obj) -> None:
        base = meta.get("generateName")
        if meta.get("name") or not base:
            return
        for _ in range(_GENERATE_TRIES):
            meta["name"] = meta_rules.generated_name(base, self.ids.suffix())
            if self.store.latest(kind, namespace, meta["name"]) is None:
                return

    def _check_namespace(self, kind: ResourceKind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        home = self._find(*NAMESPACES, "", namespace)
        if home is None:
            raise not_found("", "namespaces", namespace)
        if (home.get("status") or {}).get("phase") == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = f"namespace {namespace} is being terminated"
            raise forbidden_object(
                kind,
                name,
                why,
                causes=[
                    {
                        "reason": "NamespaceTerminating",
                        "message": cause,
                        "field": "metadata.namespace",
                    }
                ],
            )

    # --- Changing ---------------------------------------------------------------------------------------------------

    async def update(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        obj: Obj,
        *,
        subresource: str = "",
        options: WriteOptions = DEFAULT_WRITE,
    ) -> Obj:
        _check_type(kind, obj)
        obj = decoded(kind, obj)
        old = self.store.latest(kind, namespace, name)
        rules = self.rules(kind)
        if old is None:
            if rules.create_on_update and not subresource:
                return await self.create(kind, namespace, obj, options=options)
            raise not_found(kind.group, kind.plural, name)
        meta = dict(obj.get("metadata") or {})
        meta_rules.check_shape(kind, meta)
        _check_place(kind, namespace, name, meta)
        self._check_put(kind, rules, old, meta)
        _check_version(kind, meta, old["metadata"])
        meta_rules.carry_over(meta, old["metadata"])
        new = obj | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        return await self.durable(self._replace(kind, rules, old, new, subresource, options))

    def _check_put(self, kind: ResourceKind, rules: Rules, old: Obj, meta: Obj) -> None:
        """Refuse a whole-object write that was made for another object, or that names no version where it must."""
        uid, name = meta.get("uid"), meta["name"]
        if uid and uid != old["metadata"]["uid"]:
            raise conflict(kind.group, kind.plural, name, _other_uid(kind, old, uid))
        if not meta.get("resourceVersion") and rules.needs_version_on_update:
            cause = Cause(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )
            raise invalid(kind.group, kind.plural, name, [cause])

    async def patch(  # noqa: PLR0913 - one per option of the API
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        body: bytes,
        content_type: str,
        *,
        subresource: str = "",
        options: WriteOptions = DEFAULT_WRITE,
    ) -> Obj:
        return await self.durable(
            self.accept_patch(
                kind, namespace, name, body, content_type, subresource=subresource, options=options
            )
        )

    def accept_patch(  # noqa: PLR0913 - as ``patch``
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        body: bytes,
        content_type: str,
        *,
        subresource: str,
        options: WriteOptions,
    ) -> Accepted:
        """Do all of ``patch`` but wait."""
        rules = self.rules(kind)
        strategic = kind if rules.strategic_patches else None
        sort = check_content_type(content_type, strategic=strategic is not None)
        old = self.store.latest(kind, namespace, name)
        if old is None:
            raise not_found(kind.group, kind.plural, name)
        new = decoded_change(kind, patched(old, body, sort, strategic=strategic), old)
        given = new.get("metadata")
        meta = new["metadata"] = dict(given or {})
        if given is not old["metadata"]:  # else it is as it was
            meta_rules.check_shape(kind, meta)
            _check_place(kind, namespace, name, meta)
            _check_version(kind, meta, old["metadata"])
            meta_rules.carry_over(meta, old["metadata"])
        return self._replace(kind, rules, old, new, subresource, options)

    def _replace(
        self,
        kind: ResourceKind,
        rules: Rules,
        old: Obj,
        new: Obj,
        subresource: str,
        options: WriteOptions,
    ) -> Accepted:
        """Store ``new`` (whose metadata is ours, and carried over) over ``old``, as far as the subresource may."""
        new = self._confine(kind, rules, old, new, subresource)
        if kind.schema is not None:
            new = self.custom.admit(kind, new, old, options.field_validation, subresource)
        elif not subresource:
            rules.prepare_update(new, old, self.context)
        _check_change(kind, rules, old, new)
        if rules.has_generation:
            _count_generation(kind, rules, old, new)
        if new == old:
            return Accepted(old, wait=not self.store.in_memory)
        if options.dry_run:
            return Accepted(new, wait=False)
        return Accepted(self._store_changed(kind, old, new), wait=not self.store.in_memory)

    async def durable(self, accepted: Accepted) -> Obj:
        """Return what was accepted once it may be shown: nothing must be seen that is not durable yet."""
        if accepted.wait:
            await self.store.settled()
        return accepted.obj

    def _store_changed(self, kind: ResourceKind, old: Obj, new: Obj) -> Obj:
        if deletion.is_released(kind, old, new):
            self._remove(kind, old)
            return new
        return self.store.put(kind, new, over=old)

    def _confine(
        self, kind: ResourceKind, rules: Rules, old: Obj, new: Obj, subresource: str
    ) -> Obj:
        """Keep a write to its own half: ``status`` writes leave the rest alone, other writes leave ``status`` alone."""
        if subresource == "finalize":
            spec = {key: value for key, value in (new.get("spec") or {}).items() if value}
            return old | {"metadata": dict(old["metadata"]), "spec": spec}
        if subresource == "status":
            meta = dict(old["metadata"]) if rules.status_keeps_metadata else new["metadata"]
            owners = old["metadata"].get("ownerReferences")
            if owners is not None:
                meta["ownerReferences"] = owners
            confined = old | {"metadata": meta}
            confined.pop("status", None)
            return confined | {"status": new["status"]} if "status" in new else confined
        if "status" in kind.subresources and new.get("status") is not old.get("status"):
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        return new

    async def bind(self, namespace: str, name: str, node: str, *, uid: str = "") -> Obj:
        """Assign a Pod to a node, once and for all; with ``uid``, only the Pod that was meant."""
        kind = self.kinds.find("", "v1", "pods")
        pod = None if kind is None else self.store.latest(kind, namespace, name)
        if kind is None or pod is None:
            raise not_found("", "pods", name)
        if uid and uid != pod["metadata"]["uid"]:
            raise conflict("", "pods", name, _other_uid(kind, pod, uid))
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise conflict("", "pods/binding", name, why)
        if pod["spec"].get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
            raise conflict("", "pods/binding", name, why)
        if there := pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{there}"'
            raise conflict("", "pods/binding", name, why)
        stored = self.store.put(kind, builtin_pods.bound(pod, node, self.context))
        await self.store.settled()
        return stored

    # --- Deleting ---------------------------------------------------------------------------------------------------

    async def delete(  # noqa: PLR0913 - one per option of the API
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        cascade: str = "Background",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Return the object as it was last: gone, or marked and waiting for its finalizers or its node."""
        obj = self.store.latest(kind, namespace, name)
        if obj is None:
            raise not_found(kind.group, kind.plural, name)
        deletion.check_preconditions(kind, obj, uid, resource_version)
        if kind_key(kind) == NAMESPACES and name in _IMMORTAL:
            raise forbidden_object(kind, name, "this namespace may not be deleted")
        if dry_run:
            return self._ending(kind, obj, cascade, grace_s)[0]
        last = self._delete(kind, obj, cascade, grace_s)
        await self.store.settled()
        return last

    def _delete(self, kind: ResourceKind, obj: Obj, cascade: str, grace_s: int | None) -> Obj:
        marked, held = self._ending(kind, obj, cascade, grace_s)
        if marked is not obj and (held or self.rules(kind).grace_period_s):
            marked = self.store.put(kind, marked | {"metadata": dict(marked["metadata"])})
        if not held:
            return self._remove(kind, marked)
        if kind_key(kind) == CRDS:
            self._sweep(marked)
        return marked

    def _ending(
        self, kind: ResourceKind, obj: Obj, cascade: str, grace_s: int | None
    ) -> tuple[Obj, bool]:
        """Return the object marked for deletion, and whether something still holds it."""
        if kind_key(kind) == NAMESPACES:
            marked, ending = deletion.terminating_namespace(obj, self.clock.now()), False
        else:
            asked = deletion.with_cascade(obj, cascade)
            marked, ending = deletion.mark(asked, self.rules(kind), self.clock.now(), grace_s)
        return marked, ending or bool(deletion.finalizers(kind, marked))

    def _remove(self, kind: ResourceKind, obj: Obj) -> Obj:
        last = self.store.remove(kind, *_place_of(obj))
        if kind.schema is not None:
            self._finish_crd(kind)
        return last

    def _sweep(self, crd: Obj) -> None:
        """Delete the objects of a CRD that is going away; those with finalizers hold it."""
        kind = self.custom.kind_of(crd)
        if kind is None:
            return
        for obj in self.store.latest_objects(kind):
            if "deletionTimestamp" not in obj["metadata"]:
                self._delete(kind, obj, "", None)
        self._finish_crd(kind)

    def _finish_crd(self, kind: ResourceKind) -> None:
        """Let a CRD go that waited for the last of its objects."""
        crd = self.custom.ending_crd(kind)
        crds = self.kinds.find(CRDS[0], "v1", CRDS[1])
        if crd is None or crds is None or self.store.latest_objects(kind):
            return
        others = [f for f in crd["metadata"].get("finalizers") or () if f != CRD_FINALIZER]
        if others:
            self.store.put(crds, crd | {"metadata": crd["metadata"] | {"finalizers": others}})
        else:
            self._remove(crds, crd)

    async def delete_collection(
        self,
        selection: Selection,
        *,
        cascade: str = "Background",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> tuple[Obj, ...]:
        """Delete all that match; return what was deleted."""
        found = self.store.latest_objects(selection.kind, selection.namespace)
        matching = tuple(obj for obj in found if selection.matches(obj))
        if not dry_run:
            for obj in matching:
                self._delete(selection.kind, obj, cascade, grace_s)
        await self.store.settled()
        return matching


class _Named(NamedTuple):
    """A kind by its name alone, for looking up objects."""

    group: str
    plural: str


def forbidden_object(kind: ResourceKind, name: str, why: str, **details: Any) -> StatusError:  # noqa: ANN401 - JSON
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    message = f'{resource} "{name}" is forbidden: {why}'
    return StatusError(
        403, "Forbidden", message, name=name, group=kind.group, kind=kind.plural, **details
    )


def _other_uid(kind: ResourceKind, obj: Obj, uid: str) -> str:
    """Say in the storage layer's words that a write was meant for another object of the same name."""
    meta = obj["metadata"]
    place = "/".join(
        part for part in (kind.plural, meta.get("namespace", ""), meta["name"]) if part
    )
    key = f"/registry/{kind.group}/{place}" if kind.schema is not None else f"/registry/{place}"
    return (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
    )


def _create_causes(kind: ResourceKind, new: Obj, rules: Rules) -> list[Cause]:
    named = _name_causes(new["metadata"], rules)
    general = meta_rules.causes_of(new["metadata"], core=not kind.group)
    own = rules.create_causes(new)
    # Events are the one kind whose own rules come first, and alone if they find something.
    return [*named, *own] or [*general] if kind.kind == "Event" else [*named, *general, *own]


def _check_type(kind: ResourceKind, obj: Obj) -> None:
    """Refuse an object that says it is of another kind or version; one that says nothing is taken as it is."""
    said_kind, said_version = obj.get("kind"), obj.get("apiVersion")
    if not all(said is None or isinstance(said, str) for said in (said_kind, said_version)):
        raise bad_request("couldn't get version/kind; json parse error: they are not text")
    if kind.schema is not None and not said_kind:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is missing"
        )
    if kind.schema is not None and said_version not in {None, "", kind.api_version}:
        raise bad_request(
            f"the API version in the data ({said_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if kind.schema is not None and said_kind != kind.kind:
        message = f"Invalid value: {meta_rules.go_quote(said_kind or '')}: must be {kind.kind}"
        cause = Cause("kind", "FieldValueInvalid", message)
        raise invalid(kind.group, str(said_kind), _name_given(obj), [cause])
    if said_kind not in {None, "", kind.kind} or said_version not in {None, "", kind.api_version}:
        raise bad_request(
            f'{said_kind} in version "{said_version}" cannot be handled as a {kind.kind}: '
            f"expected {kind.api_version}, Kind={kind.kind}"
        )
    if not isinstance(obj.get("metadata") or {}, dict):
        raise bad_request(f"{kind.kind}: metadata is not an object")


def _name_given(obj: Obj) -> str:
    meta = obj.get("metadata")
    return str(meta.get("name", "")) if isinstance(meta, dict) else ""


def _check_place(kind: ResourceKind, namespace: str, name: str, meta: Obj) -> None:
    given = meta.get("name") or ""
    if given != name:
        if not given:
            raise bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )
        raise bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )
    if (meta.get("namespace") or namespace) != namespace:
        raise bad_request(_OTHER_NAMESPACE)
    if kind.namespaced:
        meta["namespace"] = namespace


def _name_causes(meta: Obj, rules: Rules) -> list[Cause]:
    name = meta.get("name")
    if not name:
        return [meta_rules.required("metadata.name", "name or generateName is required")]
    fault = rules.name_fault(name)
    return [meta_rules.invalid_value("metadata.name", name, fault)] if fault else []


def _check_version(kind: ResourceKind, meta: Obj, old_meta: Obj) -> None:
    version = meta.get("resourceVersion")
    if version not in _UNCONDITIONAL and version != old_meta["resourceVersion"]:
        raise conflict(kind.group, kind.plural, old_meta["name"], _STALE)


def _check_change(kind: ResourceKind, rules: Rules, old: Obj, new: Obj) -> None:
    causes = [*rules.update_causes(new, old)]
    meta, old_meta = new["metadata"], old["metadata"]
    if meta != old_meta:
        causes = [*meta_rules.causes_of_update(meta, old_meta, core=not kind.group), *causes]
    if causes:
        raise invalid(kind.group, kind.kind, old_meta["name"], causes)


def _count_generation(kind: ResourceKind, rules: Rules, old: Obj, new: Obj) -> None:
    keys = rules.generation_keys or [
        key for key in {**old, **new} if key not in {"metadata", "apiVersion", "kind"}
    ]
    ignored = {"status"} if "status" in kind.subresources else set()
    if any(old.get(key) != new.get(key) for key in keys if key not in ignored):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _place_of(obj: Obj) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]
