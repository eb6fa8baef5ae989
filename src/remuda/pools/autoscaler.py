"""
Carries out what ``decide.siblings`` and ``decide.autoscale`` decide: it asks dispatch, and writes ``spec.replicas``.

Every tick asks once per autoscaled pool, all at once, and decides for every pool on that one look. It writes nothing
but ``spec.replicas`` and the time of a drop, each only if the object is still what was seen: a person's edit wins.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.kube.times import whole_seconds
from remuda.pools.decide.autoscale import Memory, Scale, autoscale
from remuda.pools.decide.avoidance import host_seen
from remuda.pools.decide.siblings import FleetSeen, is_autoscaled, wanted_by_pool
from remuda.ports.dispatch import DispatchError
from remuda.ports.kube import Conflict, KubeError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.kube.patches import JsonValue
    from remuda.kube.runner_pool import RunnerPool
    from remuda.pools.decide.siblings import Wanted
    from remuda.pools.reins import Reins
    from remuda.ports.dispatch import Dispatch, Signals

log = structlog.get_logger(__name__)

LOOP = "autoscaler"
LIMIT_S = 60.0
"""Without a whole tick for so long, something hangs or fails again and again."""
_ASKED_AT_ONCE = 16
_ASK_ALL_S = 4.0
"""What has not answered by then is unknown: one slow answer must not delay the other pools' growth."""
_WRITE_S = 10.0
_NO_DISPATCH = "no dispatch server is configured (--dispatch-url)"


@dataclass(slots=True)
class _Kept:
    """What is remembered of one pool between ticks. It may be lost: the decisions then only hold."""

    memory: Memory = field(default_factory=Memory)
    holds_because: str = ""
    faults: tuple[str, ...] = ()


