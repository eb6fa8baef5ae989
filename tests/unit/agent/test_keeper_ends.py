"""How Pods end, and what is left on the host and in the cluster then."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from remuda.agent.parts import Denied
from remuda.kube.core import POD
from remuda.kube.names import JOB_DELIVERED, VM_CLEANUP
from remuda.kube.patches import MergePatch
from remuda.model.mailbox import READY
from remuda.ports.desk import GoHome, HandedJob, JobKind
from remuda.ports.vms import vm_name
from tests.unit.agent.barn import SPACE, Barn, played, scenario
from tests.unit.agent.mortal import Life
from tests.unit.pools.ranch import Hurt


async def _reason(barn: Barn, name: str = "mac-1") -> str:
    pod = await barn.pod(name)
    assert pod is not None
    end = pod.status.container_statuses[0].state.terminated
    return end.reason if end is not None else ""


async def _gone_and_clean(barn: Barn, name: str = "mac-1") -> None:
    await barn.delete_pod(name)
    await barn.until_gone(name)
    await barn.until_clean()


@scenario()
async def test_a_pod_that_is_deleted_before_it_was_touched_just_goes(barn: Barn) -> None:
    uid = await barn.add_pod()
    await barn.delete_pod()
    barn.start()
    await barn.until_gone()
    assert barn.host.vms.boots[vm_name(uid)] == 0
    assert not barn.left()


@scenario()
async def test_a_pod_that_has_ended_is_never_provisioned_again(barn: Barn) -> None:
    uid = await barn.add_pod()
    await barn.kube.patch(
        POD,
        "mac-1",
        MergePatch({"status": {"phase": "Failed"}}),
        namespace=SPACE,
        subresource="status",
    )
    barn.start()
    await barn.later(700)
    assert barn.host.vms.boots[vm_name(uid)] == 0
    assert not barn.left()
    await _gone_and_clean(barn)


@scenario()
async def test_a_pod_that_is_terminal_and_deleting_loses_its_finalizer(barn: Barn) -> None:
    await barn.add_pod()
    patch = MergePatch({"metadata": {"finalizers": [VM_CLEANUP]}, "status": {"phase": "Failed"}})
    await barn.kube.patch(POD, "mac-1", patch, namespace=SPACE, subresource="status")
    await barn.delete_pod()
    barn.start()
    await barn.until_gone()


@scenario()
async def test_a_pod_that_is_deleted_in_its_job_goes_after_its_vm(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    await barn.delete_pod()

    async def gone() -> bool:
        if await barn.pod() is not None:
            return False
        assert vm_name(uid) not in barn.host.disk.vms, "its Pod went before its VM"
        return True

    await barn.until(gone)
    await barn.until_clean()
    assert barn.host.dispatch.ended["job-1"].reason == "Deleted"


@scenario()
async def test_a_pod_that_is_deleted_while_its_image_is_pulled_does_not_wait_for_it(
    barn: Barn,
) -> None:
    barn.host.vms.hangs.add(("pull", ""))
    barn.start()
    await barn.add_pod()
    await barn.later(5)
    await barn.delete_pod()
    await barn.until_gone(within_s=5)
    await barn.until_clean()


@scenario()
async def test_a_runner_that_is_sent_home_has_succeeded(barn: Barn) -> None:
    barn.start()
    await barn.add_pod()
    barn.host.dispatch.queue.put_nowait(GoHome("the pool is rolled"))
    await barn.until_phase("Succeeded")
    pod = await barn.pod()
    assert pod is not None
    end = pod.status.container_statuses[0].state.terminated
    assert end is not None
    assert "the pool is rolled" in end.message
    await _gone_and_clean(barn)


@scenario()
async def test_a_runner_that_dispatch_denies_fails_loudly(barn: Barn) -> None:
    barn.start()
    await barn.add_pod()
    barn.host.dispatch.queue.put_nowait(Denied("TokenRefused", "dispatch does not take its token"))
    await barn.until_phase("Failed")
    assert await _reason(barn) == "TokenRefused"
    assert "TokenRefused" in await barn.reasons()
    await _gone_and_clean(barn)


@scenario(ready_timeout_s=60.0)
async def test_a_guest_that_is_never_ready_is_given_up(barn: Barn) -> None:
    barn.host.guests.silent = True
    barn.start()
    await barn.add_pod()
    await barn.until_phase("Failed", within_s=120)
    assert await _reason(barn) == "GuestNotReady"
    assert "GuestNotReady" in await barn.reasons()
    await _gone_and_clean(barn)


@scenario()
async def test_an_image_that_does_not_exist_fails_the_pod(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod(image="registry.test/nothing@sha256:" + "b" * 64)
    await barn.until_phase("Failed")
    assert await _reason(barn) == "VMRefused"
    assert barn.host.vms.boots[vm_name(uid)] == 0
    await _gone_and_clean(barn)


@scenario()
async def test_a_job_that_dispatch_wants_stopped_is_stopped(barn: Barn) -> None:
    barn.start()
    await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    barn.host.dispatch.stop.set_result("its owner cancelled it")
    await barn.until_phase("Failed")
    assert await _reason(barn) == "Cancelled"
    await _gone_and_clean(barn)


@scenario()
async def test_a_job_that_takes_longer_than_it_may_is_ended(barn: Barn) -> None:
    barn.host.guests.job_s = 10_000
    barn.start()
    await barn.add_pod()
    deadline = barn.clock.now() + timedelta(seconds=100)
    barn.host.dispatch.add(deadline=deadline.isoformat())
    await barn.until_phase("Failed", within_s=200)
    assert await _reason(barn) == "DeadlineExceeded"


@scenario()
async def test_a_guest_that_fills_its_mailbox_is_ended(barn: Barn) -> None:
    barn.host.guests.job_s = 10_000
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    box = barn.host.vms.mailbox(vm_name(uid))
    for number in range(1000):
        (box / f"junk-{number}").touch()
    await barn.until_phase("Failed", within_s=60)
    assert await _reason(barn) == "MailboxOverfull"
    await _gone_and_clean(barn)


@scenario()
async def test_an_exit_code_of_the_guest_is_its_verdict(barn: Barn) -> None:
    barn.host.guests.code = 3
    barn.start()
    await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_phase("Failed")
    pod = await barn.pod()
    assert pod is not None
    end = pod.status.container_statuses[0].state.terminated
    assert end is not None
    assert (end.exit_code, end.reason) == (3, "Error")


@scenario()
async def test_a_vm_that_vanishes_in_its_job_fails_its_pod(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    del barn.host.disk.vms[vm_name(uid)]
    await barn.until_phase("Failed")
    assert await _reason(barn) == "NoExitReported"
    await _gone_and_clean(barn)


@scenario()
async def test_what_ended_before_its_pod_was_read_is_told_all_the_same(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    await barn.stop()
    barn.host.vms.halt(vm_name(uid))
    barn.tap.hurts.append(Hurt(r"GET .*/pods", "dropped", times=4))  # so it is settled unread
    barn.start()
    await barn.until_phase("Failed")
    await barn.later(30)
    assert (await barn.reasons()).count("NoExitReported") == 1


@scenario()
async def test_a_guest_that_powers_off_without_a_job_fails_its_pod(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    barn.host.vms.halt(vm_name(uid))
    await barn.until_phase("Failed")
    assert await _reason(barn) == "NoJob"


@scenario()
async def test_a_dispatch_that_never_answers_holds_no_disk_for_ever(barn: Barn) -> None:
    barn.host.dispatch.deaf = True
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_phase("Succeeded", within_s=120)

    async def deleted() -> bool:
        return vm_name(uid) not in barn.host.disk.vms

    await barn.until(deleted, within_s=200)
    assert uid in barn.host.kept, "the log was not kept"
    await _gone_and_clean(barn)


@scenario()
async def test_a_pods_end_waits_for_a_dispatch_that_is_away_as_its_token_goes_with_it(
    barn: Barn,
) -> None:
    barn.host.dispatch.deaf = True
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()

    async def is_over() -> bool:
        vm = barn.host.disk.vms.get(vm_name(uid))
        return vm is not None and not vm.running and barn.host.vms.boots[vm_name(uid)] == 1

    await barn.until(is_over)
    await barn.later(50)
    assert await barn.phase() == "Running"
    assert "StepFailed" in await barn.reasons(), "nobody says why it stays"
    barn.host.dispatch.deaf = False
    await barn.until_phase("Succeeded")
    assert barn.host.dispatch.ended["job-1"].exit_code == 0
    await _gone_and_clean(barn)


@scenario()
async def test_an_end_while_nobody_was_there_is_told_to_a_dispatch_that_comes_back_later(
    barn: Barn,
) -> None:
    """As after a power cut of all but the VM: the agent is back before dispatch is."""
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    await barn.stop()
    await barn.later(600)
    said = json.dumps({"code": 0, "finished_at": barn.host.clock.now().isoformat()})
    box = barn.host.vms.mailbox(vm_name(uid))
    assert (box / "exit.json").exists(), "the guest has not ended"
    (box / "exit.json").write_text(said)
    await barn.later(600)
    barn.host.dispatch.deaf = True
    barn.start()
    await barn.until_phase("Succeeded")
    await barn.later(30)
    barn.host.dispatch.deaf = False
    await _gone_and_clean(barn)
    assert barn.host.dispatch.ended["job-1"].exit_code == 0


@scenario()
async def test_a_job_config_is_out_of_the_mailbox_within_a_second(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    box = barn.host.vms.mailbox(vm_name(uid))

    async def started() -> bool:
        return (box / "started").exists()

    await barn.until(started)
    await barn.later(1.0)
    assert not (box / "job.json").exists()
    assert (box / READY).exists()


@scenario()
async def test_a_pod_that_went_while_nobody_looked_leaves_its_vm_to_garbage(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    await barn.stop()
    patch = MergePatch({"metadata": {"finalizers": None}})
    await barn.kube.patch(POD, "mac-1", patch, namespace=SPACE)
    await barn.kube.delete(POD, "mac-1", namespace=SPACE, grace_s=0)
    barn.start()
    await barn.later(60)
    assert barn.host.disk.vms[vm_name(uid)].running, "only garbage may end an orphan"
    assert barn.keeper is not None
    assert uid in barn.keeper.pods.gone_since
    # As garbage does:
    await barn.host.vms.stop(vm_name(uid), grace_s=0)
    await barn.host.vms.delete(vm_name(uid))
    barn.keeper.wake(uid)
    await barn.until_clean()
    assert uid not in barn.keeper.pods.gone_since


@scenario()
async def test_a_mailbox_is_removed_beside_the_loop_however_full_its_guest_left_it(
    barn: Barn,
) -> None:
    barn.start()
    await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_phase("Succeeded")
    await _gone_and_clean(barn)
    removed = barn.life.points.count("before remove mailbox")
    assert barn.aside.count("MortalMailbox.remove") == removed > 0


class _Until(Life):
    """A life that ends at a point by its name."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def point(self, what: str) -> None:
        if what == self.what:
            self.ends_at = len(self.points)
        super().point(what)


