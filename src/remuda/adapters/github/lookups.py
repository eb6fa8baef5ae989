"""Asking GitHub about one job or one run."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from remuda.adapters.github import faults
from remuda.adapters.github.client import decoded
from remuda.adapters.github.models import Run
from remuda.adapters.github.payloads import GithubJob, forge_job, is_repository, text, whole
from remuda.adapters.github.wire import Ask
from remuda.ports.forge import ForgeJob, ForgeRefused, ForgeState, Scope

if TYPE_CHECKING:
    from remuda.adapters.github.client import GithubClient
    from remuda.adapters.github.installations import Installations
    from remuda.model.job import JobSpec

_RUNS_MAX: Final = 20_000


class Lookups:
    """Reads, never writes."""

    def __init__(self, client: GithubClient, installations: Installations) -> None:
        self._client = client
        self._installations = installations
        self._forks: OrderedDict[tuple[str, int], bool] = OrderedDict()

    async def job(self, job: JobSpec) -> ForgeJob:
        what = f"The job {job.id} could not be looked up"
        host, _, number = job.id.rpartition("/")
        usable = number.isascii() and number.isdigit() and is_repository(job.repository)
        if host != self._client.settings.host or not usable:
            raise ForgeRefused(
                what,
                why=f"it is no job of {self._client.settings.host}",
                fix="Was the address of GitHub's API changed? Its old jobs cannot be asked for",
                scope=Scope.JOB,
            )
        ask = self._about(job.repository, "look_up", "jobs/{number}", int(number))
        async with self._client.deadline(what):
            where = await self._installations.of_tenant(what, job.tenant)
            reply = await self._client.as_installation(
                what, ask, where.number, allowed={faults.NOT_FOUND, faults.GONE}
            )
        if reply.status in {faults.NOT_FOUND, faults.GONE}:
            return ForgeJob(state=ForgeState.GONE)
        return forge_job(decoded(what, reply, GithubJob))

    async def is_fork(self, repository: str, run_id: int | None, tenant: str) -> bool | None:
        """Say whether a run is a fork's. It never changes, so it is asked once; what is not said is not remembered."""
        if run_id is None or not is_repository(repository):
            return None
        key = (repository.lower(), run_id)
        if key in self._forks:
            self._forks.move_to_end(key)
            return self._forks[key]
        known = await self._origin(repository, run_id, tenant)
        if known is None:
            return None
        self._forks[key] = known
        while len(self._forks) > _RUNS_MAX:
            self._forks.popitem(last=False)
        return known

    async def _origin(self, repository: str, run_id: int, tenant: str) -> bool | None:
        """Return whether a run is a fork's, or None if GitHub does not say."""
        what = f"Run {run_id} of {repository} could not be looked up"
        ask = self._about(repository, "run", "runs/{number}{?exclude_pull_requests}", run_id)
        async with self._client.deadline(what):
            where = await self._installations.of_tenant(what, tenant)
            reply = await self._client.as_installation(
                what, ask, where.number, allowed={faults.NOT_FOUND, faults.GONE}
            )
        if reply.status not in faults.OK:
            return None
        return comes_from_a_fork(decoded(what, reply, Run))

    def _about(self, repository: str, operation: str, path: str, number: int) -> Ask:
        owner, _, repo = repository.partition("/")
        return Ask(
            operation=operation,
            path=f"/repos/{{owner}}/{{repo}}/actions/{path}",
            parts={
                "owner": owner,
                "repo": repo,
                "number": number,
                "exclude_pull_requests": "true",
            },
        )


def comes_from_a_fork(run: Run) -> bool | None:
    """Compare where a run's code is from with where it runs; None if either is not said (a deleted fork is not)."""
    if run.head_repository is None or run.repository is None:
        return None
    numbers = whole(run.head_repository.id), whole(run.repository.id)
    if None not in numbers:
        return numbers[0] != numbers[1]
    names = text(run.head_repository.full_name).lower(), text(run.repository.full_name).lower()
    return names[0] != names[1] if all(names) else None
