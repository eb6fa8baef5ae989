"""
What has gone wrong on hosts of others, played on a real control plane with real dispatch and real agents.

Each scenario was a trouble in the field. Their numbers are those of the list that this agent is held to.

1. The agent killed while a machine works: ``test_machines_that_work_and_crash``. At every other moment:
   ``tests/unit/agent/test_keeper_kills.py``, and with agents that are processes ``tests/e2e/test_agent_kills.py``.
2. Others write to the Pod as it ends: ``test_a_verdict_lands_though_others_write_to_the_pod``.
3. The VM's folder removed, then the Pod: ``test_a_pod_goes_whose_vm_was_taken_away``.
4. Each verb of tart hung in turn: ``tests/e2e/test_agent_hangs.py``.
5. The disk full on pull and on clone: ``test_a_disk_runs_full``. With all goldens in use:
   ``test_a_full_disk_takes_nothing_from_who_is_alive``.
6. The Node deleted: ``test_a_node_that_is_deleted_comes_back_and_its_job_goes_on``.
7. Two Pods of one new image: ``test_two_pods_of_a_new_image_make_one_pull``.
8. ``X`` and ``X-2``: ``test_a_name_that_begins_like_another_is_another``.
9. A guest that writes links, pipes, floods and 999: ``test_a_hostile_guest_ends_itself_and_nothing_else``. Each file
   and each reader of it: ``tests/unit/agent/test_mailbox.py``.
10. A crash with exit code 0: ``test_machines_that_work_and_crash``.
11. A lease that outlives its guest: ``test_a_hostile_guest_ends_itself_and_nothing_else``, where it halts.
12. A tag moved while it is used: ``test_a_tag_that_moves_moves_nobody``.
16. A running orphan without a Pod: ``test_an_orphan_that_runs_is_stopped_and_removed``.
17. A third VM: ``test_a_third_vm_waits_for_a_slot_and_is_never_tried``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from remuda.kube.core import NODE, POD
from remuda.kube.patches import MergePatch
from remuda.ports.vms import golden_name, vm_name
from tests.support.eventually import eventually
from tests.support.macs import GUEST, push_runner_image
from tests.support.tart.faults import FOREVER, Fault
from tests.support.tart.installed import StandIn
from tests.support.tart.leases import read as read_leases
from tests.support.tart.qemu_parts import qemu_parts_or_skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.pasture import Paddock, Pasture

pytestmark = pytest.mark.asyncio(loop_scope="session")

BOOT_S = 240.0
"""Two machines without acceleration, beside others. Those that are up end the wait."""
STORM = 30
"""Writes of others, once the agent has written down how the Pod ended."""
HOSTILE = """\
#!/bin/sh
# A guest that means harm: which, its job says.
box="$GUEST_SHARES/mailbox"
: > "$box/ready"
until [ -s "$box/job.json" ]; do sleep 0.1; done
job=$(cat "$box/job.json")
: > "$box/started"
case $job in
*misdeed=link*) ln -s @SECRET@ "$box/runner.log"; ln -s @SECRET@ "$box/exit.json" ;;
*misdeed=fifo*) mkfifo "$box/runner.log" "$box/exit.json" ;;
*misdeed=code*) printf '{"code":999,"reason":"all is well"}' > "$box/exit.json" ;;
*misdeed=huge*) dd if=/dev/zero of="$box/runner.log" bs=1048576 count=80; sleep 3600 ;;
esac
"""
MARKED = """\
#!/bin/sh
export REMUDA_MAILBOX="$GUEST_SHARES/mailbox" REMUDA_WORK="$PWD/work" REMUDA_POWER_OFF=true
export REMUDA_NAP_SECONDS=0.1 MARK={mark}
exec {guest}
"""
MACHINE = """\
#!/bin/sh
export REMUDA_MAILBOX="$GUEST_SHARES/mailbox" REMUDA_WORK=/root/work REMUDA_POWER_OFF=true
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(pasture: Pasture) -> AsyncIterator[Paddock]:
    """Put up the host on which most scenarios are played."""
    async with pasture.a_mac() as paddock:
        yield paddock


@pytest_asyncio.fixture(loop_scope="session")
async def mac(shared: Paddock) -> AsyncIterator[Paddock]:
    """Have that host, empty before and after."""
    yield shared
    await shared.tidy()


