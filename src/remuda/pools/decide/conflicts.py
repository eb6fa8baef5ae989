"""Which pools claim the same runs-on labels as an older one. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.kube.runner_pool import RunnerPool

_NEVER = datetime.max.replace(tzinfo=UTC)


def label_conflicts(pools: Iterable[RunnerPool]) -> dict[str, str]:
    """
    Return a sentence for each pool whose set of labels an older pool of the namespace has, by the pool's name.

    A pool that is being deleted takes no jobs any more, so it stands in nobody's way: a renamed pool serves at once.
    """
    oldest: dict[tuple[str, frozenset[str]], RunnerPool] = {}
    conflicts: dict[str, str] = {}
    alive = (p for p in pools if p.metadata.deletion_timestamp is None)
    for pool in sorted(alive, key=_age):
        labels = frozenset(label.lower() for label in pool.spec.labels)
        older = oldest.setdefault((pool.namespace, labels), pool)
        if older is not pool:
            conflicts[pool.name] = (
                f"pool {older.name} is older and has the same labels ({', '.join(sorted(labels))}), so this pool gets"
                " no jobs. Change spec.labels of one of them."
            )
    return conflicts


def _age(pool: RunnerPool) -> tuple[datetime, str]:
    return pool.metadata.creation_timestamp or _NEVER, pool.name
