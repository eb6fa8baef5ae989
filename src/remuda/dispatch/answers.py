"""What a poll may be answered. CONTRACTS section 3, without HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.model.job import Job
    from remuda.ports.forge import Minted


@dataclass(frozen=True, slots=True)
class Handed:
    """200: this job is the runner's. It holds the job config: never log it."""

    job: Job
    runner_name: str
    minted: Minted = field(repr=False)


@dataclass(frozen=True, slots=True)
class NothingYet:
    """204: ask again at once."""


@dataclass(frozen=True, slots=True)
class Leave:
    """410: end with exit code 0 and be replaced."""

    reason: str


@dataclass(frozen=True, slots=True)
class AlreadyDelivered:
    """409: its job was handed over and runs. Take no other; it is not sent home either, for that would kill the job."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """401 or 403: it is not who it should be."""

    status: int
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class ComeBack:
    """503 (or 429): not now."""

    retry_after_s: float
    why: str
    status: int = 503


Answer = Handed | NothingYet | Leave | AlreadyDelivered | Refused | ComeBack
