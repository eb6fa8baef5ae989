"""What the workers of recovery hold in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.control.health import Health
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.settings import DispatchSettings
    from remuda.dispatch.stamps import Stamps
    from remuda.dispatch.view import DispatchView
    from remuda.model.job import Kind
    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Deliveries
    from remuda.ports.forge import Forge
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.kube import Kube
    from remuda.ports.locks import Locks
    from remuda.ports.registrations import Registrations


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryParts:
    """The means of recovery. Memories are no part of it: each worker begins its own with each reign."""

    store: JobStore
    views: JobViews
    deliveries: Deliveries
    registrations: Registrations
    forges: Mapping[Kind, Forge]
    view: DispatchView
    kube: Kube
    stamps: Stamps
    locks: Locks
    metrics: DispatchMetrics
    health: Health
    clock: Clock
    ids: Ids
    settings: DispatchSettings
