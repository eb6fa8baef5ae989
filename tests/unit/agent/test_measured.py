"""A driver that is counted, and otherwise as it was."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

from remuda.agent.measured import MeasuredVms
from remuda.agent.metrics import OPS
from remuda.ports.vms import NotThere, TimedOut, Vms, VmsError, VmShape, golden_name
from remuda.sim.loop import run
from tests.unit.agent.a_host import HUNG_S, PULL_S, A, AHost, broken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from prometheus_client import CollectorRegistry

GOLDEN = golden_name(A)


def counts(registry: CollectorRegistry, op: str) -> tuple[float, float, float]:
    """Return how often an op was seen, failed and timed out."""
    names = ("op_seconds_count", "op_failures_total", "op_timeouts_total")
    values = (registry.get_sample_value(f"remuda_agent_{name}", {"op": op}) for name in names)
    seen, failed, timed_out = (value or 0.0 for value in values)
    return seen, failed, timed_out


def test_every_call_of_a_driver_is_passed_on_and_counted_once(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        vms: Vms = MeasuredVms(host.vms, host.metrics, host.clock)
        assert vms.abilities == host.vms.abilities
        assert await vms.image_bytes(A) == await host.vms.image_bytes(A)
        await vms.pull(A, lambda _: None)
        await vms.make_golden(A, GOLDEN)
        await vms.clone(GOLDEN, "one")
        await vms.shape("one", VmShape(cpus=2))
        await vms.run("one")
        host.vms.guests = {"one": 0.25}
        assert await vms.guest_disk_used("one") == 0.25
        assert await vms.inventory() == await host.vms.inventory()
        assert await vms.observe("one") == await host.vms.observe("one")
        await vms.stop("one", grace_s=0)
        await vms.delete("one")
        await vms.drop_image(A)
        assert vms.mailbox("one") == host.vms.mailbox("one")
        assert vms.log_file("one") == host.vms.log_file("one")
        for op in OPS:
            assert (op, counts(host.metrics.registry, op)) == (op, (1, 0, 0))
        pulled_s = host.metrics.registry.get_sample_value(
            "remuda_agent_op_seconds_sum", {"op": "pull"}
        )
        assert pulled_s == pytest.approx(PULL_S, abs=1)
        host.records.close()

    run(story)


def test_failures_and_time_outs_are_counted_but_not_what_is_an_answer(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        vms = MeasuredVms(host.vms, host.metrics, host.clock)
        host.vms.faults["stop"] = [broken(VmsError)]
        with pytest.raises(VmsError):
            await vms.stop("one", grace_s=0)
        assert counts(host.metrics.registry, "stop") == (1, 1, 0)
        with pytest.raises(NotThere):
            await vms.delete("one")
        assert counts(host.metrics.registry, "delete") == (1, 0, 0)
        host.vms.hung = {A}
        with pytest.raises(TimedOut):
            await vms.pull(A, lambda _: None)
        assert counts(host.metrics.registry, "pull") == (1, 1, 1)
        host.records.close()

    run(story)


def test_a_time_out_is_counted_for_the_call_that_hung(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        vms = MeasuredVms(host.vms, host.metrics, host.clock)
        for op in ("set", "what nobody knows"):
            host.vms.faults["clone"] = [_hung(op)]
            with pytest.raises(TimedOut):
                await vms.clone(GOLDEN, "one")
        assert counts(host.metrics.registry, "set") == (0, 0, 1)
        assert counts(host.metrics.registry, "clone") == (2, 2, 1)
        host.records.close()

    run(story)


def test_who_answers_for_the_host_is_told_of_what_hung_for_no_pod(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        told: list[str] = []
        vms = MeasuredVms(
            host.vms, host.metrics, host.clock, host_stuck=lambda error: told.append(error.op)
        )
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "list": vms.inventory,
            "exec": lambda: vms.guest_disk_used("one"),
            "drop": lambda: vms.drop_image(A),
            "stop": lambda: vms.stop("one", grace_s=0),
        }
        for op, call in calls.items():
            host.vms.faults[op] = [broken(VmsError), _hung(op)]
            for _ in range(2):
                with pytest.raises(VmsError):
                    await call()
        assert told == ["list", "exec", "drop"], "a Pod is told of what hung for it"
        host.records.close()

    run(story)


def _hung(op: str) -> TimedOut:
    return TimedOut("It hung", why="the test wants it so", fix="Nothing", op=op)


def test_a_call_that_is_cancelled_is_not_counted(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        vms = MeasuredVms(host.vms, host.metrics, host.clock)
        host.vms.hung = {A}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(HUNG_S / 2):
                await vms.pull(A, lambda _: None)
        assert counts(host.metrics.registry, "pull") == (0, 0, 0)
        host.records.close()

    run(story)


def test_no_call_of_the_port_is_forgotten() -> None:
    port = {name for name, _ in inspect.getmembers(Vms) if not name.startswith("_")}
    assert port <= set(dir(MeasuredVms))
