"""What a request means: its path as a resource, its query and Accept header as options. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from remuda.standalone.errors import StatusError, bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.standalone.kinds import Kinds, ResourceKind

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_CORE_DEPTH, _GROUP_DEPTH = 2, 3
_NAMESPACED_DEPTH = 3
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
"""What surely is a 64-bit number."""
_TRUE = frozenset({"1", "true", "True", "t", ""})
_KNOWN_PATHS_MAX = 4096
_DURATION_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Target:
    """The resource a path names. Without ``name`` it is the collection."""

    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Targets:
    """Reads paths, and remembers the last ones: a controller asks for the same few again and again."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._known: dict[str, Target] = {}
        self._changes = kinds.changes

    def find(self, path: str) -> Target:
        """Return what ``find_target`` would."""
        if self._changes != self._kinds.changes or len(self._known) > _KNOWN_PATHS_MAX:
            self._known.clear()
            self._changes = self._kinds.changes
        found = self._known.get(path)
        if found is None:
            found = self._known[path] = find_target(self._kinds, path)
        return found


def find_target(kinds: Kinds, path: str) -> Target:
    """Read a path such as ``/api/v1/namespaces/a/pods/b/status``; 404 if nothing is served there."""
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) > _CORE_DEPTH:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > _GROUP_DEPTH:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    namespace = ""
    of_namespace = (
        group == "" and len(rest) == _NAMESPACED_DEPTH and rest[2] in _NAMESPACE_SUBRESOURCES
    )
    if rest[0] == "namespaces" and len(rest) >= _NAMESPACED_DEPTH and not of_namespace:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *beyond = (*rest, "", "", "")[: max(3, len(rest))]
    kind = kinds.find(group, version, plural)
    if kind is None or beyond or (namespace and not kind.namespaced):
        raise no_such_path()
    if subresource and subresource not in kind.subresources:
        raise no_such_path()
    if name and kind.namespaced and not namespace:
        raise no_such_path()
    return Target(kind, namespace, name, subresource)


def timeout_s(text: str) -> float:
    """Read how long a client waits, as Go writes durations (``1m30s``, ``0.5s``); 0 if it does not say."""
    if not text:
        return 0.0
    if not _DURATION.fullmatch(text):
        raise bad_request("invalid timeout specified in the request URL")
    return sum(float(amount) * _UNITS_S[unit] for amount, unit in _DURATION_PART.findall(text))


def no_such_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed() -> StatusError:
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )


def flag(query: Mapping[str, str], name: str) -> bool:
    """Read a yes/no parameter; naming it without a value means yes."""
    return name in query and query[name] in _TRUE


def number(query: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    text = query.get(name)
    if not text:
        return default
    if not _NUMBER.fullmatch(text):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


@dataclass(frozen=True, slots=True)
class MediaType:
    """One choice of an Accept header: ``application/json;as=Table;v=v1;g=meta.k8s.io``."""

    name: str
    as_: str = ""
    version: str = ""


_JSON = MediaType("application/json")
_JSON_NAMES = frozenset({"application/json", "application/*", "*/*", ""})
_SHOWN_AS = frozenset({"", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"})


def accepted(accept: str) -> MediaType:
    """Return the first choice that we can serve; 406 if there is none."""
    if accept == "application/json":
        return _JSON
    for text in accept.split(","):
        name, *parameters = [part.strip() for part in text.split(";")]
        if name not in _JSON_NAMES:
            continue
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        shown_as = given.get("as", "")
        if shown_as in _SHOWN_AS:
            return MediaType(name, shown_as, given.get("v", ""))
    raise StatusError(
        406, "NotAcceptable", "only the following media types are accepted: application/json"
    )
