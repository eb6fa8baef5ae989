"""
What may be removed from the host: orphaned VMs, and images that nobody uses. Pure.

Only what this agent owns by its record and by its name, never what runs unless it is proven an orphan past its grace,
never an image in use or wanted. What is not named here stays. Each answer says why, also for what stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from remuda.agent.decide.lifecycle import Observed
from remuda.agent.decide.recorded import ImageState, State
from remuda.agent.guards import ALL, Guards

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.agent.decide.recorded import ImageRecord, VmRecord


class Need(StrEnum):
    """How badly room is needed."""

    NONE = "none"
    ROOM = "room"
    """The disk is nearly full: what nobody uses goes at once, but for one golden."""
    NO_SPACE = "no space"
    """A wanted image does not fit: what nobody uses goes, to the last. Otherwise the host would be stuck with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbagePolicy:
    """How long things are kept."""

    enabled: bool = True
    """Off for builders: then nothing is collected, not even when the disk is full."""
    stopped_grace: timedelta = timedelta(seconds=60)
    """How long the Pod of a stopped VM must have been proven gone."""
    running_grace: timedelta = timedelta(minutes=10)
    """The same, of a VM that runs and has no job."""
    job_max: timedelta = timedelta(hours=24)
    """How long a VM that was given a job is left to it, if the job has no deadline."""
    golden_kept: timedelta = timedelta(hours=24)
    """How long an image that nobody wants stays."""
    goldens_min: int = 1
    """How many goldens stay whatever their age: a host without any starts cold."""
    guards: Guards = ALL
    """For tests only: which guards are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What was seen, and what is known. All of it from one pass."""

    vms: Mapping[str, Observed]
    """Everything on the host by name, goldens too. What is not in it was seen to be absent."""
    records: tuple[VmRecord, ...] = ()
    images: tuple[ImageRecord, ...] = ()
    gone_since: Mapping[str, datetime] = field(default_factory=dict)
    """By Pod UID: since when its Pod has been proven gone. A Pod that is not in it counts as alive."""
    wanted_images: frozenset[str] = frozenset()
    """Of live Pods, and of rolls that had them staged here."""
    busy_images: frozenset[str] = frozenset()
    """Being fetched, made or cloned from at this moment."""
    unreadable: bool = False
    """Some record cannot be read. It may be of a VM that needs any of the goldens."""


@dataclass(frozen=True, slots=True)
class StopOrphan:
    """Stop a VM that nobody wants. Once it is seen stopped, it is deleted."""

    record: VmRecord
    why: str


@dataclass(frozen=True, slots=True)
class DeleteOrphan:
    """Delete a VM that nobody wants, with its mailbox."""

    record: VmRecord
    why: str


@dataclass(frozen=True, slots=True)
class DropImage:
    """Delete a golden and the pulled image together: they share their blocks, so one alone frees nothing."""

    record: ImageRecord
    why: str


@dataclass(frozen=True, slots=True)
class Spared:
    """Stays, and why."""

    name: str
    why: str


Removal = StopOrphan | DeleteOrphan | DropImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """What to do. To be carried out in this order; while room is needed, measure after each image and stop early."""

    removals: tuple[Removal, ...] = ()
    spared: tuple[Spared, ...] = ()
    foreign: tuple[str, ...] = ()
    """VMs to delete that are somebody else's. There is none while the guard of ownership is in."""


def collect(host: Host, policy: GarbagePolicy, need: Need, now: datetime) -> Garbage:
    """Return what may go now."""
    if not policy.enabled:
        return Garbage(spared=(Spared("everything", "garbage collection is switched off"),))
    found = [
        *(_vm(record, host, policy, now) for record in sorted(host.records, key=_by_uid)),
        *_images(host, policy, need, now),
    ]
    return Garbage(
        removals=tuple(f for f in found if f is not None and not isinstance(f, Spared)),
        spared=(
            *(f for f in found if isinstance(f, Spared)),
            *_foreign(host),
        ),
        foreign=() if policy.guards.ownership else _stopped(_foreign(host), host),
    )


# --- VMs --------------------------------------------------------------------------------------------------------------


def _by_uid(record: VmRecord) -> str:
    return record.pod_uid


