"""The autoscaler's shell on virtual time: the real client and control plane in memory, and a dispatch that is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.health import Health
from remuda.kube.core import EVENT, NODE, Event, Node, NodeStatus
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import FLEET, STARTS_FAILING, VM
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pod import PodSettings
from remuda.kube.runner_pool import RUNNER_POOL, Autoscaling, RunnerPool, Schedule
from remuda.pools.autoscaler import LIMIT_S, Autoscaler
from remuda.pools.expectations import Expectations
from remuda.pools.metrics import PoolMetrics
from remuda.pools.reins import Reins
from remuda.pools.settings import PoolSettings
from remuda.pools.view import FleetView
from remuda.ports.dispatch import DispatchError, Signals, Stopped
from remuda.sim.clock import EPOCH, SimClock
from remuda.sim.fleet.furnish import a_pool, furnish
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.ports.wire import Request, Response, Wire, WireStream

COOLDOWN_S = 60


class ToldDispatch:
    """Answers what the test says; a pool that is not named has no answer."""

    def __init__(self) -> None:
        self.of: dict[str, Signals] = {}
        self.asked: list[str] = []
        self.hangs: set[str] = set()

    async def signals(self, pool: str) -> Signals:
        self.asked.append(pool)
        if pool in self.hangs:
            await asyncio.sleep(3600)
        await asyncio.sleep(0.01)
        if pool not in self.of:
            raise DispatchError(f"Signals of {pool}", why="the test wants it so", fix="Nothing")
        return self.of[pool]

    async def stopped(self, pod: str, report: Stopped) -> None:
        del pod, report
        raise AssertionError("the autoscaler reports nobody")


class CountedWire:
    """Notes every write that passes, and lets a test step in right before one."""

    def __init__(self, inner: Wire) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}
        """By the end of a path: done once, before the next write to it."""
        self.flowing = asyncio.Event()
        """While it is not set, the view hears no news."""
        self.flowing.set()

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path.rpartition('/')[2]}")
            for end in [end for end in self.before if request.path.endswith(end)]:
                await self.before.pop(end)()
        return await self._inner.send(request, timeout_s=timeout_s)

    async def close(self) -> None:
        await self._inner.close()

    @asynccontextmanager
    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[WireStream]:  # noqa: ANN401 - passed on
        async with self._inner.stream(*args, **kwargs) as stream:
            yield _Stream(stream, self.flowing)


class _Stream:
    """A watch whose news can be held back."""

    def __init__(self, inner: WireStream, flowing: asyncio.Event) -> None:
        self._inner, self._flowing = inner, flowing
        self.status = inner.status

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            await self._flowing.wait()
            yield chunk


@dataclass
class Herd:
    """A namespace ``ci`` with an autoscaler at work on it."""

    kube: KubeClient
    """A person's."""
    wire: CountedWire
    """The autoscaler's."""
    dispatch: ToldDispatch
    clock: SimClock
    metrics: PoolMetrics
    health: Health

    async def pool(self, name: str) -> RunnerPool:
        return await self.kube.get(RUNNER_POOL, name, namespace="ci")

    async def replicas(self, name: str = "mac") -> int:
        return (await self.pool(name)).spec.replicas

    async def edit(self, name: str, changes: dict[str, Any], part: str = "") -> None:
        await self.kube.patch(
            RUNNER_POOL, name, MergePatch(changes), namespace="ci", subresource=part
        )

    async def add(self, pool: RunnerPool) -> None:
        await self.kube.create(RUNNER_POOL, pool)

    async def host(self, name: str, slots: int, fleet: str = "barn") -> None:
        labels = {FLEET: fleet, "kubernetes.io/os": "linux"}
        node = await self.kube.create(NODE, Node(metadata=ObjectMeta(name=name, labels=labels)))
        status = NodeStatus(
            allocatable={VM: str(slots)},
            conditions=(Condition(type="Ready", status="True", reason="Up", message="."),),
        )
        patch = MergePatch({"status": msgspec.to_builtins(status)})
        await self.kube.patch(NODE, node.name, patch, subresource="status")

    async def say_of_host(self, name: str, condition: Condition) -> None:
        node = await self.kube.get(NODE, name)
        kept = [c for c in node.status.conditions if c.type != condition.type]
        conditions = msgspec.to_builtins([*kept, condition])
        patch = MergePatch({"status": {"conditions": conditions}})
        await self.kube.patch(NODE, name, patch, subresource="status")

    async def events(self) -> list[Event]:
        return sorted(
            (await self.kube.list(EVENT)).items,
            key=lambda e: (e.first_timestamp or EPOCH, e.reason),
        )

    async def reasons(self) -> list[str]:
        return [event.reason for event in await self.events()]

    def value(self, metric: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(metric, labels)


def scaled(name: str = "mac", *, replicas: int = 1, **autoscaling: Any) -> RunnerPool:  # noqa: ANN401 - of the type
    given = {
        "enabled": True,
        "min_warm": 1,
        "max_replicas": 20,
        "scale_down_cooldown_seconds": COOLDOWN_S,
        **autoscaling,
    }
    return a_pool(name, "ci", replicas=replicas, autoscaling=Autoscaling(**given))


@asynccontextmanager
async def a_herd(*pools: RunnerPool, dispatch: bool = True) -> AsyncIterator[Herd]:
    clock, ids = SimClock(asyncio.get_running_loop()), SeededIds(1, "test")
    plane = ControlPlane.in_memory(clock, ids)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(plane.run(), name="plane")]
        wire = CountedWire(plane.wire())
        person, ours = KubeClient(plane.wire()), KubeClient(wire)
        await furnish(plane.wire(), person, "ci")
        settings = PoolSettings(namespace="ci", identity="one", pod=PodSettings(dispatch_url=""))
        view = FleetView(ours, settings, clock=clock, ids=ids)
        events = EventRecorder(ours, EventSettings(component="test"), clock=clock, ids=ids)
        metrics, health = PoolMetrics(CollectorRegistry()), Health(clock)
        told = ToldDispatch()
        herd = Herd(person, wire, told, clock, metrics, health)
        await herd.host("host-a", 50)
        for pool in pools:
            await herd.add(pool)
        reins = Reins(
            kube=ours,
            dispatch=told if dispatch else None,
            view=view,
            expectations=Expectations(),
            events=events,
            settings=settings,
            clock=clock,
            ids=ids,
            metrics=metrics,
            health=health,
        )
        autoscaler = Autoscaler(reins)
        tasks += [
            group.create_task(view.run(), name="view"),
            group.create_task(events.run(), name="events"),
            group.create_task(autoscaler.run(), name="autoscaler"),
        ]
        yield herd
        for task in tasks:
            task.cancel()


