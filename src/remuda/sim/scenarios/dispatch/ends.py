"""What must be so in the end, once nothing fails any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.kube.names import OWNER
from remuda.model.job import JobState, Size
from remuda.model.runner import Phase
from remuda.ports.forge import Action, ForgeState
from remuda.sim.scenarios.pools.ends import AsAsked, NoOrphans

if TYPE_CHECKING:
    from remuda.sim.checkers import Liveness
    from remuda.sim.forge.things import HubJob
    from remuda.sim.scenarios.dispatch.stage import DispatchStage

LINGER_S = 420.0
"""The last writes: what is found by a grace of five minutes, and a sweep."""


class JobsDone:
    """Every job at the forge ran to its end, once; or was cancelled. None was cut short unless the story did it."""

    invariant = "V2 no job is lost"

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage

    def look(self) -> str | None:
        for job in self._stage.forge.jobs.values():
            if job.cut_short and job.id not in self._stage.may_be_cut_short:
                return f"{job.id} was cut short"
        waiting = [job for job in self._stage.forge.jobs.values() if not job.is_over]
        if waiting:
            first = waiting[0]
            known = self._stage.tables.jobs.get(first.id)
            here = known.state.value if known is not None else "unknown"
            return f"{len(waiting)} jobs are not done, such as {first.id}: {first.state.value} there, {here} here"
        return None


class RowsRight:
    """
    What dispatch wrote down is what happened, whatever it was told in which order.

    A job may be over at the forge and have no row here. The word that it was queued was lost; the forge gave it to a
    runner of ours that was there for another; and when its beginning was told, that runner's claim had been given
    up: nothing ties the job to us then but a name, which proves nothing. No job is run twice or cut short for that (the
    session stays open and the owner on the Pod: S1, S2), nothing leaks (V7), and its end, once told, is kept.
    """

    invariant = "S6 hints are hints"

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage

    def look(self) -> str | None:
        tables = self._stage.tables
        for job in self._stage.forge.jobs.values():
            if wrong := self._wrong(job):
                return f"{job.id} {wrong}"
        if tables.claims:
            return f"a claim of {min(tables.claims)} stands"
        still_open = sorted(s.pod for s in tables.sessions.values() if s.ended_at is None)
        if still_open:
            return f"the session of {still_open[0]} is open"
        used = [s for s in tables.limits.values() if s.used != Size(0, 0)]
        return f"{used[0].tenant} counts as using {used[0].used}" if used else None

    def _wrong(self, job: HubJob) -> str:
        row = self._stage.tables.jobs.get(job.id)
        if row is None:
            told = self._stage.forge.was_told(job, Action.COMPLETED)
            known = job.id in self._stage.tables.completions or not told
            return "" if known else "is over, which was said, and not written down"
        if not row.state.over:
            return f"is {row.state.value} here and {job.state.value} there"
        if job.state is ForgeState.GONE:
            return ""
        wanted = JobState.CANCELLED if job.conclusion == "cancelled" else JobState.COMPLETED
        if row.state is not wanted:
            return f"is {row.state.value} here and {job.conclusion} there"
        same = row.runner_name == job.runner_name or not job.runner_name
        return "" if same else f"ran on {job.runner_name} and is written down for {row.runner_name}"


class NothingStamped:
    """No runner carries an owner without a job behind it."""

    invariant = "V3 no zombies"

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage

    def look(self) -> str | None:
        seen = self._stage.seen
        stamped = sorted(
            runner.name
            for uid, runner in seen.runners.items()
            if self._stage.stamped.owners.get(uid) and runner.phase is not Phase.ENDED
        )
        return f"{stamped[0]} carries {OWNER} and has no job" if stamped else None


class NothingLeaks:
    """No registration is left at the forge, and none is written down here: not even one that was used and is gone."""

    invariant = "V7 no leaks"

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage

    def look(self) -> str | None:
        if left := sorted(self._stage.forge.runners):
            return f"{left[0]} is still registered"
        noted = sorted(self._stage.tables.registrations)
        return f"the registration of {noted[0]} is still written down" if noted else None


def all_ends(stage: DispatchStage) -> tuple[Liveness, ...]:
    """Return what every story ends with."""
    return (
        JobsDone(stage),
        RowsRight(stage),
        NothingStamped(stage),
        NothingLeaks(stage),
        AsAsked(stage.seen),
        NoOrphans(stage.seen),
    )
