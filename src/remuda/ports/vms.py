"""
The virtual machines of one host: what the agent asks of Tart, QEMU or plain processes. One implementation per driver.

A driver does what it is told and says what it sees. Whether a VM may be booted, stopped or deleted is not its business:
the agent decides that from its own record. Every call has a deadline; at the deadline the whole process group of the
call is killed and ``TimedOut`` is raised. Errors say what the caller must do. Calls on different VMs do not wait for
one another. No text of an error and no argument list holds a job config or a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from remuda.kube.names import image_digest
from remuda.model.errors import RemudaError, Retry

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

VM_PREFIX: Final = "remuda-"
GOLDEN_PREFIX: Final = "remuda-golden-"


def vm_name(pod_uid: str) -> str:
    """
    Return the name of a Pod's VM. The UID is all of it: a Pod of the same name never meets its predecessor's VM.

    The name alone makes no VM ours: somebody else may use it. Ours is what the agent's record names as well.
    """
    return f"{VM_PREFIX}{pod_uid}"


def golden_name(image: str) -> str:
    """Return the name of the golden VM of an image: what the VMs of its Pods are cloned from."""
    return f"{GOLDEN_PREFIX}{image_digest(image)}"


# --- Errors, by what the caller must do -------------------------------------------------------------------------------


class VmsError(RemudaError):
    """The driver did not do what was asked. Whether it was done in part is unknown: look, then try again later."""


class NotThere(VmsError):
    """Nothing of that name is there. To delete it is done; to use it, begin from the start."""


class NameTaken(VmsError):
    """Something of that name is there already. It is not replaced: find out whose it is."""

    retry = Retry.NEVER


class StillRunning(VmsError):
    """It runs, and what was asked needs it stopped. Stop it first, if it may be stopped."""


class NoSpace(VmsError):
    """The disk is full. Make room once and try once more; then wait."""


class NoSlot(VmsError):
    """The host runs as many VMs as it can. Nothing is wrong with the image: offer fewer slots until one is free."""


class TimedOut(VmsError):
    """It hung and was killed, with all it had started. What it did is unknown: look, then try again."""

    def __init__(self, what: str, *, why: str, fix: str, op: str) -> None:
        super().__init__(what, why=why, fix=fix)
        self.op = op
        """Which call it was, for ``remuda_agent_op_timeouts_total``."""


class Refused(VmsError):
    """It said no and will say so again: an image that does not exist, a size that no VM can have. Tell the Pod."""

    retry = Retry.NEVER


class HostUnfit(VmsError):
    """No VM can run on this host: the program is missing, nobody is logged in. Tell the Node, and try again later."""


# --- What there is ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a driver can do. The same for all of its life."""

    runtime: str
    """As in the label ``remuda.dev/runtime``."""
    guest_os: frozenset[str]
    """As Kubernetes spells them."""
    isolated: bool
    """Whether a guest is kept from the host and from its siblings. Only demonstrations do without."""
    vms_max: int | None
    """How many guests can run at once, whoever started them. None: as many as fit."""
    pulls: bool
    """Whether images come from a registry. Where not, ``pull`` only checks that the image is there."""
    shared_goldens: bool
    """Whether a clone needs its golden for as long as it lives (an overlay), not only while it is cloned."""
    sees_guest_disk: bool
    """Whether ``guest_disk_used`` can answer."""


class Power(StrEnum):
    """Whether a VM runs."""

    STOPPED = "stopped"
    """There is a disk and nothing runs on it. Also: suspended, half cloned."""
    RUNNING = "running"
    """From the moment that ``run`` was called until its process is gone, whatever the guest does meanwhile."""


class Ending(StrEnum):
    """How a run of a VM ended, as far as the host can tell."""

    HALTED = "halted"
    """The guest powered itself off."""
    STOPPED = "stopped"
    """We, or somebody on the host, ended it."""
    CRASHED = "crashed"
    """The guest or its hypervisor broke."""
    NEVER_BOOTED = "never_booted"
    """It ended right away: the host could not start it."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a VM's run."""

    how: Ending = Ending.UNKNOWN
    at: datetime | None = None
    """Taken where the process was awaited; None if nobody saw it end."""
    why: str = ""
    """The last words of its log where it crashed or never booted. Bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVm:
    """A VM on this host, whoever made it. Goldens are among them."""

    name: str
    power: Power
    end: RunEnd | None = None
    """Where the driver ran it and it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenImage:
    """An image in the host's cache of pulled ones, whoever pulled it."""

    ref: str
    """As the cache names it: by tag or by digest."""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All that is on the host, seen at one moment."""

    vms: tuple[SeenVm, ...] = ()
    images: tuple[SeenImage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProgress:
    """How far a pull is."""

    done_bytes: int
    total_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VmShape:
    """The size of a VM. None: as its image says."""

    cpus: int | None = None
    memory_mib: int | None = None


class Vms(Protocol):
    """
    The VMs of one host. Every error is a VmsError.

    Names go in as ``vm_name`` and ``golden_name`` make them. A call that is cancelled has ended its processes before it
    raises; only what ``run`` started lives on.
    """

    @property
    def abilities(self) -> Abilities: ...

    async def inventory(self) -> Inventory:
        """List everything. What cannot be read is an error, never a shorter list."""
        ...

    def running(self) -> frozenset[str] | None:
        """Return which VMs run, whoever started them, if that can be told without waiting; None: list everything."""
        ...

    async def observe(self, name: str) -> SeenVm | None:
        """Look at one VM; None: it is not there."""
        ...

    # --- images ---

    async def image_bytes(self, image: str) -> int | None:
        """Return how much disk an image will take, before it is pulled; None: nobody knows."""
        ...

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        """
        Fetch an image unless it is there. Its deadline is time without progress, not time.

        ``progress`` is called whenever bytes have come, from the loop's own thread.
        """
        ...

    async def make_golden(self, image: str, golden: str) -> None:
        """Make the golden of an image that was pulled. NameTaken if one is there: it may be half of one."""
        ...

    async def drop_image(self, image: str) -> None:
        """Delete an image from the cache of pulled ones. NotThere if it is gone."""
        ...

    # --- one VM ---

    async def clone(self, golden: str, name: str) -> None:
        """Make a VM, whole or not at all, with an identity of its own. NameTaken if there is one; none is replaced."""
        ...

    async def shape(self, name: str, shape: VmShape) -> None: ...

    async def run(self, name: str) -> None:
        """
        Boot a VM with its mailbox and its log, and return when it is past its first moments.

        The VM lives on when the agent ends, however it ends. Raises if the VM ended at once; it may have booted all the
        same, and must not be booted again. NoSlot: ask for a slot before, not after.
        """
        ...

    async def stop(self, name: str, *, grace_s: float) -> None:
        """Ask the guest to end, then end it. Returns when it is stopped; NotThere if there is none."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a VM or a golden, with its disk and log. NotThere if it is gone; StillRunning if it runs."""
        ...

    async def guest_disk_used(self, name: str) -> float | None:
        """Return how full the disk of a running guest is, from 0 to 1; None: it cannot be told."""
        ...

    # --- places ---

    def mailbox(self, name: str) -> Path:
        """Return the folder that this VM's guest sees as its mailbox. Only the agent makes and removes it."""
        ...

    def log_file(self, name: str) -> Path:
        """Return where the VM's own output goes, readable by this user alone."""
        ...
