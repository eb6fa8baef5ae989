"""
The runners that we asked a forge to register: written down before the mint, so that a crash after it leaks nothing.

That of a first delivery is written down with its claim (``JobStore.claim``), that of a second one by ``note``. A row is
settled (deleted) once its runner was used, as the forge said, or its registration was removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from remuda.model.job import Job, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A runner's name at a forge. No secret: the job config is not among it."""

    runner_name: str
    kind: Kind
    tenant: str
    repository: str
    job_id: str
    pod: str
    scope: str = ""
    """Where the forge keeps it, as the forge's adapter writes it (``orgs/acme``); empty until it is minted."""
    number: int | None = None
    """The forge's own; None until it is minted."""
    noted_at: datetime | None = None


def registration_of(job: Job, pod: str, runner_name: str) -> Registration:
    """Return what is known of a runner before it is minted for a job."""
    spec = job.spec
    return Registration(
        runner_name=runner_name,
        kind=spec.kind,
        tenant=spec.tenant,
        repository=spec.repository,
        job_id=spec.id,
        pod=pod,
    )


class Registrations(Protocol):
    """What may have to be removed at a forge."""

    async def note(self, registration: Registration) -> None:
        """Write it down, before the forge is asked; and again with its number once it answered."""
        ...

    async def settle(self, runner_names: Collection[str]) -> int:
        """Forget those that need no removal any more. Returns how many there were."""
        ...

    async def unused(self, *, noted_before: datetime, limit: int) -> tuple[Registration, ...]:
        """
        Return those that no claim and no open session stands behind, oldest first.

        One that executed a job is among them once its Pod stopped, if nobody settled it: the forge knows it is gone.
        """
        ...
