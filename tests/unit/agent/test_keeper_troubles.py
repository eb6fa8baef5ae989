"""What goes wrong on one VM, at the API server or in the agent itself: it stays there, and it heals."""

from __future__ import annotations

import json
import shutil

import pytest

from remuda.agent.decide.recorded import State
from remuda.kube.core import POD
from remuda.kube.names import JOB_DELIVERED, VM_CLEANUP
from remuda.kube.patches import JsonPatch, MergePatch
from remuda.ports.desk import HandedJob
from remuda.ports.vms import HostUnfit, NoSlot, VmsError, vm_name
from tests.support.memory_vms import _Vm
from tests.unit.agent.barn import IMAGE, SPACE, Barn, played, scenario
from tests.unit.pools.ranch import Hurt

STATUS = r"PATCH .*/pods/mac-1/status"


async def _reason(barn: Barn, name: str = "mac-1") -> str:
    pod = await barn.pod(name)
    assert pod is not None
    end = pod.status.container_statuses[0].state.terminated
    return end.reason if end is not None else ""


# --- hung and failing calls -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["get", "clone", "set", "run", "stop", "delete"])
def test_a_call_that_hangs_on_one_vm_delays_no_other_and_is_tried_again(op: str) -> None:
    async def play(barn: Barn) -> None:
        barn.start()
        stuck = await barn.add_pod("stuck")
        barn.host.vms.hangs.add((op, vm_name(stuck)))
        other = await barn.add_pod("other")
        for job in ("job-1", "job-2"):
            barn.host.dispatch.add(job)
        await barn.until_phase("Succeeded", "other", within_s=60)
        assert barn.host.vms.boots[vm_name(other)] == 1
        await barn.later(120)
        if op != "run":  # that one is never tried again
            assert "VMStuck" in await barn.reasons()
        barn.host.vms.hangs.clear()
        await barn.until_phase("Failed" if op == "run" else "Succeeded", "stuck")
        assert barn.host.vms.boots[vm_name(stuck)] <= 1
        for name in ("stuck", "other"):
            await barn.delete_pod(name)
            await barn.until_gone(name)
        await barn.until_clean()

    played(play)


@scenario()
async def test_a_list_that_hangs_stops_nobody_who_knows_the_host(barn: Barn) -> None:
    barn.start()
    await barn.later(5)
    barn.host.vms.hangs.add(("list", ""))
    await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_phase("Succeeded", within_s=120)


@scenario()
async def test_a_start_that_fails_fails_the_pod_with_its_reason(barn: Barn) -> None:
    barn.host.vms.fails["run"] = VmsError("It did not start", why="no such device", fix="Add one")
    barn.start()
    uid = await barn.add_pod()
    await barn.until_phase("Failed")
    pod = await barn.pod()
    assert pod is not None
    end = pod.status.container_statuses[0].state.terminated
    assert end is not None
    assert end.reason == "StartFailed"
    assert "no such device" in end.message
    assert "StartFailed" in await barn.reasons()
    assert barn.host.vms.boots[vm_name(uid)] == 0


@scenario()
async def test_a_full_disk_is_told_and_waited_for(barn: Barn) -> None:
    barn.host.disk.free_bytes = 1
    barn.start()
    await barn.add_pod()
    await barn.later(60)
    assert await barn.phase() == "Pending"
    assert (await barn.reasons()).count("NoSpace") == 1, "once per step, not per try"
    barn.host.disk.free_bytes = 10_000
    await barn.until_condition("Ready")


@scenario()
async def test_an_image_that_was_changed_before_the_disk_was_made_is_the_one_written_down(
    barn: Barn,
) -> None:
    other = IMAGE.replace("a" * 64, "b" * 64)
    barn.host.disk.registry[other] = 10
    barn.host.vms.fails["pull"] = VmsError("Not pulled", why="the registry is down", fix="Wait")
    barn.start()
    uid = await barn.add_pod()
    await barn.later(0.1)
    patch = JsonPatch(({"op": "replace", "path": "/spec/containers/0/image", "value": other},))
    await barn.kube.patch(POD, "mac-1", patch, namespace=SPACE)
    await barn.until_condition("Ready")
    assert set(barn.host.vms.pulls) == {other}
    written = json.loads((barn.host.folder / "records/vms" / f"{uid}.json").read_bytes())
    assert written["record"]["image"] == other, "else its golden may be collected from under it"


