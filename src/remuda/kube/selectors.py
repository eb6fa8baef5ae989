"""
Label and field selectors: parse what kubectl and clients write, and match it. Pure.

Errors are ``ValueError`` with the words of the API server. Which fields of a kind can be selected is given by the
caller (``FIELDS`` holds those of the built-in kinds), because a CRD may add its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Operator(Enum):
    """How one requirement reads its label."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"
    GREATER = "gt"
    LESS = "lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        match self.operator:
            case Operator.IN:
                return present and labels[self.key] in self.values
            case Operator.NOT_IN:  # an absent label is not in any set
                return not present or labels[self.key] not in self.values
            case Operator.EXISTS:
                return present
            case Operator.ABSENT:
                return not present
            case Operator.GREATER | Operator.LESS:
                return present and self._compares(labels[self.key])

    def _compares(self, text: str) -> bool:
        (bound,) = self.values
        try:
            number = int(text)
        except ValueError:
            return False  # as the API server: a label that is no number is on neither side
        return number > int(bound) if self.operator is Operator.GREATER else number < int(bound)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; none at all selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


EVERY_LABEL = LabelSelector()

_TOKEN = re.compile(r"\s*(?:(?P<op>==|!=|=|!|,|\(|\)|<|>)|(?P<word>[^\s=!,()<>]+))")
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_NAME = re.compile(_PART)
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_NAME_LENGTH_MAX, _PREFIX_LENGTH_MAX = 63, 253
_END = ""


def parse_labels(text: str) -> LabelSelector:
    """Parse ``a=b,a!=b,a in (x,y),a notin (x),a,!a`` (and ``==``, ``a>1``, ``a<1``)."""
    if not text.strip():
        return EVERY_LABEL
    return LabelSelector(tuple(_LabelParser(text).requirements()))


