"""Errors a person can act on: what happened, why, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Retry(StrEnum):
    """Whether trying again by itself can help."""

    SOON = "soon"  # the world may heal
    NEVER = "never"  # only a person or a new spec can help


class RemudaError(Exception):
    """A fault of the world. Our own bugs are assertions instead."""

    retry: ClassVar[Retry] = Retry.SOON

    def __init__(self, what: str, *, why: str, fix: str) -> None:
        super().__init__(f"{what}: {why}. {fix}.")
        self.what, self.why, self.fix = what, why, fix


class BadInput(RemudaError):
    """What a person gave us cannot be used: a flag, a file, a setting. Nothing was changed."""

    retry = Retry.NEVER
