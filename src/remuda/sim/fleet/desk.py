"""Where a host asks for work on behalf of a warm runner, and what it may be told. CONTRACTS section 3, without HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from remuda.kube.names import DRAIN, MARK, TEMPLATE

if TYPE_CHECKING:
    from remuda.kube.core import Pod
    from remuda.ports.clock import Clock

HOLD_S = 20.0
"""How long a poll is held open when there is nothing to say."""


@dataclass(slots=True)
class Job:
    """One job, as the world knows it. A guest that has it goes on with it, whoever restarts around it."""

    name: str
    pool: str
    lasts_s: float
    owner: str = "acme"
    queued_at: float = 0.0
    started_at: float | None = None
    """When the guest got it; on the monotonic clock, as all times here."""
    killed_at: float | None = None
    """When its VM went away under it."""

    @property
    def ends_at(self) -> float:
        assert self.started_at is not None, "a job ends after it began"
        return self.started_at + self.lasts_s

    @property
    def look_again_s(self) -> float:
        """How soon its host should look at it again, where nobody can say yet when it ends."""
        return float("inf")

    def begin(self, now: float) -> None:
        """Be handed to a guest."""
        self.started_at = now

    def kill(self, now: float) -> None:
        """Lose the VM."""
        if self.is_running(now):
            self.killed_at = now

    def is_running(self, now: float) -> bool:
        return self.started_at is not None and self.killed_at is None and now < self.ends_at

    def is_done(self, now: float) -> bool:
        return self.started_at is not None and self.killed_at is None and now >= self.ends_at


@dataclass(frozen=True, slots=True)
class Deliver:
    """200: this job is the runner's."""

    job: Job


@dataclass(frozen=True, slots=True)
class Exit:
    """410: end, and be replaced."""

    reason: str


Told = Deliver | Exit | None
"""None is 204: nothing yet, ask again."""


class Desk(Protocol):
    """Dispatch, as a host sees it. Raises DispatchError when it cannot be asked."""

    async def poll(self, pod: Pod) -> Told:
        """Ask for a job for a warm runner; the answer may take ``HOLD_S``."""
        ...


class QuietDesk:
    """A dispatch without jobs. It sends home whom a roll or a person marked, as the marks on the Pod say."""

    def __init__(self, clock: Clock, *, hold_s: float = 1.0) -> None:
        self._clock = clock
        self._hold_s = hold_s

    async def poll(self, pod: Pod) -> Told:
        if told := told_to_exit(pod):
            return told
        await self._clock.sleep(self._hold_s)
        return None


def told_to_exit(pod: Pod) -> Exit | None:
    """Say whether the marks on a Pod send it home: a person's at once, a roll's only where the Pod is stale."""
    labels = pod.metadata.labels
    if labels.get(DRAIN) == "true":
        return Exit("a person drains it")
    if (target := labels.get(MARK)) and target != labels.get(TEMPLATE):
        return Exit(f"it makes room for {target}")
    return None
