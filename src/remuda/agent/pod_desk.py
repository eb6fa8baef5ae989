"""Dispatch as one VM's Pod asks it: with that Pod's token, and with a sense for when asking is of no use any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from remuda.agent.parts import Denied
from remuda.agent.tokens import REFUSALS
from remuda.ports.desk import NotYou

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.agent.parts import RunnerRef
    from remuda.agent.tokens import PodTokens
    from remuda.model.errors import RemudaError
    from remuda.ports.clock import Clock
    from remuda.ports.desk import (
        Desks,
        FilePiece,
        FilesRefused,
        JobReport,
        PollAnswer,
        ReportReply,
    )

T = TypeVar("T")


class PodDesk:
    """
    One runner's dispatch. A token that is not taken is used no more: the next call has a fresh one.

    Every error is a DispatchError, or the KubeError of a token that could not be had.
    """

    def __init__(self, desks: Desks, tokens: PodTokens, runner: RunnerRef) -> None:
        self._tokens, self._runner = tokens, runner
        self._token = ""
        self._desk = desks.acting_as(lambda: self._token)

    async def poll(self) -> PollAnswer:
        return await self._known(self._desk.poll)

    async def report(self, report: JobReport) -> ReportReply | NotYou:
        return await self._known(lambda: self._desk.report(self._runner.pod, report))

    async def fetch_files(self, offset: int) -> bytes | FilesRefused | NotYou:
        return await self._known(lambda: self._desk.fetch_files(self._runner.pod, offset))

    async def send_files(self, piece: FilePiece) -> int | FilesRefused | NotYou:
        return await self._known(lambda: self._desk.send_files(self._runner.pod, piece))

    async def _known(self, ask: Callable[[], Awaitable[T]]) -> T:
        token = self._token = await self._tokens.get(self._runner)
        answer = await ask()
        if isinstance(answer, NotYou):
            self._tokens.refused(self._runner, token)
        return answer


@dataclass(slots=True)
class Standing:
    """Whether we are still taken for the runner's side. One refusal may be a token's fault; a fresh one's is ours."""

    clock: Clock
    patience_s: float
    """For how long the API server may refuse a token: it does so, too, while it has just started."""
    _refused: bool = False
    _since: float | None = None

    def answered(self) -> None:
        """Somebody spoke to us as a runner."""
        self._refused, self._since = False, None

    def not_us(self, answer: NotYou) -> Denied | None:
        """Dispatch refused our token; None: try a fresh one."""
        self._begin()
        if not self._refused:
            self._refused = True
            return None
        said = f" ({answer.why})" if answer.why else ""
        why = (
            f"Dispatch refused a fresh token of its Pod as well: it answered {answer.status}{said}"
        )
        return Denied("TokenRefused", why)

    def failed(self, error: RemudaError) -> Denied | None:
        """Nothing was answered; None: try again later."""
        if not isinstance(error, REFUSALS):
            self._since = None  # who was away may refuse for a while when it is back
            return None
        self._begin()
        if not self.is_hopeless:
            return None
        return Denied("NoToken", f"The API server gives its Pod no token for dispatch: {error.why}")

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing but refusals came for as long as they may be a passing fault."""
        return self._since is not None and self.clock.monotonic() - self._since >= self.patience_s

    def _begin(self) -> None:
        if self._since is None:
            self._since = self.clock.monotonic()
