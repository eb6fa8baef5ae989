"""
Decide how a forge is asked for news that sends none: how often, about which repositories, and about which jobs. Pure.

Answers that have not changed cost nothing of the rate limit, so a quiet fleet is asked as often as a busy one. What
does cost is spread over the time that is left until the limit begins anew, and what minting needs is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from remuda.dispatch.settings import PollingSettings
    from remuda.model.job import Job
    from remuda.ports.forge import Spent, Swept

_MINUTE_S: Final = 60.0
_LOOK_AGAIN_MAX_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Pace:
    """When to ask again. ``why`` is empty as long as nothing slows it down."""

    wait_s: float
    why: str = ""


def pace(spent: Iterable[Spent], how: PollingSettings) -> Pace:
    """Return when to ask again after a turn that cost so much: the tenant with the least room sets the pace."""
    steps = [step for one in spent for step in _steps(one, how)]
    return max(steps, key=lambda step: step.wait_s, default=Pace(how.shortest_s))


def _steps(spent: Spent, how: PollingSettings) -> tuple[Pace, ...]:
    """Return what each limit asks for. A turn as dear as the last one must fit."""
    steps = [Pace(how.shortest_s)]
    minute_s = spent.asked * _MINUTE_S / max(1, spent.per_minute_max)
    if minute_s > how.shortest_s:
        why = f"one turn takes {spent.asked} requests, of {spent.per_minute_max} in a minute"
        steps.append(Pace(min(minute_s, how.longest_s), why))
    if spent.left is not None and spent.charged:
        hour_s = spent.resets_s * spent.charged / max(1, spent.left)
        if hour_s > how.shortest_s:
            why = f"one turn counts {spent.charged}, and {spent.left} are left for {spent.resets_s:.0f} s"
            steps.append(Pace(min(hour_s, how.longest_s), why))
    if spent.silent_s > how.shortest_s:
        why = f"the forge asked for silence for {spent.silent_s:.0f} s"
        steps.append(Pace(spent.silent_s, why))
    return tuple(steps)


def after_failures(failures: int, how: PollingSettings) -> Pace:
    """Return when to ask again after so many turns in a row failed."""
    wait_s = min(how.longest_s, how.shortest_s * 2.0 ** min(failures, 16))
    return Pace(
        wait_s, f"the last {failures} turns failed" if failures > 1 else "the last turn failed"
    )


def look_again_s(times: int, how: PollingSettings) -> float:
    """Return when to ask again about a job that the forge said is not over, though it is on no list."""
    return min(_LOOK_AGAIN_MAX_S, how.shortest_s * 2.0 ** min(times, 16))


def room(active: int, how: PollingSettings, most: int) -> int:
    """
    Return how many repositories a turn looks at, of which so many had a job lately.

    All of those, and half as many others in turn: the fewer are asked about at a time, the sooner it is their turn.
    """
    return min(most, max(how.repositories_min, ceil(active * 3 / 2)))


def first_of(open_jobs: Sequence[Job], recent: Sequence[str], most: int) -> tuple[str, ...]:
    """Return the repositories to look at first: where a job of ours is not over, then those with the newest jobs."""
    named = dict.fromkeys((*(job.spec.repository for job in open_jobs), *recent))
    return tuple(named)[:most]


def missing(
    open_jobs: Iterable[Job], swept: Swept, *, kept_back: Collection[str], most: int
) -> tuple[Job, ...]:
    """
    Return the jobs that may be over: not over here, and on no list of a repository that was read to its end.

    Lists may lag, so this decides nothing: the forge is asked about each. ``kept_back`` are ids not to ask about now.
    """
    told = {news.job_id for news in swept.found}
    doubtful = (
        job
        for job in open_jobs
        if job.spec.repository.lower() in swept.looked_at
        and job.spec.id not in swept.alive
        and job.spec.id not in told
        and job.spec.id not in kept_back
    )
    return tuple(doubtful)[:most]
