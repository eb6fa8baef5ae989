"""A dispatch and an API server whose answers a test writes, for the agent's side of jobs on virtual time."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, ParamSpec

from remuda.agent.held_jobs import HeldJobs
from remuda.agent.jobs import DispatchJobs, JobTimes
from remuda.agent.ledger import on_the_spot
from remuda.agent.parts import RunnerRef
from remuda.ports.desk import HandedJob, JobKind, NoJobYet, ReportReply
from remuda.ports.dispatch import DispatchError
from remuda.ports.kube import Token
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.agent.builders import UID, a_record
from tests.unit.control.fake_kube import FakeKube

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path
    from typing import Any

    from remuda.agent.decide.recorded import State, VmRecord
    from remuda.ports.desk import Desk, FilePiece, FilesRefused, JobReport, NotYou, PollAnswer
    from remuda.ports.kube import BoundPod, KubeError

P = ParamSpec("P")

SECRET = "canary-4711-secret"  # noqa: S105 - what must not leak
HELD_OPEN_S = 25.0
RUNNER = RunnerRef(namespace="ci", pod="mac-abcde", pod_uid=UID, service_account="runner")
LOCAL = HandedJob(
    job_id="local-1", kind=JobKind.LOCAL, runner_name="r-1", document=f"echo {SECRET}".encode()
)
GITHUB = HandedJob(
    job_id="github.com/1", kind=JobKind.GITHUB, runner_name="r-1", document=SECRET.encode()
)


def another(name: str) -> RunnerRef:
    return replace(RUNNER, pod=name, pod_uid=f"uid-{name}")


def unreachable() -> DispatchError:
    return DispatchError("It failed", why="nobody answers", fix="Wait")


def a_local_record(state: State, **fields: Any) -> VmRecord:  # noqa: ANN401 - fields of what it builds
    return replace(a_record(state), job_id="local-1", job_kind="local", **fields)


def on_virtual_time(
    play: Callable[P, Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Turn a play into a test on virtual time. It may be hours long."""

    @functools.wraps(play)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(lambda: play(*args, **kwargs))

    return test


class TokenKube(FakeKube):
    """Gives out tokens. ``wrong`` is raised for each request while it is set; ``hangs`` are Pods that get no answer."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        self._clock = clock
        self._numbers = count(1)
        self.asked: list[tuple[str, str, str, BoundPod | None]] = []
        self.asked_at: list[float] = []
        self.wrong: KubeError | None = None
        self.hangs: set[str] = set()
        self.takes_s = 0.1
        self.lasts_s = 3600.0

    async def request_token(
        self,
        service_account: str,
        *,
        namespace: str,
        audience: str,
        expiration_s: int,
        pod: BoundPod | None = None,
    ) -> Token:
        assert expiration_s >= 600, "the API server refuses less"
        self.asked.append((service_account, namespace, audience, pod))
        self.asked_at.append(self._clock.monotonic())
        if pod is not None and pod.name in self.hangs:
            await self._clock.sleep(1e6)
        await self._clock.sleep(self.takes_s)
        if self.wrong is not None:
            raise self.wrong
        ends = self._clock.now() + timedelta(seconds=self.lasts_s)
        return Token(f"{SECRET}-{next(self._numbers)}", ends)


@dataclass
class ScriptedDesks:
    """What dispatch answers next: a value, an error, or a function of the report. Then: nothing yet, and yes."""

    clock: SimClock
    polls: deque[PollAnswer | Exception] = field(default_factory=deque)
    reports: deque[
        ReportReply | NotYou | Exception | Callable[[JobReport], Awaitable[ReportReply]]
    ] = field(default_factory=deque)
    always: Callable[[JobReport], Awaitable[ReportReply]] | None = None
    """Answers reports when the script is over."""
    polled: list[str] = field(default_factory=list)
    """The token of each poll."""
    polled_at: list[float] = field(default_factory=list)
    told: list[tuple[str, JobReport]] = field(default_factory=list)
    """Whose job each report was about, and what it said."""
    told_as: list[str] = field(default_factory=list)
    hangs: set[str] = field(default_factory=set)
    """Tokens whose calls are never answered."""
    upload: bytes = b""
    """The files that a job needs."""
    piece_bytes: int = 4
    """How much of them is given at once."""
    fetches: deque[bytes | FilesRefused | NotYou | Exception] = field(default_factory=deque)
    """What is answered first to who fetches."""
    sent: bytearray = field(default_factory=bytearray)
    """The files that came back."""
    sends: deque[int | FilesRefused | NotYou | Exception] = field(default_factory=deque)
    """What is answered first to who sends; then as much is taken as came."""

    def acting_as(self, bearer: Callable[[], str]) -> Desk:
        return _ScriptedDesk(self, bearer)


@dataclass
class _ScriptedDesk:
    desks: ScriptedDesks
    bearer: Callable[[], str]

    async def poll(self) -> PollAnswer:
        desks = self.desks
        desks.polled.append(self.bearer())
        desks.polled_at.append(desks.clock.monotonic())
        if self.bearer() in desks.hangs:
            await desks.clock.sleep(1e6)
        if not desks.polls:
            await desks.clock.sleep(HELD_OPEN_S)
            return NoJobYet()
        answer = desks.polls.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def report(self, pod: str, report: JobReport) -> ReportReply | NotYou:
        desks = self.desks
        desks.told.append((pod, report))
        desks.told_as.append(self.bearer())
        if not desks.reports:
            return ReportReply() if desks.always is None else await desks.always(report)
        answer = desks.reports.popleft()
        if isinstance(answer, Exception):
            raise answer
        return await answer(report) if callable(answer) else answer

    async def fetch_files(self, pod: str, offset: int) -> bytes | FilesRefused | NotYou:
        del pod
        desks = self.desks
        answer = desks.fetches.popleft() if desks.fetches else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        return desks.upload[offset : offset + desks.piece_bytes]

    async def send_files(self, pod: str, piece: FilePiece) -> int | FilesRefused | NotYou:
        del pod
        desks = self.desks
        answer = desks.sends.popleft() if desks.sends else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if piece.offset <= len(desks.sent):
            desks.sent[piece.offset :] = piece.data
        return len(desks.sent)


@dataclass
class Side:
    """The agent's side of jobs, and what it meets."""

    folder: Path
    times: JobTimes = field(default_factory=JobTimes)

    def __post_init__(self) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        self.kube = TokenKube(self.clock)
        self.desks = ScriptedDesks(self.clock)
        self.restart()

    def restart(self) -> None:
        """Forget all but what is on disk."""
        self.held = HeldJobs(self.folder / "held")
        self.jobs = DispatchJobs(
            self.desks,
            self.kube,
            self.held,
            threads=on_the_spot,
            clock=self.clock,
            ids=SeededIds(1, "agent"),
            times=self.times,
        )

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "held").iterdir())
