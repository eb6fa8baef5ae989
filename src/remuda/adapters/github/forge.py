"""
GitHub as a forge: fills ``Forge`` and ``Announcer`` of ``remuda.ports.forge`` for one App at one GitHub.

It joins the parts of this package and decides nothing itself. ``GithubWebhooks`` is the border for messages.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from remuda.adapters.github.app_key import AppKey
from remuda.adapters.github.client import GithubClient
from remuda.adapters.github.installations import Installations
from remuda.adapters.github.lookups import Lookups
from remuda.adapters.github.payloads import announcement, job_message
from remuda.adapters.github.redelivery import Redeliveries
from remuda.adapters.github.runners import RunnerDesk
from remuda.adapters.github.sweeping import Sweeper
from remuda.model.job import Kind
from remuda.ports.forge import Ignored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from datetime import timedelta

    from remuda.adapters.github.settings import GithubSettings
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.model.job import JobSpec
    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Delivery
    from remuda.ports.forge import Announcement, ForgeJob, Minted, NewRunner, Removal, Swept
    from remuda.ports.registrations import Registration


class GithubForge:
    """Made by ``github_forge``, which closes it."""

    def __init__(
        self, settings: GithubSettings, clock: Clock, metrics: DispatchMetrics | None = None
    ) -> None:
        key = AppKey(settings.app_id, settings.private_key, clock)
        self._settings = settings
        self._client = GithubClient(settings, key, clock, metrics)
        self._installations = Installations(self._client)
        self._runners = RunnerDesk(self._client, self._installations)
        self._lookups = Lookups(self._client, self._installations)
        self._sweeper = Sweeper(self._client, self._installations)
        self._redeliveries = Redeliveries(self._client)

    @property
    def kind(self) -> Kind:
        return Kind.GITHUB

    async def mint(self, job: JobSpec, runner: NewRunner) -> Minted:
        return await self._runners.mint(job, runner)

    async def look_up(self, job: JobSpec) -> ForgeJob:
        return await self._lookups.job(job)

    async def remove(self, registration: Registration) -> Removal:
        return await self._runners.remove(registration)

    async def read(self, delivery: Delivery) -> Announcement | Ignored:
        """Read a message. The tenant is the installation's, whatever names stand in the body."""
        message = job_message(delivery.body)
        action = None if message is None else message.known_action
        if message is None or action is None:
            return Ignored("malformed")
        if message.installation is None:
            return Ignored("no_installation")
        where = await self._installations.numbered(message.installation.id)
        if where is None:
            return Ignored("installation_not_served")
        if not self._settings.serves_repository(message.repository.full_name):
            return Ignored("repository_not_served")
        return announcement(
            action,
            message.workflow_job,
            host=self._settings.host,
            tenant=where.tenant,
            repository=message.repository.full_name,
        )

    async def is_fork(self, repository: str, run_id: int | None, tenant: str) -> bool | None:
        return await self._lookups.is_fork(repository, run_id, tenant)

    async def sweep(self, first: Collection[str], *, at_most: int) -> Swept:
        return await self._sweeper.sweep(first, at_most=at_most)

    async def redeliver(self, *, within: timedelta) -> int:
        return await self._redeliveries.redeliver(within)

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def github_forge(
    settings: GithubSettings, clock: Clock, metrics: DispatchMetrics | None = None
) -> AsyncIterator[GithubForge]:
    """Return the forge, closed at the end. Raises BadInput at once if the App's key is none."""
    forge = GithubForge(settings, clock, metrics)
    try:
        yield forge
    finally:
        await forge.close()
