"""
What a host remembers through a restart of its agent: its VMs, which go on meanwhile, and the images that it holds.

This is the truth about a simulated host. Checkers and stories read it; only the host's own code writes the VMs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.control.cache import Key
    from remuda.sim.fleet.desk import Job


@dataclass(slots=True)
class Vm:
    """One VM. It boots once, and gets at most one job."""

    pod: Key
    pod_uid: str
    image: str
    ready_at: float
    """When its guest says that it is ready; never, on a host that starts nothing."""
    fails_at: float = float("inf")
    """When its start fails for good, where starts fail aloud."""
    job: Job | None = None
    exited_at: float | None = None
    """When it ended without a job, because dispatch told it to."""

    def is_over(self, now: float) -> bool:
        """Say whether the guest has powered off."""
        if self.exited_at is not None:
            return True
        return now >= self.fails_at if self.job is None else self.job.is_done(now)


@dataclass(slots=True)
class HostDisk:
    """One host's memory, and its faults."""

    vms: dict[str, Vm] = field(default_factory=dict)
    """By the UID of their Pod."""
    fetched_at: dict[str, float] = field(default_factory=dict)
    """When each image is (or will be) on the host."""
    is_poisoned: bool = False
    """Ready, but no VM that is created from now on ever starts."""
    bad_images: set[str] = field(default_factory=set)
    """Images whose guests never become ready."""
    starts: int = 0
    """How many VMs were ever created here."""
    started: int = 0
    """How many of them became ready."""

    def jobs(self, now: float) -> list[Vm]:
        """Return the VMs in which a job runs now."""
        return [vm for vm in self.vms.values() if vm.job is not None and vm.job.is_running(now)]
