"""Which resource is meant: the name of a kind in every spelling that Kubernetes has for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:
    from remuda.kube.meta import Resource

T_co = TypeVar("T_co", bound="Resource", covariant=True)


@lru_cache(maxsize=4096)
def _quoted(part: str) -> str:
    """Percent-encode one part of a path. The same few names are asked for all the time."""
    return quote(part, safe="")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """One kind of resource, and the type its objects are decoded into."""

    type: type[T_co]
    group: str
    version: str
    name: str
    """``kind:`` in a manifest, such as ``Pod``."""
    plural: str
    """The part of the URL, such as ``pods``."""
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace and self.namespaced:
            parts += ["namespaces", _quoted(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_quoted(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural
