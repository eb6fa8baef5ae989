"""
What the operator writes down about a Host. Touched keys only, on the version that was seen, and only what changed.

A lost status is a second Mac claimed, or a bad configuration tried for ever: so a write that meets another version
looks again and is made anew, and what was written is remembered until it is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from remuda.control.conditions import set_condition
from remuda.kube.host import HOST
from remuda.kube.meta import Condition
from remuda.kube.patches import merge_patch
from remuda.ports.kube import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from remuda.kube.host import Host, HostStatus
    from remuda.ports.kube import Kube

_TRIES: Final = 5
READY, BOOTSTRAPPED, CONVERGED = "Ready", "Bootstrapped", "Converged"
DRAINING, ROLL_HALTED, KEY_TRUSTED = "Draining", "RollHalted", "HostKeyTrusted"
MACHINE = "MachineHeld"
CONDITIONS: Final = (READY, BOOTSTRAPPED, CONVERGED, DRAINING, ROLL_HALTED, KEY_TRUSTED, MACHINE)


def condition(status: HostStatus, kind: str) -> Condition | None:
    return next((c for c in status.conditions if c.type == kind), None)


def with_condition(
    status: HostStatus, kind: str, value: str, reason: str, message: str, now: datetime
) -> HostStatus:
    """Return the status with this condition among its own."""
    said = Condition(type=kind, status=value, reason=reason, message=message)
    conditions = set_condition(status.conditions, said, now)
    return status if conditions is status.conditions else replace(status, conditions=conditions)


class StatusWriter:
    """Writes the statuses of Hosts."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._written: dict[str, tuple[frozenset[str], Host]] = {}
        self.writes = 0
        """How often anything was written: what was derived from Hosts holds while this stays the same."""

    def newest(self, host: Host) -> Host:
        """Return the Host as we last wrote it, if our view is behind that."""
        superseded, written = self._written.get(host.name, (frozenset(), host))
        is_behind = host.uid == written.uid and host.resource_version in superseded
        return written if is_behind else host

    async def change(self, host: Host, change: Callable[[HostStatus], HostStatus]) -> Host:
        """Make a change of the status and return the Host with it. Nothing is sent if nothing changes."""
        before = self.newest(host)
        for _ in range(_TRIES):
            after = replace(before, status=change(before.status))
            if after.status == before.status:
                return before
            try:
                written = await self._kube.patch(
                    HOST,
                    host.name,
                    merge_patch(before, after, conditional=True),
                    namespace=host.namespace,
                    subresource="status",
                )
            except Conflict:
                before = await self._fresh(host)
                continue
            self._remember(before, written)
            return written
        raise Conflict(
            f"The status of Host {host.name} could not be written",
            why="it changed each time we looked",
            fix="Nothing to do: it is looked at again",
        )

    def wrote(self, before: Host, after: Host) -> None:
        """Take note of another write to a Host than to its status."""
        self._remember(before, after)

    def forget(self, name: str) -> None:
        self._written.pop(name, None)

    async def _fresh(self, host: Host) -> Host:
        found = await self._kube.get(HOST, host.name, namespace=host.namespace)
        if found.uid != host.uid:
            raise Conflict(
                f"Host {host.name} is another one now",
                why="it was deleted and created again",
                fix="Nothing to do: the new one is looked at",
            )
        return found

    def _remember(self, before: Host, after: Host) -> None:
        self.writes += 1
        superseded, known = self._written.get(after.name, (frozenset(), after))
        if known.uid != after.uid:
            superseded = frozenset()
        self._written[after.name] = (superseded | {before.resource_version}, after)