@pytest.mark.parametrize("point", ["after put job", "before take job"])
def test_a_job_that_ended_while_no_agent_lived_was_delivered_all_the_same(point: str) -> None:
    async def play(barn: Barn) -> None:
        barn.start(_Until(point))
        uid = await barn.add_pod()
        barn.host.dispatch.add()
        assert barn.agent is not None
        await asyncio.wait({barn.agent})
        # A Pod of which nobody has told yet that it has its job: the server was away then.
        patch = MergePatch({"status": {"conditions": []}})
        await barn.kube.patch(POD, "mac-1", patch, namespace=SPACE, subresource="status")
        await barn.later(60)
        assert not barn.host.disk.vms[vm_name(uid)].running, "its job is over"
        barn.start()
        await barn.until_phase("Succeeded")
        assert await barn.condition(JOB_DELIVERED) == "True"
        await _gone_and_clean(barn)

    played(play)


@scenario()
async def test_an_orphan_that_never_got_its_job_is_not_left_to_it(barn: Barn) -> None:
    """Garbage collection leaves a day to a job; one that never came must not hold a slot for as long."""
    barn.start(_Until("before put job"))
    uid = await barn.add_pod()
    barn.host.dispatch.queue.put_nowait(
        HandedJob(
            job_id="job-1",
            kind=JobKind.LOCAL,
            runner_name="r",
            document=b'{"job_id": "job-1", "script": "true"}',
            wants_files=True,
        )
    )
    assert barn.agent is not None
    await asyncio.wait({barn.agent})
    patch = MergePatch({"metadata": {"finalizers": None}})
    await barn.kube.patch(POD, "mac-1", patch, namespace=SPACE)
    await barn.kube.delete(POD, "mac-1", namespace=SPACE, grace_s=0)

    def record() -> tuple[str, bool]:
        written = (barn.host.folder / "records/vms" / f"{uid}.json").read_bytes()
        found = json.loads(written)["record"]
        return found["state"], found.get("job_files", False)

    assert record() == ("delivering", True)
    barn.start()
    await barn.later(60)
    assert record() == ("started", False)
    assert barn.host.disk.vms[vm_name(uid)].running, (
        "stopped by garbage collection, after its grace"
    )
