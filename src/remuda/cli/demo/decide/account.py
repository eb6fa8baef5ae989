"""
What became of every job, and whether the demo may say that all went well. Pure.

What a job wrote down itself is believed before what the fleet says of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How far a job got, and when. None: it did not, or nobody knows."""

    queued: datetime | None = None
    claimed: datetime | None = None
    delivered: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job, as it told of itself and as the fleet tells of it."""

    name: str
    began: int
    """How many times it wrote down that it began."""
    finished: int
    conclusion: str = ""
    """The fleet's word; empty: it is not over."""
    exit_code: int | None = None
    output_ok: bool = True
    """It printed what it had to on its runner's image, and nothing else, and all of that came back."""
    image: str = ""
    """That of its runner's Pod. Empty: nobody saw such a runner."""
    runner: str = ""
    times: Times = Times()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollRecord:
    """The roll, as it was seen."""

    unavailable_max: int
    cap: int
    in_all: int = 0
    """The most that were unavailable at once for whatever reason. Only the roll's own share is bounded."""


@dataclass(frozen=True, slots=True)
class Act:
    """One fault that the demo made, and what has to come of it."""

    what: str
    trouble: str = ""
    """What did not come of it; empty if all did."""


class Fate(StrEnum):
    """What became of a job."""

    OK = "ok"
    LOST = "lost"
    """It never ran, or nobody knows how it ended."""
    KILLED = "killed"
    """It began, and did not get to its end."""
    WRONG = "wrong"
    """It ran, and not as it should."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the demo says at its end."""

    line: str
    troubles: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.troubles


def fate_of(job: JobRecord) -> tuple[Fate, str]:
    """Say what became of a job, and why that is not good."""
    says = (
        f"the fleet says {job.conclusion}"
        if job.conclusion
        else "the fleet says that it is not over"
    )
    if job.began == 0:
        return Fate.LOST, f"it never ran; {says}"
    if job.finished == 0:
        return Fate.KILLED, f"it began and did not end; {says}"
    if job.began > 1 or job.finished > 1:
        return Fate.WRONG, f"it ran {max(job.began, job.finished)} times"
    if job.conclusion != "success" or job.exit_code != 0:
        return Fate.LOST, f"it ended well, and {says}, exit code {job.exit_code}"
    fault = _output_fault(job)
    return (Fate.WRONG, fault) if fault else (Fate.OK, "")


def _output_fault(job: JobRecord) -> str:
    if not job.image:
        return f"nobody knows the image of its runner {job.runner or '-'}"
    return "" if job.output_ok else "what it printed did not come back as it was"


def judge(wanted: int, jobs: Sequence[JobRecord], roll: RollRecord, acts: Sequence[Act]) -> Verdict:
    """Say how it went, in one line, and all that went wrong."""
    fates = {job.name: fate_of(job) for job in jobs}
    count = Counter(fate for fate, _ in fates.values())
    lost = count[Fate.LOST] + max(0, wanted - len(jobs))
    line = (
        f"demo: {count[Fate.OK]} jobs ok, {lost} lost, {count[Fate.KILLED]} killed;"
        f" roll max unavailable {roll.unavailable_max} of cap {roll.cap}"
    )
    troubles = [f"{name} is {fate}: {why}" for name, (fate, why) in fates.items() if why]
    if len(jobs) < wanted:
        troubles.append(f"{wanted - len(jobs)} of {wanted} jobs were never taken")
    troubles += _shared_runners(jobs)
    if roll.unavailable_max > roll.cap:
        troubles.append(
            f"the roll took {roll.unavailable_max} runners away at once, and its cap is {roll.cap}"
        )
    troubles += [f"{act.what}: {act.trouble}" for act in acts if act.trouble]
    return Verdict(line, tuple(troubles))


def _shared_runners(jobs: Sequence[JobRecord]) -> list[str]:
    used = Counter(job.runner for job in jobs if job.runner)
    return [f"runner {name} had {n} jobs" for name, n in sorted(used.items()) if n > 1]


# --- The table --------------------------------------------------------------------------------------------------------

TITLES = ("JOB", "RUNNER", "IMAGE", "QUEUED", "CLAIMED", "DELIVERED", "STARTED", "ENDED", "RESULT")
_LEFT = frozenset({"RUNNER", "IMAGE", "RESULT"})


def table(jobs: Sequence[JobRecord], zero: datetime) -> list[str]:
    """Return each job's timeline as lines of one width, in seconds since ``zero``."""
    rows = [TITLES, *(_cells(job, zero) for job in jobs)]
    sizes = [max(len(row[n]) for row in rows) for n in range(len(TITLES))]
    return ["  ".join(_padded(row, sizes)).rstrip() for row in rows]


def _cells(job: JobRecord, zero: datetime) -> tuple[str, ...]:
    at = job.times
    moments = (at.queued, at.claimed, at.delivered, at.started, at.ended)
    return (
        job.name.removeprefix("job-"),
        job.runner or "-",
        job.image or "-",
        *(
            "-" if moment is None else f"{(moment - zero).total_seconds():.2f}"
            for moment in moments
        ),
        str(fate_of(job)[0]),
    )


def _padded(row: Sequence[str], sizes: Sequence[int]) -> list[str]:
    return [
        text.ljust(size) if title in _LEFT else text.rjust(size)
        for title, text, size in zip(TITLES, row, sizes, strict=True)
    ]
