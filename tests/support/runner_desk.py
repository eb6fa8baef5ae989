"""
The host side of real dispatch: what hollow hosts ask of ``remuda server``, with the tokens of their Pods.

It does with a job what an agent does: it begins a local job first, and says how it ended. Everything that was handed
over is kept, so that a test can say what never may be: a job in two hands, or two in one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.adapters.poll_client import PollClient, PollSettings
from remuda.kube.names import AUDIENCE, POOL
from remuda.ports.desk import (
    AskLater,
    GoHome,
    HandedBefore,
    HandedJob,
    JobKind,
    JobReport,
    NoJobYet,
    NotYou,
)
from remuda.ports.dispatch import DispatchError
from remuda.ports.kube import BoundPod
from remuda.sim.fleet.desk import Deliver, Exit, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.kube.core import Pod
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube
    from remuda.sim.fleet.desk import Told

WAIT_S = 5.0
TEARDOWN_S = 1.0
"""How long a Pod stays after its job: the last report must find it."""
TOKEN_S = 3600


@dataclass(frozen=True, slots=True)
class Hand:
    """One job in one VM."""

    job_id: str
    pod: str
    pod_uid: str
    runner_name: str
    document: bytes = field(repr=False)


class RunnerDesk:
    """Implements ``remuda.sim.fleet.desk.Desk`` over HTTP. ``run`` carries out what was handed over."""

    def __init__(
        self, kube: Kube, clock: Clock, url: Callable[[], str], lasts_s: float = 1.0
    ) -> None:
        self._kube, self._clock, self._url = kube, clock, url
        self._tokens: dict[str, str] = {}
        self._group: asyncio.TaskGroup | None = None
        self.lasts_s = lasts_s
        self.exit_code = 0
        self.hands: list[Hand] = []
        self.begun: list[str] = []
        self.sent_home: list[str] = []
        self.jobs: dict[str, Job] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.Event().wait()

    async def poll(self, pod: Pod) -> Told:
        client = PollClient(await self._settings(pod))
        try:
            answer = await client.poll()
            match answer:
                case HandedJob():
                    return await self._take(client, pod, answer)
                case GoHome(reason):
                    self.sent_home.append(pod.name)
                    return Exit(reason)
                case NoJobYet():
                    return None
                case NotYou(_, why) | AskLater(_, why) | HandedBefore(why):
                    raise DispatchError("No job", why=why, fix="Ask again")
        finally:
            await client.close()

    def tokens(self) -> list[str]:
        return list(self._tokens.values())

    def doubled(self) -> list[str]:
        """Return jobs that began in two VMs, and VMs that were given two jobs."""
        jobs = Counter(self.begun)
        pods = Counter(uid for uid, _ in {(hand.pod_uid, hand.job_id) for hand in self.hands})
        return sorted(name for found in (jobs, pods) for name, n in found.items() if n > 1)

    async def _settings(self, pod: Pod) -> PollSettings:
        if pod.uid not in self._tokens:
            token = await self._kube.request_token(
                pod.spec.service_account_name,
                namespace=pod.namespace,
                audience=AUDIENCE,
                expiration_s=TOKEN_S,
                pod=BoundPod(pod.name, pod.uid),
            )
            self._tokens[pod.uid] = token.text
        return PollSettings(base_url=self._url(), token=self._tokens[pod.uid], wait_s=WAIT_S)

    async def _take(self, client: PollClient, pod: Pod, handed: HandedJob) -> Told:
        self.hands.append(
            Hand(handed.job_id, pod.name, pod.uid, handed.runner_name, handed.document)
        )
        if handed.kind is JobKind.LOCAL:
            reply = await client.report(pod.name, JobReport(started_at=self._clock.now()))
            assert not isinstance(reply, NotYou), reply
            if reply.stop:
                return Exit(reply.stop)
            assert self._group is not None, "the desk does not run"
            self._group.create_task(self._carry_out(pod), name=f"job on {pod.name}")
        self.begun.append(handed.job_id)
        job = Job(handed.job_id, pod.labels[POOL], self.lasts_s + TEARDOWN_S)
        self.jobs[handed.job_id] = job
        return Deliver(job)

    async def _carry_out(self, pod: Pod) -> None:
        await self._clock.sleep(self.lasts_s)
        report = JobReport(
            log=b"all is well\n",
            exit_code=self.exit_code,
            exit_reason="the script ended",
            finished_at=self._clock.now(),
        )
        while True:
            client = PollClient(await self._settings(pod))
            try:
                await client.report(pod.name, report)
            except DispatchError:
                await self._clock.sleep(0.5)
            else:
                return
            finally:
                await client.close()
