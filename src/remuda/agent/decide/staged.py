"""
Which images a host was told to fetch ahead, read from the annotation of its Node. Pure.

Whoever may write a Node wrote it: it is bounded, and what cannot be a reference is named and left out, not guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

TEXT_MAX_CHARS: Final = 16 * 1024
IMAGES_MAX: Final = 16
"""More images than any host holds."""
_REF_MAX_CHARS: Final = 512
_SHOWN_CHARS: Final = 80
# It becomes an argument of a program: it must not begin like an option, nor hold what a shell or a path could mistake.
_REF: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")


@dataclass(frozen=True, slots=True)
class Staged:
    """What the annotation says."""

    images: tuple[str, ...] = ()
    """In their order, each once."""
    bad: tuple[str, ...] = ()
    """What was left out and why, as sentences. Bounded."""


def staged(text: str) -> Staged:
    """Read a JSON list of references, or references with white space or commas between them."""
    if len(text) > TEXT_MAX_CHARS:
        return Staged(bad=(f"the annotation is longer than {TEXT_MAX_CHARS} characters",))
    stripped = text.strip()
    if stripped.startswith(("[", "{", '"')):
        try:
            asked = msgspec.json.decode(stripped, type=list[object])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return Staged(bad=("the annotation is no JSON list",))
    else:
        asked = list(re.split(r"[\s,]+", stripped)) if stripped else []
    return _sorted_out(asked)


def _sorted_out(asked: list[object]) -> Staged:
    images: dict[str, None] = {}
    bad: list[str] = []
    for ref in asked:
        if not isinstance(ref, str) or len(ref) > _REF_MAX_CHARS or not _REF.fullmatch(ref):
            bad.append(f"{_shown(ref)} is no reference of an image")
        elif len(images) >= IMAGES_MAX and ref not in images:
            bad.append(f"{_shown(ref)} is one image too many: a host stages {IMAGES_MAX}")
        else:
            images[ref] = None
    return Staged(images=tuple(images), bad=tuple(bad[:IMAGES_MAX]))


def _shown(ref: object) -> str:
    text = ascii(ref)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
