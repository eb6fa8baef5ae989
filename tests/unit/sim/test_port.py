from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from remuda.model.errors import RemudaError
from remuda.sim.ids import SeededIds
from remuda.sim.link import Link
from remuda.sim.loop import run
from remuda.sim.plan import Fault, Plan, Scripted
from remuda.sim.port import PortFaults, faulty_port
from remuda.sim.trace import Trace


class OutcomeUnknown(RemudaError): ...


class SaidNo(RemudaError): ...


@dataclass
class FakeVms:
    """A port as a later issue would write its fake: nothing ever fails in it."""

    made: list[str] = field(default_factory=list)

    async def clone(self, name: str) -> str:
        self.made.append(name)
        return f"cloned {name}"

    def count(self) -> int:
        return len(self.made)


def a_port(inner: FakeVms, *scripted: Scripted) -> tuple[FakeVms, list[str]]:
    lines: list[str] = []
    plan = Plan("mac-1", SeededIds(1, "mac-1"))
    plan.script(scripted)
    trace = Trace(asyncio.get_running_loop().time, lambda e: lines.append(e.text()))
    faults = PortFaults(
        port="vms",
        timeout_s=30,
        unknown=lambda what: OutcomeUnknown(what, why="the line failed", fix="Look again"),
        refused=lambda what: SaidNo(what, why="it said no", fix="Try again"),
    )
    return faulty_port(inner, Link(plan, trace, lambda: None), faults), lines


def test_a_port_behind_a_link_still_works() -> None:
    async def main() -> None:
        vms, lines = a_port(FakeVms())
        assert await vms.clone("a") == "cloned a"
        assert vms.count() == 1
        assert lines[0].endswith(" mac-1 clone vms/a ok")

    run(main)


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (Fault.LOST, OutcomeUnknown, 0),
        (Fault.UNACKNOWLEDGED, OutcomeUnknown, 1),
        (Fault.SERVER_ERROR, SaidNo, 0),
        (Fault.RESET_AFTER, OutcomeUnknown, 1),
    ],
)
def test_a_port_fails_in_its_own_words(fault: Fault, error: type[RemudaError], done: int) -> None:
    async def main() -> None:
        inner = FakeVms()
        vms, _ = a_port(inner, Scripted(fault, nth=2, verb="clone", resource="vms"))
        await vms.clone("a")
        with pytest.raises(error):
            await vms.clone("b")
        assert len(inner.made) == 1 + done

    run(main)
