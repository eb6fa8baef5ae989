"""
Looking for queued jobs that no message announced.

A repository where nothing changed costs nothing of the rate limit: its lists are asked for with the tag of the last
answer. What fails is left out and counted; it stops neither the other repositories nor the other installations.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from remuda.adapters.github.models import Jobs, Repositories, Runs
from remuda.adapters.github.payloads import announcement, is_repository, text
from remuda.adapters.github.rotation import Rotation
from remuda.adapters.github.wire import Ask
from remuda.ports.forge import Action, ForgeError, ForgeRefused, Scope, Swept

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from remuda.adapters.github.client import GithubClient
    from remuda.adapters.github.installations import Installation, Installations
    from remuda.adapters.github.payloads import GithubJob
    from remuda.ports.forge import Announcement

T = TypeVar("T")
R = TypeVar("R")

_RUNS_PAGES_MAX: Final = 10
_JOBS_PAGES_MAX: Final = 10
_REPOSITORIES_PAGES_MAX: Final = 100
_LISTS_MAX: Final = 20
"""How many installations' lists of repositories one sweep reads."""
_LIST_AGAIN_S: Final = 60.0
_FAILURES_MAX: Final = 3
"""After so many repositories of one installation failed, the others of it are left for the next sweep."""
_STATUSES: Final = ("queued", "in_progress")
"""Of runs. A run that is under way may have jobs that wait for a runner."""


class _NoBudget(Exception):
    """Minting needs what is left."""


@dataclass(frozen=True, slots=True)
class _Target:
    installation: Installation
    repository: str


@dataclass(slots=True)
class _Result:
    found: dict[str, Announcement] = field(default_factory=dict)
    looked_at: int = 0
    left_out: int = 0
    failures: Counter[int] = field(default_factory=Counter)
    """Of each installation. A refusal of one repository is not the installation's fault."""


