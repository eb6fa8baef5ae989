"""The words of pf.conf: what the grammar is read from."""

from __future__ import annotations

import re
from dataclasses import dataclass


class PfSyntaxError(Exception):
    """What pfctl would refuse."""

    def __init__(self, file: str, line: int, what: str) -> None:
        super().__init__(f"{file}:{line}: {what}")


@dataclass(frozen=True, slots=True)
class Word:
    """One word. ``kind`` is ``word``, ``string``, ``table``, ``macro``, ``end`` of a line, or the sign itself."""

    kind: str
    text: str
    line: int


_WORD = re.compile(
    r"""
      (?P<blank>[ \t\r]+)
    | (?P<end>\n)
    | (?P<comment>\#[^\n]*)
    | "(?P<string>[^"\n]*)"
    | <(?P<table>[A-Za-z_][A-Za-z0-9_]*)>
    | \$(?P<macro>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign>[{}(),!=])
    | (?P<word>[A-Za-z0-9_.:/*-]+)
    """,
    re.VERBOSE,
)


def words_of(text: str, file: str) -> list[Word]:
    """Cut a text into words. A line that ends in a backslash goes on, and so does a list in braces."""
    found: list[Word] = []
    line, depth, at = 1, 0, 0
    joined = text.replace("\\\n", " \x00")  # the mark keeps the count of lines
    while at < len(joined):
        if joined[at] == "\x00":
            line, at = line + 1, at + 1
            continue
        match = _WORD.match(joined, at)
        if match is None:
            raise PfSyntaxError(file, line, f"syntax error at {joined[at : at + 10]!r}")
        at = match.end()
        kind = str(match.lastgroup)
        if kind == "end":
            line += 1
            if depth == 0:
                found.append(Word("end", "", line - 1))
        elif kind == "comment":
            line += match[0].count("\x00")
        elif kind != "blank":
            said = match[kind]
            depth += {"{": 1, "}": -1}.get(said, 0) if kind == "sign" else 0
            found.append(Word(said if kind == "sign" else kind, said, line))
    found.append(Word("end", "", line))
    return found
