"""What people change about pools, on a control plane in memory."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from remuda.adapters.kube_client import KubeClient
from remuda.adapters.system import SystemClock
from remuda.cli.changing import WaitedInVain, until
from remuda.cli.exits import NOT_FOUND, REFUSED, Declined, code_of
from remuda.cli.pool_changes import change, pause, progress, resume, roll, scale
from remuda.cli.progress import Screen, bar
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pod import template_hash
from remuda.kube.runner_pool import RUNNER_POOL, Autoscaling, Rollout, RunnerPoolStatus
from remuda.kube.runner_shapes import PodSettings
from remuda.ports.kube import Conflict, NotFound, Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.fleet.furnish import a_pool
from remuda.sim.loop import run
from tests.support.api import SPACE, an_office

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.cli.pool_changes import Decision
    from remuda.kube.patches import JsonValue
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.kube import Kube

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SETTINGS = PodSettings(poller_image="registry.test/poller:1", dispatch_url="http://dispatch.test")
AUTOSCALED = Autoscaling(enabled=True, max_replicas=4)
PAUSED = Rollout(paused=True)


@asynccontextmanager
async def a_namespace(**spec: Any) -> AsyncIterator[KubeClient]:  # noqa: ANN401 - a pool's spec
    async with an_office(SystemClock(), sees=False) as office:
        await office.kube.create(RUNNER_POOL, a_pool("mac", SPACE, **spec))
        yield office.kube


async def now(kube: Kube) -> RunnerPool:
    return await kube.get(RUNNER_POOL, "mac", namespace=SPACE)


async def test_a_roll_is_paused_and_goes_on() -> None:
    async with a_namespace() as kube:
        paused = await change(kube, SPACE, "mac", pause)
        assert (await now(kube)).spec.rollout == PAUSED
        assert "is paused" in paused.sentence

        again = await change(kube, SPACE, "mac", pause)
        assert "already" in again.sentence
        assert again.pool.resource_version == paused.pool.resource_version, "nothing was written"

        await change(kube, SPACE, "mac", resume)
        assert not (await now(kube)).spec.rollout.paused
        assert "was not paused" in (await change(kube, SPACE, "mac", resume)).sentence


async def test_only_what_is_asked_for_changes() -> None:
    rollout = Rollout(max_concurrent_percent=50, paused=True)
    async with a_namespace(rollout=rollout, replicas=3) as kube:
        await change(kube, SPACE, "mac", resume)
        await change(kube, SPACE, "mac", scale(0))

        spec = (await now(kube)).spec
        assert spec.rollout == Rollout(max_concurrent_percent=50)
        assert spec.replicas == 0


async def test_a_number_that_the_autoscaler_owns_is_refused() -> None:
    async with a_namespace(autoscaling=AUTOSCALED, replicas=2) as kube:
        with pytest.raises(Declined, match="autoscaler owns") as refused:
            await change(kube, SPACE, "mac", scale(3))

        assert code_of([refused.value]) == REFUSED
        assert "autoscaling.enabled" in refused.value.fix
        assert (await now(kube)).spec.replicas == 2


async def test_a_pool_that_changes_meanwhile_is_looked_at_again() -> None:
    async with a_namespace(replicas=2) as kube:
        looks = 0

        def decide(pool: RunnerPool) -> Decision:
            nonlocal looks
            looks += 1
            return scale(3)(pool)

        meddled = Meddled(kube, {"autoscaling": {"enabled": True, "maxReplicas": 4}})
        with pytest.raises(Declined):
            await change(meddled, SPACE, "mac", decide)

        assert looks == 2
        assert (await now(kube)).spec.replicas == 2


async def test_a_pool_that_never_stands_still_is_given_up() -> None:
    async with a_namespace(replicas=2) as kube:
        with pytest.raises(Conflict):
            await change(Meddled(kube, {}, times=1000), SPACE, "mac", scale(3))


async def test_a_roll_makes_another_template_each_time() -> None:
    async with a_namespace(template={"metadata": {"annotations": {"a": "b"}}}) as kube:
        before = template_hash(await now(kube), SETTINGS)
        await change(kube, SPACE, "mac", roll(NOON))
        once = await now(kube)
        await change(kube, SPACE, "mac", roll(NOON + timedelta(microseconds=1)))
        twice = await now(kube)

    assert len({before, template_hash(once, SETTINGS), template_hash(twice, SETTINGS)}) == 3
    assert once.spec.template == {
        "metadata": {"annotations": {"a": "b", "rolled-at": "2026-01-02T12:00:00.000000+00:00"}}
    }


async def test_a_paused_pool_is_not_rolled() -> None:
    async with a_namespace(rollout=PAUSED) as kube:
        with pytest.raises(Declined, match="remuda pools resume mac"):
            await change(kube, SPACE, "mac", roll(NOON))

        assert (await now(kube)).spec.template is UNSET


async def test_a_pool_that_is_not_there() -> None:
    async with a_namespace() as kube:
        with pytest.raises(NotFound, match="There is no pool ghost in namespace") as missing:
            await change(kube, SPACE, "ghost", pause)

    assert code_of([missing.value]) == NOT_FOUND


async def test_a_pool_that_is_being_deleted_is_left_alone() -> None:
    async with a_namespace() as kube:
        held = MergePatch({"metadata": {"finalizers": ["test.example/held"]}})
        await kube.patch(RUNNER_POOL, "mac", held, namespace=SPACE)
        await kube.delete(RUNNER_POOL, "mac", namespace=SPACE)

        with pytest.raises(Declined, match="being deleted"):
            await change(kube, SPACE, "mac", scale(3))


class Meddled(KubeClient):
    """The same server, where somebody else writes just before each of our first writes."""

    def __init__(self, kube: KubeClient, spec: dict[str, JsonValue], times: int = 1) -> None:
        self._kube, self._spec, self._left = kube, spec, times

    async def get(self, kind: Any, name: str, *, namespace: str = "") -> Any:  # noqa: ANN401 - as the port's
        return await self._kube.get(kind, name, namespace=namespace)

    async def patch(self, kind: Any, name: str, patch: Any, **more: Any) -> Any:  # noqa: ANN401 - as the port's
        if self._left:
            self._left -= 1
            touch: dict[str, JsonValue] = {
                "metadata": {"annotations": {"test": str(self._left)}},
                "spec": self._spec,
            }
            await self._kube.patch(kind, name, MergePatch(touch), **more)
        return await self._kube.patch(kind, name, patch, **more)


# --- how far it is ----------------------------------------------------------------------------------------------------


def a_status(**counts: int) -> RunnerPool:
    given: dict[str, Any] = {"observed_generation": 2, "replicas": 3, "starting": 0, "stale": 0}
    pool = a_pool("mac", SPACE, replicas=3)
    return replace(pool, status=RunnerPoolStatus(**{**given, **counts}))


@pytest.mark.parametrize(
    ("pool", "done", "over"),
    [
        pytest.param(a_pool("mac", SPACE, replicas=3), 0, False, id="no status yet"),
        pytest.param(a_status(observed_generation=1), 0, False, id="a status from before"),
        pytest.param(a_status(), 3, True, id="all there"),
        pytest.param(a_status(stale=2), 1, False, id="two stale"),
        pytest.param(a_status(starting=1), 2, False, id="one starts"),
        pytest.param(a_status(replicas=2), 2, False, id="one is missing"),
        pytest.param(a_status(replicas=5, busy=5), 3, False, id="busy ones above what is wanted"),
        pytest.param(a_status(busy=3), 3, True, id="all busy, and as wanted"),
    ],
)
def test_how_far_a_pool_is(pool: RunnerPool, done: int, *, over: bool) -> None:
    seen = progress(pool, generation=2)

    assert (seen.done, seen.total, seen.over) == (done, 3, over)


@pytest.mark.parametrize(
    ("done", "total", "filled"), [(0, 3, 0), (1, 2, 10), (3, 3, 20), (0, 0, 20)]
)
def test_a_bar(done: int, total: int, filled: int) -> None:
    assert bar(done, total) == f"[{'#' * filled}{'.' * (20 - filled)}]"


# --- waiting ----------------------------------------------------------------------------------------------------------


def in_vain(last: str) -> WaitedInVain:
    return WaitedInVain("not yet", why=last, fix="wait")


def test_a_wait_outlives_an_api_server_that_is_away() -> None:
    said = io.StringIO()
    away = Unavailable("no", why="it is away", fix="wait")
    answers: list[tuple[bool, str] | Unavailable] = [(False, "one left"), away, (True, "")]

    async def probe() -> tuple[bool, str]:
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    async def main() -> None:
        clock = SimClock(asyncio.get_running_loop())
        await until(probe, clock, timeout_s=60, in_vain=in_vain, screen=Screen(said))

    run(main)
    assert answers == []


def test_a_wait_ends_when_its_time_is_over() -> None:
    async def probe() -> tuple[bool, str]:
        return False, "one left"

    async def main() -> None:
        clock = SimClock(asyncio.get_running_loop())
        began = clock.monotonic()
        with pytest.raises(WaitedInVain, match="one left"):
            await until(probe, clock, timeout_s=60, in_vain=in_vain, screen=Screen(io.StringIO()))
        assert 60 <= clock.monotonic() - began < 62

    run(main)
