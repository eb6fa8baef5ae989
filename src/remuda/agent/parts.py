"""What the parts of the agent ask of one another. Each is one class elsewhere; tests put simple ones in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from remuda.agent.decide.disk import DiskSpace, DiskState
    from remuda.agent.decide.recorded import Verdict, VmRecord
    from remuda.agent.mailbox import HostMailbox
    from remuda.ports.desk import GoHome, HandedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerRef:
    """Whose VM it is."""

    namespace: str
    pod: str
    pod_uid: str
    service_account: str


# --- images -----------------------------------------------------------------------------------------------------------


class Shelf(Protocol):
    """The golden images of this host."""

    def using(self, image: str, say: Callable[[str], None]) -> AbstractAsyncContextManager[str]:
        """
        Have an image's golden, fetched if need be, and keep it while the block lasts. Yields the golden's name.

        However many ask for one image, it is fetched once; who waits for another image waits for nobody. ``say`` is
        told, in a sentence, that and how far it is being fetched: at its beginning, and at most every few seconds.
        Raises VmsError; NoSpace only after one clean-up and one more try. A block that ends with NoSpace has a clean-up
        made as well, so that it can be tried again.
        """
        ...


# --- jobs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Denied:
    """There will be no job for this runner, and something is wrong: its Pod fails with this reason."""

    reason: str
    """One word, for the container's status."""
    why: str


@dataclass(frozen=True, slots=True)
class ToldToStop:
    """Dispatch wants a job to end."""

    why: str
    overdue: bool = False
    """Because its time is over, by the clock of dispatch. Nobody cancelled it."""


class Jobs(Protocol):
    """Dispatch, for all VMs of this host, each with its own Pod's token."""

    async def next(self, runner: RunnerRef) -> HandedJob | GoHome | Denied:
        """
        Wait for the runner's one job, however long that takes. To be cancelled at any time: then none is lost.

        A local job that is returned has been begun at dispatch: it must reach the mailbox. It is kept on this host's
        disk from before it was begun until ``delivered``; asked again, also after a restart, this returns it again.
        """
        ...

    async def delivered(self, runner: RunnerRef) -> None:
        """Forget the kept job: it is in the mailbox and durable. To do it twice is no error."""
        ...

    async def follow(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> ToldToStop:
        """Tell dispatch the job's output while it runs. Returns only if the job must stop. Else runs for ever."""
        ...

    async def collect(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> str:
        """
        Send dispatch the files that the job left, before its end is told; may be repeated. Returns why not.

        Bounded in time; nothing but cancellation is raised. Empty also where nobody wants any.
        """
        ...

    async def finish(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> bool:
        """
        Tell dispatch the rest of the output and the verdict; may be repeated. Whether it was heard.

        Bounded in time; nothing but cancellation is raised. True also where nobody needs to be told.
        """
        ...

    def forget(self, pod_uid: str) -> None:
        """Forget the token and all else about a runner that is gone."""
        ...


# --- logs -------------------------------------------------------------------------------------------------------------


class LogStore(Protocol):
    """What ``kubectl logs`` shows once the VM is gone. Calls block for no longer than a local disk takes."""

    def keep(self, pod_uid: str, mailbox: HostMailbox, verdict: Verdict) -> None:
        """Keep the end of a runner's log. To do it twice is no error; what cannot be read is not kept."""
        ...

    def forget(self, pod_uid: str) -> None: ...


# --- the host, as the Node tells it -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What the Node says about its host. Each part is read from whoever knows it, at the moment of writing."""

    offered_vms: int
    """How many of our VMs it can hold now."""
    most_vms: int
    images: frozenset[str]
    """Whose goldens are whole."""
    disk: DiskState
    disk_space: DiskSpace | None
    unfit: str = ""
    """Why no VM can run here (HostUnfit), as a sentence; empty: nothing is known against it."""
    troubles: tuple[str, ...] = ()
    """What a person should look at: records that cannot be read, VMs that are not ours under our names."""
