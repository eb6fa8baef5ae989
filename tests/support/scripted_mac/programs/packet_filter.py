"""
The packet filter: which rules are loaded, in the main set and in anchors, and whether it is on.

A set of rules that defines the same anchor's tables twice does not load at all, which is what a doubled block does to
a whole host.
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.scripted_mac.programs.model import Exit, changed, fail, read, say

LOADED = re.compile(r'load\s+anchor\s+"([^"]+)"\s+from\s+"([^"]+)"')
RULE = re.compile(
    r'(scrub|nat|rdr|dummynet)?-?anchor\s+"[^"]+"|load\s+anchor\s|table\s+<\w+>|(pass|block|set|no|nat|rdr|scrub|antispoof)\b|\w+\s*=\s*'
)


def pfctl(words: list[str]) -> int:
    """Do what the letters say."""
    letters, anchor, file, show = _parsed(words)
    with changed() as state:
        pf = state["pf"]
        if file is not None:
            _load(pf, anchor, file, only_checked="n" in letters)
        if "E" in letters:
            pf.update(enabled=True, held=True)
            sys.stderr.write("pf enabled\nToken : 1234567890\n")
        if "F" in letters and anchor:
            pf["anchors"].pop(anchor, None)
    return _show(read()["pf"], anchor, show) if show else 0


def _parsed(words: list[str]) -> tuple[str, str, str | None, str]:
    letters, anchor, file, show, rest = "", "", None, "", list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if "T" in letters:
                continue  # what a table's entries become
            fail(1, f"pfctl: unexpected {word}")
        body = word[1:]
        while body:
            letter, body = body[0], body[1:]
            letters += letter
            if letter in "afsFtTk":
                value = body or rest.pop(0)
                body = ""
                anchor = value if letter == "a" else anchor
                file = value if letter == "f" else file
                show = value if letter == "s" else show
    return letters, anchor, file, show


def _text(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        fail(1, f"pfctl: {file}: No such file or directory")


def _rules(text: str, name: str) -> list[str]:
    """Return the rules of a text, continued lines joined. Raises for a line that is none."""
    joined = re.sub(r"\\\n", " ", text)
    joined = re.sub(r"\{[^}]*\}", lambda match: match[0].replace("\n", " "), joined)
    rules = []
    for number, line in enumerate(joined.splitlines(), 1):
        rule = line.split("#", 1)[0].strip()
        if rule and not RULE.match(rule):
            fail(
                1,
                f"{name}:{number}: syntax error\npfctl: Syntax error in config file: pf rules not loaded",
            )
        if rule:
            rules.append(rule)
    return rules


def _load(pf: dict[str, Any], anchor: str, file: str, *, only_checked: bool) -> None:
    rules = _rules(_text(file), file)
    anchors: dict[str, list[str]] = {}
    for rule in rules:
        if match := LOADED.match(rule):
            # Asked only to read them it says nothing: it defines no table then, and so finds none defined.
            if match[1] in anchors and not only_checked:
                fail(
                    1,
                    f"{file}: cannot define table in {match[1]}: Resource busy\npfctl: rules not loaded",
                )
            anchors[match[1]] = _rules(_text(match[2]), match[2])
    if only_checked:
        return
    if anchor:
        pf["anchors"][anchor] = rules
        return
    pf["main"] = rules
    pf["anchors"].update(anchors)


def boot(pf: dict[str, Any]) -> None:
    """Load everything as at a start: nothing was there before, and if it does not load there is nothing."""
    pf.update(main=[], anchors={}, enabled=False, held=False)
    with contextlib.suppress(Exit):
        _load(pf, "", "/etc/pf.conf", only_checked=False)


def _show(pf: dict[str, Any], anchor: str, what: str) -> int:
    if what.startswith("i"):
        say(f"Status: {'Enabled' if pf['enabled'] else 'Disabled'}")
    elif what.startswith("R"):
        say("TOKENS:")
        if pf["held"]:
            say("321\tpfctl\t1234567890\t0 days 00:00:01")
    elif what.startswith("A"):
        for name in sorted(pf["anchors"]):
            say(f"  {name}")
    else:
        rules = pf["anchors"].get(anchor, []) if anchor else pf["main"]
        kinds = {"r": ("pass", "block", "anchor", "scrub"), "n": ("nat", "rdr"), "T": ("table",)}
        for rule in rules:
            if rule.startswith(kinds.get(what[0], ())):
                say(rule)
    return 0
