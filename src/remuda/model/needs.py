"""
What a job may need of the server that hands it out. Pure.

While a fleet is upgraded, servers of two versions serve one queue. A job that needs what a version before did not know
of says so by a word, before it is in the queue; a server hands out no job with a word that is not in ``KNOWN``. So
whoever lets jobs carry something new adds a word here, and older servers leave such jobs to newer ones.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Need(StrEnum):
    """One word each. They stand in the database: none is ever given another meaning."""

    FILES = "files"
    """It has files that go along or are to come back."""


KNOWN: Final = frozenset(need.value for need in Need)
"""What this version knows of."""