# --- Up and down ------------------------------------------------------------------------------------------------------


def test_demand_is_followed_up_at_once_and_told() -> None:
    async def story() -> None:
        async with a_herd(scaled()) as herd:
            herd.dispatch.of["mac"] = Signals(claimed=5, queued=3, p95_concurrent_last_hour=5)
            await herd.clock.sleep(6)
            assert await herd.replicas() == 9
            assert (await herd.pool("mac")).status.last_scale_down_at is None
            (event,) = await herd.events()
            assert event.reason == "ScaledUp"
            assert event.message == (
                "replicas 1 to 9: demand rose: 9 runners are wanted, 1 were (jobs need 8, its target is 9)"
            )
            assert herd.value("remuda_pool_scales_total", pool="mac", direction="up") == 1

    run(story)


def test_the_first_drop_waits_for_a_whole_cooldown_too_and_is_noted() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=10)) as herd:
            herd.dispatch.of["mac"] = Signals(queued=1)
            await herd.clock.sleep(COOLDOWN_S - 5)
            assert await herd.replicas() == 10
            await herd.clock.sleep(12)
            pool = await herd.pool("mac")
            assert pool.spec.replicas == 2
            noted = pool.status.last_scale_down_at
            assert noted is not None
            assert noted.microsecond == 0
            assert (
                timedelta(seconds=COOLDOWN_S) <= noted - EPOCH <= timedelta(seconds=COOLDOWN_S + 7)
            )
            assert "ScaledDown" in await herd.reasons()
            # and the next drop waits for one again
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(COOLDOWN_S - 10)
            assert await herd.replicas() == 2
            await herd.clock.sleep(20)
            assert await herd.replicas() == 1

    run(story)


