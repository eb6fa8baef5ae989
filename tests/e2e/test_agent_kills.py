"""
The agent is killed with SIGKILL before, amid and after what it does for a Pod, and begun again: nothing boots twice.

A Pod's life passes these points, each with a "before" and an "after", those marked with * with an "amid", too:

- the Pod's writes: hold (our finalizer), status waiting, status started, status ready, status delivered, status ended,
  release (the finalizer taken off), delete pod (the kubelet's last word); and its token;
- records, each a durable write: record cloning, image fetching, image ready, record cloned, record started, record
  ready, record delivering, record delivered, record exited, record cleared, record forgotten;
- calls of the driver: pull*, golden*, clone*, set, run*, stop*, delete;
- the mailbox: make mailbox, put job, take job, put stop, remove mailbox;
- dispatch: poll, hold job (durable on the host), begin, drop job, tell output, tell exit.

``tests/support/changed_agent.py`` is the real agent that ends itself at one of them. Each story below is one host, one
job and one pool; its points are taken in the order in which a life reaches them, so that it is begun again after every
kill in the middle of a life that was interrupted before. On virtual time every single call is tried alone, in
``tests/unit/agent/test_keeper_kills.py``.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from remuda.adapters.system import SystemClock
from remuda.kube.core import Pod
from tests.support.agents import processes_below
from tests.support.changed_agent import VARIABLE
from tests.support.docker_registry import docker_registry
from tests.support.eventually import eventually
from tests.support.history import POOL, Recorder
from tests.support.macs import GUEST, SIZE, Mac, a_mac, push_runner_image
from tests.support.ranch import Ranch, a_ranch
from tests.support.tart.installed import StandIn
from tests.support.tart.qemu_parts import qemu_parts_or_skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.control_plane import RealControlPlane
    from tests.support.docker_registry import DockerRegistry
    from tests.support.history import Step

KILLED: Final = -9
PROGRAM: Final = ("tests.support.changed_agent",)
WAIT_S: Final = 180.0
"""For a life to come to its next point: a cold start of the agent and a boot, on a busy machine."""
MACHINE: Final = """\
#!/bin/sh
export REMUDA_MAILBOX="$GUEST_SHARES/mailbox" REMUDA_WORK=/root/work REMUDA_POWER_OFF=true
"""
"""What a machine does first; then it is our runner's guest."""
NEVER_RAN: Final = frozenset({"StartFailed", "NeverStarted"})
"""Why a Pod may have failed: its agent died between its word that it starts a VM and the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """At which points an agent is killed in one Pod's life, in the order in which it comes to them."""

    making: tuple[str, ...]
    """Until the guest is ready. There is no job yet."""
    working: tuple[str, ...] = ()
    """With a job that goes on until it is told to end."""
    ending: tuple[str, ...] = ()
    """Once the job was told to end."""
    leaving: tuple[str, ...] = ()
    """Of another Pod, which is deleted while it waits for a job."""
    exits_with: int = 0

    @property
    def points(self) -> tuple[str, ...]:
        return (*self.making, *self.working, *self.ending, *self.leaving)


def _all(when: str, *what: str) -> tuple[str, ...]:
    return tuple(f"{when} {one}" for one in what)


STORIES: Final = {
    "records, before": Story(
        making=(
            *_all("before", "record cloning", "image fetching", "image ready", "record cloned"),
            *_all("before", "record started", "record ready"),
        ),
        working=_all("before", "record delivering", "record delivered"),
        ending=_all("before", "record exited", "record cleared", "record forgotten"),
    ),
    "records, after": Story(
        making=(
            *_all("after", "record cloning", "image fetching", "image ready", "record cloned"),
            *_all("after", "record started", "record ready"),
        ),
        working=_all("after", "record delivering", "record delivered"),
        ending=_all("after", "record exited", "record cleared", "record forgotten"),
        leaving=("amid stop",),
        exits_with=7,
    ),
    "driver, before": Story(
        making=(*_all("before", "pull", "golden", "clone", "set", "run"), "amid run"),
        ending=("before delete",),
        leaving=("before stop",),
    ),
    "driver, after": Story(
        making=(
            *("amid pull", "after pull", "amid golden", "after golden", "amid clone"),
            *("after clone", "after set", "after run"),
        ),
        ending=("after delete",),
        leaving=("after stop",),
        exits_with=7,
    ),
    "Pod, before": Story(
        making=_all("before", "hold", "status waiting", "status started", "status ready"),
        working=("before status delivered",),
        ending=_all("before", "status ended", "release", "delete pod"),
        exits_with=7,
    ),
    "Pod, after": Story(
        making=_all("after", "hold", "status waiting", "status started", "status ready"),
        working=("after status delivered",),
        ending=_all("after", "status ended", "delete pod"),
        leaving=("after release",),
    ),
    "mailbox and dispatch, before": Story(
        making=_all("before", "make mailbox", "token", "poll"),
        working=(
            *_all("before", "hold job", "begin", "put job", "drop job", "take job"),
            "before tell output",
        ),
        ending=_all("before", "tell exit", "remove mailbox"),
        leaving=("before put stop",),
        exits_with=7,
    ),
    "mailbox and dispatch, after": Story(
        making=_all("after", "make mailbox", "token"),
        working=(
            *_all("after", "poll", "hold job", "begin", "put job", "drop job", "take job"),
            "after tell output",
        ),
        ending=_all("after", "tell exit", "remove mailbox"),
        leaving=("after put stop",),
    ),
}
HOSTS: Final = (
    ("records, before", "Pod, after"),
    ("records, after", "mailbox and dispatch, before"),
    ("driver, before", "mailbox and dispatch, after"),
    ("driver, after", "Pod, before"),
)
"""Which stories follow each other on one host. The first of each fetches the image."""


