"""What a forge holds: jobs, registered runners, and what is sent about them. The truth of a run; checkers read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from remuda.ports.forge import ForgeState

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.ports.deliveries import Delivery
    from remuda.ports.forge import Scope

HOST = "github.test"


@dataclass(slots=True)
class HubJob:
    """A job at its forge. What happens here is what happened, whatever dispatch believes."""

    number: int
    organisation: str
    repository: str
    """With its owner: ``acme/app``."""
    labels: tuple[str, ...]
    lasts_s: float
    queued_at: datetime
    run_id: int
    fork: bool = False
    state: ForgeState = ForgeState.QUEUED
    conclusion: str = ""
    runner_name: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cut_short: bool = False
    """Its runner went away under it."""

    @property
    def id(self) -> str:
        return f"{HOST}/{self.number}"

    @property
    def is_over(self) -> bool:
        return self.state in {ForgeState.COMPLETED, ForgeState.GONE}


class Guest(Protocol):
    """What runs in a VM that was given a job config. The forge calls it, never the other way round at once."""

    @property
    def vm(self) -> str:
        """The UID of the Pod whose VM it is."""
        ...

    def assigned(self, job: HubJob) -> None: ...

    def finished(self) -> None:
        """Take in that its job is over: a runner of this kind then ends."""
        ...

    def dismissed(self, why: str) -> None:
        """Take in that the forge does not know it: it ends without a job."""
        ...


@dataclass(slots=True)
class HubRunner:
    """A registration. It serves one job, and goes with it."""

    name: str
    number: int
    organisation: str
    labels: frozenset[str]
    """In lower case."""
    config: str = field(repr=False)
    minted_for: str
    guest: Guest | None = None
    """Set while it is online."""
    job: HubJob | None = None
    removed: bool = False

    @property
    def is_idle(self) -> bool:
        return self.guest is not None and self.job is None and not self.removed


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRates:
    """What goes wrong with messages. Each rate is a chance from 0 to 1."""

    dropped: float = 0.0
    """It is never sent, and the forge does not know: nothing but a sweep finds what it was about."""
    failed: float = 0.0
    """It does not arrive, and the forge's list of deliveries says so."""
    delayed: float = 0.0
    delay_s: float = 150.0
    duplicated: float = 0.0
    latency_s: float = 0.5
    """The mean; exponential, so that messages overtake each other."""


@dataclass(slots=True)
class HubFaults:
    """What is wrong with a forge now. Stories change it while they run."""

    is_down: bool = False
    mint_s: float = 0.0
    """How long a mint takes."""
    mint_fails: float = 0.0
    """The chance that a mint is refused by a server error; nothing is registered."""
    mint_unanswered: float = 0.0
    """The chance that a runner is registered, but the answer says that it failed."""
    never_registers: float = 0.0
    """The chance that a runner that was minted never comes online."""
    lag_s: float = 0.0
    """For how long after a job began the forge still says that it is queued, when it is asked."""
    refuses: dict[str, Scope] = field(default_factory=dict)
    """By organisation: whom it says no to."""


@dataclass(slots=True)
class Sent:
    """A message and what became of it, as the forge lists it."""

    delivery: Delivery
    sent_at: datetime
    arrived: bool = False
    asked_again: int = 0
