"""The pool that ``remuda up`` makes where there is none. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.cli.tree.decide.driver import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWish:
    """What the default pool is to be."""

    name: str
    namespace: str
    fleet: str
    os: str
    image: str
    replicas: int
    size: Size


def pool_manifest(wish: PoolWish) -> dict[str, Any]:
    """Return the pool as kubectl would apply it."""
    return {
        "apiVersion": "remuda.dev/v1alpha1",
        "kind": "RunnerPool",
        "metadata": {"name": wish.name, "namespace": wish.namespace},
        "spec": {
            "os": wish.os,
            "image": wish.image,
            "fleet": wish.fleet,
            "labels": [wish.name],
            "replicas": wish.replicas,
            "resources": {"cpu": wish.size.cpus, "memory": f"{wish.size.memory_mib}Mi"},
        },
    }
