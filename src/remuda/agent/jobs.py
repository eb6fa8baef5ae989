"""
The jobs of this host's VMs: asked for at dispatch, kept until they are delivered, told about until they are over.

Implements ``remuda.agent.parts.Jobs``. Runners share connections and nothing else: one whose dispatch hangs holds up
no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.asking import Asking, drop
from remuda.agent.collecting import Collecting, CollectingTimes
from remuda.agent.held_jobs import HeldJobFailed
from remuda.agent.pod_desk import PodDesk, Standing
from remuda.agent.telling import Telling, TellingTimes
from remuda.agent.tokens import PodTokens
from remuda.ports.desk import JobKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from remuda.agent.decide.recorded import VmRecord
    from remuda.agent.held_jobs import HeldJobs
    from remuda.agent.ledger import Threads
    from remuda.agent.mailbox import HostMailbox
    from remuda.agent.parts import Denied, RunnerRef, ToldToStop
    from remuda.ports.clock import Clock
    from remuda.ports.desk import Desks, GoHome, HandedJob
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

_FOR_EVER_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """In seconds."""

    begin_s: float = 60.0
    """How long to ask to begin a job before dispatch is asked for it again."""
    refused_s: float = 120.0
    """For how long refusals may be a passing fault of the API server or of dispatch."""
    telling: TellingTimes = field(default_factory=TellingTimes)
    collecting: CollectingTimes = field(default_factory=CollectingTimes)


@dataclass(frozen=True, slots=True)
class _Runner:
    """What is remembered of one, until it is forgotten."""

    desk: PodDesk
    telling: Telling


class DispatchJobs:
    """Dispatch, for all VMs of this host, each with its own Pod's token."""

    def __init__(  # noqa: PLR0913 - what it works with, each of another kind
        self,
        desks: Desks,
        kube: Kube,
        held: HeldJobs,
        *,
        threads: Threads,
        clock: Clock,
        ids: Ids,
        times: JobTimes | None = None,
    ) -> None:
        self._desks, self._held, self._threads = desks, held, threads
        self._clock, self._ids = clock, ids
        self._times = times or JobTimes()
        self._tokens = PodTokens(kube, clock=clock, ids=ids)
        self._runners: dict[str, _Runner] = {}

    async def next(self, runner: RunnerRef) -> HandedJob | GoHome | Denied:
        """Wait for the runner's one job, however long that takes. To be cancelled at any time: then none is lost."""
        asking = Asking(
            runner=runner,
            desk=self._runner(runner).desk,
            held=self._held,
            threads=self._threads,
            standing=self._standing(),
            clock=self._clock,
            ids=self._ids,
            begin_s=self._times.begin_s,
        )
        return await asking.run()

    async def delivered(self, runner: RunnerRef) -> None:
        """Forget the kept job: it is in the mailbox and durable. To do it twice is no error."""
        await drop(self._held, self._threads, runner)

    async def follow(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> ToldToStop:
        """Tell dispatch the job's output while it runs. Returns only if the job must stop. Else runs for ever."""
        if _is_local(record):
            return await self._runner(runner).telling.follow(record, mailbox)
        while True:
            await self._clock.sleep(_FOR_EVER_S)

    async def collect(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> str:
        """Send dispatch the files that its job left. Returns why not; empty: they are there, or not wanted."""
        if not _is_local(record) or not record.job_files:
            return ""
        collecting = Collecting(
            pod=runner.pod,
            desk=self._runner(runner).desk,
            clock=self._clock,
            ids=self._ids,
            times=self._times.collecting,
        )
        return await collecting.run(mailbox)

    async def finish(self, record: VmRecord, runner: RunnerRef, mailbox: HostMailbox) -> bool:
        """
        Tell dispatch the rest of the output and the verdict; may be repeated. Whether it was heard.

        A job that was kept and never delivered is not spoken of: dispatch knows whether it was begun, and goes by the
        end of its Pod.
        """
        if not _is_local(record):
            return True
        assert record.verdict is not None, "what is over has a verdict"
        return await self._runner(runner).telling.finish(record.verdict, mailbox)

    def forget(self, pod_uid: str) -> None:
        """Forget the token and all else about a runner that is gone."""
        self._runners.pop(pod_uid, None)
        self._tokens.forget(pod_uid)
        try:
            self._held.drop(pod_uid)
        except HeldJobFailed as error:
            log.warning("held job not removed yet", pod_uid=pod_uid, error=str(error))

    async def forget_all_but(self, pod_uids: Collection[str]) -> None:
        """Remove the kept jobs of Pods that are gone. For once after a start, with the Pods that have a record."""
        try:
            gone = await self._threads(lambda: self._held.drop_all_but(pod_uids))
        except HeldJobFailed as error:
            log.warning("held jobs not swept", error=str(error))
            return
        for file in gone:
            log.info("held job of a Pod that is gone removed", file=file)

    def _runner(self, runner: RunnerRef) -> _Runner:
        known = self._runners.get(runner.pod_uid)
        if known is None:
            desk = PodDesk(self._desks, self._tokens, runner)
            telling = Telling(
                pod=runner.pod,
                desk=desk,
                standing=self._standing(),
                clock=self._clock,
                ids=self._ids,
                times=self._times.telling,
            )
            known = self._runners[runner.pod_uid] = _Runner(desk, telling)
        return known

    def _standing(self) -> Standing:
        return Standing(self._clock, self._times.refused_s)


def _is_local(record: VmRecord) -> bool:
    return record.job_kind == JobKind.LOCAL