def test_a_drop_is_noted_before_it_is_made() -> None:
    """A leader that dies in between costs a cooldown; one that dropped without a note would cost a second drop."""

    async def story() -> None:
        async with a_herd(scaled(replicas=10, scale_down_cooldown_seconds=0)) as herd:
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(6)
            patches = [w for w in herd.wire.writes if w.startswith("PATCH") and "event" not in w]
            assert patches == ["PATCH status", "PATCH mac"]
            assert await herd.replicas() == 1

    run(story)


def test_at_rest_nothing_is_written() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=4)) as herd:
            herd.dispatch.of["mac"] = Signals(occupied=3)
            await herd.clock.sleep(600)
            assert await herd.replicas() == 4
            assert herd.wire.writes == []
            assert len(herd.dispatch.asked) >= 115

    run(story)


def test_zeros_that_a_person_wrote_survive_every_write() -> None:
    async def story() -> None:
        pool = scaled(replicas=3, min_warm=0, scale_down_cooldown_seconds=0)
        async with a_herd(pool) as herd:
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(6)
            found = await herd.pool("mac")
            assert found.spec.replicas == 0
            assert found.spec.autoscaling == pool.spec.autoscaling
            herd.dispatch.of["mac"] = Signals(queued=2)
            await herd.clock.sleep(6)
            found = await herd.pool("mac")
            assert found.spec.replicas == 2
            assert found.spec.autoscaling == pool.spec.autoscaling

    run(story)


# --- Failure has a direction ------------------------------------------------------------------------------------------


def test_unknown_demand_holds_replicas_and_is_told_once() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=7)) as herd:
            await herd.clock.sleep(COOLDOWN_S * 5)
            assert await herd.replicas() == 7
            (event,) = await herd.events()
            assert event.reason == "AutoscalerHolds"
            assert event.count == 1
            assert "replicas stay at 7: its demand is unknown" in event.message
            assert "the test wants it so" in event.message
            assert herd.value("remuda_pool_demand_known", pool="mac") == 0
            assert herd.health.problems(herd.clock.monotonic()) == ()

    run(story)


def test_demand_that_comes_back_is_followed_up_at_once_but_not_down() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=7)) as herd:
            herd.dispatch.of["mac"] = Signals(occupied=6)
            await herd.clock.sleep(COOLDOWN_S * 2)
            del herd.dispatch.of["mac"]
            await herd.clock.sleep(COOLDOWN_S * 2)
            herd.dispatch.of["mac"] = Signals()  # nobody knows what was wanted meanwhile
            await herd.clock.sleep(COOLDOWN_S - 5)
            assert await herd.replicas() == 7
            herd.dispatch.of["mac"] = Signals(occupied=9)
            await herd.clock.sleep(6)
            assert await herd.replicas() == 10

    run(story)


def test_a_sibling_of_unknown_demand_leaves_a_pool_its_own_target() -> None:
    async def story() -> None:
        async with a_herd(scaled("mac"), scaled("other", replicas=3)) as herd:
            herd.dispatch.of["mac"] = Signals(queued=8)
            await herd.clock.sleep(6)
            assert await herd.replicas("mac") == 9
            assert await herd.replicas("other") == 3

    run(story)


def test_one_pool_whose_answer_hangs_does_not_delay_the_others() -> None:
    async def story() -> None:
        async with a_herd(scaled("mac"), scaled("slow", replicas=3)) as herd:
            herd.dispatch.of["mac"] = Signals(queued=8)
            herd.dispatch.hangs.add("slow")
            await herd.clock.sleep(6)
            assert await herd.replicas("mac") == 9
            await herd.clock.sleep(LIMIT_S * 3)
            assert await herd.replicas("slow") == 3
            assert herd.health.problems(herd.clock.monotonic()) == ()

    run(story)


