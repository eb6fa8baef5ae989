"""
Which hosts new runners stay away from, because starts fail there while they succeed elsewhere. Pure.

A host can be Ready and yet start nothing. Being the emptiest, it then draws every replacement and holds the budget of
starts. So three failed starts in a row, with a success on another host since the first of them, make a host avoided. If
starts fail everywhere (a bad image, a dead registry) no host is to blame; nor if what failed here never started at all,
though runners of other templates did. Only a minority may ever be avoided, and now and then one runner is let in to see
whether the host works again.

What is known of a host outlives the operator in a condition of its Node; the outcomes of starts do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from remuda.kube.meta import Condition
from remuda.kube.names import STARTS_FAILING
from remuda.kube.node_view import starts_failing, unhealthy_reason
from remuda.kube.times import parse_time, whole_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from remuda.kube.core import Node

FAILURES = 3
"""Failed starts in a row that make a host avoided."""
PROBE_AFTER = timedelta(minutes=10)
"""How long a host is left alone before the first probe; doubled by each probe that fails."""
PROBE_AFTER_MAX = timedelta(hours=1)
OUTCOMES_PER_HOST = 8
"""How many outcomes of a host are worth keeping."""


@dataclass(frozen=True, slots=True)
class HostSeen:
    """A host of the fleet, with what its Node's condition remembers."""

    name: str
    healthy: bool
    failing_since: datetime | None = None
    """Since when it is avoided; None while it is not."""
    failures: int = 0
    """Failed starts in a row, failed probes among them."""
    probe_at: datetime | None = None
    """From when on a probe may start; None: as ``failing_since`` and ``failures`` give."""


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """How the start of one runner on a host went."""

    node: str
    """Empty if it never had a host: that says nothing about any."""
    pod_uid: str
    started: bool
    at: datetime
    template: str = ""
    """What it was made from: one that never started anywhere says nothing about a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStartsFailing:
    """Write this onto the Node as its condition (see ``condition_of``)."""

    node: str
    failing: bool
    failures: int = 0
    probe_at: datetime | None = None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Avoidance:
    """Where new runners should not go, and what to write down about it."""

    avoid: frozenset[str] = frozenset()
    suspects: frozenset[str] = frozenset()
    """Hosts with as many failures, but no start elsewhere to compare with: the next start should be one."""
    probe: str = ""
    """The one avoided host that may be given one runner now."""
    changes: tuple[SetStartsFailing, ...] = ()


def avoidance(
    hosts: Iterable[HostSeen],
    outcomes: Iterable[StartOutcome],
    now: datetime,
    *,
    starting_on: Collection[str] = (),
) -> Avoidance:
    """Decide for one fleet. ``starting_on``: hosts that have a runner starting already, so need no probe."""
    in_order = sorted(hosts, key=lambda h: h.name)
    most = avoid_max(in_order)
    starts = _by_host(in_order, outcomes)
    known = [_with_news(host, starts[host.name]) for host in in_order if host.failing_since]
    failing = [k.host for k in known if k.host.failing_since and k.host.healthy]
    # More than may be avoided are left when good hosts go away: then only the worst are.
    avoided = sorted(failing, key=_worst_first)[:most]
    streaks = {h: _streak(starts[h.name]) for h in in_order if h.healthy and not h.failing_since}
    candidates = sorted(
        (h for h, streak in streaks.items() if len(streak) >= FAILURES),
        key=lambda h: (-len(streaks[h]), h.name),
    )
    guilty = [h for h in candidates if _blames(streaks[h], h, starts)]
    found = guilty[: max(0, most - len(failing))]
    unproven = [h for h in candidates if not _is_compared(streaks[h], h, starts)]
    return Avoidance(
        avoid=frozenset(h.name for h in (*avoided, *found)),
        suspects=frozenset(h.name for h in unproven[: max(0, most - len(failing) - len(found))]),
        probe=_probe(avoided, starting_on, now),
        changes=(*(c for k in known for c in k.changes), *(_found(h, streaks[h]) for h in found)),
    )


def avoid_max(hosts: Iterable[HostSeen]) -> int:
    """Return how many may be avoided: a minority of the healthy ones, one of two, and never the last."""
    healthy = sum(1 for h in hosts if h.healthy)
    return 0 if healthy <= 1 else max(1, (healthy - 1) // 2)


def probe_delay(failures: int) -> timedelta:
    """Return how long a host is left alone after so many failed starts in a row."""
    doublings = min(max(0, failures - FAILURES), 10)
    return min(PROBE_AFTER_MAX, PROBE_AFTER * (1 << doublings))


def worth_keeping(outcomes: Iterable[StartOutcome]) -> tuple[StartOutcome, ...]:
    """Return what a later decision can still need of the outcomes: the newest few of each host."""
    by_host: dict[str, list[StartOutcome]] = {}
    for outcome in _distinct(outcomes):
        by_host.setdefault(outcome.node, []).append(outcome)
    return tuple(o for _, known in sorted(by_host.items()) for o in known[-OUTCOMES_PER_HOST:])


# --- what is known -------------------------------------------------------------------------------------------------


def _distinct(outcomes: Iterable[StartOutcome]) -> list[StartOutcome]:
    """Put the outcomes of starts that had a host in order, each runner once; of a doubt, a success is the truth."""
    by_uid: dict[str, StartOutcome] = {}
    for outcome in sorted(outcomes, key=lambda o: (o.started, o.at, o.node)):
        if outcome.node:
            by_uid[outcome.pod_uid] = outcome
    # Of two at the same moment the success counts as the later one.
    return sorted(by_uid.values(), key=lambda o: (o.at, o.started, o.pod_uid))


def _by_host(
    hosts: Iterable[HostSeen], outcomes: Iterable[StartOutcome]
) -> dict[str, list[StartOutcome]]:
    starts: dict[str, list[StartOutcome]] = {h.name: [] for h in hosts}
    for outcome in _distinct(outcomes):
        if outcome.node in starts:
            starts[outcome.node].append(outcome)
    return starts


def _streak(starts: Sequence[StartOutcome]) -> list[StartOutcome]:
    """Return the failures since the last success."""
    last = max((n for n, start in enumerate(starts, start=1) if start.started), default=0)
    return list(starts[last:])


def _blames(
    streak: Sequence[StartOutcome], host: HostSeen, starts: Mapping[str, Sequence[StartOutcome]]
) -> bool:
    """Say whether failures speak against a host: those of a template that never started anywhere do not."""
    good = {start.template for known in starts.values() for start in known if start.started}
    failures = [failure for failure in streak if failure.template in good]
    if len(failures) < FAILURES:
        return False
    return any(s.started and s.at >= failures[0].at for s in _elsewhere(host, starts))


def _is_compared(
    streak: Sequence[StartOutcome], host: HostSeen, starts: Mapping[str, Sequence[StartOutcome]]
) -> bool:
    """Say whether somebody tried elsewhere, since then, what failed here."""
    templates = {failure.template for failure in streak}
    others = (start for start in _elsewhere(host, starts) if start.template in templates)
    return any(start.at >= streak[0].at for start in others)


def _elsewhere(
    host: HostSeen, starts: Mapping[str, Sequence[StartOutcome]]
) -> Iterator[StartOutcome]:
    return (start for name, known in starts.items() if name != host.name for start in known)


# --- one host ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    host: HostSeen
    changes: tuple[SetStartsFailing, ...] = ()


def _with_news(host: HostSeen, starts: Sequence[StartOutcome]) -> _Known:
    """Bring a host that is avoided up to date with its outcomes."""
    assert host.failing_since is not None
    if any(start.started and start.at > host.failing_since for start in starts):
        cleared = SetStartsFailing(node=host.name, failing=False, why="a runner started here again")
        return _Known(HostSeen(host.name, host.healthy), (cleared,))
    failures, probe_at = max(host.failures, FAILURES), _probe_at(host)
    # Only a probe can fail from then on; what failed earlier had been sent before the host was avoided.
    for start in starts:
        if start.at >= probe_at:
            failures += 1
            probe_at = whole_seconds(start.at + probe_delay(failures))
    new = HostSeen(host.name, host.healthy, host.failing_since, failures, probe_at)
    if failures == max(host.failures, FAILURES):
        return _Known(new)
    return _Known(new, (_failing(new, "a probe failed to start here"),))


def _probe_at(host: HostSeen) -> datetime:
    if host.probe_at is not None:
        return host.probe_at
    assert host.failing_since is not None
    return host.failing_since + probe_delay(host.failures)


def _found(host: HostSeen, streak: Sequence[StartOutcome]) -> SetStartsFailing:
    failures = len(streak)
    probe_at = whole_seconds(streak[-1].at + PROBE_AFTER)
    new = HostSeen(host.name, host.healthy, streak[-1].at, failures, probe_at)
    return _failing(new, "starts fail here while they succeed on other hosts")


def _failing(host: HostSeen, why: str) -> SetStartsFailing:
    return SetStartsFailing(
        node=host.name, failing=True, failures=host.failures, probe_at=host.probe_at, why=why
    )


def _worst_first(host: HostSeen) -> tuple[int, datetime, str]:
    assert host.failing_since is not None
    return -host.failures, host.failing_since, host.name


def _probe(avoided: Iterable[HostSeen], starting_on: Collection[str], now: datetime) -> str:
    due = [(_probe_at(h), h.name) for h in avoided if _probe_at(h) <= now]
    # One at a time: while a probe is on its way, no other host gets one.
    if any(h.name in starting_on for h in avoided):
        return ""
    return min(due)[1] if due else ""


# --- the Node's condition ------------------------------------------------------------------------------------------

_MESSAGE = re.compile(
    r"(?P<failures>[0-9]{1,6}) starts in a row .* from (?P<probe_at>[0-9TZ:-]+) on"
)


def condition_of(change: SetStartsFailing) -> Condition:
    """Return the condition to write. Its text holds all that ``read_condition`` needs; a start alone changes it."""
    if not change.failing:
        return Condition(
            type=STARTS_FAILING, status="False", reason="Started", message="A runner started here."
        )
    assert change.probe_at is not None
    probe_at = whole_seconds(change.probe_at).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Condition(
        type=STARTS_FAILING,
        status="True",
        reason="StartsFailed",
        message=f"{change.failures} starts in a row failed here while runners started on other hosts. New runners avoid"
        f" this host; one runner may try it from {probe_at} on, and clears this if it starts.",
    )


def read_condition(condition: Condition | None) -> tuple[datetime, int, datetime | None] | None:
    """Return since when, how many failures and when to probe; None if the host is not avoided."""
    if condition is None or condition.status != "True" or condition.last_transition_time is None:
        return None
    match = _MESSAGE.match(condition.message)
    if match is None:  # someone wrote it by hand: believe that it fails
        return condition.last_transition_time, FAILURES, None
    return condition.last_transition_time, int(match["failures"]), _time(match["probe_at"])


def _time(text: str) -> datetime | None:
    try:
        return parse_time(text)
    except ValueError:
        return None


def host_seen(node: Node) -> HostSeen:
    """Return a Node as this decision sees it."""
    healthy = unhealthy_reason(node) == ""
    read = read_condition(starts_failing(node))
    return HostSeen(node.name, healthy, *read) if read else HostSeen(node.name, healthy)
