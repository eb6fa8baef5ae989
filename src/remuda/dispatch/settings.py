"""What dispatch is told when it starts. Read once; every wait and every bound is here, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from remuda.control.reflector import ReflectorSettings
from remuda.model.job import Os, Size
from remuda.model.job_files import FILES_MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSettings:
    """How runners are served."""

    wait_max_s: float = 30.0
    """The longest that a poll is held open. Proxies cut off what is silent for much longer."""

    attempt_s: float = 20.0
    """How long one attempt to hand a job over may take, from the claim to the answer; then it is undone."""

    attempts_max: int = 16
    """How many jobs one poll tries after the first failed; tenants at their limit do not count."""

    stamp_tries: int = 3
    """How often a stamp that met a change of its Pod is tried on the new version."""

    delivery_window: timedelta = timedelta(seconds=120)
    """How long after its job was handed over a Pod that asks again is given it again: the answer was lost."""

    token_cache_s: float = 60.0
    """How long a reviewed token is trusted. A Pod that is gone is noticed before that, by the view of Pods."""

    beat_s: float = 1.0
    """How often to look for work that no wake-up told of: held jobs whose time has come, or a lost connection."""

    polls_max: int = 20_000
    """How many polls may wait in one replica; more are asked to come again."""

    hold_s: float = 15.0
    """How long a job is held back after the forge failed for it; doubled with each attempt, up to ``hold_max_s``."""

    hold_max_s: float = 300.0

    outage_failures: int = 4
    """How many failures of a forge in a row make an outage: then it is asked by one attempt at a time, after pauses."""

    outage_pause_s: float = 5.0
    """How long a forge is left alone in an outage; doubled with each further failure, up to ``outage_pause_max_s``."""

    outage_pause_max_s: float = 20.0

    outage_hold_max_s: float = 30.0
    """How long a job is held back at most because its forge did not answer: that is not the job's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingSettings:
    """How a forge is asked for news that cannot send any."""

    shortest_s: float = 5.0
    """How often it is asked while its rate limit allows that. A job waits half of that on average, and a request."""

    longest_s: float = 120.0
    """How long to wait at most for the rate limit's sake; a forge that names a longer time is left alone for that."""

    repositories_min: int = 16
    """
    How many repositories one turn looks at, at least. Two requests each, every ``shortest_s``, are four fifths of the
    450 that GitHub is asked in a minute.
    """

    look_ups_max: int = 20
    """About how many jobs that are on no list any more the forge is asked in one turn, one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """How a forge's messages are taken in."""

    body_max_bytes: int = 1024 * 1024
    """GitHub's own bound is 25 MiB; a ``workflow_job`` has some 20 KiB."""

    body_s: float = 5.0
    """How long the sender of a message may take. GitHub gives up after 10 s."""

    record_s: float = 5.0
    """How long it may take to keep a message. The sender is told to try again before it gives up on us by itself."""

    workers: int = 8
    """How many messages are worked on at once; one that takes longer than ``slow_s`` no longer counts."""

    slow_s: float = 0.5
    slow_max: int = 50
    """How many may be slow at once: they wait for the forge, and hold up nothing but their own job."""

    forge_s: float = 10.0
    """How long a question to the forge may take."""

    unsaid_s: float = 30.0
    """How long a run counts as a fork's because the forge did not say: a job may come before its run is known."""

    forge_pause_s: float = 5.0
    """How long a tenant's forge is not asked again after it did not answer."""

    lease: timedelta = timedelta(seconds=60)
    """How long a message is one replica's. It is worked on for half of that at most."""

    poll_s: float = 1.0
    """How often to look for messages that nobody told of: they failed before, or their replica died."""

    attempts_max: int = 8
    """How often a message that fails is tried; then it is given up, and the sweep is what is left."""

    retry_s: float = 5.0
    """Doubled with each attempt, up to ``retry_max_s``."""

    retry_max_s: float = 300.0

    remembered: timedelta = timedelta(days=4)
    """How long a GUID is known: longer than GitHub can deliver it again (three days)."""

    place_age_max: timedelta = timedelta(hours=24)
    """
    How old a new job's place in the queue may be. A job that waited for a person's approval for days has needed a
    runner only since, and GitHub keeps no job queued for longer.
    """

    messages: bool = True
    """Whether the forge sends messages, so that lost ones can be asked for."""

    polling: PollingSettings | None = None
    """Set where sweeps are what tells of jobs, at a pace of their own; else they only find what messages missed."""

    sweep_s: float = 12.0
    """How often to ask the forge for queued jobs that no message announced."""

    sweep_deadline_s: float = 60.0
    """How long one sweep, or one request for messages again, may take in all."""

    sweep_repositories_max: int = 60
    """How many repositories one sweep looks at."""

    active_for: timedelta = timedelta(hours=24)
    """Repositories that had a job within this time are looked at first."""

    redeliver_s: float = 60.0
    redeliver_within: timedelta = timedelta(hours=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings:
    """How what went wrong is found and mended. Graces are measured from the first sighting, on our own clock."""

    tick_s: float = 10.0
    stale_claim_s: float = 30.0
    """How long a claim may stay without a hand-over: longer than an attempt may take."""

    orphan_s: float = 30.0
    """How long a job may run here, without a word from the forge that it does, before the forge is asked."""

    pod_gone_s: float = 20.0
    """How long a claimed Pod must be missing from full lists."""

    stamped_s: float = 300.0
    """How old a stamped Pod without claim and session must be, and how long be seen so, before it is reaped."""

    queued_s: float = 300.0
    """How long a job may wait before the forge is asked whether it still does."""

    unused_s: float = 300.0
    """How long a registration may stay unused without a claim behind it."""

    over_s: float = 360.0
    """How long a claim may outlive its job: a runner that nobody gave a job ends by itself before that."""

    gone_s: float = 60.0
    """How long a forge must say that it does not know a job before the job counts as over: that cannot be undone."""

    known_running_s: float = 900.0
    """How often, at first, a forge is asked about a job that it said runs: its runner's end tells sooner."""

    reap_share: float = 0.25
    """How much of a pool's runners one tick may delete. One always may go."""

    reap_held_max: int = 3
    """With more jobs than this held back, the forge is failing: then no stamped runner is deleted."""

    reap_held_s: float = 1800.0
    """For how long that may be: jobs of one tenant that are refused for ever must not keep broken runners alive."""

    retention_s: float = 3600.0
    """How often what is long over is forgotten."""

    actions_max: int = 25
    """How many things of one kind are mended in one tick: a mistake of ours must not empty a fleet."""

    keep_over: timedelta = timedelta(days=35)
    """How long what is over is kept: longer than GitHub keeps a job queued or lets a run be repeated (30 days)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """How files go with local jobs and come back."""

    bytes_max: int = FILES_MAX_BYTES
    """The largest upload, packed. No more than agents and guests take."""

    total_max_bytes: int = 4 * 1024**3
    """What all archives together may have in the database."""

    kept: timedelta = timedelta(days=1)
    """How long what came back is kept after its job ended, if nobody fetches it. An upload goes with the end."""

    fetched: timedelta = timedelta(minutes=5)
    """How long what came back is kept after somebody fetched all of it: a fetch that broke off is tried again."""

    untaken: timedelta = timedelta(hours=1)
    """How long an upload may wait for its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """All of it."""

    namespace: str
    """Where the runners are. A token of another namespace is refused."""

    controller: str = "remuda-controller"
    """The operator's ServiceAccount: it alone may say that a runner stopped."""

    controller_namespace: str = ""
    """Empty: that of the runners."""

    limits: dict[Os, Size] = field(
        default_factory=lambda: {
            Os.LINUX: Size(64, 128 * 1024),
            Os.DARWIN: Size(24, 48 * 1024),
        }
    )
    """What a tenant may use at once when it is first seen."""

    polls: PollSettings = field(default_factory=PollSettings)
    intake: IntakeSettings = field(default_factory=IntakeSettings)
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    files: FileSettings = field(default_factory=FileSettings)
    reflector: ReflectorSettings = field(default_factory=ReflectorSettings)
    shutdown_s: float = 25.0
    """How long a replica that is told to stop finishes what is past the stamp."""

    @property
    def controller_account(self) -> tuple[str, str]:
        """The namespace and name of the operator's ServiceAccount."""
        return (self.controller_namespace or self.namespace, self.controller)
