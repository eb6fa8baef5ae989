"""What callers may write into a path, a query or a body: bounded, and nothing that a database or a log chokes on."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, Field

from remuda.dispatch.api.problems import Problem

NAME_MAX_CHARS: Final = 300
_PRINTABLE: Final = r"^[^\x00-\x1f\x7f]+$"
PAGE_MAX: Final = 1000
NUMBER_MAX: Final = 2**63 - 1
_OLDEST = datetime(1970, 1, 2, tzinfo=UTC)
_NEWEST = datetime(2200, 1, 1, tzinfo=UTC)


def _plausible(moment: datetime) -> datetime:
    """Refuse times that no runner ever ended at: the ends of the calendar do not survive a change of zone."""
    if not _OLDEST.year <= moment.year < _NEWEST.year:
        raise ValueError("the time must lie between the years 1970 and 2200")
    return max(moment.astimezone(UTC), _OLDEST)


Moment = Annotated[AwareDatetime, AfterValidator(_plausible)]

JobId = Annotated[
    str,
    Path(
        description="The id of a job; it may hold slashes",
        max_length=NAME_MAX_CHARS,
        pattern=_PRINTABLE,
        examples=["github.com/4711"],
    ),
]
PodName = Annotated[
    str, Path(description="The name of a runner's Pod", max_length=253, pattern=_PRINTABLE)
]
PoolName = Annotated[
    str, Path(description="The name of a RunnerPool", max_length=253, pattern=_PRINTABLE)
]
Named = Annotated[
    str | None,
    Query(max_length=NAME_MAX_CHARS, pattern=_PRINTABLE, description="Only what has exactly this"),
]
Text = Annotated[str, Field(min_length=1, max_length=NAME_MAX_CHARS, pattern=_PRINTABLE)]
Page = Annotated[int, Query(ge=1, le=PAGE_MAX, description="How many at most")]
Cursor = Annotated[
    str | None,
    Query(
        max_length=1000, description="The `next` of the page before; nothing begins at the start"
    ),
]
Number = Annotated[int, Query(ge=0, le=NUMBER_MAX)]


def cursor_of(queued_at: datetime, job_id: str) -> str:
    """Return a mark that ``read_cursor`` understands; to callers it is a word without a meaning."""
    place = f"{queued_at.astimezone(UTC).isoformat()} {job_id}"
    return base64.urlsafe_b64encode(place.encode()).rstrip(b"=").decode()


def read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        moment, _, job_id = text.partition(" ")
        queued_at = datetime.fromisoformat(moment)
        usable = queued_at.tzinfo is not None and 0 < len(job_id) <= NAME_MAX_CHARS
        if usable and job_id.isprintable():
            return _plausible(queued_at), job_id
    except (ValueError, binascii.Error):
        pass
    why = "the cursor is not one that this API gave out"
    raise Problem(422, "A part of the request makes no sense", why, "Begin again without a cursor")
