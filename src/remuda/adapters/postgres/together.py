"""
What is asked of the database at the same moment goes there together: one statement, and so one commit, for all.

While a statement is under way, whoever asks waits in line; the first of them then asks for all. No timer: alone, a
question goes at once. The next statement is on its way before those whom the last one served go on, so that the
database and this process work at the same time. Nobody's fate hangs on another's. Who leaves before its turn has asked
for nothing. Who leaves later waits for the end of the statement, so that what it does next cannot overtake it. An error
that one of them causes is its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass
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


class _Lead:
    """Instead of an answer: ask for all who wait."""


_LEAD = _Lead()


@dataclass(eq=False, slots=True)
class _Asked(Generic[_Ask, _Answer]):
    what: _Ask
    answer: asyncio.Future[_Answer | _Lead]
    under_way: asyncio.Future[None] | None = None
    """Done when the statement that serves it is over."""


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
        """By name; one that is here has a statement under way or is about to."""

    async def ask(self, what: _Ask, *, line: str = "") -> _Answer:
        asked: _Asked[_Ask, _Answer] = _Asked(what, asyncio.get_running_loop().create_future())
        waiting = self._lines.get(line)
        if waiting is None:
            self._lines[line] = deque()
            await self._joined(line)
            return await self._lead(asked, line)
        waiting.append(asked)
        try:
            answer = await asked.answer
        except asyncio.CancelledError:
            await self._leave(asked, line)
            raise
        return await self._lead(asked, line) if isinstance(answer, _Lead) else answer

    async def _leave(self, asked: _Asked[_Ask, _Answer], line: str) -> None:
        """See to what was given to somebody who is gone before it could be taken."""
        if asked.under_way is not None:
            await _whole(asked.under_way)
        if asked.answer.cancelled() or asked.answer.exception() is not None:
            return
        answer = asked.answer.result()
        if isinstance(answer, _Lead):
            self._pass_lead(line)
        elif self._unwanted is not None:
            await self._unwanted(answer)

    async def _lead(self, asked: _Asked[_Ask, _Answer], line: str) -> _Answer:
        """Ask for all who wait by now. Being cancelled must not end the statement: others wait for it."""
        asked.answer = asyncio.get_running_loop().create_future()
        group = self._next(asked, line)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._answer(group, line), name="asked together")
            gone = await _whole(serving, on_cancel=asked.answer.cancel)
        if gone:
            await self._leave(asked, line)
            raise asyncio.CancelledError
        answer = asked.answer.result()
        assert not isinstance(answer, _Lead)
        return answer

    async def _joined(self, line: str) -> None:
        """Let those join that were woken together: who asked for them all before wakes a turn after the others."""
        try:
            await _two_turns()
        except asyncio.CancelledError:
            self._pass_lead(line)
            raise

    def _next(self, first: _Asked[_Ask, _Answer], line: str) -> list[_Asked[_Ask, _Answer]]:
        waiting = self._lines[line]
        some = [first, *(waiting.popleft() for _ in range(min(len(waiting), self._most - 1)))]
        group = [one for one in some if not one.answer.done()]
        under_way = asyncio.get_running_loop().create_future()
        for one in group:
            one.under_way = under_way
        return group

    def _pass_lead(self, line: str) -> bool:
        """Have the next one in line ask for those who wait. Returns whether there is one."""
        waiting = self._lines[line]
        while waiting:
            first = waiting.popleft()
            if not first.answer.done():
                first.answer.set_result(_LEAD)
                return True
        del self._lines[line]
        return False

    async def _answer(self, group: list[_Asked[_Ask, _Answer]], line: str) -> None:
        """Serve a group, and see to the answers of those who are gone."""
        try:
            try:
                answers = await self._served(group)
            finally:
                followed = self._pass_lead(line)
            if followed:
                await _two_turns()  # one to take the lead, one to ask
            gone = [asked.answer.done() for asked in group]
            for asked, answer in zip(group, answers, strict=True):
                _tell(asked, answer)
            for answer in itertools.compress(answers, gone):
                if self._unwanted is not None and not isinstance(answer, Exception):
                    await self._unwanted(answer)
        finally:
            under_way = group[0].under_way
            assert under_way is not None
            under_way.set_result(None)
            for asked in group:
                asked.answer.cancel()  # whoever is not answered by now is served by nobody

    async def _served(self, group: list[_Asked[_Ask, _Answer]]) -> list[_Answer | Exception]:
        try:
            return [*await self._serve([asked.what for asked in group])]
        except _OF_ITS_OWN_MAKING as error:
            if len(group) == 1:
                return [error]
            return [answer for one in group for answer in await self._served([one])]
        except Exception as error:  # noqa: BLE001 - told to each that waits for it
            return [error for _ in group]


async def _two_turns() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _tell(asked: _Asked[_Ask, _Answer], answer: _Answer | Exception) -> None:
    if asked.answer.done():
        return
    if isinstance(answer, Exception):
        asked.answer.set_exception(answer)
    else:
        asked.answer.set_result(answer)


async def _whole(
    work: asyncio.Future[None], *, on_cancel: Callable[[], object] = lambda: None
) -> bool:
    """Wait for something to its end whoever cancels us meanwhile. Returns whether somebody did."""
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            cancelled = True
            on_cancel()
    return cancelled