def _vm(
    record: VmRecord, host: Host, policy: GarbagePolicy, now: datetime
) -> Removal | Spared | None:
    observed = host.vms.get(record.vm, Observed.ABSENT)
    if observed is Observed.ABSENT:
        return None
    since = host.gone_since.get(record.pod_uid)
    if record.state is State.REFUSED or since is None:
        there = since is None
        return Spared(record.vm, "its Pod is there" if there else "it is the VM of somebody else")
    if observed is Observed.UNKNOWN:
        return Spared(record.vm, "it cannot be seen whether it runs")
    if observed is Observed.RUNNING:
        return _running_orphan(record, since, policy, now)
    if now < since + policy.stopped_grace:
        return Spared(record.vm, "its Pod has only just gone")
    return DeleteOrphan(record, "its Pod is gone and it is stopped")


def _running_orphan(
    record: VmRecord, since: datetime, policy: GarbagePolicy, now: datetime
) -> Removal | Spared:
    until = since + policy.running_grace
    why = "its Pod is gone and it has no job"
    if record.state in {State.DELIVERING, State.DELIVERED}:
        # Whoever took the Pod away: a job that began is left to end, as long as it may last.
        given_at = record.delivered_at or record.started_at or record.accepted_at
        until = max(until, record.job_deadline or given_at + policy.job_max)
        why = "its Pod is gone and its job had all the time that it may take"
    if now < until:
        return Spared(record.vm, f"it runs, and is left alone until {until:%Y-%m-%d %H:%M:%S}")
    return StopOrphan(record, why)


# --- images -----------------------------------------------------------------------------------------------------------


def _images(
    host: Host, policy: GarbagePolicy, need: Need, now: datetime
) -> list[DropImage | Spared]:
    in_use = {r.image for r in host.records if r.state not in {State.CLEARED, State.REFUSED}}
    found: list[DropImage | Spared] = []
    old: list[tuple[ImageRecord, str]] = []
    for record in sorted(host.images, key=lambda r: (r.wanted_at, r.image)):
        kept = _kept(record, host, in_use)
        ripe = None if kept else _ripe(record, policy, need, now)
        if kept or ripe is None:
            found.append(Spared(record.golden, kept or "nobody wants it, but not for long enough"))
        else:
            old.append((record, ripe))
    spare_last = 0 if need is Need.NO_SPACE else policy.goldens_min
    return [*found, *_all_but_some(old, host, spare_last)]


def _kept(record: ImageRecord, host: Host, in_use: set[str]) -> str:
    """Return why an image stays whatever its age and whatever the need; empty if nothing says so."""
    if record.image in host.busy_images:
        return "it is being fetched or cloned"
    if record.image in host.wanted_images:
        return "it is wanted"
    if record.image in in_use:
        return "a VM was made from it"
    if host.unreadable:
        return "a record cannot be read, and its VM may need this"
    if host.vms.get(record.golden, Observed.ABSENT) in {Observed.RUNNING, Observed.UNKNOWN}:
        return "it runs, or it cannot be seen whether it does"
    return ""


def _ripe(record: ImageRecord, policy: GarbagePolicy, need: Need, now: datetime) -> str | None:
    if record.state is ImageState.FETCHING:
        return "it was never finished and nobody wants it"
    if need is not Need.NONE:
        return f"nobody uses it and the disk needs room ({need})"
    if now >= record.wanted_at + policy.golden_kept:
        return f"nobody has wanted it since {record.wanted_at:%Y-%m-%d %H:%M:%S}"
    return None


def _all_but_some(
    old: list[tuple[ImageRecord, str]], host: Host, goldens_min: int
) -> list[DropImage | Spared]:
    """Drop the oldest first, and leave so many whole goldens on the host."""
    whole = sum(_is_whole(record, host) for record in host.images)
    found: list[DropImage | Spared] = []
    for record, why in old:
        if _is_whole(record, host) and whole <= goldens_min:
            found.append(Spared(record.golden, "it is the last golden here"))
            continue
        whole -= _is_whole(record, host)
        found.append(DropImage(record, why))
    return found


def _is_whole(record: ImageRecord, host: Host) -> bool:
    there = host.vms.get(record.golden, Observed.ABSENT) is not Observed.ABSENT
    return there and record.state is ImageState.READY


def _foreign(host: Host) -> tuple[Spared, ...]:
    ours = {r.vm for r in host.records} | {r.golden for r in host.images}
    return tuple(
        Spared(name, "we have no record of it: it is not ours")
        for name in sorted(host.vms)
        if name not in ours
    )


def _stopped(spared: tuple[Spared, ...], host: Host) -> tuple[str, ...]:
    return tuple(each.name for each in spared if host.vms[each.name] is Observed.STOPPED)
