"""A hollow host walks a runner's Pod through its life, on the control plane in memory and on virtual time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.kube_client import KubeClient
from remuda.kube.core import NAMESPACE, NODE, POD, Namespace, Pod
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import (
    FLEET,
    JOB_DELIVERED,
    MARK,
    OWNER,
    RUNNER,
    STARTS_FAILING,
    TEMPLATE,
    VM,
    VM_CLEANUP,
    VM_HOST_TAINT,
    image_label,
)
from remuda.kube.patches import MergePatch
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase
from remuda.ports.kube import Manifest, NotFound
from remuda.sim.checkers import Verdict
from remuda.sim.clock import SimClock
from remuda.sim.fleet.desk import Deliver, Exit, Job, QuietDesk, Told
from remuda.sim.fleet.disk import HostDisk
from remuda.sim.fleet.host import HollowHost, HostSettings
from remuda.sim.logs import captured
from remuda.sim.loop import run
from remuda.sim.trace import Trace
from remuda.sim.world import Process, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.kube.patches import JsonValue
    from remuda.sim.fleet.desk import Desk

SPACE = "runners"
IMAGE = "registry.test/mac:1"
SETTINGS = HostSettings(name="mac-1", fleet="barn", boot_s=20.0, boot_spread=0.0)


class OneJobDesk:
    """Gives the first who asks a job, or sends it home."""

    def __init__(self, told: Told) -> None:
        self.told = told

    async def poll(self, pod: Pod) -> Told:  # noqa: ARG002 - it does not care who asks
        told, self.told = self.told, None
        if told is None:
            await asyncio.sleep(5.0)
        return told


class Barn:
    """A world with one host."""

    def __init__(self, world: World, settings: HostSettings, told: Told) -> None:
        self.world = world
        self.disk = HostDisk()
        self.desk: Desk = OneJobDesk(told)
        self._settings = settings
        self.kube = KubeClient(world.plane.wire())

    def start(self) -> None:
        self.world.start(self._settings.name, self._main)

    async def _main(self, process: Process) -> None:
        host = HollowHost(
            process.kube,
            self._settings,
            clock=process.clock,
            ids=process.ids,
            disk=self.disk,
            desk=self.desk,
        )
        await host.run()

    async def runner(self, name: str, image: str = IMAGE) -> None:
        labels = {RUNNER: "true", TEMPLATE: "aaa"}
        container = {"name": "runner", "image": image, "resources": {"limits": {VM: "1"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE, "labels": labels},
            "spec": {
                "nodeSelector": {FLEET: "barn"},
                "tolerations": [{"key": VM_HOST_TAINT, "operator": "Exists"}],
                "containers": [container],
            },
        }
        await self.kube.create(POD, Manifest(json.dumps(pod).encode(), SPACE))

    async def pod(self, name: str) -> Pod:
        return await self.kube.get(POD, name, namespace=SPACE)

    async def phase(self, name: str) -> Phase:
        return runner_of(await self.pod(name)).phase


def in_barn(
    story: Callable[[Barn], Awaitable[None]],
    settings: HostSettings = SETTINGS,
    told: Told = None,
) -> None:
    async def main() -> Verdict:
        loop = asyncio.get_running_loop()
        verdict = Verdict(1, "remuda sim --again", Trace(loop.time))
        with captured(verdict, loop.time):
            async with World.open(verdict) as world:
                barn = Barn(world, settings, told)
                await barn.kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=SPACE)))
                await story(barn)
        return verdict

    assert run(main).violations == []


def a_job(lasts_s: float = 100.0) -> Job:
    return Job("job-1", "mac", lasts_s)


def test_a_host_makes_its_node_with_its_room_its_fleet_and_its_taint() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        node = await barn.kube.get(NODE, "mac-1")

        assert node.labels[FLEET] == "barn"
        assert node.labels["kubernetes.io/os"] == "darwin"
        assert node.status.allocatable[VM] == "2"
        assert [t.key for t in node.spec.taints] == [VM_HOST_TAINT]

    in_barn(story)


def test_a_runner_is_held_created_and_warm_after_its_boot() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(5)
        pod = await barn.pod("a")
        assert pod.metadata.finalizers == (VM_CLEANUP,)
        assert pod.status.container_statuses[0].state.waiting is not None
        assert runner_of(pod).phase is Phase.STARTING
        await asyncio.sleep(20)
        assert await barn.phase("a") is Phase.WARM

    in_barn(story)


def test_the_first_use_of_an_image_costs_a_pull_and_the_node_says_so_afterwards() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(200)
        assert await barn.phase("a") is Phase.STARTING
        await asyncio.sleep(130)
        assert await barn.phase("a") is Phase.WARM
        assert (await barn.kube.get(NODE, "mac-1")).labels[image_label(IMAGE)] == "ready"
        await barn.runner("b")
        await asyncio.sleep(25)
        assert await barn.phase("b") is Phase.WARM

    in_barn(story, replace(SETTINGS, pull_s=300.0))


def test_a_job_is_reported_delivered_and_its_end_ends_the_pod() -> None:
    job = a_job()

    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(30)
        pod = await barn.pod("a")
        assert OWNER not in pod.labels  # that is dispatch's to write
        assert [c.status for c in pod.status.conditions if c.type == JOB_DELIVERED] == ["True"]
        assert runner_of(pod).phase is Phase.BUSY
        await asyncio.sleep(110)
        pod = await barn.pod("a")
        assert pod.status.phase == "Succeeded"
        end = runner_of(pod).end
        assert end is not None
        assert (end.exit_code, end.reason) == (0, "Completed")

    in_barn(story, told=Deliver(job))
    assert job.killed_at is None


def test_a_runner_that_is_told_to_go_ends_without_a_job() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(30)
        assert await barn.phase("a") is Phase.ENDED

    in_barn(story, told=Exit("stale"))


@pytest.mark.parametrize("grace_s", [0, 30, None])
@pytest.mark.parametrize("after_s", [5, 60], ids=["while it starts", "when it is warm"])
def test_a_deleted_pod_goes_with_its_vm_whatever_its_grace(
    grace_s: int | None, after_s: int
) -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(after_s)
        await barn.kube.delete(POD, "a", namespace=SPACE, grace_s=grace_s)
        await asyncio.sleep(5)
        with pytest.raises(NotFound):
            await barn.pod("a")
        assert barn.disk.vms == {}

    in_barn(story)


def test_a_pod_that_is_terminal_and_deleted_goes_too() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(30)
        assert await barn.phase("a") is Phase.ENDED
        await barn.kube.delete(POD, "a", namespace=SPACE)
        await asyncio.sleep(5)
        with pytest.raises(NotFound):
            await barn.pod("a")

    in_barn(story, told=Exit("stale"))


def test_a_job_whose_pod_is_deleted_under_it_is_killed() -> None:
    job = a_job()

    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(30)
        await barn.kube.delete(POD, "a", namespace=SPACE, grace_s=0)
        await asyncio.sleep(5)

    in_barn(story, told=Deliver(job))
    assert job.killed_at is not None


def test_a_job_goes_on_while_its_hosts_agent_is_away() -> None:
    job = a_job()

    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(30)
        barn.world.crash("mac-1", restart_after_s=200)
        await asyncio.sleep(150)
        assert await barn.phase("a") is Phase.BUSY
        await asyncio.sleep(60)
        assert (await barn.pod("a")).status.phase == "Succeeded"

    in_barn(story, told=Deliver(job))
    assert job.killed_at is None


def test_a_vm_whose_pod_went_while_its_host_was_away_is_torn_down() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(30)
        barn.world.crash("mac-1", restart_after_s=30)
        await barn.kube.patch(
            POD, "a", MergePatch({"metadata": {"finalizers": None}}), namespace=SPACE
        )
        await barn.kube.delete(POD, "a", namespace=SPACE, grace_s=0)
        await asyncio.sleep(40)
        assert barn.disk.vms == {}

    in_barn(story)


def test_a_poisoned_host_is_ready_and_starts_nothing() -> None:
    async def story(barn: Barn) -> None:
        barn.disk.is_poisoned = True
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(600)
        assert await barn.phase("a") is Phase.STARTING
        assert (barn.disk.starts, barn.disk.started) == (1, 0)

    in_barn(story)


def test_a_start_may_fail_aloud() -> None:
    async def story(barn: Barn) -> None:
        barn.disk.bad_images.add(IMAGE)
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(40)
        assert (await barn.pod("a")).status.phase == "Failed"

    in_barn(story, replace(SETTINGS, fails_after_s=30.0))


def test_a_silent_host_becomes_ready_again_and_keeps_the_conditions_of_others() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        node = await barn.kube.get(NODE, "mac-1")
        theirs: JsonValue = {"type": STARTS_FAILING, "status": "True"}
        ready: JsonValue = {"type": "Ready", "status": "True"}
        patch = MergePatch({"status": {"conditions": [ready, theirs]}})
        await barn.kube.patch(NODE, node.name, patch, subresource="status")
        barn.world.crash("mac-1", restart_after_s=100)
        await asyncio.sleep(90)
        conditions = {
            c.type: c.status for c in (await barn.kube.get(NODE, "mac-1")).status.conditions
        }
        assert conditions["Ready"] == "Unknown"
        await asyncio.sleep(30)
        conditions = {
            c.type: c.status for c in (await barn.kube.get(NODE, "mac-1")).status.conditions
        }
        assert conditions["Ready"] == "True"
        assert conditions[STARTS_FAILING] == "True"

    in_barn(story)


def test_a_calm_host_writes_nothing_but_its_lease() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await asyncio.sleep(60)
        before = barn.world.plane.store.revision
        leases = 0

        def count(_event: object) -> None:
            nonlocal leases
            leases += 1

        stop = barn.world.plane.store.subscribe(count)
        await asyncio.sleep(600)
        stop()
        assert barn.world.plane.store.revision - before == leases
        assert 55 <= leases <= 65

    in_barn(story)


def test_a_quiet_desk_sends_stale_marked_runners_home_and_leaves_others() -> None:
    async def story(barn: Barn) -> None:
        barn.start()
        await asyncio.sleep(5)
        await barn.runner("a")
        await barn.runner("b")
        await asyncio.sleep(30)
        for name, target in (("a", "bbb"), ("b", "aaa")):
            patch = MergePatch({"metadata": {"labels": {MARK: target}}})
            await barn.kube.patch(POD, name, patch, namespace=SPACE)
        await asyncio.sleep(5)
        assert await barn.phase("a") is Phase.ENDED
        assert await barn.phase("b") is Phase.WARM

    async def quiet(barn: Barn) -> None:
        barn.desk = QuietDesk(SimClock(asyncio.get_running_loop()))
        await story(barn)

    in_barn(quiet)
