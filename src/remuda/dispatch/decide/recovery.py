"""
Decide what must be mended: which claims are stale, whom to ask the forge about, what its answer means. Pure.

Nothing here measures time between clocks: graces run from our own first sighting, on our own monotonic clock. What is
decided carries the handle that was seen before the forge was asked, so that old evidence changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar, assert_never

from remuda.ports.forge import ForgeState

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from datetime import datetime

    from remuda.dispatch.settings import RecoverySettings
    from remuda.model.job import Job, LiveClaim
    from remuda.ports.forge import ForgeJob

K = TypeVar("K", bound="Hashable")


class Sightings(Generic[K]):
    """Since when each thing has been seen so, look after look. A thing that one look did not see begins anew."""

    def __init__(self, *, gap_max_s: float = float("inf")) -> None:
        """With a longer gap between two looks nobody knows what was in between: all begins anew."""
        self._gap_max_s = gap_max_s
        self._looked_at = float("-inf")
        self._since: dict[K, float] = {}

    def look(self, seen: Iterable[K], now: float) -> Mapping[K, float]:
        """Note what is seen now. Returns for how many seconds each has been seen."""
        if now - self._looked_at > self._gap_max_s:
            self._since = {}
        self._looked_at = now
        self._since = {key: self._since.get(key, now) for key in seen}
        return {key: now - since for key, since in self._since.items()}


def soonest(waits: Iterable[float], *, at_most: float, at_least: float = 1.0) -> float:
    """Return when to look again: when the first grace ends, at the next tick at the latest."""
    return max(at_least, min((*waits, at_most)))


# --- Whom to ask the forge about --------------------------------------------------------------------------------------


class Evidence(StrEnum):
    """Why the forge is asked about a job, the strongest reason first."""

    POD_ENDED = "pod_ended"
    """Its Pod stopped or is gone, or nothing stands behind it any more."""
    UNPROVEN = "unproven"
    """It was handed over, and the forge has not said that anybody executes it."""
    WAITING = "waiting"
    """It has been queued for long."""
    PROVEN = "proven"
    """The forge said that it runs, and its Pod lives. Only a lost message could tell otherwise."""


_STRENGTH: Final = {evidence: place for place, evidence in enumerate(Evidence)}


_Key = tuple[str, "datetime | None", str, Evidence]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A job that the forge should be asked about. ``job`` is as it was seen before: its claim is the handle."""

    job: Job
    evidence: Evidence

    @property
    def key(self) -> _Key:
        """What was handed over again, or anew, is another case."""
        claim, job = self.job.claim, self.job
        held_at = claim.claimed_at if claim else None
        return (job.spec.id, held_at, job.runner_name, self.evidence)


class PodState(StrEnum):
    """What is known about a claimed Pod."""

    ALIVE = "alive"
    ENDED = "ended"
    """It stopped, or the server has no Pod of that name and UID."""
    UNKNOWN = "unknown"
    """Nobody could tell. Unknown is never ended."""


def doubt_about(job: Job, live: LiveClaim | None, pod: PodState) -> Doubt:
    """Say what speaks for asking about a running job. ``live`` is the claim that holds it, if one stands."""
    if live is None or pod is PodState.ENDED:
        return Doubt(job, Evidence.POD_ENDED)
    return Doubt(job, Evidence.UNPROVEN if live.executed_at is None else Evidence.PROVEN)


def hold_of(job: Job, claims: Mapping[str, LiveClaim]) -> LiveClaim | None:
    """Return the claim that a running job stands on, of the claims by Pod; another hold of that Pod is none."""
    if job.claim is None:
        return None
    live = claims.get(job.claim.pod)
    return live if live is not None and live.claim == job.claim else None


@dataclass(frozen=True, slots=True)
class Patience:
    """When to ask: first after so long, then in doubling steps."""

    first_s: float
    step_s: float
    longest_s: float


_ENDED_STEP_S: Final = 10.0
_ENDED_LONGEST_S: Final = 40.0
"""With a tick on top, a job whose runner died is asked about at least once a minute, for as long as it takes."""


def patience(evidence: Evidence, settings: RecoverySettings) -> Patience:
    slow_s = settings.known_running_s
    match evidence:
        case Evidence.POD_ENDED:
            return Patience(0.0, _ENDED_STEP_S, _ENDED_LONGEST_S)
        case Evidence.UNPROVEN:
            return Patience(settings.orphan_s, _ENDED_STEP_S, _ENDED_LONGEST_S)
        case Evidence.WAITING:
            return Patience(0.0, slow_s, slow_s * 4)
        case Evidence.PROVEN:
            return Patience(slow_s, slow_s, slow_s * 8)
        case _:
            assert_never(evidence)


@dataclass(frozen=True, slots=True)
class _Asked:
    next_at: float
    times: int = 0
    gone_since: float | None = None


_FOR_WEAKER: Final = 0.25


