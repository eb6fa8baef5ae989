"""What the loops of one reign hold in common. Made anew when we become the leader, dropped when we cease to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.control.events import EventRecorder
    from remuda.control.health import Health
    from remuda.hosts.adopter import Adopter
    from remuda.hosts.converging import Converger
    from remuda.hosts.identity import Identities
    from remuda.hosts.metrics import HostMetrics
    from remuda.hosts.registration import Registrations
    from remuda.hosts.settings import HostSettings
    from remuda.hosts.status import StatusWriter
    from remuda.hosts.view import HostsView
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube
    from remuda.ports.machines import Machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Reins:
    """The means of a leader."""

    kube: Kube
    """Writes only while we lead."""
    machines: Machines | None
    """Rented Macs, changed only while we lead. None: there is no account."""
    adopter: Adopter | None
    converger: Converger
    identities: Identities
    registrations: Registrations | None
    view: HostsView
    status: StatusWriter
    events: EventRecorder
    settings: HostSettings
    clock: Clock
    ids: Ids
    metrics: HostMetrics
    health: Health