def test_siblings_share_what_the_hosts_hold_and_each_is_asked_about_once_a_tick() -> None:
    async def story() -> None:
        pools = [scaled("busy", replicas=1), scaled("idle", replicas=1, min_warm=5)]
        async with a_herd() as herd:
            await herd.kube.delete(NODE, "host-a")
            await herd.host("host-b", 8)
            herd.dispatch.of = {"busy": Signals(queued=6), "idle": Signals()}
            for pool in pools:
                await herd.add(pool)
            await herd.clock.sleep(6)
            assert await herd.replicas("busy") >= 6
            assert await herd.replicas("busy") + await herd.replicas("idle") == 8
            herd.dispatch.asked.clear()
            await herd.clock.sleep(50)
            assert herd.dispatch.asked.count("busy") == herd.dispatch.asked.count("idle") == 10

    run(story)


def test_a_host_on_which_starts_fail_counts_for_nothing_until_they_succeed_again() -> None:
    async def story() -> None:
        async with a_herd(scaled(min_warm=20)) as herd:
            await herd.kube.delete(NODE, "host-a")
            for name in ("host-b", "host-c"):
                await herd.host(name, 5)
            failing = Condition(
                type=STARTS_FAILING,
                status="True",
                reason="StartsFailed",
                message="3 starts in a row failed",
                last_transition_time=herd.clock.now(),
            )
            await herd.say_of_host("host-b", failing)
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(11)
            assert await herd.replicas() == 5
            await herd.say_of_host("host-b", msgspec.structs.replace(failing, status="False"))
            await herd.clock.sleep(11)
            assert await herd.replicas() == 10

    run(story)


def test_without_dispatch_it_holds_and_says_so_once() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=7), dispatch=False) as herd:
            await herd.clock.sleep(300)
            assert await herd.replicas() == 7
            (event,) = await herd.events()
            assert "no dispatch server is configured (--dispatch-url)" in event.message
            assert len(herd.wire.writes) == 1
            assert herd.health.problems(herd.clock.monotonic()) == ()

    run(story)


# --- Whose replicas they are ------------------------------------------------------------------------------------------


def test_a_person_who_edits_at_the_same_moment_wins() -> None:
    async def story() -> None:
        async with a_herd(scaled()) as herd:

            async def edited() -> None:
                await herd.edit("mac", {"spec": {"replicas": 15}})

            herd.wire.before["/runnerpools/mac"] = edited
            herd.dispatch.of["mac"] = Signals(queued=8)
            await herd.clock.sleep(6)
            assert await herd.replicas() == 15

    run(story)


def test_a_status_that_changes_at_the_same_moment_is_no_reason_to_give_way() -> None:
    async def story() -> None:
        async with a_herd(scaled()) as herd:

            async def counted() -> None:
                await herd.edit("mac", {"status": {"warm": 1}}, "status")

            herd.wire.before["/runnerpools/mac"] = counted
            herd.dispatch.of["mac"] = Signals(queued=8)
            while herd.wire.before:
                await herd.clock.sleep(0.1)
            await herd.clock.sleep(1)  # not a tick later: at once
            assert await herd.replicas() == 9

    run(story)


def test_a_view_that_is_behind_makes_no_second_step_on_top_of_the_first() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=10, scale_down_cooldown_seconds=0)) as herd:
            herd.dispatch.of["mac"] = Signals(occupied=9)
            await herd.clock.sleep(6)
            herd.wire.flowing.clear()
            herd.dispatch.of["mac"] = Signals(occupied=4)
            await herd.clock.sleep(6)
            noted = (await herd.pool("mac")).status.last_scale_down_at
            assert await herd.replicas() == 5
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(30)
            assert await herd.replicas() == 5
            assert (await herd.pool("mac")).status.last_scale_down_at == noted
            herd.wire.flowing.set()
            await herd.clock.sleep(6)
            assert await herd.replicas() == 1

    run(story)


def test_autoscaling_that_is_switched_off_at_the_same_moment_stays_off() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=9, scale_down_cooldown_seconds=0)) as herd:

            async def switched_off() -> None:
                await herd.edit("mac", {"spec": {"autoscaling": {"enabled": False}}})

            herd.wire.before["/runnerpools/mac/status"] = switched_off
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(6)
            assert await herd.replicas() == 9

    run(story)


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(scaled(enabled=False), id="autoscaling is off"),
        pytest.param(a_pool("mac", "ci", replicas=1), id="autoscaling was never on"),
    ],
)
def test_a_pool_that_is_a_persons_is_left_alone(pool: RunnerPool) -> None:
    async def story() -> None:
        async with a_herd(pool) as herd:
            herd.dispatch.of["mac"] = Signals(queued=8)
            await herd.clock.sleep(30)
            assert await herd.replicas() == 1
            assert herd.dispatch.asked == []
            assert herd.wire.writes == []
            assert herd.value("remuda_pool_demand_known", pool="mac") is None

    run(story)


