"""
One job on its way to one Pod: stamp, mint, mark running. What fails half-way is undone.

The order is what keeps jobs: the Pod is the owner's before anything is minted, the runner's name is written down before
the forge is asked (with the claim), and the job runs in our books before anybody gets it. Undoing goes by handles only.
First the claim is released: after that nobody can hand this job to this Pod. Then the stamp and the registration go.
What cannot be undone now (a database or an API server that does not answer) is left to the workers, who find it by
listing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.answers import Handed
from remuda.dispatch.decide.failures import hold_of, judge
from remuda.dispatch.decide.labels import runner_labels
from remuda.dispatch.stamps import NotStamped
from remuda.dispatch.troubles import KUBE
from remuda.model.errors import RemudaError
from remuda.model.job import Kind
from remuda.ports.database import DatabaseError
from remuda.ports.forge import ForgeError, ForgeUnavailable, NewRunner, Removal
from remuda.ports.jobs import ANYTHING, Fence, Release, Released, Stale, Without
from remuda.ports.registrations import registration_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.settings import DispatchSettings
    from remuda.dispatch.stamps import Stamps
    from remuda.dispatch.troubles import Troubles
    from remuda.dispatch.view import DispatchView
    from remuda.kube.core import Pod
    from remuda.model.job import Claim, Job
    from remuda.ports.clock import Clock
    from remuda.ports.forge import Forge, Minted
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore, Running
    from remuda.ports.registrations import Registration, Registrations

log = structlog.get_logger(__name__)

UNDO_S: Final = 15.0
"""How long undoing may take; then it is left to the workers."""
_RETRY_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
_POD_CHARS: Final = 55
"""Of a runner's name: it has 64, and nine are for what makes it unique."""
_SURELY_TRIES = 3
CLIENT_GONE = "the runner stopped waiting before it was answered"


class Step(StrEnum):
    """What was done last. Between any two of these a process can die."""

    CLAIMED = "claimed"
    STAMPED = "stamped"
    NOTED = "noted"
    MINTED = "minted"
    RUNNING = "running"
    ANSWERED = "answered"


async def nothing(step: Step) -> None:
    """Let an attempt go on. Tests stop, break or kill it here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What attempts work with, the same for all of them."""

    store: JobStore
    views: JobViews
    registrations: Registrations
    forges: Mapping[Kind, Forge]
    stamps: Stamps
    view: DispatchView
    troubles: Troubles
    settings: DispatchSettings
    metrics: DispatchMetrics
    clock: Clock
    ids: Ids
    reached: Callable[[Step], Awaitable[None]] = nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """Nothing was handed over, and all of it was taken back as far as that is possible now."""

    why: str
    without: Without = ANYTHING
    """What the same poll must not be given again."""
    leave: str | None = None
    """Why the runner goes home."""
    rest: bool = False
    """The next job would fare no better: do not ask for it at once."""
    hold: timedelta | None = None
    """How long no Pod is given the job."""


class Undo(Exception):
    """Ends an attempt."""

    def __init__(self, outcome: Undone) -> None:
        super().__init__(outcome.why)
        self.outcome = outcome


