"""The fake dispatch keeps what the real one promises: stamped before it is handed over, given back if it cannot be."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import KubeClient
from remuda.kube.core import POD, Pod
from remuda.kube.names import DRAIN, OWNER, POOL, RUNNER
from remuda.kube.patches import MergePatch
from remuda.ports.dispatch import Signals
from remuda.ports.kube import Manifest
from remuda.sim.checkers import Verdict
from remuda.sim.fleet.desk import Deliver, Exit, Job, Told
from remuda.sim.fleet.dispatch import FakeDispatch
from remuda.sim.fleet.dispatch_server import DispatchServer
from remuda.sim.fleet.furnish import furnish
from remuda.sim.logs import captured
from remuda.sim.loop import run
from remuda.sim.plan import Fault, Scripted
from remuda.sim.trace import Trace
from remuda.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SPACE = "runners"


class Office:
    def __init__(self, world: World) -> None:
        self.world = world
        self.dispatch = FakeDispatch(world.loop.time)
        self.kube = KubeClient(world.plane.wire())

    async def open(self) -> None:
        await furnish(self.world.plane.wire(), self.kube, SPACE)
        self.world.start(
            "dispatch", lambda process: DispatchServer(process, self.dispatch, SPACE).run()
        )
        await asyncio.sleep(1)

    async def runner(self, name: str, pool: str = "mac") -> Pod:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {RUNNER: "true", POOL: pool}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "runner", "image": "i"}]},
        }
        return await self.kube.create(POD, Manifest(json.dumps(pod).encode(), SPACE))

    async def owner(self, name: str) -> str | None:
        return (await self.kube.get(POD, name, namespace=SPACE)).labels.get(OWNER)

    def poll(self, pod: Pod) -> asyncio.Task[Told]:
        return self.world.group.create_task(self.dispatch.poll(pod), name=f"poll {pod.name}")

    def job(self, name: str = "j", owner: str = "acme", pool: str = "mac") -> Job:
        job = Job(name, pool, 60.0, owner=owner)
        self.dispatch.enqueue(job)
        return job


def in_office(story: Callable[[Office], Awaitable[None]], *scripted: Scripted) -> None:
    async def main() -> Verdict:
        loop = asyncio.get_running_loop()
        verdict = Verdict(1, "remuda sim --again", Trace(loop.time))
        with captured(verdict, loop.time):
            async with World.open(verdict) as world:
                world.script(scripted)
                office = Office(world)
                await office.open()
                await story(office)
        return verdict

    assert run(main).violations == []


def test_a_job_reaches_a_waiting_runner_after_its_pod_carries_the_owner() -> None:
    async def story(office: Office) -> None:
        waiting = office.poll(await office.runner("a"))
        await asyncio.sleep(1)
        job = office.job()
        assert await waiting == Deliver(job)
        assert await office.owner("a") == "acme"
        assert office.dispatch.queue == []

    in_office(story)


def test_a_runner_whose_pod_is_going_gets_no_job_and_the_job_waits_on() -> None:
    async def story(office: Office) -> None:
        pod = await office.runner("a")
        waiting = office.poll(pod)
        await asyncio.sleep(1)
        await office.kube.delete(POD, "a", namespace=SPACE, grace_s=0)
        job = office.job()
        assert await waiting is None
        assert office.dispatch.queue == [job]
        assert office.dispatch.claims == {}

    in_office(story)


def test_a_stamp_that_conflicts_is_not_a_job() -> None:
    async def story(office: Office) -> None:
        pod = await office.runner("a")
        waiting = office.poll(pod)
        await asyncio.sleep(1)
        job = office.job()
        assert await waiting is None
        assert await office.owner("a") is None
        assert office.dispatch.queue == [job]

    in_office(story, Scripted(Fault.CONFLICT, 1, "dispatch", "patch", "pods"))


def test_a_stamp_whose_answer_was_lost_is_found_and_the_job_handed_over() -> None:
    async def story(office: Office) -> None:
        pod = await office.runner("a")
        waiting = office.poll(pod)
        await asyncio.sleep(1)
        job = office.job()
        assert await waiting == Deliver(job)

    in_office(story, Scripted(Fault.UNACKNOWLEDGED, 1, "dispatch", "patch", "pods"))


def test_a_server_that_dies_after_the_stamp_hands_the_job_over_in_its_next_life() -> None:
    async def story(office: Office) -> None:
        pod = await office.runner("a")
        waiting = office.poll(pod)
        await asyncio.sleep(1)
        job = office.job()
        assert await waiting == Deliver(job)

    in_office(story, Scripted(Fault.CRASH_UNACKNOWLEDGED, 1, "dispatch", "patch", "pods"))


def test_a_runner_that_lost_its_answer_gets_the_same_job_again_and_never_another() -> None:
    async def story(office: Office) -> None:
        pod = await office.runner("a")
        waiting = office.poll(pod)
        await asyncio.sleep(1)
        job = office.job()
        assert await waiting == Deliver(job)
        office.job("another")
        assert await office.dispatch.poll(pod) == Deliver(job)

    in_office(story)


def test_a_drained_runner_is_sent_home() -> None:
    async def story(office: Office) -> None:
        pod = await office.runner("a")
        waiting = office.poll(pod)
        await asyncio.sleep(1)
        patch = MergePatch({"metadata": {"labels": {DRAIN: "true"}}})
        await office.kube.patch(POD, "a", patch, namespace=SPACE)
        assert isinstance(await waiting, Exit)

    in_office(story)


def test_an_owner_without_a_claim_is_taken_off_again() -> None:
    async def story(office: Office) -> None:
        await office.runner("a")
        patch = MergePatch({"metadata": {"labels": {OWNER: "acme"}}})
        await office.kube.patch(POD, "a", patch, namespace=SPACE)
        await asyncio.sleep(20)
        assert await office.owner("a") is None

    in_office(story)


def test_signals_tell_what_waits_what_runs_and_what_is_withheld() -> None:
    async def story(office: Office) -> None:
        office.dispatch.limits["capped"] = 1
        waiting = office.poll(await office.runner("a"))
        await asyncio.sleep(1)
        office.job("one", owner="capped")
        await waiting
        office.job("two", owner="capped")
        office.job("three")
        office.job("elsewhere", pool="linux")
        found = await office.dispatch.signals("mac")
        assert found == Signals(queued=1, claimed=1, occupied=1, withheld=1)

    in_office(story)
