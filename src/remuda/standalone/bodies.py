"""
Check the types of bodies that no stored type covers: token requests, bindings, delete options, CRDs.

What they say is for their readers, who may then trust the types. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from remuda.standalone.errors import bad_request

if TYPE_CHECKING:
    from remuda.standalone.objects import Obj

Text = str | None
Texts = list[str] | None


class _Part(msgspec.Struct, rename="camel"):
    """Any part of a body. What is absent may as well be null."""


class _Meta(_Part):
    name: Text = None
    namespace: Text = None
    uid: Text = None
    resource_version: Text = None


class _BoundObject(_Part):
    kind: Text = None
    api_version: Text = None
    name: Text = None
    uid: Text = None


class _TokenRequestSpec(_Part):
    audiences: Texts = None
    expiration_seconds: int | None = None
    bound_object_ref: _BoundObject | None = None


class _TokenRequest(_Part):
    metadata: _Meta | None = None
    spec: _TokenRequestSpec | None = None


class _TokenReviewSpec(_Part):
    token: Text = None
    audiences: Texts = None


class _TokenReview(_Part):
    spec: _TokenReviewSpec | None = None


class _AccessReview(_Part):
    spec: dict[str, Any] | None = None


class _Target(_Part):
    kind: Text = None
    name: Text = None


class _Binding(_Part):
    metadata: _Meta | None = None
    target: _Target | None = None


class _Preconditions(_Part):
    uid: Text = None
    resource_version: Text = None


class _DeleteOptions(_Part):
    propagation_policy: Text = None
    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    dry_run: Texts = None
    preconditions: _Preconditions | None = None


class _Eviction(_Part):
    metadata: _Meta | None = None
    delete_options: _DeleteOptions | None = None


class _Scale(_Part):
    metadata: _Meta | None = None
    spec: dict[str, Any] | None = None


class _Names(_Part):
    plural: str = ""
    singular: str = ""
    kind: str = ""
    list_kind: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class _Rule(_Part):
    rule: str = ""
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""


class _Props(_Part):
    """A schema, as far as its keywords have types."""

    type: str = ""
    format: str = ""
    pattern: str = ""
    description: str = ""
    nullable: bool = False
    required: list[str] = []
    enum: list[Any] = []
    minimum: float = 0
    maximum: float = 0
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float = 0
    min_length: int = 0
    max_length: int = 0
    min_items: int = 0
    max_items: int = 0
    min_properties: int = 0
    max_properties: int = 0
    unique_items: bool = False
    properties: dict[str, _Props] = {}
    additional_properties: bool | _Props = True
    items: _Props | msgspec.UnsetType = msgspec.UNSET
    not_: _Props | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="not")
    all_of: list[_Props] = []
    any_of: list[_Props] = []
    one_of: list[_Props] = []
    validations: list[_Rule] = msgspec.field(default_factory=list, name="x-kubernetes-validations")
    list_type: str = msgspec.field(default="", name="x-kubernetes-list-type")
    list_map_keys: list[str] = msgspec.field(
        default_factory=list, name="x-kubernetes-list-map-keys"
    )
    map_type: str = msgspec.field(default="", name="x-kubernetes-map-type")
    int_or_string: bool = msgspec.field(default=False, name="x-kubernetes-int-or-string")
    embedded: bool = msgspec.field(default=False, name="x-kubernetes-embedded-resource")
    open: bool = msgspec.field(default=False, name="x-kubernetes-preserve-unknown-fields")


class _Schema(_Part):
    open_apiv3_schema: _Props = msgspec.field(default_factory=_Props, name="openAPIV3Schema")


class _ScalePaths(_Part):
    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str = ""


class _Subresources(_Part):
    status: dict[str, Any] = {}
    scale: _ScalePaths | msgspec.UnsetType = msgspec.UNSET


class _Column(_Part):
    name: str
    type: str = ""
    json_path: str = ""
    description: str = ""
    format: str = ""
    priority: int = 0


class _SelectableField(_Part):
    json_path: str


class _Version(_Part):
    name: str = ""
    served: bool = False
    storage: bool = False
    schema: _Schema = msgspec.field(default_factory=_Schema)
    subresources: _Subresources = msgspec.field(default_factory=_Subresources)
    additional_printer_columns: list[_Column] = []
    selectable_fields: list[_SelectableField] = []


class _CrdSpec(_Part):
    group: str = ""
    scope: str = ""
    names: _Names = msgspec.field(default_factory=_Names)
    versions: list[_Version] = []
    preserve_unknown_fields: bool = False


class _Crd(_Part):
    spec: _CrdSpec = msgspec.field(default_factory=_CrdSpec)


_SHAPES: Final[dict[str, type[_Part]]] = {
    "Binding": _Binding,
    "CustomResourceDefinition": _Crd,
    "DeleteOptions": _DeleteOptions,
    "Eviction": _Eviction,
    "Scale": _Scale,
    "SelfSubjectAccessReview": _AccessReview,
    "TokenRequest": _TokenRequest,
    "TokenReview": _TokenReview,
}


def check_body(kind: str, body: Obj) -> None:
    """Refuse a body with a part of the wrong type, as a failed decode."""
    try:
        msgspec.convert(body, _SHAPES[kind])
    except msgspec.ValidationError as error:
        raise bad_request(f"{kind} cannot be handled as a {kind}: {error}") from None
