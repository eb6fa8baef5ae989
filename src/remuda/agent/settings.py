"""Everything the agent was told, read and checked. Defaults are those of the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from remuda.agent.decide.disk import DiskMarks
from remuda.agent.decide.garbage import GarbagePolicy

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.agent.decide.capacity import HostOffer

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a call of a driver may take before its processes are killed, in seconds."""

    pull_idle: float = 1200.0
    """Without progress, not in all."""
    golden: float = 300.0
    clone: float = 300.0
    set: float = 60.0
    run: float = 60.0
    """Until the VM is past its first moments."""
    stop: float = 60.0
    """Beyond the guest's grace."""
    delete: float = 120.0
    get: float = 30.0
    list: float = 60.0
    exec: float = 15.0

    def __post_init__(self) -> None:
        assert all(0 < getattr(self, name) <= _DAY_S for name in self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What the agent's parts are told."""

    node: str
    data: Path
    """Where records, mailboxes, logs and certificates are."""
    offer: HostOffer
    fleet: str
    provider_id: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    """More labels of the Node."""
    address: str = ""
    """Of this host, as the API server reaches it."""
    heartbeat_s: float = 10.0
    lease_duration_s: int = 40
    status_s: float = 30.0
    """How often the Node's status is written although nothing changed."""
    look_s: float = 5.0
    """How often a running VM is looked at, beside its mailbox."""
    stop_grace_s: float = 10.0
    """How long a guest that was told to stop may take."""
    packed_within_s: float = 600.0
    """After the end of its job, how long a guest may pack what is to come back: longer than it allows itself."""
    ready_timeout_s: float = 600.0
    """How long a guest may take from boot until it is ready. Then its Pod fails."""
    garbage_s: float = 300.0
    garbage: GarbagePolicy = field(default_factory=GarbagePolicy)
    disk: DiskMarks = field(default_factory=DiskMarks)
    resync: timedelta = timedelta(minutes=5)
    """How often every Pod is looked at although nothing was heard."""
