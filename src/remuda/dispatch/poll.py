"""One request of one Pod, while it is held open: what is known about it, and who waits for it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.dispatch.hub import Bell
from remuda.ports.jobs import ANYTHING

if TYPE_CHECKING:
    import asyncio

    from remuda.dispatch.hub import Waiter
    from remuda.dispatch.who import RunnerIdentity
    from remuda.ports.jobs import Without


@dataclass(eq=False, slots=True)
class Poll:
    """It ends with one answer."""

    who: RunnerIdentity
    until: float
    gone: asyncio.Event
    bell: Bell = field(default_factory=Bell)
    waiter: Waiter | None = None
    without: Without = ANYTHING
    tries: int = 0
    """Jobs that were claimed for it and could not be handed over."""
    asks_now: bool = False
    """It has a reason to ask that is no turn."""
    checked: str = ""
    """The version of its Pod that was looked up in the books."""
    looked: bool = False
    superseded: bool = False
    dropped: bool = False
    """Whoever waited for its answer was cancelled."""

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for its answer any more."""
        return self.dropped or self.superseded or self.gone.is_set()
