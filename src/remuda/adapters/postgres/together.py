"""
What is asked of the database at the same moment goes there together: one statement, and so one commit, for all.

While a statement is under way, whoever asks waits in line; the next statement is for all of them. No timer: alone, a
question goes at once. The next statement is on its way before those whom the last one served go on, so that the
database and this process work at the same time. Nobody's fate hangs on another's. Who leaves before its turn has asked
for nothing. Who leaves later waits for the end of the statement, so that what it does next cannot overtake it. An error
that one of them causes is its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import asyncpg

from remuda.ports.database import DatabaseConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

TOGETHER_MAX = 64
"""How many are served by one statement: it holds its locks for as long as it takes."""
_OF_ITS_OWN_MAKING = (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, DatabaseConflict)
"""What one that cannot be sent, that breaks a rule or that stands in another's way raises. Nothing was done."""

_Ask = TypeVar("_Ask")
_Answer = TypeVar("_Answer")


@dataclass(eq=False, slots=True)
class _Asked(Generic[_Ask, _Answer]):
    what: _Ask
    answer: asyncio.Future[_Answer]
    """Done also if whoever asked is gone."""
    under_way: asyncio.Future[None] | None = None
    """Done when the statement that serves it is over."""
    given: list[_Answer] = field(default_factory=list)
    """What it was answered, there or gone."""

    def tell(self, answer: _Answer | Exception) -> None:
        if not isinstance(answer, Exception):
            self.given.append(answer)
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Together(Generic[_Ask, _Answer]):
    """
    Lines of those who ask the same. ``serve`` answers several in one transaction, in their order.

    ``unwanted`` is told what was answered to somebody who is gone.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[_Ask]], Awaitable[Sequence[_Answer]]],
        unwanted: Callable[[_Answer], Awaitable[None]] | None = None,
        *,
        most: int = TOGETHER_MAX,
    ) -> None:
        self._serve = serve
        self._unwanted = unwanted
        self._most = most
        self._lines: dict[str, deque[_Asked[_Ask, _Answer]]] = {}
        """By name. One that is here has somebody who serves it, or is about to."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Who does. Each ends with its line; who asks waits for what it does, so nobody else has to."""

    async def ask(self, what: _Ask, *, line: str = "") -> _Answer:
        loop = asyncio.get_running_loop()
        asked: _Asked[_Ask, _Answer] = _Asked(what, loop.create_future())
        waiting = self._lines.get(line)
        if waiting is None:
            waiting = self._lines[line] = deque()
            task = loop.create_task(self._attend(line, waiting), name="asked together")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting.append(asked)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            await self._leave(asked)
            raise

    async def _leave(self, asked: _Asked[_Ask, _Answer]) -> None:
        """See to what was given to somebody who is gone before it could be taken."""
        if asked.under_way is not None:
            await _whole(asked.under_way)
        if asked.answer.done() and not asked.answer.cancelled():
            asked.answer.exception()  # nobody else hears of it
        if self._unwanted is not None:
            for answer in asked.given:
                await self._unwanted(answer)

    async def _attend(self, line: str, waiting: deque[_Asked[_Ask, _Answer]]) -> None:
        """Serve those who stand in a line until nobody does."""
        loop = asyncio.get_running_loop()
        group: list[_Asked[_Ask, _Answer]] = []
        after: list[_Asked[_Ask, _Answer]] = []
        try:
            await asyncio.sleep(0)  # who was woken together joins
            group = self._next(line, waiting)
            answers = await self._served(group) if group else []
            while group:
                serving = None
                if after := self._next(line, waiting):
                    serving = loop.create_task(self._served(after), name="asked together")
                    await asyncio.sleep(0)  # it is sent before those here go on
                for asked, answer in zip(group, answers, strict=True):
                    asked.tell(answer)
                _over(group)
                group, after = after, []
                answers = await serving if serving is not None else []
        finally:
            if self._lines.get(line) is waiting:  # somebody ended us
                del self._lines[line]
            for asked in (*group, *after, *waiting):
                asked.answer.cancel()
            _over(group)
            _over(after)

    def _next(
        self, line: str, waiting: deque[_Asked[_Ask, _Answer]]
    ) -> list[_Asked[_Ask, _Answer]]:
        """Take those out of a line who are served now. Where nobody is left, the line is over."""
        group: list[_Asked[_Ask, _Answer]] = []
        while waiting and len(group) < self._most:
            asked = waiting.popleft()
            if not asked.answer.done():
                group.append(asked)
        if not group:
            del self._lines[line]
            return group
        under_way = asyncio.get_running_loop().create_future()
        for asked in group:
            asked.under_way = under_way
        return group

    async def _served(self, group: list[_Asked[_Ask, _Answer]]) -> list[_Answer | Exception]:
        try:
            return [*await self._serve([asked.what for asked in group])]
        except _OF_ITS_OWN_MAKING as error:
            if len(group) == 1:
                return [error]
            return [answer for one in group for answer in await self._served([one])]
        except Exception as error:  # noqa: BLE001 - told to each that waits for it
            return [error for _ in group]


def _over(group: list[_Asked[_Ask, _Answer]]) -> None:
    """Say that a group's statement is over."""
    for asked in group[:1]:
        if asked.under_way is not None and not asked.under_way.done():
            asked.under_way.set_result(None)


async def _whole(work: asyncio.Future[None]) -> None:
    """Wait for something to its end whoever cancels us meanwhile."""
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            continue
