"""
/etc/pf.conf with exactly one block of ours at its end, whatever was there before. Pure: text in, text out.

A block that stands there twice loads the same tables twice. Then all of pf.conf fails to load, and with it the anchor
in which macOS keeps the NAT of its guests: no firewall and no network, and nothing says so.

Lines are taken out one by one, by what they say, and never from one marker to the next: an end marker that is missing
would otherwise cost Apple's lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.pf import ANCHORS_FOLDER, RUNNERS

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH: Final = "/etc/pf.conf"
BLOCK: Final = (
    f"# BEGIN {RUNNERS}\n"
    f'anchor "{RUNNERS}"\n'
    f'load anchor "{RUNNERS}" from "{ANCHORS_FOLDER}/{RUNNERS}"\n'
    f"# END {RUNNERS}\n"
)
"""At the end: pf wants anchors of filters after all that translates, and Apple's are before ours."""

_NAME: Final = re.escape(RUNNERS)
_OURS: Final = re.compile(
    rf"""
      \# \s* (BEGIN|END) \s+ {_NAME} \b .*           # the markers
    | \# \s* remuda \b .*                            # what stood above it before there were markers
    | ([a-z]+-)? anchor \s+ "?{_NAME}(/\*)?"? (\s.*)?
    | load \s+ anchor \s+ "?{_NAME}"? (\s.*)?
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII | re.DOTALL,
)
_APPLE: Final = re.compile(r'^\s*anchor\s+"com\.apple/\*"', re.MULTILINE)


def appended(text: str) -> str:
    """Return the text with a block of ours at its end, whatever of ours is there already: two are one too many."""
    return text if text.endswith(BLOCK) else text + BLOCK


def with_block(text: str) -> str:
    """Return the text with one block of ours, at its end, and every other line as it was."""
    rest = "".join(line for line in _lines(text) if not is_ours(line))
    if rest and not rest.endswith("\n"):
        rest += "\n"
    if rest.endswith("\\\n"):
        rest += "\n"  # else the block would be the rest of that line
    return rest + BLOCK


def history(text: str) -> str:
    """Say what of ours is in a pf.conf, for the reason of a step."""
    count = text.count(f"# BEGIN {RUNNERS}")
    ours = sum(is_ours(line) for line in _lines(text))
    if ours == 0:
        return "there is none"
    bare = (
        "lines without markers"
        if count == 0
        else "one that is not at the end or not whole, or lines beside it"
    )
    return (
        f"there are {count}" if count > 1 else f"there is {bare}" if count else f"there are {bare}"
    )


def is_ours(line: str) -> bool:
    """Tell whether a line, with what continues it, is one of ours of any version."""
    return _OURS.fullmatch(line.replace("\\\n", " ").strip()) is not None


def calls_apple(text: str) -> bool:
    """Tell whether rules, of the file or live ones, call Apple's anchors, where ours are live at once."""
    return _APPLE.search(text) is not None


def calls(name: str, rules: str) -> bool:
    """Tell whether live rules call an anchor of this name."""
    return re.search(rf'^\s*anchor\s+"{re.escape(name)}"', rules, re.MULTILINE) is not None


def _lines(text: str) -> Iterator[str]:
    """Yield lines, each with its end and with the lines that a backslash joins to it."""
    held = ""
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        held += line
        # A comment goes on after a backslash as well, and would take the next line with it: pf reads it so.
        if not line.endswith("\\\n"):
            yield held
            held = ""
    if held:
        yield held
