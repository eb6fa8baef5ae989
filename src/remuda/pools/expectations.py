"""
What the operator wrote and its cache does not show yet. Plain memory: no I/O, no clock.

A decision on a lagging cache would do everything twice. So it looks at the cache with this on top: runners that were
asked for are there, runners that were written are as written, runners that were deleted are being deleted. Every entry
goes when the cache moves on. A write whose outcome is unknown (a timeout) must be looked up before the pool's next
pass: neither "it happened" nor "it did not" is safe to believe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.runner import Runner


@dataclass(frozen=True, slots=True)
class _Entry:
    shown: Runner
    """The runner as it is shown in place of what the cache says."""
    superseded: frozenset[str]
    """Versions that are older than what we wrote. The cache moved on once it shows another."""
    awaited: bool
    """We made it and the cache never held it: its absence says nothing yet."""


class Expectations:
    """The overlay of one reign. A new leader starts with an empty one and a fresh list."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, _Entry]] = {}
        self._home: dict[str, frozenset[str]] = {}
        """Per pool the names that were shown last: a write about a runner belongs to the pool that showed it."""

    def create(self, pool: str, placeholder: Runner) -> None:
        """Remember a runner that is about to be made. Its uid is empty until the API server answers."""
        entry = _Entry(placeholder, frozenset({placeholder.version}), awaited=True)
        self._entries.setdefault(pool, {})[placeholder.name] = entry

    def wrote(self, before: Runner, after: Runner) -> None:
        """Remember that a write turned ``before`` into ``after``. Also how a placeholder gets its uid."""
        self._put(before, after)

    def reaped(self, runner: Runner, at: datetime) -> None:
        """Remember that the runner's deletion was accepted."""
        self._put(runner, replace(runner, deleting_since=runner.deleting_since or at))

    def seen(self, pool: str, runners: Iterable[Runner]) -> tuple[Runner, ...]:
        """Return the pool's runners: the cache's, with what was written since on top."""
        cached = {runner.name: runner for runner in runners}
        entries = self._entries.get(pool, {})
        kept = {
            name: replace(e, awaited=e.awaited and name not in cached)
            for name, e in entries.items()
            if _holds(e, cached.get(name))
        }
        if kept:
            self._entries[pool] = kept
        else:
            self._entries.pop(pool, None)
        shown = {**cached, **{name: entry.shown for name, entry in kept.items()}}
        self._home[pool] = frozenset(shown)
        return tuple(shown.values())

    def placeholders(self, pool: str) -> tuple[Runner, ...]:
        """Return the runners that were made and never seen in the cache, those being deleted left out."""
        return tuple(
            e.shown
            for e in self._entries.get(pool, {}).values()
            if e.awaited and e.shown.deleting_since is None
        )

    def unconfirmed(self, pool: str, older_than: datetime) -> tuple[str, ...]:
        """Return the names that the cache should have shown by now: ask the API server about them."""
        entries = self._entries.get(pool, {})
        return tuple(
            name for name, e in entries.items() if e.awaited and e.shown.created_at <= older_than
        )

    def absent(self, pool: str, name: str) -> None:
        """Forget a runner: the API server says that there is none of this name."""
        self._entries.get(pool, {}).pop(name, None)

    def forget(self, pool: str) -> None:
        """Forget a pool that is gone."""
        self._entries.pop(pool, None)
        self._home.pop(pool, None)

    def _put(self, before: Runner, after: Runner) -> None:
        pool = self._pool_of(before.name)
        if pool is None:
            return  # nobody decides about it from here
        old = self._entries.get(pool, {}).get(before.name)
        superseded = {before.version} | (old.superseded if old else frozenset())
        entry = _Entry(after, frozenset(superseded), awaited=old.awaited if old else False)
        self._entries.setdefault(pool, {})[before.name] = entry

    def _pool_of(self, name: str) -> str | None:
        known = (pool for pool, entries in self._entries.items() if name in entries)
        shown = (pool for pool, names in self._home.items() if name in names)
        return next(known, None) or next(shown, None)


def _holds(entry: _Entry, cached: Runner | None) -> bool:
    """Say whether the cache is still older than what was written."""
    if cached is None:
        return entry.awaited
    if entry.shown.uid and cached.uid != entry.shown.uid:
        return False
    if entry.shown.deleting_since is not None and cached.deleting_since is None:
        # A deletion was accepted for the version that was seen: whatever comes after it shows the deletion.
        return cached.version in entry.superseded | {entry.shown.version}
    return cached.version in entry.superseded
