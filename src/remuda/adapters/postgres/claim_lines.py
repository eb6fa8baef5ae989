"""
Claims that are asked for at the same moment go to the database together: one statement for all Pods of a pool.

While a statement is under way, whoever asks waits in line; the first of them then asks for all. Nobody's fate hangs on
another's: who leaves before its turn has asked for nothing, who leaves later has its claim given back, and an error
that one Pod causes is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import asyncpg
import structlog

from remuda.ports.database import DatabaseError
from remuda.ports.jobs import Claimed, NothingToDo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from remuda.model.job import Claim
    from remuda.ports.jobs import WarmRunner

    Answer: TypeAlias = Claimed | NothingToDo
    Serve: TypeAlias = Callable[[Sequence[WarmRunner]], Awaitable[list[Answer]]]

TOGETHER_MAX = 64
"""How many are served by one statement: it holds its tenants' limits for as long as it takes."""
_OF_ITS_OWN_MAKING = (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
"""What a name that cannot be sent, or that breaks a rule, raises."""
_log = structlog.get_logger()


class _Lead:
    """Instead of an answer: ask for all who wait."""


_LEAD = _Lead()


@dataclass(eq=False, slots=True)
class _Asked:
    runner: WarmRunner
    answer: asyncio.Future[Claimed | NothingToDo | _Lead]


class ClaimLines:
    """The lines of all pools."""

    def __init__(self, serve: Serve, give_back: Callable[[Claim], Awaitable[None]]) -> None:
        self._serve = serve
        self._give_back = give_back
        self._lines: dict[str, deque[_Asked]] = {}
        """By pool; one that is here has a statement under way or is about to."""

    async def ask(self, runner: WarmRunner) -> Answer:
        asked = _Asked(runner, asyncio.get_running_loop().create_future())
        line = self._lines.get(runner.pool)
        if line is None:
            self._lines[runner.pool] = deque()
            return await self._lead(asked)
        line.append(asked)
        try:
            answer = await asked.answer
        except asyncio.CancelledError:
            await self._leave(asked)
            raise
        return await self._lead(asked) if isinstance(answer, _Lead) else answer

    async def _leave(self, asked: _Asked) -> None:
        """See to what was given to somebody who is gone before it could be taken."""
        if asked.answer.cancelled() or asked.answer.exception() is not None:
            return
        answer = asked.answer.result()
        if isinstance(answer, _Lead):
            self._pass_lead(asked.runner.pool)
        elif isinstance(answer, Claimed):
            await self._return(answer.claim)

    async def _lead(self, asked: _Asked) -> Answer:
        """Ask for all who wait by now. Being cancelled must not end the statement: others wait for it."""
        pool = asked.runner.pool
        gone = False
        asked.answer = asyncio.get_running_loop().create_future()
        try:
            await asyncio.sleep(0)  # let those join that were woken together
            line = self._lines[pool]
            group = [asked, *(line.popleft() for _ in range(min(len(line), TOGETHER_MAX - 1)))]
            group = [one for one in group if not one.answer.done()]
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(self._answer(group), name=f"claims of {pool}")
                while not serving.done():
                    try:
                        await asyncio.wait({serving})
                    except asyncio.CancelledError:
                        gone = True
                        asked.answer.cancel()
        finally:
            self._pass_lead(pool)
        if gone:
            await self._leave(asked)
            raise asyncio.CancelledError
        answer = asked.answer.result()
        assert not isinstance(answer, _Lead)
        return answer

    def _pass_lead(self, pool: str) -> None:
        line = self._lines[pool]
        while line:
            first = line.popleft()
            if not first.answer.done():
                first.answer.set_result(_LEAD)
                return
        del self._lines[pool]

    async def _answer(self, group: list[_Asked]) -> None:
        """Serve a group, and give back the claims of those who are gone."""
        answers = await self._served(group)
        gone = [asked.answer.done() for asked in group]
        for asked, answer in zip(group, answers, strict=True):
            if isinstance(answer, Exception):
                _fail(asked, answer)
            elif not asked.answer.done():
                asked.answer.set_result(answer)
        for answer in itertools.compress(answers, gone):
            if isinstance(answer, Claimed):
                await self._return(answer.claim)

    async def _served(self, group: list[_Asked]) -> Sequence[Answer | Exception]:
        try:
            return await self._serve([asked.runner for asked in group])
        except DatabaseError as error:
            return [error] * len(group)
        except _OF_ITS_OWN_MAKING as error:
            if len(group) == 1:
                return [error]
            return [answer for one in group for answer in await self._served([one])]

    async def _return(self, claim: Claim) -> None:
        # If it fails, the sweep over claims that nothing was minted for finds it.
        with contextlib.suppress(DatabaseError):
            await self._give_back(claim)
            _log.info("claim_given_back", job=claim.job_id, pod=claim.pod)


def _fail(asked: _Asked, error: Exception) -> None:
    if not asked.answer.done():
        asked.answer.set_exception(error)