@scenario()
async def test_a_host_that_can_run_no_vm_says_so_until_it_can(barn: Barn) -> None:
    barn.host.vms.fails["clone"] = HostUnfit("No VM", why="nobody is logged in", fix="Log in")
    barn.start()
    await barn.add_pod()

    async def unfit() -> bool:
        return barn.keeper is not None and "nobody is logged in" in barn.keeper.unfit

    await barn.until(unfit)
    await barn.until_condition("Ready")
    assert barn.keeper is not None
    assert not barn.keeper.unfit


@scenario()
async def test_a_bug_in_the_care_of_one_pod_is_counted_and_ends_nobody(barn: Barn) -> None:
    barn.host.vms.fails["clone"] = ZeroDivisionError("a bug")
    barn.start()
    await barn.add_pod("one")
    await barn.add_pod("two")
    await barn.until_condition("Ready", "one")
    await barn.until_condition("Ready", "two")
    assert barn.metric("unexpected_errors_total") == 1


# --- the API server ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["dropped", "lost", "hangs", "throttled", "refused"])
def test_a_verdict_is_written_until_it_is_there(how: str) -> None:
    async def play(barn: Barn) -> None:
        barn.start()
        uid = await barn.add_pod()
        barn.host.dispatch.add()
        await barn.until_condition(JOB_DELIVERED)
        barn.tap.hurts.append(Hurt(STATUS, how, times=6, body=b"Succeeded"))
        await barn.later(21)
        barn.keeper.measure()  # type: ignore[union-attr]  # it was started
        if how != "lost":
            assert barn.metric("status_writes_pending") == 1
        await barn.until_phase("Succeeded")
        assert barn.host.vms.boots[vm_name(uid)] == 1
        await barn.later(6)
        assert barn.metric("status_writes_pending") == 0

    played(play)


@scenario()
async def test_writes_that_meet_others_look_again(barn: Barn) -> None:
    """Somebody else writes to the Pod right before each of our writes."""
    number = 0

    async def meddle(said: str) -> None:
        nonlocal number
        number += 1
        if "/pods/" in said and number % 2:
            patch = MergePatch({"metadata": {"labels": {"number": str(number)}}})
            await barn.kube.patch(POD, "mac-1", patch, namespace=SPACE)

    barn.start()
    await barn.add_pod()
    barn.tap.before = meddle
    barn.host.dispatch.add()
    await barn.until_phase("Succeeded")
    barn.tap.before = None
    pod = await barn.pod()
    assert pod is not None
    assert "number" in pod.metadata.labels, "what others wrote was lost"


