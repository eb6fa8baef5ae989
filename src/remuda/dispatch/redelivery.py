"""
A job whose first answer was lost, on its way to the same Pod again, under a new runner.

A job config is kept nowhere, so a fresh one is minted. The claim stays whatever happens here: the Pod may have had the
first one after all. Only what this attempt registered is taken back, and what it replaced is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from remuda.dispatch.attempt import Attempt, Undo, Undone
from remuda.model.errors import RemudaError
from remuda.model.job import Kind
from remuda.ports.forge import Removal
from remuda.ports.jobs import Fence, Stale
from remuda.ports.registrations import registration_of

if TYPE_CHECKING:
    from remuda.ports.jobs import Running

log = structlog.get_logger(__name__)

SPENT = "the time to hand its job over has passed"


class Redelivery(Attempt):
    """``run`` hands the job over again, or takes the new registration back."""

    fence: Fence | None = None
    """What the store found instead, if it did not deliver again."""
    _replaced = ""
    _unsure = False
    """Whether the claim may be this runner's by now."""

    async def commit(self) -> Running:
        self._unsure = True
        window = self.shop.settings.polls.delivery_window
        answer = await self.shop.store.deliver_again(
            self.claim, self.runner_name, within=window, registered=self.registered
        )
        if isinstance(answer, Stale):
            self._unsure, self.fence = False, answer.why
            leave = SPENT if answer.why is Fence.TOO_LATE else None
            why = f"its job is not handed over again: {answer.why}"
            raise Undo(Undone(why=why, leave=leave))
        self._replaced = answer.replaced_runner
        return answer

    async def take_back(self, outcome: Undone) -> None:
        """Leave the claim and the stamp alone. A runner that the claim may name is replaced by the next delivery."""
        del outcome
        if not self._unsure:
            await self.unregister()

    async def forget_replaced(self) -> None:
        """Remove the registration of the first answer, which nobody will use. What fails is left to the worker."""
        spec, name = self.job.spec, self._replaced
        if not name or spec.kind is Kind.LOCAL:
            return
        registration = registration_of(self.job, self.pod.name, name)
        try:
            removal = await self.shop.forges[spec.kind].remove(registration)
            if removal is not Removal.BUSY:
                await self.shop.registrations.settle((name,))
        except RemudaError as error:
            log.info("registration left to the worker", runner=name, error=str(error))
