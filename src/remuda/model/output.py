"""Whether all is known of what a job printed."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """How much of a local job's output is here."""

    GROWING = "growing"
    """The job is not over."""
    AWAITED = "awaited"
    """It is over by the word of its Pod; its agent may still tell the last of the output, and why files are missing."""
    UNCONFIRMED = "unconfirmed"
    """Likewise, and nobody told in time: the last of the output may be missing."""
    FINAL = "final"
    """Nothing more comes."""
