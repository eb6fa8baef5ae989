"""The life of a Pod on a host, as its keeper leads it."""

from __future__ import annotations

import json

from remuda.agent.decide.lifecycle import Action
from remuda.kube.names import JOB_DELIVERED, VM_CLEANUP
from remuda.ports.vms import vm_name
from tests.unit.agent.barn import Barn, played, scenario


@scenario()
async def test_a_pod_becomes_a_vm_gets_its_job_and_ends(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    pod = await barn.pod()
    assert pod is not None
    assert VM_CLEANUP in pod.metadata.finalizers
    assert pod.status.phase == "Running"
    assert pod.status.host_ip == "10.0.0.7"
    assert pod.status.container_statuses[0].state.running is not None
    assert pod.status.container_statuses[0].ready

    barn.host.dispatch.add("job-1")
    await barn.until_condition(JOB_DELIVERED)
    await barn.until_phase("Succeeded")
    pod = await barn.pod()
    assert pod is not None
    end = pod.status.container_statuses[0].state.terminated
    assert end is not None
    assert (end.exit_code, end.reason) == (0, "Completed")
    assert end.started_at is not None
    assert end.finished_at is not None
    assert barn.host.vms.boots[vm_name(uid)] == 1
    assert len(barn.guest(uid).jobs) == 1
    assert barn.host.dispatch.ended["job-1"].exit_code == 0
    assert {"PullingImage", "CreatingVM", "RunnerWarm", "JobDelivered"} <= set(await barn.reasons())

    await barn.delete_pod()
    await barn.until_gone()
    await barn.until_clean()
    assert barn.metric("vms_ended_total", verdict="succeeded") == 1
    assert barn.metric("vm_boot_seconds_count") == 1
    assert barn.metric("vm_provision_seconds_count", path="cold") == 1
    assert barn.metric("pod_provision_delay_seconds_count") == 1


@scenario()
async def test_a_guest_is_told_the_idle_timeout_of_its_pod(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod(idle_s=300)
    barn.host.dispatch.add("job-1", deadline=None)
    await barn.until_phase("Succeeded")
    [job] = barn.guest(uid).jobs
    assert json.loads(job) == {
        "job_id": "job-1",
        "script": "true",
        "deadline": None,
        "idle_timeout_seconds": 300,
    }


@scenario()
async def test_a_pod_says_what_it_waits_for_on_the_way(barn: Barn) -> None:
    barn.start()
    await barn.add_pod()
    await barn.later(2)
    pod = await barn.pod()
    assert pod is not None
    assert pod.status.phase == "Pending"
    waiting = pod.status.container_statuses[0].state.waiting
    assert waiting is not None
    assert waiting.reason == "PullingImage"
    assert pod.status.start_time is not None
    await barn.until_phase("Running")
    assert await barn.condition("Ready") == "False"


@scenario()
async def test_nobody_works_on_a_vm_while_garbage_has_it(barn: Barn) -> None:
    barn.start()
    uid = await barn.add_pod()
    await barn.until_condition("Ready")
    assert barn.keeper is not None
    had = False

    async def has_it() -> None:
        nonlocal had
        assert barn.keeper is not None
        async with barn.keeper.exclusively(uid):
            had = True
            await barn.later(30)
            assert vm_name(uid) in barn.host.disk.vms, "it was deleted under our hands"

    await barn.later(1)
    garbage = barn.group.create_task(has_it())
    await barn.later(1)
    assert not had, "its keeper serves it"
    await barn.delete_pod()
    await garbage
    await barn.until_gone()
    await barn.until_clean()


def test_every_action_of_the_table_is_carried_out_or_rests() -> None:
    async def known(barn: Barn) -> None:
        barn.start()
        await barn.later(1)
        assert barn.keeper is not None
        assert set(barn.keeper.actions) == set(Action)

    played(known)
