"""What was read for the checks. What could not be read says why: nothing else follows from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.cli.tree.decide.driver import Machine
    from remuda.cli.tree.looking import TreeView
    from remuda.kube.core import Lease, Node, Pod, ServiceAccount
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.api import ClaimRow, Explanation, JobRow, LimitRow, RunnerRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something that was not read."""

    why: str
    fix: str = ""
    asked: bool = True
    """Whether it should have been there. What nobody asked for is no fault."""
    refused: bool = False
    """Whether it is there, and did not let us."""


class Unknown(Exception):
    """A check needs what was not read."""

    def __init__(self, unread: Unread) -> None:
        super().__init__(unread.why)
        self.unread = unread


def got(read: T | Unread) -> T:
    """Return what was read. Raises Unknown, which makes the check one that was skipped."""
    if isinstance(read, Unread):
        raise Unknown(read)
    return read


# --- this machine -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """The data folder of ``remuda up``."""

    path: str
    exists: bool = True
    fault: str = ""
    """Why it cannot be used by us."""
    foreign: tuple[str, ...] = ()
    """What is in it, if it is no data folder of ours."""
    free_bytes: int = 0
    broken: tuple[str, ...] = ()
    """Files that do not hold what they should, and why not."""
    leftovers: tuple[str, ...] = ()
    """Files whose writing was cut short."""
    exposed: tuple[str, ...] = ()
    """Secrets that others on this machine can read."""


class Kvm(StrEnum):
    """Whether KVM runs guests here."""

    WORKS = "works"
    ABSENT = "absent"
    CLOSED = "closed"
    HANGS = "hangs"
    UNTRIED = "untried"
    """There is no image to try it with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """What runs the VMs of this machine."""

    name: str
    image: str
    machine: Machine
    image_there: bool = True
    kvm: Kvm | None = None
    """Looked at only where QEMU runs the VMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The machine that we are on, as the home of a ``remuda up``."""

    folder: FolderFacts
    tree: TreeView | Unread
    driver: DriverFacts | Unread
    chosen: str = ""
    """The option that names this folder; empty where it is the usual one."""


# --- the Kubernetes API -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrdFacts:
    """One of our kinds: whether it is installed, and as this version has it."""

    name: str
    installed: bool
    same: bool = True


@dataclass(frozen=True, slots=True)
class Right:
    """Something that commands do, and whether we may."""

    need: str
    purpose: str
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeFacts:
    """What the Kubernetes API says."""

    server: str
    namespace: str
    version: str | Unread
    ahead_s: float | Unread
    """How far its clock is ahead of ours."""
    crds: tuple[CrdFacts, ...] | Unread
    rights: tuple[Right, ...] | Unread
    pools: tuple[RunnerPool, ...] | Unread
    pods: tuple[Pod, ...] | Unread
    nodes: tuple[Node, ...] | Unread
    node_leases: tuple[Lease, ...] | Unread
    accounts: tuple[ServiceAccount, ...] | Unread
    election: Lease | Unread | None
    """The operator's Lease; None: there is none."""


# --- dispatch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits, and why, if dispatch said so."""

    job: JobRow
    why: Explanation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """What dispatch says."""

    server: str
    not_ready: str | Unread
    """Why it cannot serve now; empty if it can."""
    ahead_s: float | Unread
    claims: tuple[ClaimRow, ...] | Unread
    """Read after the Pods: what is stamped there was claimed before."""
    runners: tuple[RunnerRow, ...] | Unread
    limits: tuple[LimitRow, ...] | Unread
    waiting: tuple[Waiting, ...] | Unread
    """The jobs that have waited longest, the oldest first."""
    violations: Mapping[str, int] | Unread
    """How many findings dispatch itself counts for each invariant."""


@dataclass(frozen=True, slots=True)
class GithubFacts:
    """The GitHub App that the settings name, as GitHub knows it."""

    host: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that was read, at one time or nearly so."""

    now: datetime
    machine: MachineFacts | Unread
    kube: KubeFacts | Unread
    api: ApiFacts | Unread
    github: GithubFacts | Unread
    stuck_after_s: float = 300.0
    """How long past its grace a runner may be on its way out."""

    @property
    def kube_now(self) -> datetime:
        """What time it is for the Kubernetes API, whose times are compared with it."""
        return self._now_of(self.kube)

    @property
    def api_now(self) -> datetime:
        """What time it is for dispatch."""
        return self._now_of(self.api)

    def _now_of(self, server: KubeFacts | ApiFacts | Unread) -> datetime:
        if isinstance(server, Unread) or isinstance(server.ahead_s, Unread):
            return self.now
        return self.now + timedelta(seconds=server.ahead_s)
