"""
Leader election on a Lease: at most one process leads, and one that may have lost its Lease stops before it ends.

``decide`` is pure; ``LeaderElector`` carries it out. Clocks of different machines are never compared: another's Lease
is over when *we* have seen it unchanged for as long as it says it lasts. Our own reign is counted from the *start* of
the last renewal that succeeded, and ends ``renew_deadline_s`` later, well before others may take over.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

import structlog

from remuda.control.backoff import spread
from remuda.kube.core import LEASE, Lease, LeaseSpec
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.kube.times import micro_time
from remuda.model.errors import BadInput
from remuda.ports.kube import AlreadyExists, Conflict, KubeError, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.kube.patches import JsonValue
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

_TRIES_PER_REIGN = 3

STOP_S = 1.0
"""The least time between the end of our reign and that of our Lease: for requests that the network delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    namespace: str
    name: str
    identity: str
    """Who we are among the candidates. Never used twice: put something random into it."""

    lease_duration_s: int = 15
    """How long others wait without seeing a renewal before they take over."""

    renew_deadline_s: float = 10.0
    """How long after the start of our last renewal we stop acting. Shorter than the lease, by what stopping takes."""

    retry_s: float = 2.0
    """How often to renew, and how often to look whether the Lease is free."""

    def __post_init__(self) -> None:
        what = f"The settings of the election {self.namespace}/{self.name} cannot be used"
        if not self.identity:
            raise BadInput(
                what,
                why="an empty identity is what a free Lease has",
                fix="Give each candidate a name",
            )
        if not 0 < self.retry_s < self.renew_deadline_s <= self.lease_duration_s - STOP_S:
            raise BadInput(
                what,
                why=f"retry {self.retry_s:g} s, renew deadline {self.renew_deadline_s:g} s and lease "
                f"{self.lease_duration_s:g} s would let a leader act when another may lead already",
                fix=f"Keep 0 < retry < renew deadline, and that {STOP_S:g} s or more below the lease duration",
            )


@dataclass(frozen=True, slots=True)
class Observed:
    """What a Lease says, and when, on our own monotonic clock, we first saw it say so."""

    spec: LeaseSpec
    since: float


@dataclass(frozen=True, slots=True)
class Create:
    """There is no Lease yet."""


@dataclass(frozen=True, slots=True)
class Take:
    """The Lease is free, over, or ours from before."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Another one leads for at least this long."""

    seconds: float


Step = Create | Take | Wait


def decide(settings: ElectionSettings, observed: Observed | None, now: float) -> Step:
    """Say what a candidate does next. ``now`` is on the same clock as ``observed.since``."""
    if observed is None:
        return Create()
    holder = observed.spec.holder_identity
    if not holder:
        return Take("nobody holds it")
    if holder == settings.identity:
        return Take("it is ours already")  # a renewal that timed out here was applied there
    duration_s = observed.spec.lease_duration_seconds or settings.lease_duration_s
    left_s = observed.since + duration_s - now
    if left_s <= 0:
        return Take(f"{holder} has not renewed it for {duration_s} s")
    return Wait(min(left_s, settings.retry_s))


