"""Times as Kubernetes writes them: whole seconds for ``Time``, exactly six digits for ``MicroTime``."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec


def whole_seconds(moment: datetime) -> datetime:
    """Cut the fraction off, as the API server would on writing; else every read looks like a change."""
    return moment.astimezone(UTC).replace(microsecond=0)


def micro_time(moment: datetime) -> str:
    """Spell a ``MicroTime``. The API server refuses any other number of digits."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    # msgspec takes a tenth of the time that isoformat takes: every renewal of every Lease comes by here.
    spelled: str = msgspec.to_builtins(moment)
    return spelled if moment.microsecond else f"{spelled[:-1]}.000000Z"


def parse_time(text: str) -> datetime:
    """Read a ``Time`` or ``MicroTime``."""
    return datetime.fromisoformat(text).astimezone(UTC)