@dataclass(slots=True)
class Mortal:
    """A host whose agent is killed again and again."""

    ranch: Ranch
    name: str
    fleet: str
    mac: Mac
    image: str

    def start(self, ends_at: str = "") -> None:
        self.ranch.agents.start(self.name, env={VARIABLE: ends_at})

    async def dies(self, *points: str) -> None:
        """Begin it once for each of these points, at which it ends."""
        for point in points:
            self.start(point)
            try:
                code = await self.ranch.agents.until_ended(self.name, WAIT_S)
            except subprocess.TimeoutExpired:
                code = 0
            said = f"{self.name} was to end {point!r}\n{self.ranch.agents.log(self.name)[-6000:]}"
            assert code == KILLED, said

    async def nothing_left(self) -> None:
        """Wait until the host has neither a VM, nor a record, nor a process of any."""
        await eventually(self._left, lambda found: found == [], within_s=WAIT_S)

    async def _left(self) -> list[str]:
        data = self.ranch.agents.host(self.name).data
        files = [
            *(data / "records/vms").glob("*.json"),
            *(data / "held-jobs").glob("*.json"),
            *(data / "tart").rglob("remuda-*"),
            *(data / "logs").glob("*"),
        ]
        vms = await asyncio.to_thread(self.mac.ours)
        agents = (PROGRAM[0], "remuda.cli.main")
        processes = [
            words
            for words in processes_below(self.mac.tart.folder).values()
            if not any(one in words for one in agents)
        ]
        return [*map(str, files), *vms, *processes]


@dataclass(slots=True)
class Lived:
    """What a story left to be checked."""

    host: Mortal
    story: Story
    pool: str
    job: str = ""
    ran: list[str] = field(default_factory=list)
    """Where its script ran, once for each time."""


async def live(host: Mortal, name: str, story: Story) -> Lived:
    """Kill an agent at all points of a story, and let it end well."""
    ranch, lived = host.ranch, Lived(host, story, name)
    ran, go = ranch.folder / f"{name}.ran", ranch.folder / f"{name}.go"
    await ranch.create_pool(name, 1, image=host.image, resources=SIZE, fleet=host.fleet)
    await host.dies(*story.making)
    lived.job = await ranch.post(
        name,
        f"pwd >> {ran}; echo begun; until [ -e {go} ]; do sleep 0.1; done; echo ended;"
        f" exit {story.exits_with}",
    )
    await host.dies(*story.working)
    go.touch()
    await host.dies(*story.ending)
    host.start()
    await ranch.until_job(lived.job, within_s=WAIT_S)
    lived.ran = ran.read_text().splitlines()
    if story.leaving:
        await ranch.warm(name, within_s=WAIT_S)
        ranch.agents.kill(host.name)
        await ranch.delete_pool_only(name)
        await host.dies(*story.leaving)
        host.start()
    else:
        await ranch.delete_pool_only(name)
    await ranch.until_pods(lambda pods: not [p for p in pods if p.labels.get(POOL) == name], WAIT_S)
    await host.nothing_left()
    await asyncio.to_thread(ranch.agents.stop, host.name)
    return lived


# --- what must have come of it ----------------------------------------------------------------------------------------


async def check(lived: Lived, steps: tuple[Step, ...]) -> None:
    """One boot per Pod at most, one run of the job, and the right end of every Pod."""
    ranch, story, tart = lived.host.ranch, lived.story, lived.host.mac.tart
    over = await ranch.api.get(f"/api/v1/jobs/{lived.job}")
    wanted = "success" if story.exits_with == 0 else "failure"
    assert (over["state"], over["conclusion"]) == ("completed", wanted), over
    assert (await ranch.output(lived.job)).endswith("begun\nended\n")
    assert len(lived.ran) == 1, f"the job ran {len(lived.ran)} times"
    pods = [s.object for s in steps if isinstance(s.object, Pod)]
    mine = [pod for pod in pods if pod.labels.get(POOL) == lived.pool]
    assert mine, "there were runners"
    for uid in {pod.uid for pod in mine}:
        boots = len(tart.boots(f"remuda-{uid}"))
        assert boots <= 1, f"the VM of {uid} booted {boots} times"
        ends = [
            pod for pod in mine if pod.uid == uid and pod.status.phase in {"Succeeded", "Failed"}
        ]
        assert ends, f"{uid} has no verdict"
        assert len({pod.status.phase for pod in ends}) == 1, "an end is never left"
        if f"remuda-{uid}" in lived.ran[0]:
            assert boots == 1
            await _check_worker(lived, ends[0])
        else:
            _check_idler(ends[0], boots)