class LeaderElector:
    """Campaigns, leads, and campaigns again. Give it a Kube of its own: a busy one must not starve renewals."""

    def __init__(self, kube: Kube, settings: ElectionSettings, *, clock: Clock, ids: Ids) -> None:
        self._kube, self._clock, self._ids = kube, clock, ids
        self._settings = settings
        self._observed: Observed | None = None
        self._version = ""
        self._leads_until = float("-inf")
        self._doubts: dict[object, float] = {}
        self._transitions = 0
        self._trouble = ""

    @property
    def is_leader(self) -> bool:
        """Whether we may act now. Right even if the process was stopped for a while and its timers are late."""
        return self.left_s > 0

    @property
    def leads_until(self) -> float:
        """When we stop acting, if we cannot renew; on the monotonic clock."""
        return self._leads_until

    @property
    def left_s(self) -> float:
        return self._leads_until - self._clock.monotonic()

    def doubt(self, until: float) -> Callable[[], None]:
        """Do not give the Lease back before then, unless what is returned is called: a write may be carried out."""
        self._doubts = {write: end for write, end in self._doubts.items() if not self._is_over(end)}
        write = object()
        self._doubts[write] = until

        def settle() -> None:
            self._doubts.pop(write, None)

        return settle

    def _is_over(self, moment: float) -> bool:
        return moment <= self._clock.monotonic()

    @property
    def transitions(self) -> int:
        """How often the Lease has changed hands up to our reign: a number that only grows, to fence writes with."""
        return self._transitions

    @property
    def trouble(self) -> str:
        """Why the last try to lead came to nothing; empty if it did not, or if another one leads."""
        return self._trouble

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run ``lead`` whenever we are the leader, until cancelled. Then the Lease is given back at once."""
        while True:
            await self._campaign()
            log.info("leading", lease=self._settings.name, transitions=self._transitions)
            try:
                await self._reign(lead)
            finally:
                await self._step_down()

    async def _campaign(self) -> None:
        while not self.is_leader:
            wait_s, trouble = self._settings.retry_s, ""
            try:
                async with asyncio.timeout(self._settings.renew_deadline_s):
                    step = await self._look()
                    if isinstance(step, Wait):
                        wait_s = step.seconds
                    else:
                        await self._acquire(step)
            except (Conflict, AlreadyExists):
                pass  # another candidate was faster: look again soon
            except NotFound as error:
                # A Lease that went since we looked is free. One that cannot be made has no namespace to be in.
                trouble = str(error) if self._observed is None else ""
            except (KubeError, TimeoutError) as error:
                trouble = str(error) or "no answer in time"
            self._say(trouble)
            if not self.is_leader:
                await self._clock.sleep(spread(wait_s, self._ids.fraction()))

    def _say(self, trouble: str) -> None:
        """Log what keeps us from the election, once for as long as it is the same."""
        if trouble and trouble != self._trouble:
            log.warning("election failed", lease=self._settings.name, error=trouble)
        self._trouble = trouble

    async def _look(self) -> Step:
        try:
            lease = await self._kube.get(
                LEASE, self._settings.name, namespace=self._settings.namespace
            )
        except NotFound:
            self._observed = None
        else:
            self._see(lease)
        return decide(self._settings, self._observed, self._clock.monotonic())

    def _see(self, lease: Lease) -> None:
        self._version = lease.resource_version
        if self._observed is None or self._observed.spec != lease.spec:
            self._observed = Observed(lease.spec, self._clock.monotonic())

    async def _acquire(self, step: Create | Take) -> None:
        started = self._clock.monotonic()
        now = self._new_time()
        match step:
            case Create():
                lease = await self._kube.create(LEASE, self._first_lease(now))
            case Take(why):
                assert self._observed is not None
                log.info("taking the lease", lease=self._settings.name, why=why)
                lease = await self._write(
                    {
                        "holderIdentity": self._settings.identity,
                        "leaseDurationSeconds": self._settings.lease_duration_s,
                        "leaseTransitions": (self._observed.spec.lease_transitions or 0) + 1,
                        "acquireTime": now,
                        "renewTime": now,
                    }
                )
            case _:
                assert_never(step)
        self._see(lease)
        self._transitions = lease.spec.lease_transitions or 0
        self._leads_until = started + self._settings.renew_deadline_s

    def _new_time(self) -> str:
        """
        Return the time to write, never the one that the Lease holds already.

        A write that changes nothing is none, and others would see a leader that does not renew: a wall clock may
        stand still.
        """
        now = micro_time(self._clock.now())
        if self._observed is not None and self._observed.spec.renew_time == now:
            return micro_time(self._clock.now() + timedelta(microseconds=1))
        return now

    def _first_lease(self, now: str) -> Lease:
        return Lease(
            metadata=ObjectMeta(name=self._settings.name, namespace=self._settings.namespace),
            spec=LeaseSpec(
                holder_identity=self._settings.identity,
                lease_duration_seconds=self._settings.lease_duration_s,
                lease_transitions=1,
                acquire_time=now,
                renew_time=now,
            ),
        )

    async def _write(self, spec: dict[str, JsonValue]) -> Lease:
        """Patch the Lease, only if it is still as we saw it."""
        changes: dict[str, JsonValue] = {
            "metadata": {"resourceVersion": self._version},
            "spec": spec,
        }
        return await self._kube.patch(
            LEASE, self._settings.name, MergePatch(changes), namespace=self._settings.namespace
        )

    async def _reign(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Lead until the Lease is lost; return when the led work has ended."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(_led(lead), name=f"leading {self._settings.name}")
            await self._renew_while_possible()
            log.error("lost the lease", lease=self._settings.name)
            work.cancel()

    async def _renew_while_possible(self) -> None:
        while True:
            if not self.is_leader:
                return
            wait_s = spread(self._settings.retry_s, self._ids.fraction())
            await self._clock.sleep(min(wait_s, self.left_s))
            try:
                async with asyncio.timeout_at(self._renew_until()):
                    await self._renew()
            except (KubeError, TimeoutError) as error:
                log.warning(
                    "lease not renewed",
                    lease=self._settings.name,
                    error=str(error) or "no answer in time",
                )

    def _renew_until(self) -> float:
        """Leave time for another try: a connection that died unseen swallows one, and the next opens a new one."""
        one_try_s = self._settings.renew_deadline_s / _TRIES_PER_REIGN
        return min(self._leads_until, self._clock.monotonic() + one_try_s)

    async def _renew(self) -> None:
        started = self._clock.monotonic()
        try:
            lease = await self._write({"renewTime": self._new_time()})
        except Conflict:
            # Someone wrote it since. If that was our own write whose answer was lost, it is still ours.
            await self._look()
            if (
                self._observed is None
                or self._observed.spec.holder_identity != self._settings.identity
            ):
                self._leads_until = float("-inf")
            raise
        except NotFound:
            self._leads_until = float("-inf")  # deleted: anyone may create it and lead
            raise
        self._see(lease)
        self._leads_until = started + self._settings.renew_deadline_s

    async def _step_down(self) -> None:
        """Give the Lease back if it is still ours, so that the next leader need not wait it out."""
        still_ours = self.is_leader
        self._leads_until = float("-inf")
        if not still_ours:
            return
        if not all(map(self._is_over, self._doubts.values())):
            log.warning(
                "lease not released", lease=self._settings.name, error="a write is in doubt"
            )
            return
        try:
            async with asyncio.timeout(self._settings.retry_s):
                await self._write({"holderIdentity": None, "renewTime": self._new_time()})
        except (KubeError, TimeoutError) as error:
            log.warning(
                "lease not released",
                lease=self._settings.name,
                error=str(error) or "no answer in time",
            )


async def _led(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()
    raise RuntimeError("The led work ended by itself; it only ends by being cancelled")
