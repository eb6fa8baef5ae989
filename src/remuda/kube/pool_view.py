"""From a RunnerPool to the Pool that decisions see. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import UNSET

from remuda.model.pool import Pool

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool


def pool_of(pool: RunnerPool, template: str, proven: str = "") -> Pool:
    """
    Return what a pool's object says about it. ``template`` is the hash of the Pods that it makes now.

    ``proven`` is the hash of those that it could fall back on.
    """
    spec, status = pool.spec, pool.status
    start_s = spec.provisioning.start_timeout_seconds
    return Pool(
        name=pool.name,
        fleet=spec.fleet,
        replicas=_replicas(pool),
        template=template,
        proven=proven,
        roll_percent=spec.rollout.max_concurrent_percent,
        paused=spec.rollout.paused,
        progress_deadline=timedelta(seconds=spec.rollout.progress_deadline_seconds),
        start_timeout=timedelta(seconds=start_s) if start_s > 0 else None,
        deleting=pool.metadata.deletion_timestamp is not None,
        # It was written for the template beside it: for another one, the wait begins anew.
        roll_waiting_since=status.roll_waiting_since if status.template_hash == template else None,
    )


def _replicas(pool: RunnerPool) -> int:
    """Cap what was asked for at once: the autoscaler lowers replicas only with its next look."""
    scaling = pool.spec.autoscaling
    if not scaling.enabled or scaling.max_replicas is UNSET:
        return pool.spec.replicas
    return min(pool.spec.replicas, scaling.max_replicas)