async def _check_worker(lived: Lived, pod: Pod) -> None:
    code = lived.story.exits_with
    state = pod.status.container_statuses[0].state
    assert pod.status.phase == ("Succeeded" if code == 0 else "Failed")
    assert state.terminated is not None
    assert state.terminated.exit_code == code, state
    session = await lived.host.ranch.session(pod.name)
    assert (session["job_id"], session["exit_code"]) == (lived.job, code)


def _check_idler(pod: Pod, boots: int) -> None:
    """See that a runner without a job was deleted, or that it failed because it never ran."""
    if pod.metadata.deletion_timestamp is not None:
        return
    state = pod.status.container_statuses[0].state
    assert state.terminated is not None
    assert (boots, state.terminated.reason in NEVER_RAN) == (0, True), (boots, state)


# --- tests ------------------------------------------------------------------------------------------------------------


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


@pytest.fixture
def machines() -> Iterator[StandIn]:
    """Install a stand-in whose guests are real machines. Its path is short: sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="remuda-k-"))
    stand_in = StandIn(folder, backend="qemu")
    qemu_parts_or_skip(stand_in.desk.folder)
    yield stand_in
    shutil.rmtree(folder, ignore_errors=True)


def a_mortal(ranch: Ranch, mac: Mac, fleet: str, image: str) -> Mortal:
    """Make a host; its agent is not started yet."""
    options = (*mac.options, f"--fleet={fleet}")
    name = ranch.add_host(*options, name=fleet, env=mac.env, starts=False)
    ranch.agents.add(replace(ranch.agents.host(name), program=PROGRAM))
    return Mortal(ranch, name, fleet, mac, image)


async def test_killed_anywhere_it_boots_each_vm_once_and_finishes_every_job(
    ranch: Ranch, registry: DockerRegistry
) -> None:
    assert sorted(name for names in HOSTS for name in names) == sorted(STORIES)
    image = push_runner_image(registry, ranch.folder, ranch.namespace)

    async def lives(number: int, stories: tuple[str, ...]) -> list[Lived]:
        fleet = f"mortal-{number}"
        host = a_mortal(ranch, a_mac(ranch.folder / fleet), fleet, image)
        return [
            await live(host, f"{fleet}-{turn}", STORIES[name]) for turn, name in enumerate(stories)
        ]

    async with watched(ranch) as recorder, asyncio.TaskGroup() as group:
        telling = [group.create_task(lives(n, stories)) for n, stories in enumerate(HOSTS)]
        all_lived = [lived for told in telling for lived in await told]
        steps = await recorder.caught_up()
    for lived in all_lived:
        await check(lived, steps)


async def test_killed_while_a_real_machine_is_pulled_booted_and_at_work(
    ranch: Ranch, registry: DockerRegistry, machines: StandIn
) -> None:
    program = MACHINE + GUEST.read_text()
    name = f"{ranch.namespace}-machine"
    image = push_runner_image(registry, ranch.folder, name, program=program)
    story = Story(making=("amid pull", "amid run"), working=("after status delivered",))
    host = a_mortal(ranch, Mac(machines), "machine", image)
    lived = Lived(host, replace(story, exits_with=7), "machine")
    async with watched(ranch) as recorder:
        await ranch.create_pool("machine", 1, image=image, resources=SIZE, fleet=host.fleet)
        await host.dies(*story.making)
        lived.job = await ranch.post(
            "machine",
            "echo begun; until [ -e /shares/mailbox/go ]; do sleep 0.1; done; echo ended; exit 7",
        )
        await host.dies(*story.working)
        (vm,) = host.mac.ours().items()
        assert vm[1] == "running", "it works on although nobody looks"
        lived.ran = [vm[0]]
        (ranch.agents.host(host.name).data / "tart/.mailboxes" / vm[0] / "go").touch()
        host.start()
        await ranch.until_job(lived.job, within_s=WAIT_S)
        await ranch.delete_pool("machine")
        await host.nothing_left()
        steps = await recorder.caught_up()
    await check(lived, steps)


@asynccontextmanager
async def watched(ranch: Ranch) -> AsyncIterator[Recorder]:
    """Record all that happens to Pods while the block lasts."""
    recorder = Recorder(ranch.kube, ranch.namespace, SystemClock())
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(recorder.run())
        yield recorder
        watching.cancel()