class Sweeper:
    """Sweeps; remembers where it was, and which repositories there are."""

    def __init__(self, client: GithubClient, installations: Installations) -> None:
        self._client = client
        self._installations = installations
        self._rotation = Rotation()
        self._repositories: dict[int, tuple[tuple[str, ...], float]] = {}

    async def sweep(self, first: Collection[str], *, at_most: int) -> Swept:
        result = _Result()
        targets = await self._targets(first, at_most, result)
        queue = iter(targets)

        async def work() -> None:
            for target in queue:  # shared: each target is taken once
                await self._visit(target, result)

        async with asyncio.TaskGroup() as group:
            for number in range(min(self._client.settings.sweep_at_once, len(targets))):
                group.create_task(work(), name=f"github-sweep-{number}")
        return Swept(
            found=tuple(result.found[job_id] for job_id in sorted(result.found)),
            repositories=result.looked_at,
            left_out=result.left_out,
        )

    # --- Which repositories -------------------------------------------------------------------------------------------

    async def _targets(
        self, first: Collection[str], at_most: int, result: _Result
    ) -> Sequence[_Target]:
        """Return the repositories to look at: those asked for, then the others in turn."""
        targets: dict[str, _Target] = {}
        for name in dict.fromkeys(first):
            owner = name.partition("/")[0]
            where = await self._installations.of_owner(owner) if is_repository(name) else None
            if where is None or where.suspended or len(targets) >= at_most:
                result.left_out += 1
            else:
                targets.setdefault(name.lower(), _Target(where, name))
        for target in await self._others(targets, at_most - len(targets), result):
            targets[target.repository.lower()] = target
        return tuple(targets.values())

    async def _others(
        self, taken: Collection[str], room: int, result: _Result
    ) -> Sequence[_Target]:
        if room <= 0:
            return ()
        installed = {i.number: i for i in await self._installations.all()}
        self._repositories = {n: r for n, r in self._repositories.items() if n in installed}
        await self._list_some(installed, result)
        known = {
            number: [n for n in names if n.lower() not in taken]
            for number, (names, _) in self._repositories.items()
        }
        return [
            _Target(installed[number], name) for number, name in self._rotation.take(known, room)
        ]

    async def _list_some(self, installed: dict[int, Installation], result: _Result) -> None:
        """List the repositories of those whose list is the oldest. What cannot be listed now is known as it was."""
        begun = self._client.clock.monotonic()
        unlisted = (tuple[str, ...](), float("-inf"))
        order = sorted(installed, key=lambda n: (self._repositories.get(n, unlisted)[1], n))
        for number in order[:_LISTS_MAX]:
            names, until = self._repositories.get(number, unlisted)
            if begun < until:
                return
            try:
                names = tuple(sorted([name async for name in self._listed(installed[number])]))
                good_s = self._client.settings.repositories_s
            except (ForgeError, _NoBudget):
                result.left_out += 1
                good_s = _LIST_AGAIN_S
            self._repositories[number] = (names, self._client.clock.monotonic() + good_s)

    async def _listed(self, where: Installation) -> AsyncIterator[str]:
        ask = Ask(operation="repositories", path="/installation/repositories{?per_page,page}")
        pages = self._pages(where, ask, (Repositories, _names), _REPOSITORIES_PAGES_MAX)
        async for names in pages:
            for name in names:
                yield name

    # --- One repository -----------------------------------------------------------------------------------------------

    async def _visit(self, target: _Target, result: _Result) -> None:
        number = target.installation.number
        if result.failures[number] >= _FAILURES_MAX:
            result.left_out += 1
            return
        try:
            found = await self._queued_jobs(target)
        except _NoBudget:
            result.left_out += 1
            result.failures[number] = _FAILURES_MAX
        except ForgeRefused as refusal:
            result.left_out += 1
            if refusal.scope is Scope.TENANT:
                result.failures[number] = _FAILURES_MAX
        except ForgeError:
            result.left_out += 1
            result.failures[number] += 1
        else:
            result.looked_at += 1
            result.found.update((a.job_id, a) for a in found)

    async def _queued_jobs(self, target: _Target) -> list[Announcement]:
        owner, _, repo = target.repository.partition("/")
        parts: dict[str, str | int] = {"owner": owner, "repo": repo}
        path = "/repos/{owner}/{repo}/actions/runs{?status,exclude_pull_requests,per_page,page}"
        runs: dict[int, None] = {}
        for status in _STATUSES:
            wanted = {**parts, "status": status, "exclude_pull_requests": "true"}
            ask = Ask(operation="runs", path=path, parts=wanted)
            pages = self._pages(target.installation, ask, (Runs, _numbers), _RUNS_PAGES_MAX)
            async for numbers in pages:
                runs.update(dict.fromkeys(numbers))
        found = []
        for run_id in sorted(runs):
            found += await self._jobs_of(target, {**parts, "run_id": run_id})
        return found

    async def _jobs_of(self, target: _Target, parts: dict[str, str | int]) -> list[Announcement]:
        path = "/repos/{owner}/{repo}/actions/runs/{run_id}/jobs{?filter,per_page,page}"
        ask = Ask(operation="jobs", path=path, parts={**parts, "filter": "latest"})
        pages = self._pages(target.installation, ask, (Jobs, _queued), _JOBS_PAGES_MAX)
        return [
            announcement(
                Action.QUEUED,
                job,
                host=self._client.settings.host,
                tenant=target.installation.tenant,
                repository=target.repository,
            )
            async for page in pages
            for job in page
        ]

    async def _pages(
        self,
        where: Installation,
        ask: Ask,
        wanted: tuple[type[T], Callable[[T], R]],
        pages_max: int,
    ) -> AsyncIterator[R]:
        """Yield the pages of a list. Each has its own deadline, and each is taken from what sweeps may use."""
        what = "A sweep of GitHub failed"
        number = "1"
        for _ in range(pages_max):
            clock = self._client.clock
            at, now = clock.monotonic(), clock.now().timestamp()
            if not self._client.budgets.take_for_sweep(where.number, at=at, now=now):
                raise _NoBudget
            parts = {**ask.parts, "per_page": 100, "page": number}
            async with self._client.deadline(what):
                page = await self._client.page(
                    what, replace(ask, parts=parts), where.number, *wanted
                )
            yield page.value
            number = page.next
            if not number:
                return


def _names(page: Repositories) -> tuple[str, ...]:
    usable = (r.full_name for r in page.repositories if not r.archived and not r.disabled)
    return tuple(name for name in usable if is_repository(name))


def _numbers(page: Runs) -> tuple[int, ...]:
    return tuple(run.id for run in page.workflow_runs)


def _queued(page: Jobs) -> tuple[GithubJob, ...]:
    return tuple(job for job in page.jobs if text(job.status) == "queued")
