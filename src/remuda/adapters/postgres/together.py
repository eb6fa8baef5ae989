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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import asyncpg

from remuda.ports.database import DatabaseConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

TOGETHER_MAX = 64
"""How many are served by one statement: it holds its locks for as long as it takes."""
_OF_ITS_OWN_MAKING = (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, DatabaseConflict)
"""What one that cannot be sent, that breaks a rule or that stands in another's way raises. Nothing was done."""

_Ask = TypeVar("_Ask")
_Answer = TypeVar("_Answer")
_Result = TypeVar("_Result")


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


@dataclass(eq=False, slots=True)
class _Group(Generic[_Ask, _Answer]):
    """Those whom one statement serves, or nobody."""

    asked: list[_Asked[_Ask, _Answer]]
    over: asyncio.Future[None]

    def __bool__(self) -> bool:
        return bool(self.asked)

    def tell(self, answers: Sequence[_Answer | Exception]) -> None:
        for asked, answer in zip(self.asked, answers, strict=True):
            asked.tell(answer)
        self.over.set_result(None)


class Together(Generic[_Ask, _Answer]):
    """
    Lines of those who ask the same. ``serve`` answers several in one transaction, in their order.

    ``unwanted`` is told what was answered to somebody who is gone.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[_Ask]], Awaitable[Sequence[_Answer]]],
        unwanted: Callable[[_Answer], Coroutine[Any, Any, None]] | None = None,
        *,
        most: int = TOGETHER_MAX,
    ) -> None:
        self._serve = serve
        self._unwanted = unwanted
        self._most = most
        self._lines: dict[str, deque[_Asked[_Ask, _Answer]]] = {}
        """By name. One that is here has somebody who attends to it, or is about to."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """
        What goes on whoever is cancelled. In no TaskGroup: a group is somebody's, and these are everybody's. None
        outlives those who ask, for each of them waits until what concerns it is over.
        """

    async def ask(self, what: _Ask, *, line: str = "") -> _Answer:
        asked: _Asked[_Ask, _Answer] = _Asked(what, asyncio.get_running_loop().create_future())
        waiting = self._lines.get(line)
        if waiting is None:
            waiting = self._lines[line] = deque()
            self._start(self._attend(line, waiting))
        waiting.append(asked)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            await self._leave(asked)
            raise

    def _start(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        task = asyncio.get_running_loop().create_task(work, name="asked together")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _leave(self, asked: _Asked[_Ask, _Answer]) -> None:
        """See to what was given to somebody who is gone before it could be taken."""
        if asked.under_way is not None:
            await _whole(asked.under_way)
        if asked.answer.done() and not asked.answer.cancelled():
            asked.answer.exception()  # nobody else hears of it
        if self._unwanted is not None and asked.given:
            giving_back = self._start(self._unwanted(asked.given[0]))
            await _whole(giving_back)
            giving_back.result()

    async def _attend(self, line: str, waiting: deque[_Asked[_Ask, _Answer]]) -> None:
        """Serve those who stand in a line until nobody does. If that ends before, so does all waiting for it."""
        groups: deque[_Group[_Ask, _Answer]] = deque()
        try:
            await self._serve_line(line, waiting, groups)
        except Exception as error:  # a fault of ours
            for asked in (*_all(groups), *waiting):
                asked.tell(error)
            raise
        finally:
            if self._lines.get(line) is waiting:
                del self._lines[line]
            for asked in (*_all(groups), *waiting):
                asked.answer.cancel()
            for group in groups:
                group.over.set_result(None)

    async def _serve_line(
        self,
        line: str,
        waiting: deque[_Asked[_Ask, _Answer]],
        groups: deque[_Group[_Ask, _Answer]],
    ) -> None:
        """Serve one group after the other. ``groups`` holds those that are being served."""
        await asyncio.sleep(0)  # who was woken together joins
        serving: Awaitable[list[_Answer | Exception]] | None = None
        if group := self._next(line, waiting):
            groups.append(group)
            serving = self._served(group.asked)
        while serving is not None:
            answers, serving = await serving, None
            if after := self._next(line, waiting):
                groups.append(after)
                serving = self._start(self._served(after.asked))
                await asyncio.sleep(0)  # it is sent before those here go on
            groups[0].tell(answers)
            groups.popleft()

    def _next(self, line: str, waiting: deque[_Asked[_Ask, _Answer]]) -> _Group[_Ask, _Answer]:
        """Take those out of a line who are served now. Where nobody is left, the line is over."""
        group: _Group[_Ask, _Answer] = _Group([], asyncio.get_running_loop().create_future())
        while waiting and len(group.asked) < self._most:
            asked = waiting.popleft()
            if not asked.answer.done():
                asked.under_way = group.over
                group.asked.append(asked)
        if not group:
            del self._lines[line]
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


def _all(groups: Iterable[_Group[_Ask, _Answer]]) -> list[_Asked[_Ask, _Answer]]:
    return [asked for group in groups for asked in group.asked]


async def _whole(work: asyncio.Future[None]) -> None:
    """Wait for something to its end whoever cancels us meanwhile."""
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            continue
