"""
Each verb of ``tart`` hung in turn, for as long as it is called, on hosts that have other work to do.

Meanwhile the Lease is renewed and another VM takes and ends a job. What hangs is killed at its deadline, counted, told
and tried again; once it hangs no more, its Pod gets its VM, or goes, and its job is done.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.kube.core import EVENT, POD
from remuda.ports.kube import Query
from remuda.ports.vms import vm_name
from tests.support.eventually import eventually
from tests.support.tart.faults import FOREVER, Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.core import Pod
    from tests.support.pasture import Paddock, Pasture

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHORT = tuple(
    f"--deadline={call}=6"
    for call in (
        *("pull_idle", "golden", "clone", "set", "run", "stop", "delete", "get", "list", "exec"),
    )
)
"""Long for a call that works, on a busy machine too; short for a test."""


async def test_images_and_clones_that_hang_delay_nobody_else(pasture: Pasture) -> None:
    async with pasture.a_mac(*SHORT) as mac:
        calm = await mac.pool("calm", await pasture.image("runner"))
        for op, verb in (("pull", "pull"), ("golden", "clone"), ("clone", "clone"), ("set", "set")):
            await mac.warm(calm)
            image = "runner" if op in {"clone", "set"} else f"hung-{op}"
            async with hung(mac, op, verb):
                pool = await mac.pool(op, await pasture.image(image))
                pod = await mac.appeared(pool)
                await others_go_on(mac, calm, op)
            await story_told(mac, pod, op)
            await done_in_the_end(mac, pool, pod)
            await mac.drop(pool)
        await mac.tidy()


async def test_looks_that_hang_delay_nobody_else(pasture: Pasture) -> None:
    async with pasture.a_mac(*SHORT, "--gc-interval=2") as mac:
        image = await pasture.image("runner")
        calm, pool = await mac.pool("calm", image), await mac.pool("seen", image)
        await mac.warm(calm)
        (pod,) = await mac.warm(pool)
        async with hung(mac, "list", "list"):
            await others_go_on(mac, calm, "list")
        await story_of_the_host_told(mac, "list")
        await mac.warm(calm)
        async with hung(mac, "get", "get", vm_name(pod.uid)):
            await others_go_on(mac, calm, "get")
        await story_told(mac, pod, "get")
        await done_in_the_end(mac, pool, pod)
        await mac.tidy()


async def test_ends_that_hang_delay_nobody_else(pasture: Pasture) -> None:
    async with pasture.a_mac(*SHORT) as mac:
        image = await pasture.image("runner")
        calm, pool = await mac.pool("calm", image), await mac.pool("ends", image)
        for verb in ("stop", "delete"):
            await mac.warm(calm)
            (pod,) = await mac.warm(pool)
            async with hung(mac, verb, verb, vm_name(pod.uid)):
                await mac.ranch.kube.delete(POD, pod.name, namespace=mac.ranch.namespace)
                await others_go_on(mac, calm, verb)
                live = await mac.ranch.pod(pod.name)
                assert live is not None, "its VM is not gone, so neither is the Pod"
            await story_told(mac, pod, verb)
            await mac.gone(pod)
            assert len(mac.tart.boots(vm_name(pod.uid))) == 1
        await mac.tidy()


async def test_a_run_that_hangs_is_not_repeated_and_its_pod_is_replaced(pasture: Pasture) -> None:
    async with pasture.a_mac(*SHORT) as mac:
        image = await pasture.image("runner")
        calm = await mac.pool("calm", image)
        await mac.warm(calm)
        async with hung(mac, "run", "run"):
            pool = await mac.pool("run", image)
            pod = await mac.appeared(pool)
            await others_go_on(mac, calm, "run")
        await mac.until_event(pod, "StartFailed", "was killed")
        assert len(mac.begun("run", vm_name(pod.uid))) == 1
        await done_in_the_end(mac, pool, None)
        await mac.tidy()


async def test_a_guest_that_cannot_be_asked_for_its_disk_delays_nobody(pasture: Pasture) -> None:
    async with pasture.a_mac(*SHORT, starts=False) as mac:
        mac.order(Fault(verb="exec", kind="hang", times=FOREVER))
        calm = await mac.pool("calm", await pasture.image("runner"))
        mac.ranch.agents.start(mac.host)
        await mac.ranch.agents.ready(mac.host)
        await mac.warm(calm)
        # A guest that runs when the agent begins is asked at once.
        assert await asyncio.to_thread(mac.ranch.agents.stop, mac.host) == 0
        mac.ranch.agents.start(mac.host)
        await others_go_on(mac, calm, "exec")
        await mac.until_metric('remuda_agent_op_timeouts_total{op="exec"}', 1)
        await story_of_the_host_told(mac, "exec")
        await mac.tidy()


# --- steps -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hung(mac: Paddock, op: str, verb: str, vm: str = "") -> AsyncIterator[None]:
    """Have a verb hang while the block lasts, and see in the block's end that a deadline has passed."""
    before = await mac.timeouts(op)
    mac.order(Fault(verb=verb, kind="hang", vm=vm, times=FOREVER, with_child=True))
    yield
    await mac.until_metric(f'remuda_agent_op_timeouts_total{{op="{op}"}}', before + 1)
    mac.order()


async def others_go_on(mac: Paddock, calm: str, op: str) -> None:
    """See that a call hangs, and that meanwhile a job is done and the Lease renewed."""
    await eventually(lambda: is_called(mac, op), within_s=60)
    job = await mac.ranch.post(calm, f"echo while {op} hangs")
    assert (await mac.ranch.until_job(job, within_s=60))["conclusion"] == "success"
    await mac.lease_renewed()
    assert any(fault.times == FOREVER for fault in mac.tart.desk.waiting()), "it hangs to this day"


async def is_called(mac: Paddock, op: str) -> bool:
    verb = {"golden": "clone"}.get(op, op)
    ended = {n["pid"] for n in mac.tart.desk.journal() if n["event"] == "end"}
    return any(call["pid"] not in ended for call in mac.begun(verb))


async def story_told(mac: Paddock, pod: Pod, op: str) -> None:
    await mac.until_event(pod, "VMStuck", f"call to {op} was killed")


async def story_of_the_host_told(mac: Paddock, op: str) -> None:
    """See that the Node tells of a call that hung for no Pod in particular."""

    async def told() -> list[str]:
        listed = await mac.ranch.kube.list(EVENT, Query(fields=f"involvedObject.name={mac.host}"))
        return [event.message for event in listed.items if event.reason == "DriverStuck"]

    await eventually(told, lambda said: f"call to {op} was killed" in str(said), within_s=120)


async def done_in_the_end(mac: Paddock, pool: str, pod: Pod | None) -> None:
    """See that a runner of a pool does a job; the one that was hung, if it is named."""
    (runner, *_) = await mac.warm(pool)
    assert pod is None or runner.uid == pod.uid, "what hung was tried again, not given up"
    job = await mac.ranch.post(pool, "echo in the end")
    assert (await mac.ranch.until_job(job, within_s=60))["conclusion"] == "success"
    assert len(mac.tart.boots(vm_name(runner.uid))) == 1, "a disk boots once"
