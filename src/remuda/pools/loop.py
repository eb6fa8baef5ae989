"""
The loop over pools: woken by news, it looks, decides and carries out, one pass of one pool at a time.

What is woken: a pool by its own changes, those of its Pods and ServiceAccounts, and those of its fleet's hosts that
matter. A pass costs what its own pool costs. It first settles what the last one left in doubt.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import structlog
from msgspec.structs import replace

from remuda.control.queue import QueueSettings, WorkQueue
from remuda.kube.core import POD
from remuda.kube.names import POOL_DRAIN
from remuda.kube.runner_pod import TemplateRefused
from remuda.kube.runner_view import ended_for_nothing, runner_of
from remuda.pools.decide.actions import (
    Cause,
    CreateRunner,
    MarkRunner,
    ReapRunner,
    ReleasePool,
    UnmarkRunner,
)
from remuda.pools.holdback import Failed
from remuda.pools.memory import PoolMemory
from remuda.pools.news import News
from remuda.ports.kube import (
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
)

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.runner import Runner
    from remuda.pools.apply import Applier, Job
    from remuda.pools.decide.actions import Action
    from remuda.pools.hosts import Hosts
    from remuda.pools.reins import Reins
    from remuda.pools.status import StatusWriter
    from remuda.pools.turn import Creation, Turn, Turns

log = structlog.get_logger(__name__)

LOOP: Final = "pools"
_TICK: Final = ""  # no pool has this name
_TICK_S: Final = 15.0
_SILENT_MAX_S: Final = 120.0
_SOONEST: Final = timedelta(milliseconds=50)
"""A wait that a clock cannot tell from none would make the loop spin."""
_CONFLICT_RETRY: Final = timedelta(seconds=1)


class PoolLoop:
    """Carries out what ``decide`` decided. No policy lives here."""

    def __init__(
        self, reins: Reins, applier: Applier, status: StatusWriter, turns: Turns, hosts: Hosts
    ) -> None:
        self._reins, self._view = reins, reins.view
        self._applier, self._status, self._turns, self._hosts = applier, status, turns, hosts
        self._news = News(reins)
        self._pools: dict[str, PoolMemory] = {}
        settings = QueueSettings(workers_max=reins.settings.workers_max)
        self._queue: WorkQueue[str] = WorkQueue(LOOP, self._look, reins.ids, settings)
        self._view.on_pool_news(self._wake)

    async def run(self) -> None:
        """Look at pools until cancelled. The view must be synced."""
        assert self._view.synced, "a pool must not be looked at before everything was listed"
        with self._reins.health.watched(LOOP, _SILENT_MAX_S):
            for pool in self._view.pools():
                self._queue.add(pool.name)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick(), name="pools: tick")
                await self._queue.run()

    def _wake(self, pool: str) -> None:
        """Look soon, not at once: what comes in a burst is looked at once."""
        self._queue.add_after(pool, self._reins.settings.coalesce_s)

    async def _tick(self) -> None:
        """Beat through the queue itself: a beat beside it would say nothing about it."""
        while True:
            self._queue.add(_TICK)
            await self._reins.clock.sleep(_TICK_S)

    # --- One pass ----------------------------------------------------------------------------------------------------

    async def _look(self, name: str) -> timedelta | None:
        self._reins.health.beat(LOOP)
        if name == _TICK:
            return None
        if (pool := self._view.pool(name)) is None:
            self._forget(name)
            return None
        memory = self._pools.setdefault(name, PoolMemory())
        await self._settle(memory)
        if not await self._prepare(pool, memory):
            return _CONFLICT_RETRY
        turn = self._turn(name, memory)
        if turn is None:
            return None
        self._news.tell(turn, memory)
        errors = await self._carry_out(turn, memory)
        later = await self._status.write(turn.pool, turn.status)
        return self._next_look(turn, memory, errors, later)

    async def _settle(self, memory: PoolMemory) -> None:
        """Find out what became of writes that were not answered: to guess either way could do harm."""
        jobs = [partial(self._find_out, memory, before) for before in memory.doubts.values()]
        errors = await self._applier.all_of(jobs)
        if errors:
            raise errors[0]

    async def _find_out(self, memory: PoolMemory, before: Runner) -> None:
        namespace = self._reins.settings.namespace
        try:
            pod = await self._reins.kube.get(POD, before.name, namespace=namespace)
        except NotFound:
            self._reins.expectations.reaped(before, self._reins.clock.now())
        else:
            if pod.resource_version != before.version:
                self._reins.expectations.wrote(before, runner_of(pod))
        del memory.doubts[before.name]

    async def _prepare(self, pool: RunnerPool, memory: PoolMemory) -> bool:
        """
        See to it that a pool is held and its template known before anything is made or marked for it.

        Dispatch trusts a mark only together with the template hash in the status, so that comes first. Says whether
        it is done.
        """
        if pool.metadata.deletion_timestamp is not None:
            return True
        try:
            await self._hold(pool, memory)
        except (Conflict, NotFound):
            return False  # it changed under our hands
        template = self._turns.template(pool)
        pool = self._status.newest(pool)
        if isinstance(template, TemplateRefused) or pool.status.template_hash == template.hash:
            return True
        # What the old roll waited for, the new one does not.
        status = replace(pool.status, template_hash=template.hash, roll_waiting_since=None)
        await self._status.write(pool, status)
        return self._status.newest(pool).status.template_hash == template.hash

    async def _hold(self, pool: RunnerPool, memory: PoolMemory) -> None:
        wanted = self._reins.settings.guards.drain_finalizer
        seen = (pool.uid, pool.resource_version)
        if not wanted or POOL_DRAIN in pool.metadata.finalizers or memory.held == seen:
            return
        await self._applier.hold(pool)
        memory.held = seen

    def _turn(self, name: str, memory: PoolMemory) -> Turn | None:
        """Take the turn, on the pool as it is now. None if it changed so that it must be prepared first."""
        if (pool := self._view.pool(name)) is None:
            return None
        pool = self._status.newest(pool)
        template = self._turns.template(pool)
        wanted = "" if isinstance(template, TemplateRefused) else template.hash
        leaving = pool.metadata.deletion_timestamp is not None
        if wanted and not leaving and pool.status.template_hash != wanted:
            self._wake(name)
            return None
        memory.see((*self._view.runners(name), *self._reins.expectations.placeholders(name)))
        return self._turns.take(pool, memory.refusals(self._reins.clock.monotonic()))

    def _next_look(
        self, turn: Turn, memory: PoolMemory, errors: list[KubeError], later: timedelta | None
    ) -> timedelta:
        """Say when to look again; raise what the queue should back off for."""
        for error in errors:
            if not isinstance(error, Conflict):
                raise error
        settings = self._reins.settings
        waits = [timedelta(seconds=settings.look_again_s), later, turn.decision.look_again_after]
        if errors:
            waits.append(_CONFLICT_RETRY)
        if self._reins.expectations.placeholders(turn.pool.name):
            waits.append(timedelta(seconds=settings.confirm_after_s))
        waits += memory.waits(self._reins.clock.monotonic())
        return max(_SOONEST, min(wait for wait in waits if wait is not None))

    def _forget(self, name: str) -> None:
        self._pools.pop(name, None)
        self._status.forget(name)
        self._turns.forget(name)
        self._reins.expectations.forget(name)
        self._reins.metrics.forget(name)

    # --- Carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, turn: Turn, memory: PoolMemory) -> list[KubeError]:
        """Do everything, a bounded number at once. Removals first: what goes makes room for what comes."""
        jobs = [self._job(turn.pool, action, memory) for action in turn.actions]
        jobs += [self._create(turn.pool, creation, memory) for creation in turn.creations]
        jobs += self._follow_up(turn, memory)
        return await self._applier.all_of(jobs)

    def _job(self, pool: RunnerPool, action: Action, memory: PoolMemory) -> Job:
        match action:
            case ReapRunner(runner):
                reap = partial(self._reap, pool, action, memory)
                return partial(self._doubting, memory, runner, reap)
            case MarkRunner(runner):
                return partial(self._doubting, memory, runner, partial(self._applier.mark, action))
            case UnmarkRunner(runner):
                return partial(
                    self._doubting, memory, runner, partial(self._applier.unmark, action)
                )
            case ReleasePool(why):
                return partial(self._applier.release, pool, why)
            case CreateRunner():
                raise AssertionError("creations are reserved by name before they are carried out")
            case _:
                assert_never(action)

    async def _doubting(self, memory: PoolMemory, runner: Runner, write: Job) -> None:
        try:
            await write()
        except Unavailable:
            memory.doubts[runner.name] = runner
            raise

    async def _reap(self, pool: RunnerPool, action: ReapRunner, memory: PoolMemory) -> None:
        if action.cause is Cause.ENDED:
            self._note_end(pool.name, action, memory)
        await self._applier.reap(action, pool.name)
        if action.cause is Cause.START_TIMEOUT:
            self._hosts.start_failed(action.runner, self._reins.clock.now())

    def _note_end(self, pool: str, action: ReapRunner, memory: PoolMemory) -> None:
        """Take note of a runner that ended for nothing, so that the next ones are not made in a tight loop."""
        runner, pod = action.runner, self._view.pod(action.runner.name)
        if pod is None or pod.uid != runner.uid or not ended_for_nothing(pod):
            return
        newest = max((r.created_at for r in self._view.runners(pool)), default=runner.created_at)
        failed = Failed(runner.created_at, newest, action.why)
        now, fraction = self._reins.clock.monotonic(), self._reins.ids.fraction()
        memory.hold(runner.template).fail(failed, now, fraction)

    def _create(self, pool: RunnerPool, creation: Creation, memory: PoolMemory) -> Job:
        async def create() -> None:
            name, now = creation.placeholder.name, self._reins.clock.monotonic()
            hold = memory.hold(creation.placeholder.template)
            again = name in memory.unanswered
            if not again and now < hold.until:
                self._reins.expectations.absent(pool.name, name)
                return  # the server refused another one of this pass
            memory.unanswered[name] = creation
            try:
                pod = await self._applier.create(pool, name, creation.pod, again=again)
            except (Unavailable, Throttled):
                raise  # the same name is tried again: if it is there, it is this one
            except (Invalid, Refused) as error:
                del memory.unanswered[name]
                hold.refuse(str(error), now, self._reins.ids.fraction())
                log.warning("runner refused", pool=pool.name, runner=name, error=str(error))
                return
            except KubeError:
                del memory.unanswered[name]
                raise
            del memory.unanswered[name]
            hold.accept()
            log.info("runner made", runner=name, pool=pool.name, why=creation.why)
            if pod is not None:
                self._reins.expectations.wrote(creation.placeholder, runner_of(pod))

        return create

    def _follow_up(self, turn: Turn, memory: PoolMemory) -> list[Job]:
        """Return what earlier passes left open: creations without an answer, and runners that never showed."""
        pool = turn.pool
        waiting = {runner.name for runner in self._reins.expectations.placeholders(pool.name)}
        fresh = {creation.placeholder.name for creation in turn.creations}
        memory.unanswered = {n: c for n, c in memory.unanswered.items() if n in waiting}
        jobs: list[Job] = []
        if pool.metadata.deletion_timestamp is None:
            again = [c for n, c in sorted(memory.unanswered.items()) if n not in fresh]
            jobs += [self._create(pool, creation, memory) for creation in again]
            fresh |= set(memory.unanswered)
        now = self._reins.clock.now()
        older = now - timedelta(seconds=self._reins.settings.confirm_after_s)
        unseen = self._reins.expectations.unconfirmed(pool.name, older)
        jobs += [partial(self._confirm, pool.name, n) for n in sorted(unseen) if n not in fresh]
        return jobs

    async def _confirm(self, pool: str, name: str) -> None:
        """Ask the server about a runner that our view never showed. Only its word that there is none counts."""
        if not await self._applier.is_there(name, pool):
            self._reins.expectations.absent(pool, name)
            log.info("runner never came to be, or is gone", runner=name, pool=pool)
            self._wake(pool)  # its place is free: no news will tell
