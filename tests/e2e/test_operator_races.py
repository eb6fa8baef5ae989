"""What happens between the operator's look and its write, on the real API server, made to happen every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.kube.core import POD
from remuda.kube.patches import MergePatch
from remuda.ports.dispatch import Signals
from tests.support.fleet import a_fleet
from tests.support.history import OWNER, is_alive, is_busy
from tests.support.in_process import an_operator
from tests.support.pool_checks import killed

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from remuda.ports.dispatch import Stopped
    from remuda.ports.kube import Kube
    from remuda.ports.wire import Request, Response, Wire, WireStream
    from tests.support.control_plane import RealControlPlane
    from tests.support.fleet import Fleet

POOL = "mac"
HELD = "test.remuda.dev/held"


class JobFirst:
    """A wire on which dispatch is always a moment faster: it stamps each runner just before its deletion arrives."""

    def __init__(self, wire: Wire, kube: Kube, namespace: str) -> None:
        self._wire, self._kube, self._namespace = wire, kube, namespace
        self.stamped: set[str] = set()

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        if request.method == "DELETE" and "/pods/" in request.path:
            name = request.path.rpartition("/")[2]
            self.stamped.add(name)
            stamp = MergePatch({"metadata": {"labels": {OWNER: "acme"}}})
            await self._kube.patch(POD, name, stamp, namespace=self._namespace)
        return await self._wire.send(request, timeout_s=timeout_s)

    def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AbstractAsyncContextManager[WireStream]:
        return self._wire.stream(
            request, connect_timeout_s=connect_timeout_s, idle_timeout_s=idle_timeout_s
        )

    async def close(self) -> None:
        await self._wire.close()


class Reports:
    """Dispatch, which notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def signals(self, pool: str) -> Signals:
        del pool
        return Signals()

    async def stopped(self, pod: str, report: Stopped) -> None:
        del report
        self.heard.append(pod)


async def test_a_runner_that_gets_its_job_while_its_deletion_is_on_the_way_keeps_it(
    real_control_plane: RealControlPlane,
) -> None:
    kubeconfig = real_control_plane.access.kubeconfig
    wires: list[JobFirst] = []
    reports = Reports()
    async with a_fleet(kubeconfig, "races-job") as fleet:

        def meddle(wire: Wire) -> Wire:
            wires.append(JobFirst(wire, fleet.kube, fleet.namespace))
            return wires[0]

        async with an_operator(kubeconfig, fleet.namespace, dispatch=reports, meddle=meddle):
            await fleet.create_pool(POOL, 6)
            await fleet.until(lambda: fleet.is_rolled(POOL))
            await fleet.change_pool(POOL, replicas=0)
            await fleet.until(lambda: len(wires[0].stamped) == 6)
            await looked_at(fleet)

            assert killed(await fleet.recorder.caught_up()) == []
            assert sum(is_alive(pod) and is_busy(pod) for pod in fleet.runners(POOL)) == 6
            assert reports.heard == [], "a report would take the job from under its runner"


async def test_a_runner_that_ended_and_is_being_deleted_is_replaced_once_and_reaped_once(
    real_control_plane: RealControlPlane,
) -> None:
    kubeconfig = real_control_plane.access.kubeconfig
    reports = Reports()
    async with (
        a_fleet(kubeconfig, "races-held") as fleet,
        an_operator(kubeconfig, "races-held", dispatch=reports) as wire,
    ):
        await fleet.create_pool(POOL, 3)
        await fleet.until(lambda: fleet.is_rolled(POOL))
        [job] = await fleet.busy(POOL, 1)
        name = fleet.holder(job)
        await hold(fleet, name, held=True)
        await fleet.desk.finish(job)
        await fleet.until(lambda: fleet.now.pods[name].metadata.deletion_timestamp is not None)
        await fleet.warm(POOL, 3)
        for replicas in (4, 3):  # news, so that the pool is looked at again and again
            await fleet.change_pool(POOL, replicas=replicas)
            await fleet.until(lambda n=replicas: len(fleet.runners(POOL, warm=True)) == n)  # type: ignore[misc]
            await looked_at(fleet)

        assert name in fleet.now.pods, "its finalizer holds it"
        assert wire.writes["DELETE pods"] == 2, "the held one, and the one that was too many"
        assert reports.heard.count(name) == 1
        await hold(fleet, name, held=False)
        await fleet.until(lambda: fleet.is_rolled(POOL) and len(fleet.now.accounts) == 3)


async def hold(fleet: Fleet, name: str, *, held: bool) -> None:
    """Add or remove a finalizer of somebody else, beside that of the host."""
    pod = await fleet.kube.get(POD, name, namespace=fleet.namespace)
    others = [one for one in pod.metadata.finalizers if one != HELD]
    patch = MergePatch({"metadata": {"finalizers": [*others, HELD] if held else [*others]}})
    await fleet.kube.patch(POD, name, patch, namespace=fleet.namespace)


async def looked_at(fleet: Fleet) -> None:
    """Wait until the operator has looked at the pool once more."""
    replicas = fleet.now.pools[POOL].spec.replicas
    percent = fleet.now.pools[POOL].spec.rollout.max_concurrent_percent % 100 + 1
    changed = await fleet.change_pool(POOL, rollout={"maxConcurrentPercent": percent})
    assert changed.spec.replicas == replicas
    await fleet.until(
        lambda: fleet.now.pools[POOL].status.observed_generation == changed.metadata.generation
    )
