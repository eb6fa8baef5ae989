"""
JSON to typed resources, with what repeats held once.

The Pods of one pool have the same containers, volumes and labels. A field marked ``Shared`` is cut out of the JSON as
bytes first; bytes seen before give the value decoded then. So ten thousand Pods cost less memory than their JSON, and
the repeated parts cost no decoding at all. Pure; the caches live in the ``Decoding`` that a client owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_args, get_origin

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
        self._one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wire)
        list_type = msgspec.defstruct(
            "_List",
            [("metadata", _Pages, _Pages()), ("items", list[wire] | None, None)],  # type: ignore[valid-type]
        )
        self._list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list_type)

    def object(self, body: bytes | Raw) -> T:
        built: T = self._build(self._one.decode(body))
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
        found = self._decoders.get(type_)
        if found is None:
            found = self._decoders[type_] = ObjectDecoder(type_, self._sharing)
        return cast("ObjectDecoder[T]", found)


class _Cache:
    """
    Values by their JSON, bounded: two generations, of which the older is dropped when the younger is full.

    What is met at least once in ``_KEPT_MAX`` misses stays; what does not repeat falls out by itself.
    """

    def __init__(self, type_: Any, empty: object) -> None:  # noqa: ANN401 - any type that msgspec decodes
        self._decode = msgspec.json.Decoder(type_).decode
        self._empty = empty
        self._young: dict[bytes, object] = {}
        self._old: dict[bytes, object] = {}

    def value(self, raw: Raw) -> object:
        if not raw:
            return self._empty
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
    """One cache for each type (and default) of shared field, and one twin for each type of object."""

    def __init__(self) -> None:
        self._caches: dict[str, _Cache] = {}
        self.twins: dict[type, tuple[type, Callable[[Any], Any]]] = {}

    def cache(self, field: FieldInfo) -> _Cache:
        empty = _default(field)
        name = f"{field.type} {empty!r}"
        if name not in self._caches:
            self._caches[name] = _Cache(field.type, empty)
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


def _make_twin(type_: type, sharing: _Sharing) -> tuple[type, Callable[[Any], Any]]:
    wire_fields: list[tuple[str, Any, Any]] = []
    converters: list[tuple[str, Callable[[Any], Any] | None]] = []
    for field in fields(type_):
        wire_type, convert = _wire_field(field, sharing)
        converters.append((field.name, convert))
        wire_fields.append((field.name, wire_type, _wire_default(field, wire_type)))
    names = {f.name: f.encode_name for f in fields(type_)}
    wire = msgspec.defstruct(
        f"_{type_.__name__}", wire_fields, rename=names, kw_only=True, gc=False
    )
    return wire, _builder(type_, converters)


def _builder(
    type_: type, converters: list[tuple[str, Callable[[Any], Any] | None]]
) -> Callable[[Any], Any]:
    """
    Write and compile ``lambda found: type_(a=found.a, b=convert_b(found.b), ...)``.

    It runs for every object of every list and watch; a loop over the fields takes twice as long.
    """
    arguments = (
        f"{name}=found.{name}" if convert is None else f"{name}=convert_{name}(found.{name})"
        for name, convert in converters
    )
    names = {f"convert_{name}": convert for name, convert in converters}
    source = f"lambda found: type_({', '.join(arguments)})"
    built: Callable[[Any], Any] = eval(source, {"type_": type_, **names})  # noqa: S307 - field names of our own types
    return built


def _wire_default(field: FieldInfo, wire_type: Any) -> Any:  # noqa: ANN401 - as above
    required = field.default is NODEFAULT and field.default_factory is NODEFAULT
    if required:
        return NODEFAULT
    if wire_type is Raw:
        return Raw()
    if wire_type is not field.type:
        return None
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


def _wire_field(field: FieldInfo, sharing: _Sharing) -> tuple[Any, Callable[[Any], Any] | None]:
    if SHARED in getattr(field.type, "__metadata__", ()):
        return Raw, sharing.cache(field).value
    if _has_shared(field.type):
        wire, build = _twin(field.type, sharing)
        empty = _default(field)
        return wire | None, lambda found: empty if found is None else build(found)
    arguments = get_args(field.type)
    if get_origin(field.type) is tuple and _has_shared(arguments[0]):
        wire, build = _twin(arguments[0], sharing)
        return list[wire] | None, lambda found: tuple(map(build, found)) if found else ()  # type: ignore[valid-type]
    return field.type, None


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
