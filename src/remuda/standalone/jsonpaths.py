"""
The JSONPath of printer columns: names, quoted names, indexes, ``[*]`` and filters such as ``[?(@.type=="Ready")]``.

Compiled once, asked often. What is not understood is refused when the path is read, not when an object comes by.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = Any

_STEP = re.compile(
    r"""
    \.?\[\?\(\s*@(?P<where>[^\s=!<>]*)\s*(?P<test>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^\s)]+)\s*\)\]  # a filter
    | \.?\[(?P<index>-?\d+)\]
    | \.?\[\*\](?P<all>)
    | \.?\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
    | \.(?P<name>(?:\\.|[^.\[\\])+)
    """,
    re.VERBOSE,
)


class BadPath(ValueError):
    """A JSONPath that we cannot follow."""


@dataclass(frozen=True, slots=True)
class _Step:
    kind: str
    name: str = ""
    index: int = 0
    where: JsonPath | None = None
    equals: Json = None
    negated: bool = False

    def follow(self, value: Json) -> Iterator[Json]:
        if self.kind == "name" and isinstance(value, dict) and self.name in value:
            yield value[self.name]
        if not isinstance(value, list):
            return
        if self.kind == "index" and -len(value) <= self.index < len(value):
            yield value[self.index]
        if self.kind == "all":
            yield from value
        if self.kind == "filter":
            yield from (item for item in value if self._passes(item))

    def _passes(self, item: Json) -> bool:
        assert self.where is not None
        found = self.where.find(item)
        return bool(found) and (found[0] == self.equals) is not self.negated


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A compiled path."""

    steps: tuple[_Step, ...]

    def find(self, value: Json) -> list[Json]:
        """Return everything that the path leads to, in order."""
        found = [value]
        for step in self.steps:
            found = [inner for one in found for inner in step.follow(one)]
        return found


def parse(text: str) -> JsonPath:
    """Read a path such as ``.status.conditions[?(@.type=="Ready")].status``. Raises BadPath."""
    bare = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[_Step] = []
    at = 0
    while at < len(bare):
        match = _STEP.match(bare, at)
        if match is None:
            raise BadPath(f"{text!r} cannot be followed from {bare[at:]!r} on")
        steps.append(_step(match))
        at = match.end()
    return JsonPath(tuple(steps))


def _step(match: re.Match[str]) -> _Step:
    if match["name"] is not None:
        return _Step("name", name=re.sub(r"\\(.)", r"\1", match["name"]))
    if match["quoted"] is not None:
        return _Step("name", name=match["quoted"])
    if match["index"] is not None:
        return _Step("index", index=int(match["index"]))
    if match["all"] is not None:
        return _Step("all")
    return _Step(
        "filter",
        where=parse(match["where"]),
        equals=_literal(match["value"]),
        negated=match["test"] == "!=",
    )


def _literal(text: str) -> Json:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        raise BadPath(f"{text!r} is neither a number nor a quoted string") from None
