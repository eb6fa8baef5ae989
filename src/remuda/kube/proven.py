"""
The template that worked: what of a pool's spec is kept of it, and the pool as it would be with it. Pure.

Kept is what makes a Pod, nothing else: how many runners there are and how they roll is always as the spec says now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from remuda.kube.meta import Part
from remuda.kube.runner_pool import (
    PROVEN_CHARS_MAX,
    Docker,
    OperatingSystem,
    PodSecurity,
    ProvenTemplate,
    RunnerResources,
)

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool


class _Kept(Part, frozen=True, kw_only=True, omit_defaults=False):
    """The part of a spec that its Pods depend on. No defaults: all of it is written."""

    os: OperatingSystem
    image: str
    fleet: str
    resources: RunnerResources
    runtime_class_name: str | UnsetType = UNSET
    pod_security: PodSecurity
    docker: Docker
    idle_timeout_seconds: int
    template: dict[str, Any] | UnsetType = UNSET


def remembered(pool: RunnerPool, digest: str) -> ProvenTemplate | None:
    """Return what to keep of the pool's template, whose hash is ``digest``. None if it is too large to be kept."""
    spec = pool.spec
    kept = _Kept(**{name: getattr(spec, name) for name in _Kept.__struct_fields__})
    text = msgspec.json.encode(kept).decode()
    if len(text) > PROVEN_CHARS_MAX:
        return None
    return ProvenTemplate(hash=digest, image=spec.image, spec=text)


def as_proven(pool: RunnerPool) -> RunnerPool | None:
    """
    Return the pool with the template that worked in place of its own. None if there is none that can be used.

    One of another fleet or operating system cannot: its runners would be put on the wrong hosts, or on none.
    """
    found = pool.status.proven_template
    if found is None:
        return None
    try:
        kept = msgspec.json.decode(found.spec, type=_Kept)
    except msgspec.MsgspecError:
        return None  # another version wrote it, or a person did: no reason to stop
    if (kept.fleet, kept.os) != (pool.spec.fleet, pool.spec.os):
        return None
    return replace(pool, spec=replace(pool.spec, **asdict(kept)))
