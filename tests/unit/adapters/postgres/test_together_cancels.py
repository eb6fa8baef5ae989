"""Who asks together may leave at any moment: no line is left behind, and what was given is taken or given back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.together import Together
from tests.support.eventually import within

if TYPE_CHECKING:
    from collections.abc import Sequence

Ask = tuple[str, int]
"""A line, and who asks in it."""


class OfItsOwnMakingError(ValueError):
    """What one of a group causes: the others are asked for again without it."""


@dataclass(slots=True)
class Story:
    """A database that takes some turns of the loop for each statement, and sometimes fails, as the dice say."""

    dice: random.Random
    given: Counter[Ask] = field(default_factory=Counter)
    taken: Counter[Ask] = field(default_factory=Counter)
    given_back: Counter[Ask] = field(default_factory=Counter)
    under_way: Counter[str] = field(default_factory=Counter)

    async def some_turns(self, at_most: int) -> None:
        for _ in range(self.dice.randrange(at_most)):
            await asyncio.sleep(0)

    async def serve(self, asked: Sequence[Ask]) -> Sequence[Ask]:
        (line,) = {line for line, _ in asked}
        assert not self.under_way[line], "two statements of one line"
        self.under_way[line] += 1
        try:
            await self.some_turns(4)
            chance = self.dice.random()
            if chance < 0.08:
                raise OfItsOwnMakingError
            if chance < 0.12:
                raise ConnectionError
        finally:
            self.under_way[line] -= 1
        self.given.update(asked)
        return asked

    async def take_back(self, asked: Ask) -> None:
        await self.some_turns(3)
        self.given_back[asked] += 1

    async def ask(self, together: Together[Ask, Ask], number: int) -> None:
        await self.some_turns(5)
        asked = (self.dice.choice("ab"), number)
        try:
            assert await together.ask(asked, line=asked[0]) == asked
        except (OfItsOwnMakingError, ConnectionError):
            return
        self.taken[asked] += 1

    async def cancel_some(self, asking: Sequence[asyncio.Task[None]]) -> None:
        """Cancel some of them, and some of those again, whatever they are at."""
        for _ in range(40):
            await asyncio.sleep(0)
            if self.dice.random() < 0.4:
                self.dice.choice(asking).cancel()


async def play(seed: int) -> None:
    story = Story(random.Random(seed))  # noqa: S311 - a seed replays it
    together = Together(story.serve, story.take_back, most=story.dice.choice((1, 2, 3, 16)))
    async with asyncio.TaskGroup() as group:
        asking = [
            group.create_task(story.ask(together, number), name=f"asks {number}")
            for number in range(story.dice.randrange(1, 30))
        ]
        await story.cancel_some(asking)
        await within(asyncio.wait(asking), 5)
    assert story.given == story.taken + story.given_back, f"seed {seed}"
    # No line is left behind: whoever comes next, in either of them, is served or hears an error.
    for line in "ab":
        await within(_served(story, together, line), 5)


async def _served(story: Story, together: Together[Ask, Ask], line: str) -> None:
    while not story.taken[(line, -1)]:
        try:
            story.taken[await together.ask((line, -1), line=line)] += 1
        except (OfItsOwnMakingError, ConnectionError):
            continue


@pytest.mark.parametrize("seed", range(0, 600, 50))
async def test_who_leaves_at_any_moment_leaves_nothing_behind(seed: int) -> None:
    for one in range(seed, seed + 50):
        await play(one)