class Inquiries:
    """Whom we asked about and when to ask again. Lost with its process: that costs requests, nothing else."""

    def __init__(self, settings: RecoverySettings) -> None:
        self._settings = settings
        self._asked: dict[_Key, _Asked] = {}

    def due(self, doubts: Iterable[Doubt], now: float, limit: int) -> tuple[Doubt, ...]:
        """
        Return about whom to ask now: the strongest evidence first, then who has waited for longest.

        A part of the places is for weaker evidence: a forge may take long to say what became of what died.
        """
        listed = tuple(doubts)
        self._asked = {d.key: self._asked.get(d.key) or self._first(d, now) for d in listed}
        ripe = [doubt for doubt in listed if self._asked[doubt.key].next_at <= now]
        ripe.sort(key=lambda d: (_STRENGTH[d.evidence], self._asked[d.key].next_at, d.job.spec.id))
        weaker = [doubt for doubt in ripe if doubt.evidence is not ripe[0].evidence]
        weaker.sort(key=lambda d: (self._asked[d.key].next_at, d.job.spec.id))
        kept = weaker[: int(limit * _FOR_WEAKER)]
        places = {doubt.key for doubt in kept}
        first = [doubt for doubt in ripe if doubt.key not in places][: limit - len(kept)]
        return (*first, *kept)

    def look_again(self, now: float) -> float:
        """Return in how many seconds somebody is to be asked about."""
        return min((asked.next_at for asked in self._asked.values()), default=float("inf")) - now

    def answered(self, doubt: Doubt, said: ForgeState | None, now: float) -> None:
        """Note an answer (None: there was none), and when to ask again if the job is still in doubt then."""
        before = self._asked.get(doubt.key, _Asked(now))
        # What runs, runs for long: its Pod's end, or a message, tells sooner than we could ask.
        runs = said is ForgeState.IN_PROGRESS and doubt.evidence is not Evidence.POD_ENDED
        wait = patience(Evidence.PROVEN if runs else doubt.evidence, self._settings)
        step_s = min(wait.longest_s, wait.step_s * 2.0 ** min(before.times, 16))
        gone = said is ForgeState.GONE
        self._asked[doubt.key] = _Asked(
            next_at=now + (min(step_s, self._settings.gone_s) if gone else step_s),
            times=before.times + 1,
            gone_since=(now if before.gone_since is None else before.gone_since) if gone else None,
        )

    def gone_for(self, doubt: Doubt, now: float) -> float:
        """Return for how long the forge has said, answer after answer, that it does not know the job."""
        asked = self._asked.get(doubt.key)
        return 0.0 if asked is None or asked.gone_since is None else now - asked.gone_since

    def _first(self, doubt: Doubt, now: float) -> _Asked:
        return _Asked(now + patience(doubt.evidence, self._settings).first_s)


# --- What its answer means --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Requeue:
    """Nobody executes it: the claim that was seen ends, and the job is back in its place."""

    why: str


@dataclass(frozen=True, slots=True)
class EndJob:
    """It is over. The claim that was seen ends too if ``release``: no message will end it."""

    conclusion: str
    why: str
    runner_name: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    release: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """Somebody executes it: bind it to that runner if we missed that."""

    runner_name: str
    started_at: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Change nothing."""

    why: str


Verdict = Requeue | EndJob | Attribute | Leave


def verdict(doubt: Doubt, said: ForgeJob, *, gone_for_s: float, gone_s: float) -> Verdict:
    """Say what to do about a job after the forge spoke. ``gone_for_s``: since its first word that it is gone."""
    match said.state:
        case ForgeState.QUEUED:
            return _still_queued(doubt.evidence)
        case ForgeState.IN_PROGRESS:
            if not said.runner_name:
                return Leave("the forge says that it runs, but not where")
            return Attribute(said.runner_name, said.started_at, "the forge was asked")
        case ForgeState.COMPLETED:
            return EndJob(
                conclusion=said.conclusion,
                why=f"the forge says that it ended: {said.conclusion or 'nobody knows how'}",
                runner_name=said.runner_name,
                started_at=said.started_at,
                ended_at=said.ended_at,
                # A Pod that lives may be given a sibling of a job that nobody ran: its claim stays with it.
                release=doubt.evidence is Evidence.POD_ENDED,
            )
        case ForgeState.GONE:
            return _unknown_there(doubt.evidence, gone_for_s, gone_s)
        case ForgeState.OTHER:
            return Leave("the forge has it in a state that is not ours to judge")
        case _:
            assert_never(said.state)


def _still_queued(evidence: Evidence) -> Verdict:
    match evidence:
        case Evidence.POD_ENDED:
            return Requeue("its Pod ended and the forge says that it still waits")
        case Evidence.UNPROVEN:
            return Requeue("it was handed over and the forge says that it still waits")
        case Evidence.WAITING:
            return Leave("it waits there as it does here")
        case Evidence.PROVEN:
            return Leave("the forge said before that its runner, which lives, executes it")
        case _:
            assert_never(evidence)


def _unknown_there(evidence: Evidence, gone_for_s: float, gone_s: float) -> Verdict:
    if evidence is Evidence.PROVEN:
        return Leave("the forge does not know it any more, but its runner lives")
    if gone_for_s < gone_s:
        return Leave("the forge does not know it: once is not enough to end it for ever")
    return EndJob("gone", f"the forge has not known it for {gone_for_s:.0f} s", release=True)