class _LabelParser:
    """A cursor over the tokens of one selector."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def requirements(self) -> Iterator[Requirement]:
        while True:
            yield self._requirement()
            separator = self._next()
            if separator == _END:
                return
            if separator != ",":
                raise ValueError(f"found '{separator}', expected: ',' or 'end of string'")
            if self._peek() == _END:
                raise ValueError("found '', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        if self._peek() == ",":
            raise ValueError("found ',', expected: !, identifier, or 'end of string'")
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), Operator.ABSENT)
        key = self._key()
        if self._peek() in {",", _END}:
            return Requirement(key, Operator.EXISTS)
        return self._comparison(key, self._next())

    def _key(self) -> str:
        key = self._next()
        if key in {"=", "==", "!=", "!", ",", "(", ")", "<", ">", _END}:
            raise ValueError(f"unable to parse requirement: found '{key}', expected: identifier")
        check_label_key(key)
        return key

    def _comparison(self, key: str, operator: str) -> Requirement:
        match operator:
            case "=" | "==":
                return Requirement(key, Operator.IN, frozenset((self._value(key),)))
            case "!=":
                return Requirement(key, Operator.NOT_IN, frozenset((self._value(key),)))
            case "in":
                return Requirement(key, Operator.IN, self._set(key))
            case "notin":
                return Requirement(key, Operator.NOT_IN, self._set(key))
            case ">" | "<":
                bound = self._value(key)
                if not re.fullmatch(r"-?\d+", bound):
                    raise ValueError(
                        f"unable to parse requirement: values[0][{key}]: Invalid value: "
                        f"\"{bound}\": for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                sign = Operator.GREATER if operator == ">" else Operator.LESS
                return Requirement(key, sign, frozenset((bound,)))
            case _:
                raise ValueError(
                    f"unable to parse requirement: found '{operator}', "
                    "expected: in, notin, =, ==, !=, gt, lt"
                )

    def _value(self, key: str) -> str:
        if self._peek() in {",", _END}:  # ``a=`` selects the empty value
            return ""
        value = self._next()
        check_label_value(key, value)
        return value

    def _set(self, key: str) -> frozenset[str]:
        opening = self._next()
        if opening != "(":
            raise ValueError(f"unable to parse requirement: found '{opening}' expected: '('")
        values: set[str] = set()
        while True:
            if self._peek() in {",", ")"}:
                values.add("")
            else:
                value = self._next()
                check_label_value(key, value)
                values.add(value)
            match self._next():
                case ")":
                    return frozenset(values)
                case ",":
                    continue
                case other:
                    raise ValueError(
                        f"unable to parse requirement: found '{other}', expected: ',' or ')'"
                    )


def _tokens(text: str) -> Iterator[str]:
    position, text = 0, text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        assert found is not None  # every character is an operator, a space or part of a word
        yield found["op"] or found["word"]
        position = found.end()


def check_label_key(key: str) -> None:
    """Refuse what cannot be the key of a label."""
    prefix, slash, name = key.rpartition("/")
    well_formed = _NAME.fullmatch(name) and len(name) <= _NAME_LENGTH_MAX
    if slash:
        well_formed = (
            well_formed and _PREFIX.fullmatch(prefix) and len(prefix) <= _PREFIX_LENGTH_MAX
        )
    if not well_formed:
        raise ValueError(
            f'unable to parse requirement: <nil>: Invalid value: "{key}": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
            "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )


def check_label_value(key: str, value: str) -> None:
    """Refuse what cannot be the value of a label."""
    if value and not (_NAME.fullmatch(value) and len(value) <= _NAME_LENGTH_MAX):
        raise ValueError(
            f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": a valid label must be an '
            "empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character"
        )


# --- Fields -----------------------------------------------------------------------------------------------------------

_EVERYWHERE = frozenset({"metadata.name", "metadata.namespace"})

FIELDS: Mapping[tuple[str, str], frozenset[str]] = {
    ("", "Pod"): _EVERYWHERE
    | {
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    },
    ("", "Node"): frozenset({"metadata.name", "spec.unschedulable"}),
    ("", "Event"): _EVERYWHERE
    | {
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    },
    ("", "Namespace"): frozenset({"metadata.name", "status.phase"}),
    ("", "Secret"): _EVERYWHERE | {"type"},
}
"""Of the built-in kinds with a list of their own; every other kind has ``metadata.name`` and ``.namespace``."""

_BOOLEANS = frozenset({"spec.unschedulable", "spec.hostNetwork"})


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One ``path=value`` or ``path!=value``."""

    path: str
    value: str
    equal: bool = True

    def matches(self, obj: Mapping[str, Any]) -> bool:
        return (field_value(obj, self.path) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold; none at all selects everything."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        return all(term.matches(obj) for term in self.terms)

    def __bool__(self) -> bool:
        return bool(self.terms)


EVERY_FIELD = FieldSelector()

_FIELD_TERM = re.compile(r"(?P<path>[^=!]+)(?P<op>==|!=|=)(?P<value>.*)", re.DOTALL)


def parse_fields(
    text: str, *, group: str, kind: str, selectable: frozenset[str] = frozenset()
) -> FieldSelector:
    """Parse ``spec.nodeName=a,status.phase!=Failed``; refuse fields that the kind does not offer."""
    if not text.strip():
        return EVERY_FIELD
    terms = tuple(_field_term(part) for part in _split_terms(text) if part.strip())
    for term in terms:
        _check_selectable(term.path, group, kind, selectable)
    return FieldSelector(terms)


def _split_terms(text: str) -> Iterator[str]:
    """Cut at commas that no backslash escapes."""
    return (part.group() for part in re.finditer(r"(?:\\.|[^,\\])+", text, re.DOTALL))


def _field_term(text: str) -> FieldTerm:
    found = _FIELD_TERM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"invalid selector: '{text}'; can't understand '{text}'")
    value = re.sub(r"\\(.)", r"\1", found["value"])
    return FieldTerm(found["path"].strip(), value, equal=found["op"] != "!=")


def _check_selectable(path: str, group: str, kind: str, selectable: frozenset[str]) -> None:
    own = FIELDS.get((group, kind))
    if own is not None and path not in own:
        raise ValueError(f"field label not supported: {path}")
    if own is None and path not in _EVERYWHERE | selectable:
        if selectable:
            raise ValueError(f"field label not supported: {path}")
        raise ValueError(
            f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        )


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """Return what a field selector compares: text, with the API server's spelling of what is absent."""
    if path == "source":  # of an Event: the component that made it, old spelling or new
        component = obj.get("source", {}).get("component", "")
        return str(component or obj.get("reportingComponent", ""))
    found: Any = obj
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    if found is None:
        return "false" if path in _BOOLEANS else ""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, list):  # status.podIPs
        return ",".join(
            str(item.get("ip", "")) if isinstance(item, dict) else str(item) for item in found
        )
    return str(found)
