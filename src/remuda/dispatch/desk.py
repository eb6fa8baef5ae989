"""
Where runners ask for a job. A poll waits in its pool's line, and is answered once, or undone.

The order for each: may this Pod have a job at all, does it hold one already, is there one for it. Whatever touches the
world for a poll is a round of its own, in the desk's own group of tasks: a poll that ends early (its client is gone, it
was cancelled) ends at once, and its round sees that at the next step and takes everything back. One Pod has one poll;
an older one ends with nothing. No HTTP is here, and every wait is on the running loop's clock.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.answers import (
    AlreadyDelivered,
    ComeBack,
    Handed,
    Leave,
    NothingYet,
    Refused,
)
from remuda.dispatch.attempt import Step, Workshop, nothing
from remuda.dispatch.decide import drain
from remuda.dispatch.hub import Gone, Hub
from remuda.dispatch.poll import Poll
from remuda.dispatch.rounds import STOPPING, Rounds
from remuda.dispatch.stamps import CALL_S, claimed_at
from remuda.dispatch.troubles import KUBE, Troubles
from remuda.kube.core import POD, Pod
from remuda.kube.names import CLAIM, OWNER, POOL
from remuda.model.job import LiveClaim
from remuda.ports.database import DatabaseError
from remuda.ports.kube import KubeError, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from remuda.control.cache import Key
    from remuda.dispatch.answers import Answer
    from remuda.dispatch.hub import Bell
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.settings import DispatchSettings
    from remuda.dispatch.stamps import Stamps
    from remuda.dispatch.view import DispatchView
    from remuda.dispatch.who import RunnerIdentity
    from remuda.model.job import Kind
    from remuda.ports.clock import Clock
    from remuda.ports.forge import Forge
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.kube import Kube
    from remuda.ports.registrations import Registrations
    from remuda.ports.wakeups import Wakeups

log = structlog.get_logger(__name__)

RETRY_S: Final = 2.0
"""When a runner that cannot be served now is asked to come again."""
_PROOF = "Show the token of a Pod that lives"


@dataclass(kw_only=True, eq=False)
class Desk:
    """``run`` serves; ``poll`` asks; ``close`` takes no more polls and finishes what is past the stamp."""

    kube: Kube
    store: JobStore
    views: JobViews
    view: DispatchView
    stamps: Stamps
    registrations: Registrations
    wakeups: Wakeups
    forges: Mapping[Kind, Forge]
    settings: DispatchSettings
    metrics: DispatchMetrics
    clock: Clock
    ids: Ids
    reached: Callable[[Step], Awaitable[None]] = nothing

    def __post_init__(self) -> None:
        polls = self.settings.polls
        self._troubles = Troubles(polls, self.clock, self.ids)
        self.hub = Hub(
            self.views, self.wakeups, beat_s=polls.beat_s, clock=self.clock, ids=self.ids
        )
        shop = Workshop(
            store=self.store,
            views=self.views,
            registrations=self.registrations,
            forges=self.forges,
            stamps=self.stamps,
            view=self.view,
            troubles=self._troubles,
            settings=self.settings,
            metrics=self.metrics,
            clock=self.clock,
            ids=self.ids,
            reached=self.reached,
        )
        self._rounds = Rounds(shop, self.hub)
        self._pods = self.kube.within(CALL_S)
        self._polls: dict[str, Poll] = {}
        self._closed = False
        self.view.pods.on_change(self._pod_changed)
        self.view.runner_pools.on_change(self._pool_changed)

    # --- Serving -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled; then finish what is past the stamp, undo the rest, within ``shutdown_s``."""
        async with asyncio.TaskGroup() as group:
            self._rounds.open(group)
            try:
                await self.hub.run()
            finally:
                self.close()
                await self._rounds.settled(within_s=self.settings.shutdown_s)

    def close(self) -> None:
        """Take no more polls, and end those that wait. What is past the stamp goes on."""
        self._closed = True
        self._rounds.close()
        for poll in self._polls.values():
            poll.bell.ring()

    async def settled(self) -> None:
        """Wait until nothing is under way, at most for ``shutdown_s``. For after ``close``."""
        await self._rounds.settled(within_s=self.settings.shutdown_s)

    async def poll(self, who: RunnerIdentity, *, wait_s: float, gone: asyncio.Event) -> Answer:
        """Answer a runner's Pod. ``gone``: its client went away, so nothing may be handed over any more."""
        if self._closed or not self._rounds.is_open:
            return self._counted(ComeBack(self._retry_s(), STOPPING))
        if len(self._polls) >= self.settings.polls.polls_max:
            return self._counted(ComeBack(self._retry_s(), "too many runners wait here", 429))
        poll = Poll(who, self.clock.monotonic() + wait_s, gone)
        poll.asks_now = self._rounds.was_handed(who.pod_uid)
        self._supersede(poll)
        self.metrics.polls_waiting.inc()
        watched = self._watch(gone, poll.bell)
        try:
            answer = await self._answer(poll)
        except BaseException:
            poll.dropped = True
            raise
        finally:
            self.metrics.polls_waiting.dec()
            self._end(poll, watched)
        # Between here and the caller nothing else runs: what is handed over is wanted.
        return self._counted(answer, client_gone=gone.is_set())

    async def answered(self, handed: Handed) -> None:
        """Note that a job's answer was written to its client."""
        del handed
        await self.reached(Step.ANSWERED)

    def _supersede(self, poll: Poll) -> None:
        older = self._polls.get(poll.who.pod_uid)
        if older is not None:
            older.superseded = True
            older.bell.ring()
        self._polls[poll.who.pod_uid] = poll

    def _watch(self, gone: asyncio.Event, bell: Bell) -> asyncio.Task[None] | None:
        if isinstance(gone, Gone):
            gone.bell = bell
            return None

        async def watch() -> None:
            await gone.wait()
            bell.ring()

        return self._rounds.watch(watch())

    def _end(self, poll: Poll, watched: asyncio.Task[None] | None) -> None:
        if watched is not None:
            watched.cancel()
        if isinstance(poll.gone, Gone):
            poll.gone.bell = None
        if self._polls.get(poll.who.pod_uid) is poll:
            del self._polls[poll.who.pod_uid]
        if poll.waiter is not None:
            self.hub.leave(poll.waiter)

    # --- One poll ----------------------------------------------------------------------------------------------------

    async def _answer(self, poll: Poll) -> Answer:
        while (end := self._ended(poll)) is None:
            poll.looked = True
            if self._rounds.await_older(poll):
                await poll.bell.wait(poll.until)
                continue
            seen = await self._look(poll)
            if isinstance(seen, Pod):
                seen = await self._ask_or_wait(poll, seen)
            if seen is not None:
                return seen
        return end

    async def _ask_or_wait(self, poll: Poll, pod: Pod) -> Answer | None:
        if self._may_ask(poll):
            return await self._rounds.claim(poll, pod)
        await poll.bell.wait(poll.until)
        return None

    def _ended(self, poll: Poll) -> Answer | None:
        if poll.abandoned:
            return NothingYet()
        if self._closed:
            return ComeBack(self._retry_s(), STOPPING)
        late = poll.looked and self.clock.monotonic() >= poll.until
        return NothingYet() if late else None

    def _may_ask(self, poll: Poll) -> bool:
        """Say whether to ask the database: it has a turn or another reason, and a Pod can be stamped at all."""
        waiter = poll.waiter
        if waiter is None or not (waiter.has_turn or poll.asks_now):
            return False
        if self._troubles.pause_s(KUBE) <= 0:
            return True
        if waiter.has_turn:
            self.hub.begin(waiter)
            self.hub.unasked(waiter, pass_on=False)
        elif poll.asks_now:
            self.hub.back(waiter)
        poll.asks_now = False
        return False

    async def _look(self, poll: Poll) -> Pod | Answer | None:
        """Look at the Pod: who it is, whether it may stay, whether it holds a job. None: look again at once."""
        try:
            pod = await self._live_pod(poll)
        except KubeError as error:
            return ComeBack(self._retry_s(), f"nobody knows the Pod now: {error.why}")
        if pod is None:
            return Refused(401, "the Pod that its token is bound to is gone", _PROOF)
        pool = pod.labels.get(POOL, "")
        verdict = drain.drain(pod, self.view.pool(pool) if pool else None)
        if isinstance(verdict, drain.Leave) or OWNER in pod.labels:
            held = await self._in_books(poll, pod)
            if isinstance(held, LiveClaim):
                return await self._rounds.deliver(poll, pod, held)
            if held is not None:
                return held
        match verdict:
            case drain.Leave(reason):
                return Leave(reason)
            case drain.Serve() if pool and _may_be_stamped(pod):
                self._stand(poll, pool)
            case _:
                self._stand_aside(poll)
        return pod

    async def _in_books(self, poll: Poll, pod: Pod) -> LiveClaim | Answer | None:
        """
        Look whether a Pod that is to go, or that carries a stamp, holds a job: one that runs is never sent home.

        The books are looked at once for each version of the Pod.
        """
        if poll.checked == pod.resource_version:
            return None
        try:
            held = await self.views.claim_of(pod.name)
        except DatabaseError as error:
            return ComeBack(self._retry_s(), f"nobody knows what the Pod holds: {error.why}")
        poll.checked = pod.resource_version
        # A stamp that no claim stands behind: the Pod may have had its job, and only a claim tells that.
        poll.asks_now = held is None
        if held is None or held.claim.pod_uid != pod.uid or held.delivered_at is None:
            return None
        return held

    async def _live_pod(self, poll: Poll) -> Pod | None:
        """Return the Pod that asks. Our view may be behind, so that it is gone is for the server to say."""
        pod = self.view.pod(poll.who.pod)
        if pod is None or pod.uid != poll.who.pod_uid:
            try:
                namespace = self.settings.namespace
                pod = await self._pods.get(POD, poll.who.pod, namespace=namespace)
            except NotFound:
                return None
        return pod if pod.uid == poll.who.pod_uid else None

    def _stand(self, poll: Poll, pool: str) -> None:
        if poll.waiter is not None and poll.waiter.pool != pool:
            self._stand_aside(poll)
        if poll.waiter is None:
            poll.waiter = self.hub.join(pool, poll.bell)

    def _stand_aside(self, poll: Poll) -> None:
        poll.asks_now = False
        if poll.waiter is not None:
            self.hub.leave(poll.waiter)
            poll.waiter = None

    # --- News --------------------------------------------------------------------------------------------------------

    def _pod_changed(self, key: Key) -> None:
        """Have a waiting poll look at its Pod again: it may have been asked to drain."""
        pod = self.view.pods.get(key.name, namespace=key.namespace)
        poll = None if pod is None else self._polls.get(pod.uid)
        if poll is not None:
            poll.bell.ring()

    def _pool_changed(self, key: Key) -> None:
        for pod in self.view.pods_of(key.name):
            if (poll := self._polls.get(pod.uid)) is not None:
                poll.bell.ring()

    # --- Words -------------------------------------------------------------------------------------------------------

    def _retry_s(self) -> float:
        return RETRY_S * (0.5 + self.ids.fraction())

    def _counted(self, answer: Answer, *, client_gone: bool = False) -> Answer:
        self.metrics.polled("client_gone" if client_gone else _WORDS[type(answer)])
        return answer


_WORDS: Final[dict[type, str]] = {
    Handed: "handed",
    NothingYet: "nothing",
    Leave: "left",
    AlreadyDelivered: "already_delivered",
    Refused: "refused",
    ComeBack: "come_back",
}


def _may_be_stamped(pod: Pod) -> bool:
    """Say whether a Pod has no owner, or one that a claim of ours put there: another's is not replaced."""
    return (
        OWNER not in pod.labels or claimed_at(pod.metadata.annotations.get(CLAIM, "")) is not None
    )
