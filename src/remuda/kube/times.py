"""Times as Kubernetes writes them: whole seconds for ``Time``, exactly six digits for ``MicroTime``."""

from __future__ import annotations

from datetime import UTC, datetime


def whole_seconds(moment: datetime) -> datetime:
    """Cut the fraction off, as the API server would on writing; else every read looks like a change."""
    return moment.astimezone(UTC).replace(microsecond=0)


def micro_time(moment: datetime) -> str:
    """Spell a ``MicroTime``. The API server refuses any other number of digits."""
    # Not strftime, which takes three times as long: every renewal of every Lease comes by here.
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


def parse_time(text: str) -> datetime:
    """Read a ``Time`` or ``MicroTime``."""
    return datetime.fromisoformat(text).astimezone(UTC)
