"""
What is done for polls, each time as a task of its own: ask for a job and hand it over, or hand one over again.

A round outlives the poll that began it: it sees at its next step that nobody waits, and undoes itself. What was ready
when nobody waited any more is given back here. While a Pod has a round, its next poll waits for that to end.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.answers import AlreadyDelivered, ComeBack, Handed, Leave
from remuda.dispatch.attempt import CLIENT_GONE, UNDO_S, Attempt, Step, fresh_name, surely
from remuda.dispatch.decide.drain import unfit
from remuda.dispatch.decide.failures import merged
from remuda.dispatch.redelivery import SPENT, Redelivery
from remuda.ports.database import DatabaseError
from remuda.ports.jobs import ANYTHING, Claimed, Fence, NoJob, Release, WarmRunner, Without

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from remuda.dispatch.answers import Answer
    from remuda.dispatch.attempt import Undone, Workshop
    from remuda.dispatch.hub import Hub
    from remuda.dispatch.poll import Poll
    from remuda.kube.core import Pod
    from remuda.model.job import Claim, Job, LiveClaim
    from remuda.ports.jobs import NothingToDo

log = structlog.get_logger(__name__)

STOPPING: Final = "this server is stopping"
IN_USE_S: Final = 1.0
"""How long to wait before looking again at a Pod that another request is being served for."""
_BUSY_S: Final = 0.02
_CLEAR_S: Final = 0.5
_LATER_S: Final = 2.0
_HANDED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Ready:
    """A job that may be handed over, if its poll still wants it."""

    attempt: Attempt
    answer: Handed


class Rounds:
    """The rounds of this replica. ``open`` gives them a group to run in."""

    def __init__(self, shop: Workshop, hub: Hub) -> None:
        self._shop, self._views, self._hub = shop, shop.views, hub
        self._group: asyncio.TaskGroup | None = None
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._of_pod: dict[str, asyncio.Task[Any]] = {}
        self._handed: OrderedDict[str, None] = OrderedDict()

    @property
    def is_open(self) -> bool:
        return self._group is not None and not self._closed

    def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def close(self) -> None:
        """Begin nothing that is not stamped yet."""
        self._closed = True

    async def settled(self, *, within_s: float) -> None:
        """Wait until nothing is under way, at most for so long."""
        ends_at = self._shop.clock.monotonic() + within_s
        while self._tasks and (left_s := ends_at - self._shop.clock.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)

    def start(self, work: Coroutine[Any, Any, Any], *, of_pod: str = "") -> asyncio.Task[Any]:
        """Begin something that goes on whatever becomes of its poll."""
        assert self._group is not None, "the desk runs"
        task = self._group.create_task(_guarded(work), name=f"desk: round {of_pod}")
        self._tasks.add(task)
        if of_pod:
            self._of_pod[of_pod] = task

        def ended(_: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if self._of_pod.get(of_pod) is task:
                del self._of_pod[of_pod]

        task.add_done_callback(ended)
        return task

    def watch(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin something that ends with its poll."""
        assert self._group is not None, "the desk runs"
        return self._group.create_task(work, name="desk: watch")

    def await_older(self, poll: Poll) -> bool:
        """Say whether an earlier round of this Pod is under way; if so, the poll is told when it ends."""
        task = self._of_pod.get(poll.who.pod_uid)
        if task is not None:
            task.add_done_callback(lambda _: poll.bell.ring())
        return task is not None

    # --- One round for one poll --------------------------------------------------------------------------------------

    async def claim(self, poll: Poll, pod: Pod) -> Answer | None:
        """Ask for a job with the poll's turn, or without one, and hand it over. None: nothing came of it."""
        waiter = poll.waiter
        assert waiter is not None, "who asks stands in a line"
        by_turn = waiter.has_turn
        if by_turn:
            self._hub.begin(waiter)
        else:
            self._hub.step_out(waiter)
        poll.asks_now = False
        return await self._run(poll, self._claim(poll, pod, by_turn=by_turn))

    async def deliver(self, poll: Poll, pod: Pod, held: LiveClaim) -> Answer | None:
        """Hand a job over again."""
        return await self._run(poll, self._again(poll, pod, held))

    async def _run(
        self, poll: Poll, work: Coroutine[Any, Any, Answer | _Ready | None]
    ) -> Answer | None:
        task = self.start(work, of_pod=poll.who.pod_uid)
        task.add_done_callback(lambda _: poll.bell.ring())
        try:
            while not (task.done() or poll.abandoned):
                await poll.bell.wait()
        except asyncio.CancelledError:
            poll.dropped = True
            self._unwanted(task, poll.who.pod_uid)
            raise
        if poll.abandoned:
            self._unwanted(task, poll.who.pod_uid)
            return None
        if task.cancelled():
            return ComeBack(_LATER_S, STOPPING)
        return self._take(task.result())

    def _take(self, outcome: Answer | _Ready | None) -> Answer | None:
        if not isinstance(outcome, _Ready):
            return outcome
        job, now = outcome.answer.job, self._shop.clock.now()
        waited_s = (now - job.spec.queued_at).total_seconds()
        self._shop.metrics.handed(waited_s, again=isinstance(outcome.attempt, Redelivery))
        self._handed[outcome.attempt.claim.pod_uid] = None
        while len(self._handed) > _HANDED_MAX:
            self._handed.popitem(last=False)
        return outcome.answer

    def was_handed(self, pod_uid: str) -> bool:
        """Say whether a Pod was handed a job here lately: our view of it may not show that yet."""
        return pod_uid in self._handed

    def _unwanted(self, task: asyncio.Task[Any], of_pod: str) -> None:
        """Give back what a round has ready, or will have, for a poll that is over."""

        def give_back(done: asyncio.Task[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                return
            if isinstance(ready := done.result(), _Ready):
                self.start(ready.attempt.give_back(), of_pod=of_pod)

        if task.done():
            give_back(task)
        else:
            task.add_done_callback(give_back)

    def _over(self, poll: Poll) -> Callable[[Step], str | None]:
        def over(step: Step) -> str | None:
            if poll.abandoned:
                return CLIENT_GONE
            return STOPPING if self._closed and step is Step.CLAIMED else None

        return over

    # --- Asking for a job --------------------------------------------------------------------------------------------

    async def _claim(self, poll: Poll, pod: Pod, *, by_turn: bool) -> Answer | _Ready | None:
        hub, waiter = self._hub, poll.waiter
        assert waiter is not None, "as the poll was when this began"
        name = fresh_name(pod.name, self._shop.ids)
        runner = WarmRunner(pod.name, pod.uid, waiter.pool, name)
        passed_over = Without(tenants=self._shop.troubles.passed_over())
        try:
            answer = await self._shop.store.claim(runner, without=merged(poll.without, passed_over))
        except BaseException as error:
            if by_turn:
                hub.unasked(waiter, pass_on=not isinstance(error, DatabaseError))
            if not isinstance(error, DatabaseError):
                raise
            # The claim may have been made all the same.
            self.start(self._clear(runner), of_pod=poll.who.pod_uid)
            return ComeBack(_LATER_S, f"the queue cannot be read now: {error.why}")
        if not isinstance(answer, Claimed):
            return await self._no_job(poll, pod, answer, by_turn=by_turn)
        if by_turn:
            hub.won(waiter)
        over = self._over(poll)
        attempt = Attempt(
            self._shop, answer.job, answer.claim, pod, is_over=over, noted=runner.runner_name
        )
        outcome = await attempt.run()
        if isinstance(outcome, Handed):
            return _Ready(attempt, outcome)
        return self._undone(poll, outcome)

    def _undone(self, poll: Poll, outcome: Undone) -> Answer | None:
        assert poll.waiter is not None, "as the poll was when this began"
        poll.without = merged(poll.without, outcome.without)
        poll.tries += 1
        if outcome.leave is not None:
            return Leave(outcome.leave)
        if outcome.rest or poll.tries >= self._shop.settings.polls.attempts_max:
            self._hub.back(poll.waiter)
        else:
            poll.asks_now = True
        return None

    async def _no_job(
        self, poll: Poll, pod: Pod, answer: NothingToDo, *, by_turn: bool
    ) -> Answer | _Ready | None:
        hub, waiter = self._hub, poll.waiter
        assert waiter is not None, "as the poll was when this began"
        if answer.reason in {NoJob.POD_IN_USE, NoJob.POD_SPENT}:
            # Its place is of no use to it: the turn is the next one's.
            hub.leave(waiter)
            poll.waiter = None
            if by_turn:
                hub.unasked(waiter, pass_on=True)
            return await self._pod_taken(poll, pod, answer)
        if answer.reason in {NoJob.BUSY, NoJob.LOST_RACE}:
            await self._shop.clock.sleep(_BUSY_S * self._shop.ids.fraction())
            if by_turn:
                hub.unasked(waiter, pass_on=True)
            else:
                poll.asks_now = True
        elif by_turn:
            choosy = poll.without != ANYTHING and answer.reason is not NoJob.EMPTY
            hub.lost(waiter, for_others=choosy)
        else:
            hub.back(waiter)
        return None

    async def _pod_taken(self, poll: Poll, pod: Pod, answer: NothingToDo) -> Answer | _Ready | None:
        if answer.reason is NoJob.POD_SPENT:
            return Leave("it has had its one job")
        held = answer.held
        if held is None or held.claim.pod_uid != pod.uid or held.delivered_at is None:
            # Another request of it is being served, or was when its server died: that ends, or is found.
            await self._shop.clock.sleep(IN_USE_S)
            poll.asks_now = True
            return None
        return await self._again(poll, pod, held)

    async def _clear(self, runner: WarmRunner) -> None:
        """Release a claim that may have been made although nobody was told. Nothing was stamped or minted for it."""
        uid = runner.pod_uid

        async def clear() -> None:
            while True:
                await self._shop.clock.sleep(_CLEAR_S)
                try:
                    held = await self._views.claim_of(runner.pod)
                    if held and held.claim.pod_uid == uid and held.delivered_at is None:
                        why = "the answer to its claim was lost"
                        release = Release(by="dispatch", why=why, undelivered=True, runner_name="")
                        await self._shop.store.release(held.claim, release)
                    await self._shop.registrations.settle((runner.runner_name,))
                except DatabaseError as error:
                    log.info("nobody knows what a Pod holds yet", pod=runner.pod, error=str(error))
                else:
                    return

        await surely(clear, within_s=UNDO_S)

    # --- Handing over again ------------------------------------------------------------------------------------------

    async def _again(self, poll: Poll, pod: Pod, held: LiveClaim) -> Answer | _Ready | None:
        if (settled := self._settled(pod, held)) is not None:
            return settled
        try:
            job = await self._views.job(held.claim.job_id)
        except DatabaseError as error:
            return ComeBack(_LATER_S, f"nobody knows its job now: {error.why}")
        if job is None or job.state.over:
            return Leave(SPENT)
        return await self._redeliver(poll, pod, job, held.claim)

    async def _redeliver(
        self, poll: Poll, pod: Pod, job: Job, claim: Claim
    ) -> Answer | _Ready | None:
        redelivery = Redelivery(self._shop, job, claim, pod, is_over=self._over(poll))
        outcome = await redelivery.run()
        self.start(redelivery.forget_replaced())
        if isinstance(outcome, Handed):
            return _Ready(redelivery, outcome)
        if redelivery.fence is Fence.EXECUTING:
            return AlreadyDelivered(claim.job_id)
        if outcome.leave is not None:
            return Leave(outcome.leave)
        await self._shop.clock.sleep(_LATER_S)
        poll.checked = ""  # look again
        return None

    def _settled(self, pod: Pod, held: LiveClaim) -> Answer | None:
        """Return what needs no new job config: its job runs, or it is too late for one."""
        if held.executed_at is not None:
            return AlreadyDelivered(held.claim.job_id)
        if (reason := unfit(pod)) is not None:
            return Leave(reason)
        window = self._shop.settings.polls.delivery_window
        delivered_at = held.delivered_at
        late = delivered_at is not None and self._shop.clock.now() - delivered_at > window
        return Leave(SPENT) if late else None


async def _guarded(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever the work returns
    """Let a fault of ours in one round be that round's: what it left behind is found by the workers."""
    try:
        return await work
    except Exception:
        log.exception("round broke")
        return ComeBack(_LATER_S, "a fault of the server")
