"""What a rule may name: the declared fields below its own place, spelled for CEL. Looks at text, not at objects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from remuda.standalone.schema.faults import forbidden, invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from remuda.standalone.schema.nodes import Node

_TIMES: Final = ("date-time", "date", "duration")


def relative_path(node: Node, path: str, where: str) -> str:
    """Turn ``.a['b-c']`` into ``a.b-c``, which is how the API server shows it."""
    names = [name for name in re.split(r"\.|\['|'\]", path) if name]
    for name in names:
        child = node.properties.get(name) or node.additional
        if child is None:
            raise invalid(where, path, "must be a valid path")
        node = child
    return ".".join(names)


def refuse_times(node: Node, text: str, path: str) -> None:
    """Refuse rules over times: the CEL library takes none from outside, and a wrong answer is worse than a refusal."""
    times = sorted({name for name in _time_fields(node) if f".{name}" in text})
    if times or (node.raw.get("format") in _TIMES and "self" in text):
        named = ", ".join(times) or "self"
        raise forbidden(
            path,
            f"this control plane evaluates no rules over times ({named}); compare in a controller instead, or use a"
            " full Kubernetes API server",
        )


_LITERAL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_SELF = re.compile(r"\b(?:self|oldSelf)\b")
_FIRST = re.compile(r"\b(?:self|oldSelf)\.\??([A-Za-z_]\w*)(?![\w(])")
_FIELDS = re.compile(r"\b(?:self|oldSelf)((?:\.\??[A-Za-z_]\w*(?![\w(]))+)")


def first_unknown_field(node: Node, text: str) -> str | None:
    """Return the first field that a rule reads off ``self`` and that the schema does not declare."""
    for found in _FIELDS.finditer(_LITERAL.sub("''", text)):
        here = node
        for name in re.split(r"\.\??", found[1])[1:]:
            if (
                here.type != "object"
                or here.additional is not None
                or (here.root and name == "metadata")
            ):
                break
            declared = {cel_name(key): child for key, child in here.properties.items()}
            if name not in declared:
                return name
            here = declared[name]
    return None


def fields_read(texts: Iterable[str]) -> frozenset[str] | None:
    """Return which fields of ``self`` (and ``oldSelf``) some rules read; None if they look at the whole."""
    found = set()
    for text in texts:
        bare = _LITERAL.sub("''", text)
        named = [match[1] for match in _FIRST.finditer(bare)]
        if len(named) != len(_SELF.findall(bare)):
            return None
        found.update(named)
    return frozenset(found)


_ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)
_RESERVED: Final = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return")
)  # fmt: skip


def cel_name(name: str) -> str:
    """Spell a field's name as Kubernetes does for CEL."""
    if name in _RESERVED:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped)
    return name


def _time_fields(node: Node) -> Iterator[str]:
    for name, child in node.properties.items():
        if child.raw.get("format") in _TIMES:
            yield name
    for child in node.children():
        yield from _time_fields(child)