@scenario()
async def test_a_server_that_is_away_hides_no_end_for_ever(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    barn.tap.hurts.append(Hurt(r".*", "dropped", times=10_000))
    await barn.stop()
    barn.start()
    await barn.later(60)
    assert not barn.host.disk.vms[vm_name(uid)].running, "its job is over"
    assert await barn.phase() == "Running"
    barn.tap.hurts.clear()
    await barn.until_phase("Succeeded")


@scenario()
async def test_a_node_is_refused_what_is_gone_and_believes_only_the_list(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_phase("Succeeded")
    barn.tap.hurts.append(Hurt(r"GET .*/pods/mac-1", "refused", times=10_000))
    await barn.delete_pod()
    await barn.until_gone()
    await barn.until_clean()
    assert barn.host.vms.boots[vm_name(uid)] == 1


@scenario()
async def test_a_pod_whose_absence_cannot_be_proven_keeps_its_vm(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    await barn.stop()
    barn.tap.hurts.append(Hurt(r"GET .*/pods/mac-1$", "dropped", times=10_000))
    await barn.kube.patch(
        POD, "mac-1", MergePatch({"metadata": {"finalizers": None}}), namespace=SPACE
    )
    await barn.kube.delete(POD, "mac-1", namespace=SPACE, grace_s=0)
    barn.start()
    await barn.later(120)
    assert barn.keeper is not None
    assert not barn.keeper.pods.gone_since
    assert barn.host.disk.vms[vm_name(uid)].running
    barn.tap.hurts.clear()
    await barn.later(120)
    assert uid in barn.keeper.pods.gone_since


@scenario()
async def test_a_finalizer_that_somebody_takes_off_is_put_on_again(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    patch = MergePatch({"metadata": {"finalizers": None}})
    await barn.kube.patch(POD, "mac-1", patch, namespace=SPACE)

    async def held() -> bool:
        pod = await barn.pod()
        return pod is not None and VM_CLEANUP in pod.metadata.finalizers

    await barn.until(held, within_s=10)
    barn.host.dispatch.add()
    await barn.until_phase("Succeeded")
    assert barn.host.vms.boots[vm_name(uid)] == 1


# --- whose it is ------------------------------------------------------------------------------------------------------


@scenario()
async def test_a_vm_of_somebody_else_under_our_name_is_not_touched(barn: Barn) -> None:
    uid = await barn.add_pod()
    barn.host.disk.vms[vm_name(uid)] = _Vm(running=True)
    barn.start()
    await barn.until_phase("Failed")
    assert await _reason(barn) == "NotOurs"
    assert "NotOurs" in await barn.reasons()
    await barn.delete_pod()
    await barn.until_gone()
    await barn.later(600)
    assert barn.host.disk.vms[vm_name(uid)].running
    assert barn.host.vms.boots[vm_name(uid)] == 0


@scenario()
async def test_a_record_that_cannot_be_read_boots_nothing_and_is_kept(barn: Barn) -> None:
    uid = await barn.add_pod()
    barn.start()
    await barn.until_condition("Ready")
    await barn.stop()
    [file] = (barn.host.folder / "records/vms").glob("*.json")
    file.write_bytes(b"not what it was")
    barn.start()
    await barn.later(30)
    assert await barn.phase() == "Running", "it may be ours, and nothing proves it"
    assert barn.keeper is not None
    assert any(str(uid) in trouble for trouble in barn.keeper.troubles())
    barn.host.vms.halt(vm_name(uid))
    barn.keeper.wake(uid)
    await barn.until_phase("Failed")
    assert await _reason(barn) == "RecordUnreadable"
    assert file.read_bytes() == b"not what it was"
    await barn.delete_pod()
    await barn.until_gone()
    assert barn.host.vms.boots[vm_name(uid)] == 1


@scenario()
async def test_a_pod_that_asks_for_no_vm_is_left_alone_and_let_go(barn: Barn) -> None:
    barn.start()
    await barn.add_pod("foreign", vm=False)
    await barn.later(60)
    pod = await barn.pod("foreign")
    assert pod is not None
    assert pod.status.phase == "Pending"
    assert not pod.metadata.finalizers
    assert not barn.left()
    await barn.delete_pod("foreign")
    await barn.until_gone("foreign")


# --- slots ------------------------------------------------------------------------------------------------------------


@scenario()
async def test_two_pods_of_one_image_pull_it_once(barn: Barn) -> None:
    barn.start()
    await barn.add_pod("one")
    await barn.add_pod("two")
    await barn.until_condition("Ready", "one")
    await barn.until_condition("Ready", "two")
    assert sum(barn.host.vms.pulls.values()) == 1


@scenario()
async def test_a_third_pod_waits_for_a_slot(barn: Barn) -> None:
    barn.start()
    uids = [await barn.add_pod(name) for name in ("one", "two", "three")]
    await barn.later(60)
    booted = [uid for uid in uids if barn.host.vms.boots[vm_name(uid)]]
    assert len(booted) == 2
    assert "WaitingForSlot" in await barn.reasons()
    barn.host.dispatch.add()

    async def all_booted() -> bool:
        return sum(barn.host.vms.boots.values()) == 3

    await barn.until(all_booted)
    assert not [name for name in ("one", "two", "three") if await barn.phase(name) == "Failed"]


@scenario()
async def test_vms_of_others_take_slots(barn: Barn) -> None:
    barn.host.disk.vms["somebodys"] = _Vm(running=True)
    barn.start()
    for name in ("one", "two"):
        await barn.add_pod(name)
    await barn.later(60)
    assert sum(barn.host.vms.boots.values()) == 1
    assert barn.keeper is not None
    assert barn.keeper.slots.now().offered == 1
    assert barn.metric("vms", whose="others") == 1
    barn.host.disk.vms["somebodys"].running = False

    async def both() -> bool:
        return sum(barn.host.vms.boots.values()) == 2

    await barn.until(both)


@scenario()
async def test_a_host_that_is_full_after_all_offers_less_for_a_while(barn: Barn) -> None:
    barn.host.vms.fails["run"] = NoSlot("No start", why="two VMs run already", fix="Wait")
    barn.start()
    await barn.add_pod()
    await barn.until_phase("Failed")
    assert await _reason(barn) == "NoSlot"
    assert barn.keeper is not None
    assert barn.keeper.slots.now().offered == 0
    await barn.later(400)
    assert barn.keeper.slots.now().offered == 2


# --- restarts ---------------------------------------------------------------------------------------------------------


@scenario()
async def test_an_agent_that_is_told_to_stop_leaves_its_vms_and_adopts_them_again(
    barn: Barn,
) -> None:
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add()
    await barn.until_condition(JOB_DELIVERED)
    await barn.stop()
    assert barn.host.disk.vms[vm_name(uid)].running
    await barn.later(60)
    barn.start()
    await barn.until_phase("Succeeded")
    assert barn.host.vms.boots[vm_name(uid)] == 1


@scenario()
async def test_a_job_that_was_begun_and_not_delivered_is_not_lost(barn: Barn) -> None:
    """The agent is told to stop between dispatch's word and the mailbox."""
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    barn.host.dispatch.held[uid] = _job(barn)
    await barn.stop()
    barn.start()
    await barn.until_phase("Succeeded")
    assert len(barn.guest(uid).jobs) == 1


def _job(barn: Barn) -> HandedJob:
    barn.host.dispatch.add("held")
    job = barn.host.dispatch.queue.get_nowait()
    assert isinstance(job, HandedJob)
    return job


@scenario()
async def test_what_is_stuck_now_has_an_age(barn: Barn) -> None:
    barn.host.vms.hangs.add(("clone", ""))
    barn.start()
    await barn.add_pod()
    await barn.later(100)
    age_s = barn.metric("oldest_stuck_age_seconds", step="cloning")
    assert age_s is not None
    assert age_s > 20
    barn.host.vms.hangs.clear()
    await barn.until_condition("Ready")
    await barn.later(6)
    assert barn.metric("oldest_stuck_age_seconds", step="cloning") == 0


@scenario()
async def test_no_state_goes_back_to_a_boot(barn: Barn) -> None:
    """A record that says started, and a disk that never booted: it never will."""
    barn.host.vms.hangs.add(("run", ""))
    barn.start()
    uid = await barn.add_pod()

    async def started() -> bool:
        files = (barn.host.folder / "records/vms").glob(f"{uid}.json")
        return any(f'"state":"{State.STARTED}"' in file.read_text() for file in files)

    await barn.until(started)
    await barn.stop()
    barn.host.vms.hangs.clear()
    barn.start()
    await barn.until_phase("Failed")
    assert await _reason(barn) == "StartFailed"
    assert barn.host.vms.boots[vm_name(uid)] == 0


@scenario()
async def test_a_mailbox_that_somebody_removes_ends_its_pod(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    shutil.rmtree(barn.host.vms.mailbox(vm_name(uid)))
    barn.host.dispatch.add()
    await barn.until_phase("Failed")
    assert await _reason(barn) == "MailboxLost"
    await barn.delete_pod()
    await barn.until_gone()
    await barn.until_clean()


@scenario()
async def test_a_server_that_refuses_our_finalizer_is_not_hidden(barn: Barn) -> None:
    barn.tap.hurts.append(Hurt(STATUS, "refused", times=5))
    barn.start()
    await barn.add_pod()
    await barn.later(10)
    assert barn.metric("oldest_stuck_age_seconds", step="waiting") != 0
    await barn.until_condition("Ready")
    assert (await barn.reasons()).count("ApiRefused") == 1