def test_a_pool_that_is_being_deleted_is_left_alone() -> None:
    async def story() -> None:
        async with a_herd(scaled()) as herd:
            await herd.edit("mac", {"metadata": {"finalizers": ["remuda.dev/pool-drain"]}})
            await herd.kube.delete(RUNNER_POOL, "mac", namespace="ci")
            await herd.clock.sleep(6)
            herd.dispatch.asked.clear()
            herd.dispatch.of["mac"] = Signals(queued=8)
            await herd.clock.sleep(30)
            assert await herd.replicas() == 1
            assert herd.dispatch.asked == []

    run(story)


def test_a_pool_made_again_under_its_name_begins_anew() -> None:
    async def story() -> None:
        async with a_herd(scaled(replicas=9)) as herd:
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(COOLDOWN_S - 10)
            await herd.kube.delete(RUNNER_POOL, "mac", namespace="ci")
            await herd.add(scaled(replicas=9))
            await herd.clock.sleep(COOLDOWN_S - 10)
            assert await herd.replicas() == 9

    run(story)


# --- What is shown ----------------------------------------------------------------------------------------------------


def test_signals_are_shown_one_by_one_beside_what_was_made_of_them() -> None:
    async def story() -> None:
        async with a_herd(scaled(min_warm=2)) as herd:
            herd.dispatch.of["mac"] = Signals(
                queued=3, claimed=1, occupied=4, withheld=9, oldest_queued_s=12.0
            )
            await herd.clock.sleep(6)
            shown = {
                name: herd.value("remuda_pool_signal", pool="mac", signal=name)
                for name in ("queued", "claimed", "occupied", "withheld")
            }
            assert shown == {"queued": 3, "claimed": 1, "occupied": 4, "withheld": 9}
            assert herd.value("remuda_pool_oldest_queued_age_seconds", pool="mac") == 12
            assert herd.value("remuda_pool_autoscaler_floor", pool="mac") == 2
            assert herd.value("remuda_pool_autoscaler_load", pool="mac") == 8
            assert herd.value("remuda_pool_autoscaler_target", pool="mac") == 10
            assert herd.value("remuda_pool_autoscaler_allocated", pool="mac") == 10
            assert herd.value("remuda_pool_demand_known", pool="mac") == 1
            await herd.edit("mac", {"spec": {"autoscaling": {"enabled": False}}})
            await herd.clock.sleep(6)
            assert herd.value("remuda_pool_signal", pool="mac", signal="queued") is None

    run(story)


def test_before_dispatch_first_answers_every_number_is_there_as_zero() -> None:
    async def story() -> None:
        async with a_herd(scaled()) as herd:
            await herd.clock.sleep(6)
            assert herd.value("remuda_pool_demand_known", pool="mac") == 0
            assert herd.value("remuda_pool_signal", pool="mac", signal="queued") == 0
            assert herd.value("remuda_pool_oldest_queued_age_seconds", pool="mac") == 0
            assert herd.value("remuda_pool_autoscaler_target", pool="mac") == 0

    run(story)


def test_a_schedule_that_cannot_be_read_is_told_once_and_left_out() -> None:
    bad = Schedule(
        name="office", cron="0 8 * * *", duration_seconds=3600, min_warm=9, time_zone="Moon/Sea"
    )

    async def story() -> None:
        async with a_herd(scaled(schedules=(bad,))) as herd:
            herd.dispatch.of["mac"] = Signals()
            await herd.clock.sleep(120)
            (event,) = await herd.events()
            assert event.reason == "BadSchedule"
            assert event.count == 1
            assert event.message == (
                "schedule office: there is no time zone 'Moon/Sea'. The schedule is left out"
            )
            assert await herd.replicas() == 1

    run(story)
