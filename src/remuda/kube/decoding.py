"""
JSON to typed resources, with what repeats held once.

The Pods of one pool have the same containers, volumes and labels. A field marked ``Shared`` is cut out of the JSON as
bytes first; bytes seen before give the value decoded then. So ten thousand Pods cost less memory than their JSON, and
the repeated parts cost no decoding at all. Pure; what was seen lives in the ``Decoding`` that a client owns.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Raw
from msgspec.structs import FieldInfo, fields

from remuda.kube.meta import SHARED, Resource

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

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
        self._build = _builder(type_, sharing)
        self._decode: Callable[[bytes | Raw], Any] = msgspec.json.Decoder(_twin(type_).wire).decode
        self._list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_list_of(type_))

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
    """One cache for each type of shared field, and one builder for each type of object."""

    def __init__(self) -> None:
        self._caches: dict[str, _Cache] = {}
        self.builders: dict[type, Callable[[Any], Any]] = {}

    def cache(self, type_: Any) -> _Cache:  # noqa: ANN401 - as above
        name = str(type_)
        if name not in self._caches:
            self._caches[name] = _Cache(type_)
        return self._caches[name]


# --- Twins: what is decoded into. The same for every client, and made once --------------------------------------------


class _How(Enum):
    """What becomes of what was decoded."""

    AS_IT_IS = auto()
    SHARED = auto()
    BUILT = auto()
    BUILT_EACH = auto()


class _WireField(NamedTuple):
    """How one field is decoded: into what, what becomes of that, and its value where there is nothing."""

    wire: Any
    how: _How = _How.AS_IT_IS
    type: Any = None
    """Of what is shared, or built."""
    empty: Any = None


class _Twin(NamedTuple):
    """The type to decode a type into, with shared fields as bytes, and the code that turns it into the real one."""

    wire: type
    fields: dict[str, _WireField]
    code: CodeType


_fields = cache(fields)
"""What msgspec tells of a type's fields. It evaluates all annotations anew each time."""


@cache
def _twin(type_: type) -> _Twin:
    wire_fields = {field.name: _wire_field(field) for field in _fields(type_)}
    wire = msgspec.defstruct(
        f"_{type_.__name__}",
        [
            (f.name, wire_fields[f.name].wire, _wire_default(f, wire_fields[f.name]))
            for f in _fields(type_)
        ],
        rename={f.name: f.encode_name for f in _fields(type_)},
        kw_only=True,
        gc=False,
    )
    return _Twin(wire, wire_fields, _code(wire_fields))


@cache
def _list_of(type_: type) -> type:
    wire = _twin(type_).wire
    items = list[wire] | None  # type: ignore[valid-type]
    return msgspec.defstruct("_List", [("metadata", _Pages, _Pages()), ("items", items, None)])


def _code(wire_fields: dict[str, _WireField]) -> CodeType:
    """
    Write and compile ``lambda found: type_(a=found.a, b=empty_b if ... else convert_b(found.b), ...)``.

    It runs for every object of every list and watch; a loop over the fields takes twice as long.
    """
    arguments = (
        f"{name}=found.{name}"
        if field.how is _How.AS_IT_IS
        else f"{name}=empty_{name} if (part := found.{name}) is None else convert_{name}(part)"
        for name, field in wire_fields.items()
    )
    return compile(f"lambda found: type_({', '.join(arguments)})", "<twin>", "eval")


def _wire_field(field: FieldInfo) -> _WireField:
    if SHARED in getattr(field.type, "__metadata__", ()):
        return _WireField(Raw, _How.SHARED, field.type, _default(field))
    if _has_shared(field.type):
        return _WireField(_twin(field.type).wire | None, _How.BUILT, field.type, _default(field))
    arguments = get_args(field.type)
    if get_origin(field.type) is tuple and _has_shared(arguments[0]):
        wire = _twin(arguments[0]).wire
        each = list[wire] | None  # type: ignore[valid-type]
        return _WireField(each, _How.BUILT_EACH, arguments[0], ())
    return _WireField(field.type)


def _default(field: FieldInfo) -> object:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default


def _wire_default(field: FieldInfo, wire: _WireField) -> Any:  # noqa: ANN401 - as above
    required = field.default is NODEFAULT and field.default_factory is NODEFAULT
    if required:
        return NODEFAULT
    if wire.how is not _How.AS_IT_IS:
        return None
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


@cache
def _has_shared(type_: Any) -> bool:  # noqa: ANN401 - as above
    """Whether a struct has shared fields, itself or in its parts."""
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return False
    return any(
        SHARED in getattr(field.type, "__metadata__", ())
        or _has_shared(field.type)
        or any(_has_shared(inner) for inner in get_args(field.type))
        for field in _fields(type_)
    )


# --- Builders: what turns a twin into the real one, by what one client has seen ---------------------------------------


def _builder(type_: type, sharing: _Sharing) -> Callable[[Any], Any]:
    if type_ not in sharing.builders:
        twin = _twin(type_)
        names: dict[str, object] = {"type_": type_}
        for name, field in twin.fields.items():
            names[f"convert_{name}"] = _convert(field, sharing)
            names[f"empty_{name}"] = field.empty
        sharing.builders[type_] = eval(twin.code, names)  # noqa: S307 - field names of our own types
    return sharing.builders[type_]


def _convert(field: _WireField, sharing: _Sharing) -> Callable[[Any], Any] | None:
    match field.how:
        case _How.AS_IT_IS:
            return None
        case _How.SHARED:
            return sharing.cache(field.type).value
        case _How.BUILT:
            return _builder(field.type, sharing)
        case _How.BUILT_EACH:
            build = _builder(field.type, sharing)
            return lambda found: tuple(map(build, found))
