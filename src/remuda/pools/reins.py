"""What the loops of one reign hold in common. Made anew when we become the leader, dropped when we cease to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.control.events import EventRecorder
    from remuda.control.health import Health
    from remuda.pools.expectations import Expectations
    from remuda.pools.metrics import PoolMetrics
    from remuda.pools.settings import PoolSettings
    from remuda.pools.view import FleetView
    from remuda.ports.clock import Clock
    from remuda.ports.dispatch import Dispatch
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube


@dataclass(frozen=True, slots=True, kw_only=True)
class Reins:
    """The means of a leader."""

    kube: Kube
    """Writes only while we lead."""
    dispatch: Dispatch | None
    view: FleetView
    expectations: Expectations
    """What this leader wrote and does not see yet. A new leader has none: it lists afresh instead."""
    events: EventRecorder
    settings: PoolSettings
    clock: Clock
    ids: Ids
    metrics: PoolMetrics
    health: Health
