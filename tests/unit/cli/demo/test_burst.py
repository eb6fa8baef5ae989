"""The account of the burst waits for output that is still under way, and for no other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.cli.demo.burst import Burst
from remuda.cli.demo.decide.plan import PlannedJob, output
from remuda.model.output import Output
from remuda.ports.api import Outcome
from remuda.sim.clock import SimClock
from remuda.sim.loop import run
from tests.support.memory_api import MemoryApi

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from remuda.cli.demo.decide.account import JobRecord

JOB = PlannedJob(1, 3)
SAID = output(JOB, "second")


@dataclass
class LateApi(MemoryApi):
    """One job is over; what it printed comes bit by bit, a bit with each look at it."""

    said: list[str] = field(default_factory=list)
    ends_as: Output = Output.FINAL
    looks: int = 0

    async def outcome(self, job_id: str) -> Outcome:
        at = self.clock_.now()
        self.looks += 1
        output = Output.AWAITED if self.looks < len(self.said) else self.ends_as
        return Outcome(
            id=job_id,
            over=True,
            conclusion="success",
            pod="demo-a",
            submitted_at=at,
            output=output,
        )

    async def log(
        self, job_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        del job_id, offset, follow
        yield self.said[min(self.looks, len(self.said)) - 1].encode()

    clock_: SimClock = field(default_factory=lambda: SimClock(asyncio.get_running_loop()))


def recorded(
    ledger: Path, images: dict[str, str], *said: str, ends_as: Output = Output.FINAL
) -> tuple[JobRecord, int]:
    async def play() -> tuple[JobRecord, int]:
        api = LateApi(said=list(said), ends_as=ends_as)
        burst = Burst(api, api.clock_, ledger, "k")
        burst.posted[JOB.name] = (JOB, "local-1")
        (record,) = await burst.records(images)
        return record, api.looks

    return run(play)


@pytest.mark.parametrize(
    ("said", "output_ok"),
    [
        pytest.param((SAID,), True, id="all is there"),
        pytest.param(("", SAID[:30], SAID), True, id="its end comes late"),
        pytest.param(("", SAID[:30]), False, id="its end never comes"),
        pytest.param(("",), False, id="nothing ever comes"),
        pytest.param((SAID + "more\n",), False, id="there is more than it printed"),
        pytest.param((output(JOB, "process"),), False, id="it ran on another image"),
    ],
)
def test_what_a_job_printed_has_to_come_back_whole(
    tmp_path: Path, said: tuple[str, ...], *, output_ok: bool
) -> None:
    record, _ = recorded(tmp_path, {"demo-a": "second"}, *said)
    assert (record.output_ok, record.image, record.runner) == (output_ok, "second", "demo-a")


def test_what_is_all_there_is_not_waited_for(tmp_path: Path) -> None:
    for ends_as in (Output.FINAL, Output.UNCONFIRMED):
        assert recorded(tmp_path, {"demo-a": "second"}, SAID[:30], ends_as=ends_as)[1] == 1


def test_a_server_that_never_stops_waiting_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    record, _ = recorded(tmp_path, {"demo-a": "second"}, SAID[:30], ends_as=Output.AWAITED)
    assert not record.output_ok


def test_the_image_is_that_of_the_runner_and_not_what_the_job_says(tmp_path: Path) -> None:
    record, _ = recorded(tmp_path, {"demo-b": "second"}, SAID)
    assert (record.image, record.output_ok) == ("", False)
