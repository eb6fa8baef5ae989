"""Which jobs come when, and how much of the pool a roll may take. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

JOBS_MIN: Final = 6
RUNNERS_MIN: Final = 4
ROLL_PERCENT: Final = 25
_IDLE_MIN: Final = 2
"""So many runners are idle when the image is rolled, or there would be nobody for the roll to replace."""
_LENGTHS_S: Final = ((8, 12), (5, 9), (3, 6))
"""How long the jobs of each wave take, at least and at most: those that come first outlive the faults."""

_PLAY_MAX_S: Final = 300.0
_JOB_MAX_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of the burst."""

    number: int
    length_s: int

    @property
    def name(self) -> str:
        return f"job-{self.number:02}"


def waves(jobs: int, runners: int) -> tuple[tuple[PlannedJob, ...], ...]:
    """Return the burst in three waves: before the image is rolled, while it is, and while the server is away."""
    assert jobs >= JOBS_MIN, "each wave needs a job or two"
    assert runners >= RUNNERS_MIN, "some have to stay idle"
    first = min(jobs // 3, runners - max(_IDLE_MIN, roll_cap(runners) + 1))
    second = (jobs - first) // 2
    sizes, numbers = (first, second, jobs - first - second), iter(range(1, jobs + 1))
    return tuple(
        tuple(PlannedJob(next(numbers), low + n % (high - low + 1)) for n in range(size))
        for size, (low, high) in zip(sizes, _LENGTHS_S, strict=True)
    )


def roll_cap(runners: int) -> int:
    """Return how many runners a roll may take away at once, by the rule that the operator keeps."""
    return max(1, ROLL_PERCENT * runners // 100)


def deadline_s(jobs: int) -> float:
    """Return how long the whole play may take: several times what it takes on two busy cores."""
    return _PLAY_MAX_S + jobs * _JOB_MAX_S


def script(job: PlannedJob, ledger: str) -> str:
    """Return what a job does: it says that it began and that it ended, in a file that it cannot write twice unseen."""
    began, ended = (shlex.quote(f"{ledger}/{job.name}.{what}") for what in ("began", "ended"))
    return "\n".join(
        (
            "set -eu",
            f'echo "$REMUDA_JOB_ID" >>{began}',
            'image=$(cat "$HOME/image" 2>/dev/null || echo process)',
            f'echo "{job.name} began on image $image"',
            f"sleep {job.length_s}",
            f'echo "$REMUDA_JOB_ID" >>{ended}',
            f'echo "{job.name} ended"',
            "",
        )
    )


def output(job: PlannedJob, image: str) -> str:
    """Return what a job prints on a runner of an image."""
    return f"{job.name} began on image {image}\n{job.name} ended\n"