class Attempt:
    """One claim. ``run`` either hands it over or undoes it; ``give_back`` undoes what was not answered after all."""

    def __init__(
        self,
        shop: Workshop,
        job: Job,
        claim: Claim,
        pod: Pod,
        *,
        is_over: Callable[[Step], str | None],
        noted: str = "",
    ) -> None:
        """Begin with a claim. ``noted``: the name that it wrote down for its runner."""
        self.shop, self.job, self.claim, self.pod = shop, job, claim, pod
        self._is_over = is_over
        """Says why the attempt must not go on, if so: its client is gone, or we are stopping."""
        self._began = shop.clock.monotonic()
        self.runner_name = noted or fresh_name(pod.name, shop.ids)
        self._touched = self._stamped = False
        """Whether the Pod may carry our stamp, and whether it does."""
        self._marked = False
        """Whether our books may say that the job runs."""
        self._released: Released | Stale | None = None
        self.noted = registration_of(job, pod.name, noted) if noted else None
        """What may have to be removed at the forge."""
        self._registered: bool | None = False
        """Whether the forge knows the runner; None: nobody knows."""

    # --- There -------------------------------------------------------------------------------------------------------

    async def run(self) -> Handed | Undone:
        try:
            async with asyncio.timeout(self.shop.settings.polls.attempt_s):
                return await self._steps()
        except Undo as undo:
            outcome = undo.outcome
        except TimeoutError:
            outcome = self._too_slow()
        except RemudaError as error:  # the database, in the middle of it
            log.warning("attempt failed", job=self.job.spec.id, pod=self.pod.name, error=str(error))
            outcome = Undone(why=str(error), rest=True)
        except Exception:
            log.exception("attempt broke", job=self.job.spec.id, pod=self.pod.name)
            hold = hold_of(self.job, self.shop.settings.polls)
            outcome = Undone(why="a fault of ours", rest=True, hold=hold)
        except asyncio.CancelledError:
            await self.undo(Undone(why="dispatch is stopping"))
            raise
        await self.undo(outcome)
        return outcome

    async def _steps(self) -> Handed:
        await self.at(Step.CLAIMED)
        kind = self.job.spec.kind
        if kind not in self.shop.forges:
            raise self._no_forge(kind)
        if not self.shop.troubles.begin(kind):
            raise self._outage(self.shop.troubles.pause_s(kind), f"{kind} is out of order")
        try:
            await self.stamp()
            minted = await self.mint()
        finally:
            self.shop.troubles.end(kind)
        running = await self.commit()
        await self.at(Step.RUNNING)
        return Handed(running.job, self.runner_name, minted)

    async def commit(self) -> Running:
        """Write down that the job runs. A handle that is old hands nothing out."""
        self._marked = True
        answer = await self.shop.store.mark_running(
            self.claim, self.runner_name, registered=self.registered, job=self.job
        )
        if isinstance(answer, Stale):
            self._marked = False
            why = f"its claim does not stand any more: {answer.why}"
            raise Undo(Undone(why=why, without=self._this_job()))
        return answer

    async def at(self, step: Step) -> None:
        """Come to a step, and go no further if nobody waits for it any more."""
        await self.shop.reached(step)
        if (why := self._is_over(step)) is not None:
            raise Undo(Undone(why=why, rest=True))

    async def stamp(self) -> None:
        shop = self.shop
        if not shop.troubles.begin(KUBE):
            raise self._outage(shop.troubles.pause_s(KUBE), "the API server is out of order")
        try:
            self._touched = True
            tenant = self.job.spec.tenant
            stamped = await shop.stamps.stamp(self.pod, self.claim, tenant, stands=self._stands)
            if isinstance(stamped, NotStamped):
                raise self._not_stamped(stamped)
            shop.troubles.worked(KUBE)
        finally:
            shop.troubles.end(KUBE)
        self.pod, self._stamped = stamped, True
        await self.at(Step.STAMPED)

    async def _stands(self) -> bool:
        """Ask the books whether the Pod is still ours. The job of a claim may change; its token does not."""
        live = await self.shop.views.claim_of(self.claim.pod)
        ours = (self.claim.pod_uid, self.claim.claimed_at)
        return live is not None and (live.claim.pod_uid, live.claim.claimed_at) == ours

    def _not_stamped(self, why: NotStamped) -> Undo:
        if why.unreachable:
            self.shop.troubles.failed(KUBE)
            return Undo(Undone(why=why.why, rest=True))
        if why.leave:
            return Undo(Undone(why=why.why, leave=why.leave))
        if why.final:
            hold = hold_of(self.job, self.shop.settings.polls)
            return Undo(Undone(why=why.why, without=self._this_job(), hold=hold))
        return Undo(Undone(why=why.why, rest=True))

    async def mint(self) -> Minted:
        """
        Have the runner registered, once it is written down: its claim did that, if it was not the second delivery's.

        What the forge calls it is written down with ``commit``.
        """
        noted = self.noted
        if noted is None:
            self.noted = noted = registration_of(self.job, self.pod.name, self.runner_name)
            if noted.kind is not Kind.LOCAL:  # which registers nobody
                await self.shop.registrations.note(noted)
        await self.at(Step.NOTED)
        minted = await self._ask_forge()
        if minted.registration is not None:
            given = minted.registration
            self.noted = replace(noted, scope=given.scope, number=given.number)
        self._registered = minted.registration is not None
        await self.at(Step.MINTED)
        return minted

    @property
    def registered(self) -> Registration | None:
        """What the forge calls the runner, if it registered one."""
        return self.noted if self._registered else None

    async def _ask_forge(self) -> Minted:
        shop, spec, began = self.shop, self.job.spec, self.shop.clock.monotonic()
        pool = shop.view.pool(spec.pool)
        labels = spec.labels if pool is None else runner_labels(spec, pool)
        runner = NewRunner(name=self.runner_name, labels=labels, os=spec.os, pool=spec.pool)
        self._registered = None
        try:
            minted = await shop.forges[spec.kind].mint(spec, runner)
        except ForgeError as error:
            raise self._judged(error, shop.clock.monotonic() - began) from None
        shop.metrics.minted(shop.clock.monotonic() - began)
        shop.troubles.worked(spec.kind)
        return minted

    def _judged(self, error: ForgeError, took_s: float) -> Undo:
        shop, spec = self.shop, self.job.spec
        judgement = judge(error, self.job, shop.settings.polls)
        log.warning("no runner registered", job=spec.id, outcome=judgement.word, error=str(error))
        shop.metrics.minted(took_s, judgement.word)
        self._registered = judgement.registered
        if judgement.outage:
            shop.troubles.failed(spec.kind)
        else:
            shop.troubles.worked(spec.kind)  # it answered
        if judgement.pass_over_s:
            shop.troubles.pass_over(spec.tenant, judgement.pass_over_s)
        return Undo(
            Undone(why=str(error), without=judgement.without, hold=judgement.hold),
        )

    def _no_forge(self, kind: Kind) -> Undo:
        """Another replica may have the forge, or had it when the job came: here nobody can run it."""
        why = f"no forge of kind {kind} is configured here"
        log.warning(
            "job put back", job=self.job.spec.id, why=why, fix="Configure it, or cancel the job"
        )
        hold = hold_of(self.job, self.shop.settings.polls)
        return Undo(Undone(why=why, without=self._this_job(), hold=hold))

    def _outage(self, pause_s: float, why: str) -> Undo:
        """Put a job back without touching the Pod: an outage must not stamp and un-stamp the whole warm pool."""
        return Undo(Undone(why=why, rest=True, hold=timedelta(seconds=pause_s)))

    def _too_slow(self) -> Undone:
        within_s = self.shop.settings.polls.attempt_s
        why = f"it took longer than {within_s:g} s"
        if self._touched and not self._stamped:
            self.shop.troubles.failed(KUBE)
        if self._registered is None:
            slow = ForgeUnavailable("No runner was registered", why=why, fix="Try again")
            return self._judged(slow, self.shop.clock.monotonic() - self._began).outcome
        return Undone(why=why, rest=True)

    def _this_job(self) -> Without:
        return Without(jobs=frozenset({self.job.spec.id}))

    # --- And back ----------------------------------------------------------------------------------------------------

    async def give_back(self) -> None:
        """Undo what was ready to be handed over when the client had gone: it never got it."""
        await self.undo(Undone(why=CLIENT_GONE))

    async def undo(self, outcome: Undone) -> None:
        """Take everything back that was done so far. Cancelled or not, this comes to its end, within bounds."""
        log.info("job taken back", job=self.job.spec.id, pod=self.pod.name, why=outcome.why)
        await surely(lambda: self.take_back(outcome), within_s=UNDO_S)

    async def take_back(self, outcome: Undone) -> None:
        if self._released is None:
            self._released = await self._release(outcome)
        if self._touched and _stands_no_more(self._released):
            self._touched = not await self.shop.stamps.unstamp(self.claim)
        await self.unregister()

    async def _release(self, outcome: Undone) -> Released | Stale:
        held_until = None if outcome.hold is None else self.shop.clock.now() + outcome.hold
        release = Release(
            by="dispatch",
            why=outcome.why,
            undelivered=True,
            runner_name=self.runner_name if self._marked else "",
            hold_until=held_until,
        )
        answer = await self._insist(release)
        if self._marked and answer == Stale(Fence.DELIVERED):
            # Whether it was marked running is unknown: then it was not, unless another attempt was.
            answer = await self._insist(replace(release, runner_name=""))
        return answer

    async def _insist(self, release: Release) -> Released | Stale:
        """Release, and try again while the database does not answer: ``undo`` says for how long."""
        waits = iter(_RETRY_S)
        while True:
            try:
                return await self.shop.store.release(self.claim, release)
            except DatabaseError as error:
                log.warning("claim not released yet", job=self.job.spec.id, error=str(error))
                await self.shop.clock.sleep(next(waits, _RETRY_S[-1]))

    async def unregister(self) -> None:
        """Remove the runner at its forge, if it may be there. What stays unknown stays written down."""
        if (noted := self.noted) is None or noted.kind is Kind.LOCAL:
            return
        try:
            if self._registered is not False:
                removal = await self._remove(noted)
                # A mint that was not answered may still be on its way.
                sure = removal is Removal.GONE and self._registered is True
                if not sure and removal is not Removal.REMOVED:
                    return
            await self.shop.registrations.settle((noted.runner_name,))
        except RemudaError as error:
            log.info("registration left to the worker", runner=noted.runner_name, error=str(error))
        else:
            self.noted = None

    async def _remove(self, noted: Registration) -> Removal:
        try:
            return await self.shop.forges[noted.kind].remove(noted)
        except ForgeError:
            if noted.number is not None:  # the worker removes it by that
                await self.shop.registrations.note(noted)
            raise


def fresh_name(pod: str, ids: Ids) -> str:
    """Return a name for a Pod's runner that no forge has ever heard."""
    return f"{pod[:_POD_CHARS]}-{ids.secret(4).hex()}"


def _stands_no_more(released: Released | Stale) -> bool:
    """Say whether the claim is gone for certain. Else another attempt has the Pod, and the stamp is its."""
    return isinstance(released, Released) or released.why in {Fence.GONE, Fence.OVER}


async def surely(work: Callable[[], Awaitable[None]], *, within_s: float) -> None:
    """Do something to its end even if we are cancelled meanwhile, at most for so long. It may be begun again."""
    task = asyncio.current_task()
    assert task is not None
    cancelled = False
    for _ in range(_SURELY_TRIES):
        try:
            async with asyncio.timeout(within_s):
                await work()
            break
        except TimeoutError:
            log.warning("left to the workers", why=f"not undone within {within_s:g} s")
            break
        except Exception:
            log.exception("left to the workers")
            break
        except asyncio.CancelledError:
            cancelled = True
            task.uncancel()
    if cancelled:
        raise asyncio.CancelledError
