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
def _path(
    group: str, version: str, plural: str, namespace: str, name: str, subresource: str, /
) -> str:
    """Put a path together. The same few are asked for all the time."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    parts = [root]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


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
        within = namespace if self.namespaced else ""
        return _path(self.group, self.version, self.plural, within or "", name, subresource)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural
