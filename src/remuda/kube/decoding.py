"""
JSON to typed resources, with what repeats held once.

The Pods of one pool have the same containers, volumes and labels. A field marked ``Shared`` is cut out of the JSON as
bytes first; bytes seen before give the value decoded then. So ten thousand Pods cost less memory than their JSON, and
the repeated parts cost no decoding at all. Pure; the caches live in the ``Decoding`` that a client owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Raw
from msgspec.structs import FieldInfo, fields

from remuda.kube.meta import SHARED, Resource

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=Resource)

_KEPT_MAX = 512
_LONGEST_KEPT_BYTES = 8192


class _Pages(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list. A non-empty ``continue_`` asks for the next one."""

    items: tuple[T, ...]
    resource_version: str
    continue_: str


class ObjectDecoder(Generic[T]):
    """Decodes the objects of one kind, and lists of them. Raises ``msgspec.MsgspecError``."""

    def __init__(self, type_: type[T], sharing: _Sharing) -> None:
        wire, self._build = _twin(type_, sharing)
        self._decode: Callable[[bytes | Raw], Any] = msgspec.json.Decoder(wire).decode
        list_type = msgspec.defstruct(
            "_List",
            [("metadata", _Pages, _Pages()), ("items", list[wire] | None, None)],  # type: ignore[valid-type]
        )
        self._list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list_type)

    def object(self, body: bytes | Raw) -> T:
        built: T = self._build(self._decode(body))
        return built

    def page(self, body: bytes) -> Page[T]:
        found = self._list.decode(body)
        items = tuple(map(self._build, found.items or ()))
        return Page(items, found.metadata.resource_version, found.metadata.continue_)


class Decoding:
    """The decoders of all kinds that one client reads; they share what repeats."""

    def __init__(self) -> None:
        self._sharing = _Sharing()
        self._decoders: dict[type[Resource], ObjectDecoder[Any]] = {}

    def of(self, type_: type[T]) -> ObjectDecoder[T]:
        found: ObjectDecoder[T] | None = self._decoders.get(type_)
        if found is None:
            found = self._decoders[type_] = ObjectDecoder(type_, self._sharing)
        return found


class _Cache:
    """
    Values by their JSON, bounded: two generations, of which the older is dropped when the younger is full.

    What is met at least once in ``_KEPT_MAX`` misses stays; what does not repeat falls out by itself.
    """

    def __init__(self, type_: Any) -> None:  # noqa: ANN401 - any type that msgspec decodes
        self._decode = msgspec.json.Decoder(type_).decode
        self._young: dict[bytes, object] = {}
        self._old: dict[bytes, object] = {}

    def value(self, raw: Raw) -> object:
        key = bytes(raw)
        if (found := self._young.get(key, self)) is not self:
            return found
        if (found := self._old.pop(key, self)) is self:
            found = self._decode(key)
        if len(key) <= _LONGEST_KEPT_BYTES:
            self._keep(key, found)
        return found

    def _keep(self, key: bytes, value: object) -> None:
        if len(self._young) >= _KEPT_MAX:
            self._old, self._young = self._young, {}
        self._young[key] = value


class _Sharing:
    """One cache for each type of shared field, and one twin for each type of object."""

    def __init__(self) -> None:
        self._caches: dict[str, _Cache] = {}
        self.twins: dict[type, tuple[type, Callable[[Any], Any]]] = {}

    def cache(self, field: FieldInfo) -> _Cache:
        name = str(field.type)
        if name not in self._caches:
            self._caches[name] = _Cache(field.type)
        return self._caches[name]


def _default(field: FieldInfo) -> object:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default


def _twin(type_: type, sharing: _Sharing) -> tuple[type, Callable[[Any], Any]]:
    """Return the type to decode into, with shared fields as bytes, and what turns it into the real one."""
    if type_ not in sharing.twins:
        sharing.twins[type_] = _make_twin(type_, sharing)
    return sharing.twins[type_]


class _WireField(NamedTuple):
    """How one field is decoded: into what, what turns that into its value, and its value where there is nothing."""

    type: Any
    convert: Callable[[Any], Any] | None = None
    empty: Any = None


def _make_twin(type_: type, sharing: _Sharing) -> tuple[type, Callable[[Any], Any]]:
    wire_fields = {field.name: _wire_field(field, sharing) for field in fields(type_)}
    wire = msgspec.defstruct(
        f"_{type_.__name__}",
        [
            (f.name, wire_fields[f.name].type, _wire_default(f, wire_fields[f.name]))
            for f in fields(type_)
        ],
        rename={f.name: f.encode_name for f in fields(type_)},
        kw_only=True,
        gc=False,
    )
    return wire, _builder(type_, wire_fields)


def _builder(type_: type, wire_fields: dict[str, _WireField]) -> Callable[[Any], Any]:
    """
    Write and compile ``lambda found: type_(a=found.a, b=empty_b if ... else convert_b(found.b), ...)``.

    It runs for every object of every list and watch; a loop over the fields takes twice as long.
    """
    arguments = (
        f"{name}=found.{name}"
        if field.convert is None
        else f"{name}=empty_{name} if (part := found.{name}) is None else convert_{name}(part)"
        for name, field in wire_fields.items()
    )
    converts = {f"convert_{name}": field.convert for name, field in wire_fields.items()}
    empties = {f"empty_{name}": field.empty for name, field in wire_fields.items()}
    source = f"lambda found: type_({', '.join(arguments)})"
    built: Callable[[Any], Any] = eval(source, {"type_": type_, **converts, **empties})  # noqa: S307 - field names of our own types
    return built


def _wire_default(field: FieldInfo, wire: _WireField) -> Any:  # noqa: ANN401 - as above
    required = field.default is NODEFAULT and field.default_factory is NODEFAULT
    if required:
        return NODEFAULT
    if wire.convert is not None:
        return None
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


def _wire_field(field: FieldInfo, sharing: _Sharing) -> _WireField:
    if SHARED in getattr(field.type, "__metadata__", ()):
        return _WireField(Raw, sharing.cache(field).value, _default(field))
    if _has_shared(field.type):
        wire, build = _twin(field.type, sharing)
        return _WireField(wire | None, build, _default(field))
    arguments = get_args(field.type)
    if get_origin(field.type) is tuple and _has_shared(arguments[0]):
        wire, build = _twin(arguments[0], sharing)
        return _WireField(list[wire] | None, lambda found: tuple(map(build, found)), ())  # type: ignore[valid-type]
    return _WireField(field.type)


def _has_shared(type_: Any) -> bool:  # noqa: ANN401 - as above
    """Whether a struct has shared fields, itself or in its parts."""
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return False
    return any(
        SHARED in getattr(field.type, "__metadata__", ())
        or _has_shared(field.type)
        or any(_has_shared(inner) for inner in get_args(field.type))
        for field in fields(type_)
    )
