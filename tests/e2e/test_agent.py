"""Control plane, operator, dispatch and real agents: a job goes all the way into a VM and back, and nothing is left."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.kube.names import image_label
from tests.support.agents import processes_below
from tests.support.docker_registry import docker_registry
from tests.support.eventually import eventually
from tests.support.macs import SIZE, a_mac, push_runner_image
from tests.support.qemu_host import SLOW_S, built_images_or_skip
from tests.support.ranch import Ranch, a_ranch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.agents import Host
    from tests.support.control_plane import RealControlPlane
    from tests.support.docker_registry import DockerRegistry
    from tests.support.qemu_host import BuiltImages

PROCESS = ("--driver=process", "--vms=2")


@pytest.fixture
async def ranch(
    real_control_plane: RealControlPlane, database_url: str, tmp_path: Path
) -> AsyncIterator[Ranch]:
    async with a_ranch(real_control_plane, database_url, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> BuiltImages:
    return built_images_or_skip(tmp_path_factory.mktemp("images"))


async def test_one_pool_one_job_one_runner(ranch: Ranch) -> None:
    host = ranch.add_host(*PROCESS)
    await ranch.agents.ready(host)
    await ranch.create_pool("linux", 1, image="process")
    (runner,) = await ranch.warm("linux")

    job = await ranch.post("linux", "echo all is well; exit 3")
    over = await ranch.until_job(job)

    assert (over["state"], over["conclusion"]) == ("completed", "failure")
    session = await ranch.session(runner.name)
    assert (session["job_id"], session["exit_code"]) == (job, 3)
    assert "all is well\n" in await ranch.output(job)
    await ranch.until_pods(lambda pods: runner.name not in {pod.name for pod in pods})
    await told_of(ranch, runner.name, "CreatingVM", "RunnerWarm", "JobDelivered")
    assert await ranch.agents.metric(host, 'remuda_agent_vms_ended_total{verdict="failed"}') == 1
    await ranch.delete_pool("linux")
    await nothing_left(ranch, host)


async def test_a_restart_in_the_middle_of_a_job_goes_on_with_it(ranch: Ranch) -> None:
    host = ranch.add_host(*PROCESS)
    await ranch.agents.ready(host)
    await ranch.create_pool("linux", 1, image="process")
    (runner,) = await ranch.warm("linux")
    go = ranch.folder / "go"

    told = await ranch.post(
        "linux", f"echo begun; until [ -e {go} ]; do sleep 0.1; done; echo ended"
    )
    await ranch.until_job(told, "running")
    await eventually(lambda: ranch.output(told), lambda text: "begun" in text, within_s=60)
    shown = await asyncio.to_thread(
        ranch.plane.kubectl, "logs", runner.name, f"--namespace={ranch.namespace}"
    )
    assert "begun\n" in shown
    assert await asyncio.to_thread(ranch.agents.stop, host) == 0, ranch.agents.log(host)[-3000:]
    before = await ranch.pod(runner.name)
    assert before is not None
    assert before.status.phase == "Running"
    ranch.agents.start(host)
    await ranch.agents.ready(host)
    go.touch()

    over = await ranch.until_job(told)
    assert over["conclusion"] == "success"
    session = await ranch.session(runner.name)
    assert (session["job_id"], session["exit_code"]) == (told, 0)
    assert (await ranch.output(told)).endswith("begun\nended\n")
    await ranch.delete_pool("linux")
    await nothing_left(ranch, host)


async def test_a_second_agent_on_the_same_data_is_refused(ranch: Ranch) -> None:
    host = ranch.add_host(*PROCESS)
    await ranch.agents.ready(host)
    twin = ranch.add_host(*PROCESS, f"--data={ranch.agents.host(host).data}", starts=False)
    ranch.agents.start(twin)

    assert await ranch.agents.until_ended(twin) == 1
    assert "another agent holds them" in ranch.agents.log(twin)


async def test_a_job_on_a_mac(ranch: Ranch, registry: DockerRegistry) -> None:
    image = push_runner_image(registry, ranch.folder, ranch.namespace)
    mac = a_mac(ranch.folder / "mac")
    host = ranch.add_host(*mac.options, env=mac.env)
    await ranch.agents.ready(host)
    await ranch.create_pool("mac", 1, image=image, resources=SIZE)
    (runner,) = await ranch.warm("mac")

    job = await ranch.post("mac", "echo on a mac")
    over = await ranch.until_job(job)

    assert over["conclusion"] == "success"
    assert (await ranch.session(runner.name))["job_id"] == job
    assert "on a mac\n" in await ranch.output(job)
    await told_of(ranch, runner.name, "PullingImage", "CreatingVM", "RunnerWarm", "JobDelivered")
    await ranch.delete_pool("mac")
    await eventually(lambda: asyncio.to_thread(mac.ours), lambda vms: vms == {}, within_s=60)
    boots = mac.tart.boots(f"remuda-{runner.uid}")
    assert len(boots) == 1, "a disk boots once"


async def test_staged(ranch: Ranch, registry: DockerRegistry) -> None:
    image = push_runner_image(registry, ranch.folder, ranch.namespace)
    mac = a_mac(ranch.folder / "mac")
    host = ranch.add_host(*mac.options, env=mac.env)
    await ranch.agents.ready(host)

    answer = await asyncio.to_thread(stage, ranch.agents.host(host), image)

    assert answer.returncode == 0, answer.stderr
    assert "is on this host" in answer.stdout
    assert list(mac.vms().values()) == ["stopped"], "its golden, and nothing was started"

    async def labels() -> dict[str, str]:
        node = await ranch.node(host)
        return dict(node.labels) if node is not None else {}

    await eventually(labels, lambda found: found.get(image_label(image)) == "ready", within_s=60)
    nobody = await asyncio.to_thread(stage, ranch.agents.host(host), f"{registry.host}/none:1")
    assert nobody.returncode == 1
    assert "why:" in nobody.stderr


def stage(host: Host, image: str) -> subprocess.CompletedProcess[str]:
    """Ask an agent to fetch an image, as a person on its host does."""
    words = [sys.executable, "-m", "remuda.cli.main", "agent", "stage", f"--data={host.data}"]
    return subprocess.run(  # noqa: S603 - our own command
        [*words, image], capture_output=True, text=True, timeout=120, check=False
    )


async def test_a_job_on_a_qemu_vm(ranch: Ranch, images: BuiltImages) -> None:
    host = ranch.add_host(
        *("--driver=qemu", "--qemu-accel=tcg", "--vms=1", f"--images={images.folder}")
    )
    await ranch.agents.ready(host)
    size = {"cpu": 1, "memory": "192Mi"}
    await ranch.create_pool("linux", 1, image=images.image, resources=size)
    (runner,) = await ranch.warm("linux", within_s=SLOW_S)

    job = await ranch.post("linux", "uname -s; exit 7")
    over = await ranch.until_job(job, within_s=SLOW_S)

    assert over["conclusion"] == "failure"
    session = await ranch.session(runner.name)
    assert (session["job_id"], session["exit_code"]) == (job, 7)
    assert "Linux\n" in await ranch.output(job)
    await ranch.delete_pool("linux")
    await nothing_left(ranch, host)


async def nothing_left(ranch: Ranch, host: str) -> None:
    """Wait until a host has neither a record nor a process of any VM."""
    folder = ranch.agents.host(host).data

    async def left() -> list[str]:
        records = [path.name for path in (folder / "records/vms").glob("*.json")]
        running = (processes_below(folder / driver) for driver in ("process", "qemu"))
        return [*records, *(words for found in running for words in found.values())]

    await eventually(left, lambda found: found == [], within_s=60)


async def told_of(ranch: Ranch, pod: str, *reasons: str) -> None:
    """Wait until there is an Event of each reason about a Pod: they are written beside what they tell of."""

    async def missing() -> set[str]:
        return set(reasons) - {reason for reason, _ in await ranch.events(pod)}

    await eventually(missing, lambda left: left == set(), within_s=60)
