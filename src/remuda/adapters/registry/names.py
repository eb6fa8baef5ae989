"""Names of images: a host, a repository, and a tag or a digest. Parsed once; nothing else may become part of a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from remuda.model.errors import BadInput

_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"({_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]{{2,45}}\])(?::[0-9]{{1,5}})?")
_REPOSITORY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LENGTH_MAX: Final = 500


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class ImageName:
    """``host[:port]/repository[:tag][@digest]``. With a digest the tag says nothing and is left out."""

    host: str
    repository: str
    reference: str
    """A tag or a digest."""

    @classmethod
    def parse(cls, text: str) -> Self:
        host, _, rest = text.partition("/")
        rest, at, digest = rest.partition("@")
        repository, colon, tag = rest.partition(":")
        fault = _fault(text, host, repository)
        if not fault and colon and not _TAG.fullmatch(tag):
            fault = "its tag is none"
        if not fault and at and not is_digest(digest):
            fault = "its digest is none; only sha256 is used"
        if fault:
            raise BadInput(
                f"The image {text[:_LENGTH_MAX]!r} cannot be used",
                why=fault,
                fix="Write it as host/repository:tag or host/repository@sha256:...",
            )
        return cls(host, repository, digest or tag or "latest")

    @property
    def has_digest(self) -> bool:
        return is_digest(self.reference)

    def at(self, reference: str) -> ImageName:
        """Return another image of the same repository."""
        return ImageName(self.host, self.repository, reference)

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}{'@' if self.has_digest else ':'}{self.reference}"


def _fault(text: str, host: str, repository: str) -> str:
    if len(text) > _LENGTH_MAX:
        return f"it is longer than {_LENGTH_MAX} characters"
    if not _HOST.fullmatch(host):
        return "it does not begin with a registry's host"
    if not _REPOSITORY.fullmatch(repository):
        return "its repository is not lower-case letters, digits and single separators"
    return ""