class Autoscaler:
    """One reign's autoscaler. ``run`` ticks until cancelled."""

    def __init__(self, reins: Reins) -> None:
        self._kube, self._dispatch = reins.kube.within(_WRITE_S), reins.dispatch
        self._view, self._settings = reins.view, reins.settings
        self._clock, self._metrics = reins.clock, reins.metrics
        self._events, self._health = reins.events, reins.health
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._silent_because = ""

    async def run(self) -> None:
        await self._view.wait_synced()
        if self._dispatch is None:
            log.warning("the autoscaler holds", why=_NO_DISPATCH)
        try:
            with self._health.watched(LOOP, LIMIT_S):
                while True:
                    await self._tick_and_sleep()
        finally:
            self._forget_all_but(())  # whoever leads next shows its own numbers

    async def _tick_and_sleep(self) -> None:
        next_at = self._clock.monotonic() + self._settings.autoscale_s
        try:
            await self.tick()
        except Exception:  # the loop's edge: pools must be kept up although this is broken
            log.exception("autoscaler tick failed")
        else:
            self._health.beat(LOOP)
        await self._clock.sleep(max(0.0, next_at - self._clock.monotonic()))

    async def tick(self) -> None:
        """Look once at all pools, and let each follow its demand."""
        pools = tuple(pool for pool in self._view.pools() if is_autoscaled(pool))
        self._forget_all_but(pools)
        if not pools:
            return
        answers = await self._ask_all(pools)
        nodes, now = self._view.nodes.all(), self._clock.now()
        seen = FleetSeen(
            pools=pools,
            signals=answers,
            nodes=nodes,
            runtime_classes={c.name: c for c in self._view.runtime_classes.all()},
            avoided=frozenset(n.name for n in nodes if host_seen(n).failing_since is not None),
        )
        wanted = wanted_by_pool(seen, now)
        async with asyncio.TaskGroup() as group:
            for pool in pools:
                self._metrics.scaling.demand(pool.name, answers[pool.name])
                follow = self._follow(pool, wanted[pool.name], now)
                group.create_task(follow, name=f"autoscale {pool.name}")

    # --- Asking ------------------------------------------------------------------------------------------------------

    async def _ask_all(self, pools: Iterable[RunnerPool]) -> dict[str, Signals | None]:
        answers: dict[str, Signals | None] = {pool.name: None for pool in pools}
        if self._dispatch is None:
            return answers
        at_once = asyncio.Semaphore(_ASKED_AT_ONCE)
        faults: list[str] = []

        async def ask(dispatch: Dispatch, name: str) -> None:
            try:
                async with at_once:
                    answers[name] = await dispatch.signals(name)
            except DispatchError as error:
                faults.append(str(error))

        try:
            async with asyncio.timeout(_ASK_ALL_S), asyncio.TaskGroup() as group:
                for name in answers:
                    group.create_task(ask(self._dispatch, name), name=f"signals of {name}")
        except TimeoutError:
            faults.append(f"not every pool's signals came within {_ASK_ALL_S:g} s")
        self._say_silence(min(faults, default=""))
        return answers

    def _say_silence(self, why: str) -> None:
        if why and why != self._silent_because:
            log.warning("demand is unknown", why=why)
        elif self._silent_because and not why:
            log.info("demand is known again")
        self._silent_because = why

    # --- Following ---------------------------------------------------------------------------------------------------

    async def _follow(self, pool: RunnerPool, want: Wanted, now: datetime) -> None:
        kept = self._kept.setdefault((pool.name, pool.uid), _Kept())
        self._metrics.scaling.wanted(pool.name, want)
        self._tell(pool, kept, want)
        if want.replicas is None:
            return
        step, kept.memory = autoscale(
            pool.spec.replicas,
            want.replicas,
            kept.memory,
            last_scale_down_at=pool.status.last_scale_down_at,
            cooldown=timedelta(seconds=pool.spec.autoscaling.scale_down_cooldown_seconds),
            now=now,
        )
        if isinstance(step, Scale):
            await self._scale(pool, step, want)

    async def _scale(self, pool: RunnerPool, step: Scale, want: Wanted) -> None:
        down = step.replicas < pool.spec.replicas
        try:
            written = await self._write(pool, step.replicas, down=down)
        except KubeError as error:  # whatever became of it, the next tick looks again
            log.warning("pool not scaled", pool=pool.name, error=str(error))
            return
        if not written:
            log.info("pool not scaled", pool=pool.name, why="its spec was changed meanwhile")
            return
        before = pool.spec.replicas
        said = f"replicas {before} to {step.replicas}: {step.why} ({want.why})"
        log.info("pool scaled", pool=pool.name, replicas=step.replicas, before=before, why=said)
        self._events.record(RUNNER_POOL, pool, "ScaledDown" if down else "ScaledUp", said)
        self._metrics.scaling.scaled(pool.name, "down" if down else "up")

    async def _write(self, pool: RunnerPool, replicas: int, *, down: bool) -> bool:
        """
        Write replicas if the spec is still the one that was seen. Returns whether they were written.

        On the way down the time is written first. A crash between the two, or an answer that is lost, then costs one
        cooldown of waiting; the other way around, whoever leads next would not know of the drop.
        """
        version = pool.resource_version
        if down:
            at = whole_seconds(self._clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ")
            noted = await self._patch(pool, version, {"status": {"lastScaleDownAt": at}}, "status")
            if noted is None:
                return False
            version = noted
        return await self._patch(pool, version, {"spec": {"replicas": replicas}}) is not None

    async def _patch(
        self,
        pool: RunnerPool,
        version: str,
        changes: dict[str, JsonValue],
        part: str = "",
    ) -> str | None:
        """
        Patch, on condition of the version. Returns the new one, None if the spec is another one by now.

        The status changes all the time while runners come and go, and a change of it is no reason to give way. So
        after a conflict the object is looked at afresh, and if its spec is the same, the patch is sent once more.
        """
        try:
            return await self._patch_once(pool, version, changes, part)
        except Conflict:
            try:
                fresh = await self._kube.get(RUNNER_POOL, pool.name, namespace=pool.namespace)
            except NotFound:
                return None
        if (fresh.uid, fresh.metadata.generation) != (pool.uid, pool.metadata.generation):
            return None
        try:
            return await self._patch_once(pool, fresh.resource_version, changes, part)
        except (Conflict, NotFound):
            return None

    async def _patch_once(
        self, pool: RunnerPool, version: str, changes: dict[str, JsonValue], part: str
    ) -> str:
        conditional = MergePatch({"metadata": {"resourceVersion": version}, **changes})
        answer = await self._kube.patch(
            RUNNER_POOL, pool.name, conditional, namespace=pool.namespace, subresource=part
        )
        return answer.resource_version

    # --- Telling -----------------------------------------------------------------------------------------------------

    def _tell(self, pool: RunnerPool, kept: _Kept, want: Wanted) -> None:
        """Say what stands in the way, when it begins to: Events are written, and at rest nothing is."""
        holds_because = want.why if want.replicas is None else ""
        if holds_because and holds_because != kept.holds_because:
            because = _NO_DISPATCH if self._dispatch is None else self._silent_because
            said = f"replicas stay at {pool.spec.replicas}: {holds_because}"
            said += f" ({because})" if because else ""
            self._events.record(RUNNER_POOL, pool, "AutoscalerHolds", said, warning=True)
        kept.holds_because = holds_because
        for fault in want.faults:
            if fault not in kept.faults:
                said = f"{fault}. The schedule is left out"
                self._events.record(RUNNER_POOL, pool, "BadSchedule", said, warning=True)
        kept.faults = want.faults

    def _forget_all_but(self, pools: Iterable[RunnerPool]) -> None:
        staying = {(pool.name, pool.uid) for pool in pools}
        names = {name for name, _ in staying}
        for name, uid in [key for key in self._kept if key not in staying]:
            del self._kept[name, uid]
            if name not in names:
                self._metrics.scaling.forget(name)
