"""What the tests of hand-overs have in common: something that happens at a step, and what must hold after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.dispatch.answers import Handed
from remuda.dispatch.attempt import Step
from remuda.model.job import JobState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.dispatch.answers import Answer
    from tests.unit.dispatch.hall import Asking, Hall

STEPS: list[Step] = [step for step in Step if step is not Step.ANSWERED]
PATCH = r"^PATCH .*/pods/"


@dataclass
class Fault:
    """Something that happens once, when an attempt comes to a step."""

    hall: Hall
    step: Step
    what: Callable[[], Awaitable[None]]
    happened: bool = False

    async def at(self, step: Step) -> None:
        if step is self.step and not self.happened:
            self.happened = True
            await self.what()


async def calm(hall: Hall) -> None:
    """Let everything that was begun come to its end, with nothing in its way."""
    hall.at = None
    await hall.later(40)


async def settled(hall: Hall, answer: Answer | None) -> None:
    """Check that the job was handed over, or that there is no trace of it."""
    if isinstance(answer, Handed):
        (live,) = hall.tables.claims.values()
        assert hall.state() is JobState.RUNNING
        assert live.delivered_at is not None
        assert live.runner_name == answer.runner_name
        assert await hall.is_stamped()
        assert list(hall.forge.runners) == [answer.runner_name]
        assert list(hall.tables.registrations) == [answer.runner_name]
        await hall.check()
    else:
        await hall.nothing_is_left()
    assert hall.job().spec.queued_at == hall.queued_at


async def hand_over_later(hall: Hall) -> None:
    """Check that what was taken back is handed over to whoever asks next: to the same Pod."""
    answer = await hall.poll(wait_s=120)
    assert isinstance(answer, Handed)
    await settled(hall, answer)


async def begin(hall: Hall) -> Asking:
    await hall.add_pod()
    await hall.queue(1)
    hall.queued_at = hall.job().spec.queued_at
    return hall.ask(wait_s=30)