@pytest.fixture
def machines() -> Iterator[StandIn]:
    """Install a stand-in whose guests are real machines. Its path is short: sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="remuda-m-"))
    stand_in = StandIn(folder, backend="qemu")
    qemu_parts_or_skip(stand_in.desk.folder)
    yield stand_in
    shutil.rmtree(folder, ignore_errors=True)


# --- 2, 3: how a Pod ends --------------------------------------------------------------------------------------------


async def test_a_verdict_lands_though_others_write_to_the_pod(mac: Paddock, tmp_path: Path) -> None:
    pool = await mac.pool("storm", await mac.pasture.image("runner"))
    (runner,) = await mac.warm(pool)
    go = tmp_path / "go"
    job = await mac.ranch.post(pool, f"{until(go)}; exit 3")
    await mac.ranch.until_job(job, "running")

    async with mac.kept(runner) as ended:
        async with asyncio.TaskGroup() as group:
            for writer in range(3):
                group.create_task(storm(mac, runner.name, writer))
            go.touch()
        over = await ended()

        assert (over.status.phase, terminated(over)["exitCode"]) == ("Failed", 3)
        wrote = {over.metadata.annotations[f"storm-{writer}"] for writer in range(3)}
        assert len(wrote) == 1, "nobody's words were lost"
    await mac.gone(runner)


async def storm(mac: Paddock, pod: str, writer: int) -> None:
    """Write to a Pod without a pause, until a good while after the agent knows how it ended."""
    left = STORM
    while left > 0:
        patch = MergePatch({"metadata": {"annotations": {f"storm-{writer}": str(left)}}})
        written = await mac.ranch.kube.patch(POD, pod, patch, namespace=mac.ranch.namespace)
        left -= 1 if mac.state(written) in {"exited", "cleared"} else 0


async def test_a_pod_goes_whose_vm_was_taken_away(mac: Paddock) -> None:
    pool = await mac.pool("robbed", await mac.pasture.image("runner"))
    (runner,) = await mac.warm(pool)
    vm = vm_name(runner.uid)
    (boot,) = mac.tart.boots(vm)

    await asyncio.to_thread(shutil.rmtree, mac.tart.vm(vm).folder)
    await mac.ranch.kube.delete(POD, runner.name, namespace=mac.ranch.namespace)

    await mac.gone(runner)
    await eventually(lambda: is_over(boot["pid"]), within_s=60)
    await mac.warm(pool, 1, runner)


# --- 5: no room ------------------------------------------------------------------------------------------------------


async def test_a_disk_runs_full(mac: Paddock) -> None:
    """On pull: what nobody uses goes, to the last, and it is tried once more. On clone: the same."""
    old, new = await mac.pasture.image("old"), await mac.pasture.image("new")
    pool = await mac.pool("old", old)
    await mac.warm(pool)
    await mac.drop(pool)
    assert golden_name(old) in mac.mac.vms()

    mac.order(Fault(verb="pull", kind="no_space"))
    pool = await mac.pool("new", new)
    (runner,) = await mac.warm(pool)
    assert golden_name(old) not in mac.mac.vms()
    assert len(mac.begun("pull", new)) == 2
    await mac.drop(pool)

    pool = await mac.pool("old", old)
    await mac.warm(pool)
    await mac.drop(pool)
    mac.order(Fault(verb="clone", kind="no_space"))
    pool = await mac.pool("new", new)
    runner = await mac.appeared(pool)
    await mac.until_event(runner, "NoSpace")
    await mac.warm(pool)
    assert golden_name(old) not in mac.mac.vms()
    assert golden_name(new) in mac.mac.vms()


async def test_a_full_disk_takes_nothing_from_who_is_alive(mac: Paddock) -> None:
    live, unwanted = await mac.pasture.image("runner"), await mac.pasture.image("late")
    pool = await mac.pool("live", live)
    (runner,) = await mac.warm(pool)
    mac.order(Fault(verb="pull", kind="no_space", times=FOREVER))
    late = await mac.pool("late", unwanted)
    starved = await mac.appeared(late)
    assert "No space left" in await mac.until_event(starved, "NoSpace")

    job = await mac.ranch.post(pool, "echo alive")
    assert (await mac.ranch.until_job(job))["conclusion"] == "success"
    assert golden_name(live) in mac.mac.vms()
    assert mac.tart.boots(vm_name(starved.uid)) == []

    mac.order()
    await mac.warm(late)
    await mac.gone(runner)


# --- 6, 7, 8: names and objects --------------------------------------------------------------------------------------


async def test_a_node_that_is_deleted_comes_back_and_its_job_goes_on(
    mac: Paddock, tmp_path: Path
) -> None:
    pool = await mac.pool("steady", await mac.pasture.image("runner"))
    (runner,) = await mac.warm(pool)
    go = tmp_path / "go"
    job = await mac.ranch.post(pool, until(go))
    await mac.ranch.until_job(job, "running")
    before = await mac.ranch.node(mac.host)
    assert before is not None

    await mac.ranch.kube.delete(NODE, mac.host)

    def is_whole(node: Any) -> bool:  # noqa: ANN401 - a Node or none
        if node is None or node.uid == before.uid:
            return False
        ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
        return ready and node.labels.get("remuda.dev/fleet") == mac.fleet

    await eventually(lambda: mac.ranch.node(mac.host), is_whole, within_s=60)
    await mac.lease_renewed()
    go.touch()
    assert (await mac.ranch.until_job(job))["conclusion"] == "success"
    assert len(mac.tart.boots(vm_name(runner.uid))) == 1
    await mac.warm(pool, 1, runner)


async def test_two_pods_of_a_new_image_make_one_pull(mac: Paddock) -> None:
    image = await mac.pasture.image("fresh")
    mac.order(Fault(verb="pull", kind="slow", seconds=3))  # so that both wait for it
    pool = await mac.pool("twins", image, replicas=2)
    pods = await mac.warm(pool, 2)

    async def told() -> list[str]:
        said = [event for pod in pods for event in await mac.ranch.events(pod.name)]
        return [message for reason, message in said if reason == "PullingImage"]

    assert image in (await eventually(told, within_s=60))[0]
    assert len(mac.begun("pull", image)) == 1
    assert len(mac.begun("clone", golden_name(image))) == 1


async def test_a_name_that_begins_like_another_is_another(mac: Paddock) -> None:
    image = await mac.pasture.image("runner")
    short, long = await mac.pool("x", image), await mac.pool("x-2", image)
    (one,), (two,) = await mac.warm(short), await mac.warm(long)
    theirs = f"{vm_name(one.uid)}-2"
    await asyncio.to_thread(mac.tart.make, theirs)

    await mac.drop(short)

    await mac.gone(one)
    job = await mac.ranch.post(long, "echo still here")
    assert (await mac.ranch.until_job(job))["conclusion"] == "success"
    assert (await mac.ranch.session(two.name))["job_id"] == job
    assert theirs in mac.mac.vms()
    mac.tart.call("delete", theirs)


# --- 9, 11, 12: guests and images ------------------------------------------------------------------------------------


async def test_a_hostile_guest_ends_itself_and_nothing_else(mac: Paddock, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"code":0,"reason":"a-secret-of-the-host"}')
    program = HOSTILE.replace("@SECRET@", str(secret))
    pool = await mac.pool("hostile", await mac.pasture.image("hostile", program), replicas=2)
    expected = {
        "link": "NoExitReported",
        "fifo": "NoExitReported",
        "code": "NoExitReported",
        "halt": "NoExitReported",
        "huge": "MailboxOverfull",
    }
    jobs = {misdeed: await mac.ranch.post(pool, f"misdeed={misdeed}") for misdeed in expected}
    for misdeed, job in jobs.items():
        over = await mac.ranch.until_job(job)
        assert over["conclusion"] == "failure", misdeed
        await mac.until_event(await ran(mac, job), expected[misdeed])
        assert "a-secret" not in await mac.ranch.output(job)
    assert secret.exists()
    leases = read_leases(mac.tart.desk.folder / "dhcpd_leases")
    assert len(leases) >= len(expected), "each guest has a lease yet, and its Pod has ended"


async def test_a_tag_that_moves_moves_nobody(mac: Paddock, tmp_path: Path) -> None:
    first = await marked(mac, tmp_path / "one", "one")
    pool = await mac.pool("tagged", first)
    (runner,) = await mac.warm(pool)
    second = await marked(mac, tmp_path / "two", "two")
    assert first.partition("@")[0] == second.partition("@")[0]
    assert first != second

    for _ in range(2):
        job = await mac.ranch.post(pool, "echo mark=$MARK")
        assert (await mac.ranch.until_job(job))["conclusion"] == "success"
        assert "mark=one\n" in await mac.ranch.output(job)
        (runner,) = await mac.warm(pool, 1, runner)
    # Whoever takes golden and cached image away: the digest is what is fetched again, whatever the tag is now.
    for name in (golden_name(first), first):
        assert mac.tart.call("delete", name).returncode == 0
    job = await mac.ranch.post(pool, "true")
    await mac.ranch.until_job(job)
    await mac.warm(pool, 1, runner)
    job = await mac.ranch.post(pool, "echo mark=$MARK")
    await mac.ranch.until_job(job)
    assert "mark=one\n" in await mac.ranch.output(job)


async def marked(mac: Paddock, folder: Path, mark: str) -> str:
    program = MARKED.format(mark=mark, guest=GUEST)
    return await asyncio.to_thread(
        push_runner_image, mac.pasture.registry, folder, "tagged", program=program
    )


# --- 16, 17: who may run ---------------------------------------------------------------------------------------------


async def test_an_orphan_that_runs_is_stopped_and_removed(mac: Paddock) -> None:
    pool = await mac.pool("orphan", await mac.pasture.image("runner"))
    (runner,) = await mac.warm(pool)
    vm = vm_name(runner.uid)
    (boot,) = mac.tart.boots(vm)
    await mac.scale(pool, 0)
    agents = mac.ranch.agents
    assert await asyncio.to_thread(agents.stop, mac.host) == 0
    # Somebody removes the Pod by force, finalizer and all, while nobody keeps its VM.
    where = f"--namespace={mac.ranch.namespace}"
    kubectl = mac.ranch.plane.kubectl
    await asyncio.to_thread(
        kubectl, "delete", "pod", runner.name, where, "--force", "--grace-period=0", "--wait=false"
    )
    freed = '--patch={"metadata":{"finalizers":null}}'
    await asyncio.to_thread(kubectl, "patch", "pod", runner.name, where, "--type=merge", freed)
    await eventually(lambda: mac.ranch.pod(runner.name), lambda pod: pod is None, within_s=60)
    assert mac.mac.vms()[vm] == "running"

    agents.start(mac.host)
    await agents.ready(mac.host)

    await mac.gone(runner)
    await eventually(lambda: is_over(boot["pid"]), within_s=60)
    assert len(mac.tart.boots(vm)) == 1
    assert await mac.metric('remuda_agent_garbage_removed_total{kind="vm"}') == 1


async def test_a_third_vm_waits_for_a_slot_and_is_never_tried(mac: Paddock) -> None:
    image = await mac.pasture.image("runner")
    pool = await mac.pool("crowd", image)
    (first,) = await mac.warm(pool)
    mac.order(Fault(verb="set", kind="hang"))
    await mac.scale(pool, 2)
    second = await mac.appeared(pool, first)
    await mac.until_taken()
    # While its VM is being made, somebody on the host takes the slot that it was promised.
    await asyncio.to_thread(mac.tart.make, "theirs")
    theirs = mac.tart.start("run", "theirs", "--no-graphics")
    await eventually(
        lambda: asyncio.to_thread(mac.mac.vms), lambda vms: vms["theirs"] == "running", within_s=60
    )
    os.kill(mac.begun("set", vm_name(second.uid))[0]["pid"], signal.SIGKILL)

    await mac.until_event(second, "WaitingForSlot")
    assert mac.begun("run", vm_name(second.uid)) == []
    job = await mac.ranch.post(pool, "echo with two")
    assert (await mac.ranch.until_job(job))["conclusion"] == "success"

    mac.tart.kill(theirs)
    assert mac.tart.call("delete", "theirs").returncode == 0
    await mac.warm(pool, 2, first)
    assert len(mac.begun("run", vm_name(second.uid))) == 1


# --- 1, 10: real machines --------------------------------------------------------------------------------------------


async def test_machines_that_work_and_crash(pasture: Pasture, machines: StandIn) -> None:
    image = await pasture.image("machine", MACHINE + GUEST.read_text())
    async with pasture.a_mac(tart=machines) as mac:
        pool = await mac.pool("machines", image, replicas=2)
        await mac.warm(pool, 2, within_s=BOOT_S)
        crash = await mac.ranch.post(pool, "echo c > /proc/sysrq-trigger; sleep 3600")
        works = await mac.ranch.post(pool, "sleep 5; uname -m; exit 7")
        await mac.ranch.until_job(works, "running", "completed")
        mac.ranch.agents.kill(mac.host)
        mac.ranch.agents.start(mac.host)
        await mac.ranch.agents.ready(mac.host)

        over = await mac.ranch.until_job(crash)
        assert over["conclusion"] == "failure"
        await mac.until_event(await ran(mac, crash), "VmCrashed")
        over = await mac.ranch.until_job(works)
        worker = await ran(mac, works)
        assert (await mac.ranch.session(worker))["exit_code"] == 7
        assert "x86_64\n" in await mac.ranch.output(works)
        await mac.tidy()
        boots = [note["vm"] for note in mac.tart.desk.journal() if note["event"] == "boot"]
        assert len(boots) == len(set(boots)), "a disk boots once"


# --- helpers ---------------------------------------------------------------------------------------------------------


def until(go: Path) -> str:
    """Return a script that waits for a file, but not for ever: a test that fails leaves no job behind."""
    return f"for n in $(seq 900); do if [ -e {go} ]; then break; fi; sleep 0.1; done"


async def is_over(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def ran(mac: Paddock, job: str) -> str:
    """Return the name of the runner that a job was given to."""
    return str((await mac.ranch.api.get(f"/api/v1/jobs/{job}"))["pod"])


def terminated(pod: Any) -> dict[str, Any]:  # noqa: ANN401 - a Pod
    state = pod.status.container_statuses[0].state.terminated
    return {"exitCode": state.exit_code, "reason": state.reason}
