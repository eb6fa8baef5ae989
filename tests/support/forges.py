"""A small forge for tests of one attempt: it registers runners, and can hang, fail or lose its answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.model.job import Kind
from remuda.ports.forge import ForgeJob, ForgeState, ForgeUnavailable, Minted, Removal
from remuda.ports.registrations import Registration

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.model.job import JobSpec
    from remuda.ports.forge import NewRunner

CANARY = "jit-canary-5e1f"


class SmallForge:
    """Implements ``remuda.ports.forge.Forge``. ``runners`` is what is registered now, by name."""

    def __init__(self, kind: Kind = Kind.GITHUB) -> None:
        self._kind = kind
        self.runners: dict[str, NewRunner] = {}
        self.minted: list[tuple[str, NewRunner]] = []
        """Job and runner of every registration there ever was."""
        self.asked = 0
        self.fails: list[Exception | str] = []
        """What becomes of the next mints, one each: an error, ``lost`` (done, not answered) or ``hangs``."""
        self.always: Callable[[JobSpec], Exception | None] = lambda _: None
        self.removals_fail = False
        self.takes_s = 0.0

    @property
    def kind(self) -> Kind:
        return self._kind

    async def mint(self, job: JobSpec, runner: NewRunner) -> Minted:
        self.asked += 1
        fault = self.fails.pop(0) if self.fails else self.always(job)
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        if fault == "hangs":
            await asyncio.sleep(3600)
        if isinstance(fault, Exception):
            raise fault
        assert runner.name not in self.runners, "every mint has a fresh name"
        self.runners[runner.name] = runner
        self.minted.append((job.id, runner))
        if fault == "lost":
            raise down()
        registration = Registration(
            runner_name=runner.name,
            kind=self._kind,
            tenant=job.tenant,
            repository=job.repository,
            job_id=job.id,
            pod="",
            scope=f"orgs/{job.tenant}",
            number=len(self.minted),
        )
        return Minted(encoded_jit_config=f"{CANARY}-{runner.name}", registration=registration)

    async def look_up(self, job: JobSpec) -> ForgeJob:
        del job
        return ForgeJob(state=ForgeState.QUEUED)

    async def remove(self, registration: Registration) -> Removal:
        if self.removals_fail:
            raise down()
        found = self.runners.pop(registration.runner_name, None)
        return Removal.GONE if found is None else Removal.REMOVED


def down() -> ForgeUnavailable:
    return ForgeUnavailable("The forge did not answer", why="it is down", fix="Wait")
