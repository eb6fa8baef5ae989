"""
What runs in a VM that got a job config: it comes online at the forge, runs the job that the forge gives it, and ends.

It is the world's, not its host's: agents restart around it. It ends by itself if it gets no job for a while.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.sim.fleet.desk import Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.sim.forge.github import FakeGithub
    from remuda.sim.forge.things import HubJob

REGISTER_S = 3.0
"""How long a runner takes from its job config to being online."""
IDLE_S = 300.0
"""How long a runner waits for a job before its guest powers off."""
LOOK_S = 1.0


@dataclass(slots=True, kw_only=True)
class GuestRun(Job):
    """One job config in one VM. Implements ``forge.things.Guest``."""

    config: str
    vm: str
    pod: str
    job_id: str
    """What its claim was for; the forge may give it another."""
    forge: FakeGithub
    guests: Guests
    register_s: float = REGISTER_S
    hub_job: HubJob | None = None
    over_at: float | None = None
    why_over: str = ""

    # --- as its host sees it ------------------------------------------------------------------------------------

    @property
    def ends_at(self) -> float:
        return float("inf") if self.over_at is None else self.over_at

    @property
    def look_again_s(self) -> float:
        return LOOK_S

    def begin(self, now: float) -> None:
        self.started_at = now
        self.guests.began(self)
        _later(self.register_s, self._connect)
        _later(IDLE_S, self._watch)

    def kill(self, now: float) -> None:
        if self.is_running(now):
            self.killed_at = now
            self.forge.disconnect(self)

    # --- as the forge sees it -----------------------------------------------------------------------------------

    def assigned(self, job: HubJob) -> None:
        assert self.hub_job is None, "a runner gets one job"
        self.hub_job = job

    def finished(self) -> None:
        self._end("its job is over")

    def dismissed(self, why: str) -> None:
        self._end(why)

    # --- inside -------------------------------------------------------------------------------------------------

    @property
    def is_working(self) -> bool:
        """Whether a job of the forge runs in it right now."""
        return (
            self.hub_job is not None
            and self.killed_at is None
            and self.over_at is None
            and not self.hub_job.is_over
        )

    def _connect(self) -> None:
        if self.killed_at is None and self.over_at is None:
            self.forge.connect(self.config, self)

    def _watch(self) -> None:
        if self.hub_job is None and self.killed_at is None and self.over_at is None:
            self.forge.disconnect(self)
            self._end("it got no job")

    def _end(self, why: str) -> None:
        if self.over_at is None and self.killed_at is None:
            self.over_at, self.why_over = asyncio.get_running_loop().time(), why


class Guests:
    """Every job config that reached a VM, in the order in which it did. The truth of a run; checkers read it."""

    def __init__(self) -> None:
        self.runs: list[GuestRun] = []
        self.of_vm: dict[str, list[GuestRun]] = {}
        """By the UID of the VM's Pod."""
        self.on_begin: Callable[[GuestRun], None] = lambda _run: None

    def began(self, run: GuestRun) -> None:
        self.runs.append(run)
        self.of_vm.setdefault(run.vm, []).append(run)
        self.on_begin(run)

    def working(self) -> list[GuestRun]:
        """Return those in which a job of the forge runs now."""
        return [run for run in self.runs if run.is_working]

    def alive(self, vm: str) -> GuestRun | None:
        """Return what runs in a VM, whether the forge gave it a job or not."""
        runs = self.of_vm.get(vm, [])
        return next((r for r in runs if r.killed_at is None and r.over_at is None), None)


def _later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call, context=Context())
