"""
Custom resources: kinds that CRDs add and take away, and what their schemas do to each write.

A kind is served from the moment its CRD is accepted. What a schema says is the business of ``schema``; here it is
applied in the API server's order: prune, default, validate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.standalone import crds
from remuda.standalone.bodies import check_body
from remuda.standalone.errors import StatusError, bad_request, invalid
from remuda.standalone.metadata import invalid_value
from remuda.standalone.rules import Rules
from remuda.standalone.schema import StructuralSchema
from remuda.standalone.store import KindKey, kind_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.ports.clock import Clock
    from remuda.standalone.errors import Cause
    from remuda.standalone.kinds import Kinds, ResourceKind
    from remuda.standalone.objects import Obj
    from remuda.standalone.rules import Context
    from remuda.standalone.store import Store, StoredEvent

CRDS: KindKey = ("apiextensions.k8s.io", "customresourcedefinitions")
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

_RULES = Rules(
    has_generation=True,
    generation_keys=(),
    needs_version_on_update=True,
    status_keeps_metadata=True,
    strategic_patches=False,
)


def _new_crd(crd: Obj, context: Context) -> None:
    check_body("CustomResourceDefinition", crd)
    crd["spec"] = crds.defaulted(crd)["spec"]
    meta = crd["metadata"]
    meta["finalizers"] = [*(meta.get("finalizers") or ()), CRD_FINALIZER]
    crd.pop("status", None)
    _establish(crd, context)


def _changed_crd(crd: Obj, _: Obj, context: Context) -> None:
    check_body("CustomResourceDefinition", crd)
    crd["spec"] = crds.defaulted(crd)["spec"]
    _establish(crd, context)


def _establish(crd: Obj, context: Context) -> None:
    """Give an acceptable CRD the status that the real server's controllers give it a moment later."""
    if not crds.validate(crd):
        crd["status"] = crds.established(crd, context.clock.now())


def _changed_crd_causes(crd: Obj, old: Obj) -> Iterator[Cause]:
    if crd["spec"] == old["spec"]:
        return
    yield from crds.validate(crd)
    for field in ("group", "scope"):
        if crd["spec"].get(field) != old["spec"].get(field):
            yield invalid_value(f"spec.{field}", str(crd["spec"].get(field)), "field is immutable")
    for field in ("kind", "plural"):
        after, before = (one["spec"]["names"].get(field) for one in (crd, old))
        if after != before:
            yield invalid_value(f"spec.names.{field}", str(after), "field is immutable")


CRD_RULES = Rules(
    prepare_create=_new_crd,
    prepare_update=_changed_crd,
    create_causes=crds.validate,
    update_causes=_changed_crd_causes,
    has_generation=True,
    needs_version_on_update=True,
    status_keeps_metadata=True,
)


class _CrdKind(NamedTuple):
    group: str = CRDS[0]
    plural: str = CRDS[1]


CRD_KIND = _CrdKind()


class CustomKinds:
    """The kinds that the CRDs in the store define."""

    def __init__(self, store: Store, kinds: Kinds, clock: Clock) -> None:
        self._store, self._kinds, self._clock = store, kinds, clock
        self._schemas: dict[KindKey, StructuralSchema] = {}
        for crd in store.objects(CRD_KIND):
            self._register(crd)
        store.follow(CRD_KIND, self._note)  # after commit: what is not durable is not served

    def rules(self, _: ResourceKind) -> Rules:
        return _RULES

    # --- CRDs come and go -------------------------------------------------------------------------------------------

    def _note(self, event: StoredEvent) -> None:
        if event.change == "DELETED":
            self._forget(event.object)
        elif event.previous is None or event.previous["spec"] != event.object["spec"]:
            self._register(event.object)

    def _register(self, crd: Obj) -> None:
        """Serve what a CRD defines, from now on."""
        kind = crds.kind_from_crd(crd)
        assert kind.schema is not None
        self._schemas[kind_key(kind)] = StructuralSchema(kind.schema, scale=kind.scale)
        self._kinds.remove(kind.group, kind.plural)
        self._kinds.add(kind)

    def _forget(self, crd: Obj) -> None:
        """Stop serving what a CRD defined."""
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        self._kinds.remove(group, plural)
        self._schemas.pop((group, plural), None)

    def kind_of(self, crd: Obj) -> ResourceKind | None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        return next((k for k in self._kinds if kind_key(k) == (group, plural)), None)

    def crd_of(self, kind: ResourceKind) -> Obj | None:
        return self._store.latest(CRD_KIND, "", f"{kind.plural}.{kind.group}")

    def ending_crd(self, kind: ResourceKind) -> Obj | None:
        """Return the CRD of a kind if it is being deleted."""
        crd = self.crd_of(kind)
        return crd if crd is not None and "deletionTimestamp" in crd["metadata"] else None

    def selectable_fields(self, kind: ResourceKind) -> frozenset[str]:
        """Return what the CRD offers to field selectors beside the metadata."""
        if kind.schema is None:
            return frozenset()
        crd = self._store.get(CRD_KIND, "", f"{kind.plural}.{kind.group}") or {"spec": {}}
        versions = [v for v in crd["spec"].get("versions") or () if v.get("name") == kind.version]
        return frozenset(
            one["jsonPath"].removeprefix(".")
            for version in versions
            for one in version.get("selectableFields") or ()
        )

    # --- Writes to custom resources ---------------------------------------------------------------------------------

    def admit(
        self,
        kind: ResourceKind,
        new: Obj,
        old: Obj | None,
        field_validation: str,
        subresource: str = "",
    ) -> Obj:
        """Return the object as its schema would have it, or refuse it."""
        if old is None:
            self._check_served(kind)
            if "status" in kind.subresources:
                new.pop("status", None)
        schema = self._schemas[kind_key(kind)]
        kept = schema.prune(new)
        if field_validation == "Strict" and kept is not new and kept != new:
            unknown = ", ".join(f'unknown field "{path}"' for path in sorted(_lost(new, kept, "")))
            if unknown:
                raise bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {unknown}"
                )
        full = schema.default(kept)
        causes = schema.validate(full, old)
        if subresource == "status":  # the rest is as it was, whatever newer rules may say of it
            causes = tuple(
                c for c in causes if c.field.startswith(("status", "<nil>")) or not c.field
            )
        if causes:
            raise invalid(kind.group, kind.kind, new["metadata"].get("name", ""), causes)
        return full

    def _check_served(self, kind: ResourceKind) -> None:
        """Refuse to create what nobody would delete again: its CRD is going, or gone."""
        if self.crd_of(kind) is None:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        if self.ending_crd(kind) is not None:
            why = "create not allowed while custom resource definition is terminating"
            raise StatusError(405, "MethodNotAllowed", why)


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Name what pruning took away."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            where = f"{path}.{key}" if path else key
            if key not in after:
                yield where
            else:
                yield from _lost(value, after[key], where)
    elif isinstance(before, list) and isinstance(after, list):
        for at, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from _lost(one, other, f"{path}[{at}]")
