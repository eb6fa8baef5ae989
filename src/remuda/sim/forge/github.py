"""
A forge in memory that behaves as GitHub does with single-use runners. Implements ``Forge`` and ``Announcer``.

It gives a queued job to ANY idle online runner of the organisation whose labels include the job's, not to the one that
was registered for it. It is written as if no line ever failed (``sim.port.faulty_port`` adds that); what is wrong with
the forge itself is in ``faults``, and with its messages in ``post.rates``. It knows nothing of Pods or claims.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from remuda.model.job import Kind
from remuda.ports.forge import (
    Action,
    Announcement,
    ForgeJob,
    ForgeRefused,
    ForgeState,
    ForgeUnavailable,
    Minted,
    Removal,
    Swept,
)
from remuda.ports.registrations import Registration
from remuda.sim.forge.limits import RateLimits
from remuda.sim.forge.post import Post
from remuda.sim.forge.things import Guest, HubFaults, HubJob, HubRunner
from remuda.sim.forge.words import announce, message, read
from remuda.sim.link import WRITER

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from remuda.model.job import JobSpec
    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Delivery
    from remuda.ports.forge import Ignored, NewRunner
    from remuda.sim.ids import SeededIds

NAME_MAX = 64
ASSIGN_S = 1.0
"""How long the forge may take to give a job to a runner."""
LOST_S = 600.0
"""How long after a runner vanished in the middle of a job the forge ends that job."""

Watcher = Callable[[str, HubJob], None]


class FakeGithub:
    """See the module's text."""

    def __init__(self, clock: Clock, ids: SeededIds) -> None:
        self._clock, self._ids = clock, ids
        self.faults = HubFaults()
        self.post = Post(clock, ids.stream("post"))
        self.limits = RateLimits(clock)
        self.jobs: dict[str, HubJob] = {}
        """By id: ``github.test/4711``."""
        self.runners: dict[str, HubRunner] = {}
        """By name. A registration that is gone is not among them."""
        self.minted: list[HubRunner] = []
        """All that there ever were."""
        self.minting: Counter[str] = Counter()
        """By actor: how many mints are under way, where they take time."""
        self.on_change: Watcher = lambda _what, _job: None
        """Told of every change of a job, at once: ``queued``, ``in_progress``, ``completed``."""
        self._numbers = 1000
        self._looked_last: dict[str, int] = {}
        self._sweeps = 0

    @property
    def kind(self) -> Kind:
        return Kind.GITHUB

    # --- people -------------------------------------------------------------------------------------------------

    def queue(
        self,
        organisation: str,
        repository: str,
        labels: tuple[str, ...],
        *,
        lasts_s: float,
        fork: bool = False,
    ) -> HubJob:
        """Let a job begin to wait."""
        job = HubJob(
            number=self._number(),
            organisation=organisation,
            repository=f"{organisation}/{repository}",
            labels=labels,
            lasts_s=lasts_s,
            queued_at=self._clock.now(),
            run_id=self._number(),
            fork=fork,
        )
        self.jobs[job.id] = job
        self._tell(job, Action.QUEUED)
        self._later(ASSIGN_S, self._assign)
        return job

    def cancel(self, job: HubJob) -> None:
        """Cancel a job. One that runs is stopped, and its runner with it."""
        if job.is_over:
            return
        runner = self.runners.get(job.runner_name)
        self._end(job, "cancelled")
        if runner is not None:
            self._release(runner)

    def forget(self, job: HubJob) -> None:
        """Delete a job's run: the forge does not know it any more, and says nothing."""
        job.state = ForgeState.GONE

    def was_told(self, job: HubJob, action: Action) -> bool:
        """Say whether a message that this happened to a job arrived."""
        about = (s for s in self.post.sent.values() if s.arrived and s.delivery.subject == job.id)
        return any(
            isinstance(news := read(sent.delivery), Announcement) and news.action is action
            for sent in about
        )

    # --- guests -------------------------------------------------------------------------------------------------

    def connect(self, config: str, guest: Guest) -> None:
        """Take a guest's runner online. A job config that was used, or removed, is good for nothing."""
        if self.faults.is_down:
            self._later(10.0, self.connect, config, guest)  # a runner tries again
            return
        if self._chance(self.faults.never_registers):
            return
        runner = next((r for r in self.runners.values() if r.config == config), None)
        if runner is None or runner.guest is not None:
            guest.dismissed("the forge does not know its registration")
            return
        runner.guest = guest
        self._later(self._ids.fraction() * ASSIGN_S, self._assign)

    def disconnect(self, guest: Guest) -> None:
        """Lose a guest. The forge notices a job without a runner late."""
        for runner in tuple(self.runners.values()):
            if runner.guest is not guest:
                continue
            runner.guest = None
            if runner.job is not None and not runner.job.is_over:
                runner.job.cut_short = True
                self._later(LOST_S, self._give_up, runner)

    def _give_up(self, runner: HubRunner) -> None:
        if runner.job is not None and not runner.job.is_over:
            self._end(runner.job, "failure")
        self.runners.pop(runner.name, None)

    # --- Forge --------------------------------------------------------------------------------------------------

    async def mint(self, job: JobSpec, runner: NewRunner) -> Minted:
        self._be_up("register a runner")
        self.limits.spend(job.tenant)
        if self.faults.mint_s:
            await self._take_time(self.faults.mint_s)
        if (scope := self.faults.refuses.get(job.tenant)) is not None:
            raise ForgeRefused(
                f"Registering {runner.name}", why="403", fix="Install the App", scope=scope
            )
        if self._chance(self.faults.mint_fails):
            raise _failed(f"Registering {runner.name}", "502")
        if len(runner.name) > NAME_MAX or runner.name in self.runners:
            why = "409: a runner of this name exists, or the name is too long"
            raise ForgeRefused(f"Registering {runner.name}", why=why, fix="Take another name")
        made = self._register(job, runner)
        if self._chance(self.faults.mint_unanswered):
            raise _failed(f"Registering {runner.name}", "504: the answer got lost")
        registration = Registration(
            runner_name=made.name,
            kind=Kind.GITHUB,
            tenant=job.tenant,
            repository=job.repository,
            job_id=job.id,
            pod="",
            scope=f"orgs/{job.tenant}",
            number=made.number,
        )
        return Minted(encoded_jit_config=made.config, registration=registration)

    async def _take_time(self, seconds: float) -> None:
        actor = WRITER.get()
        self.minting[actor] += 1
        try:
            await self._clock.sleep(seconds)
        finally:
            self.minting[actor] -= 1

    def _register(self, job: JobSpec, runner: NewRunner) -> HubRunner:
        made = HubRunner(
            name=runner.name,
            number=self._number(),
            organisation=job.tenant,
            labels=frozenset(label.lower() for label in (*runner.labels, "self-hosted")),
            config=f"jit-{self._ids.secret(12).hex()}",
            minted_for=job.id,
        )
        self.runners[made.name] = made
        self.minted.append(made)
        return made

    async def look_up(self, job: JobSpec) -> ForgeJob:
        self._be_up("look a job up")
        self.limits.spend(job.tenant)
        found = self.jobs.get(job.id)
        if found is None:
            return ForgeJob(state=ForgeState.GONE)
        if self._lags(found):
            return ForgeJob(state=ForgeState.QUEUED)
        return ForgeJob(
            state=found.state,
            conclusion=found.conclusion,
            runner_name=found.runner_name,
            started_at=found.started_at,
            ended_at=found.ended_at,
        )

    def _lags(self, job: HubJob) -> bool:
        if job.started_at is None or job.state is not ForgeState.IN_PROGRESS:
            return False
        return (self._clock.now() - job.started_at).total_seconds() < self.faults.lag_s

    async def remove(self, registration: Registration) -> Removal:
        self._be_up("remove a runner")
        self.limits.spend(registration.tenant)
        runner = self._find(registration)
        if runner is None:
            return Removal.GONE
        if runner.job is not None:
            return Removal.BUSY
        self._release(runner, dismissed="its registration was removed")
        return Removal.REMOVED

    def _find(self, registration: Registration) -> HubRunner | None:
        if registration.number is None:
            return self.runners.get(registration.runner_name)
        found = (r for r in self.runners.values() if r.number == registration.number)
        return next(found, None)

    # --- Announcer ----------------------------------------------------------------------------------------------

    async def read(self, delivery: Delivery) -> Announcement | Ignored:
        return read(delivery)

    async def is_fork(self, repository: str, run_id: int | None, tenant: str) -> bool:
        self._be_up("look a run up")
        self.limits.spend(tenant)
        runs = {(job.repository, job.run_id): job.fork for job in self.jobs.values()}
        return runs.get((repository, run_id or 0), True)

    async def sweep(self, first: Collection[str], *, at_most: int) -> Swept:
        self._be_up("list jobs")
        self._sweeps += 1
        known = {job.repository: job.organisation for job in self.jobs.values()}
        others = sorted(set(known) - set(first), key=lambda r: (self._looked_last.get(r, 0), r))
        found: list[Announcement] = []
        looked = 0
        for repository in [r for r in [*sorted(first), *others] if r in known][:at_most]:
            if not self.limits.may_sweep(known[repository]):
                continue
            self.limits.spend(known[repository])
            self._looked_last[repository] = self._sweeps
            looked += 1
            found += [announce(job, Action.QUEUED) for job in self._queued(repository)]
        return Swept(found=tuple(found), repositories=looked, left_out=len(known) - looked)

    def _queued(self, repository: str) -> list[HubJob]:
        return [
            job
            for job in self.jobs.values()
            if job.repository == repository and job.state is ForgeState.QUEUED
        ]

    async def redeliver(self, *, within: timedelta) -> int:
        self._be_up("list deliveries")
        return self.post.again(within=within)

    # --- inside -------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        """Give every queued job to an idle runner that may take it: any, by chance."""
        if self.faults.is_down:
            self._later(5.0, self._assign)
            return
        for job in self.jobs.values():
            if job.state is not ForgeState.QUEUED:
                continue
            fit = [runner for runner in self.runners.values() if _fits(runner, job)]
            if fit:
                self._begin(job, fit[int(self._ids.fraction() * len(fit))])

    def _begin(self, job: HubJob, runner: HubRunner) -> None:
        assert runner.guest is not None
        runner.job = job
        job.state, job.runner_name = ForgeState.IN_PROGRESS, runner.name
        job.started_at = self._clock.now()
        runner.guest.assigned(job)
        self._tell(job, Action.IN_PROGRESS)
        self._later(job.lasts_s, self._finish, job, runner)

    def _finish(self, job: HubJob, runner: HubRunner) -> None:
        if job.is_over or runner.guest is None:
            return
        self._end(job, "success")
        self._release(runner)

    def _end(self, job: HubJob, conclusion: str) -> None:
        job.state, job.conclusion = ForgeState.COMPLETED, conclusion
        job.ended_at = self._clock.now()
        self._tell(job, Action.COMPLETED)

    def _release(self, runner: HubRunner, *, dismissed: str = "") -> None:
        """Forget a runner: it has had its job, or never will."""
        self.runners.pop(runner.name, None)
        runner.removed = True
        guest, runner.guest = runner.guest, None
        if guest is None:
            return
        if dismissed:
            guest.dismissed(dismissed)
        else:
            guest.finished()

    def _tell(self, job: HubJob, action: Action) -> None:
        self.on_change(action.value, job)
        self.post.send(message(job, action, self._ids.uid()))

    def _be_up(self, what: str) -> None:
        if self.faults.is_down:
            raise _failed(f"The forge did not {what}", "503")

    def _chance(self, rate: float) -> bool:
        return self._ids.fraction() < rate

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        # In nobody's context: the forge goes on while those whose calls set this off are paused or dead.
        asyncio.get_running_loop().call_later(seconds, call, *args, context=Context())


def _fits(runner: HubRunner, job: HubJob) -> bool:
    wanted = {label.lower() for label in job.labels}
    return runner.is_idle and runner.organisation == job.organisation and wanted <= runner.labels


def _failed(what: str, why: str) -> ForgeUnavailable:
    return ForgeUnavailable(what, why=why, fix="Try again")
