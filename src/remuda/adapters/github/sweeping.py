"""
Looking for queued jobs that no message announced; and, where there are no messages, for what became of the others.

A repository where nothing changed costs nothing of the rate limit: its lists are asked for with the tag of the last
answer. What fails is left out and counted; it stops neither the other repositories nor the other installations. A sweep
ends in time and returns what it found until then; whoever was left out has the first turn in the next one.
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
from remuda.ports.forge import Action, ForgeError, ForgeRefused, Scope, Spent, Swept

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence

    from remuda.adapters.github.client import GithubClient, Page
    from remuda.adapters.github.installations import Installation, Installations
    from remuda.adapters.github.payloads import GithubJob
    from remuda.ports.forge import Announcement

T = TypeVar("T")
R = TypeVar("R")

_RUNS_PAGES_MAX: Final = 10
_JOBS_PAGES_MAX: Final = 10
_REPOSITORIES_MAX: Final = 10_000
_LISTS_MAX: Final = 20
"""How many installations' lists of repositories one sweep reads."""
_LIST_AGAIN_S: Final = 60.0
_SWEEP_S: Final = 30.0
"""How long to ask. What was found must then be taken in, before dispatch takes the sweep for hung."""
_LISTING_S: Final = 10.0
"""How much of that lists of repositories may take; a list that takes longer is read on in the next sweep."""
_FAILURES_MAX: Final = 3
"""After so many repositories of one installation failed, the others of it are left for the next sweep."""
_STATUSES: Final = ("queued", "in_progress")
"""Of runs. A run that is under way may have jobs that wait for a runner."""


class _NoBudget(Exception):
    """Minting needs what is left, or there is no time left."""


@dataclass(frozen=True, slots=True)
class _Target:
    installation: Installation
    repository: str


@dataclass(slots=True)
class _Result:
    found: dict[str, Announcement] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    looked_at: set[str] = field(default_factory=set)
    left_out: int = 0
    asked: Counter[int] = field(default_factory=Counter)
    charged: Counter[int] = field(default_factory=Counter)
    failures: Counter[int] = field(default_factory=Counter)
    """Of each installation. A refusal of one repository is not the installation's fault."""


class Sweeper:
    """Sweeps; remembers where it was, and which repositories there are."""

    def __init__(self, client: GithubClient, installations: Installations) -> None:
        self._client = client
        self._installations = installations
        self._rotation = Rotation()
        self._repositories: dict[int, tuple[tuple[str, ...], float]] = {}
        self._unfinished: dict[int, tuple[list[str], str]] = {}
        """Lists that are being read: what they hold so far, and their next page."""
        self._visited: dict[str, float] = {}
        """When each of the last targets was looked at."""
        self._next_run: dict[str, int] = {}
        """Where to go on in repositories with more runs than one sweep could look at."""
        self._ends_at = 0.0
        """When to stop asking. One sweep runs at a time."""
        self._result = _Result()
        """Of that one."""

    async def sweep(self, first: Collection[str], *, at_most: int) -> Swept:
        self._result = result = _Result()
        self._ends_at = self._client.clock.monotonic() + _SWEEP_S
        targets = await self._targets(first, at_most, result)
        queue = iter(self._by_last_visit(targets))

        async def work() -> None:
            for target in queue:  # shared: each target is taken once
                await self._visit(target, result)

        async with asyncio.TaskGroup() as group:
            for number in range(min(self._client.settings.sweep_at_once, len(targets))):
                group.create_task(work(), name=f"github-sweep-{number}")
        return Swept(
            found=tuple(result.found[job_id] for job_id in sorted(result.found)),
            repositories=len(result.looked_at),
            left_out=result.left_out,
            spent=tuple(self._spent(number, result) for number in sorted(result.asked)),
            looked_at=frozenset(result.looked_at),
            alive=frozenset(result.alive),
        )

    def _spent(self, number: int, result: _Result) -> Spent:
        clock, budgets = self._client.clock, self._client.budgets
        left, resets_s = budgets.room(number, now=clock.now().timestamp())
        return Spent(
            asked=result.asked[number],
            charged=result.charged[number],
            per_minute_max=self._client.settings.sweep_per_minute_max,
            left=left,
            resets_s=resets_s,
            silent_s=budgets.silent_s(number, at=clock.monotonic()),
        )

    # --- Which repositories -------------------------------------------------------------------------------------------

    async def _targets(
        self, first: Collection[str], at_most: int, result: _Result
    ) -> Sequence[_Target]:
        """Return the repositories to look at: those asked for, as far as that leaves the others a third of the room."""
        asked: dict[str, _Target] = {}
        for name in dict.fromkeys(first):
            owner = name.partition("/")[0]
            served = is_repository(name) and self._client.settings.serves_repository(name)
            where = await self._installations.of_owner(owner) if served else None
            if where is None or where.suspended:
                result.left_out += 1
            else:
                asked.setdefault(name.lower(), _Target(where, name))
        kept = dict(list(asked.items())[: at_most - at_most // 3])
        others = await self._others(kept, at_most - len(kept), result)
        targets = kept | {target.repository.lower(): target for target in others}
        for name, target in asked.items():
            if len(targets) < at_most:
                targets.setdefault(name, target)
        result.left_out += len(asked.keys() - targets.keys())
        return tuple(targets.values())

    def _by_last_visit(self, targets: Sequence[_Target]) -> Sequence[_Target]:
        """Put first who was left out last time; else the order stays."""
        known = {target.repository.lower() for target in targets}
        self._visited = {name: at for name, at in self._visited.items() if name in known}
        self._next_run = {name: run for name, run in self._next_run.items() if name in known}
        never = float("-inf")
        return sorted(targets, key=lambda t: self._visited.get(t.repository.lower(), never))

    async def _others(
        self, taken: Collection[str], room: int, result: _Result
    ) -> Sequence[_Target]:
        if room <= 0:
            return ()
        installed = {i.number: i for i in await self._installations.all()}
        self._repositories = {n: r for n, r in self._repositories.items() if n in installed}
        if chosen := self._client.settings.repositories:
            self._choose(installed, chosen)
        else:
            await self._list_some(installed, result)
        known = {
            number: [n for n in names if n.lower() not in taken]
            for number, (names, _) in self._repositories.items()
        }
        return [
            _Target(installed[number], name) for number, name in self._rotation.take(known, room)
        ]

    def _choose(self, installed: dict[int, Installation], chosen: Collection[str]) -> None:
        """Know the repositories that were named: nothing needs to be listed."""
        for number, where in installed.items():
            mine = (n for n in chosen if n.partition("/")[0].lower() == where.login.lower())
            self._repositories[number] = (_joined(mine), float("inf"))

    async def _list_some(self, installed: dict[int, Installation], result: _Result) -> None:
        """List the repositories of those whose list is the oldest. What cannot be listed now is known as it was."""
        begun = self._client.clock.monotonic()
        unlisted = (tuple[str, ...](), float("-inf"))
        order = sorted(installed, key=lambda n: (self._repositories.get(n, unlisted)[1], n))
        for number in order[:_LISTS_MAX]:
            names, until = self._repositories.get(number, unlisted)
            if begun < until or self._client.clock.monotonic() >= begun + _LISTING_S:
                return
            try:
                listed = await self._list_on(installed[number], begun + _LISTING_S)
                good_s = self._client.settings.repositories_s
            except (ForgeError, _NoBudget):
                result.left_out += 1
                listed, good_s = names, _LIST_AGAIN_S
            if listed is None:
                # What it holds so far is known from now on, and it stays the first to be read.
                self._repositories[number] = (_joined(names, self._unfinished[number][0]), until)
                return
            self._repositories[number] = (listed, self._client.clock.monotonic() + good_s)

    async def _list_on(self, where: Installation, until: float) -> tuple[str, ...] | None:
        """Read a list to its end, or as far as time allows: then None, and the rest is read next time."""
        ask = Ask(operation="repositories", path="/installation/repositories{?per_page,page}")
        names, number = self._unfinished.pop(where.number, (list[str](), "1"))
        while number and len(names) < _REPOSITORIES_MAX:
            page = await self._page(where, ask, (Repositories, _names), number)
            names += page.value
            number = page.next
            if number and self._client.clock.monotonic() >= until:
                self._unfinished[where.number] = (names, number)
                return None
        return _joined(names)

    # --- One repository -----------------------------------------------------------------------------------------------

    async def _visit(self, target: _Target, result: _Result) -> None:
        number = target.installation.number
        if result.failures[number] >= _FAILURES_MAX:
            result.left_out += 1
            return
        try:
            async for found in self._queued_jobs(target):
                result.found.update((a.job_id, a) for a in found)
                result.alive.update(a.job_id for a in found if a.action is not Action.COMPLETED)
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
            result.looked_at.add(target.repository.lower())
        self._visited[target.repository.lower()] = self._client.clock.monotonic()

    async def _queued_jobs(self, target: _Target) -> AsyncIterator[list[Announcement]]:
        """Yield what is found, run by run. Who stops early goes on with the next run the next time."""
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
        begin = self._next_run.pop(target.repository.lower(), 0)
        for run_id in sorted(runs, key=lambda run: (run < begin, run)):
            self._next_run[target.repository.lower()] = run_id
            yield await self._jobs_of(target, {**parts, "run_id": run_id})
        self._next_run.pop(target.repository.lower(), None)

    async def _jobs_of(self, target: _Target, parts: dict[str, str | int]) -> list[Announcement]:
        path = "/repos/{owner}/{repo}/actions/runs/{run_id}/jobs{?filter,per_page,page}"
        ask = Ask(operation="jobs", path=path, parts={**parts, "filter": "latest"})
        wanted = _begun if self._client.settings.polls else _queued
        pages = self._pages(target.installation, ask, (Jobs, wanted), _JOBS_PAGES_MAX)
        return [
            announcement(
                Action(text(job.status)),
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
        """Yield the pages of a list."""
        number = "1"
        for _ in range(pages_max):
            page = await self._page(where, ask, wanted, number)
            yield page.value
            number = page.next
            if not number:
                return

    async def _page(
        self, where: Installation, ask: Ask, wanted: tuple[type[T], Callable[[T], R]], number: str
    ) -> Page[R]:
        """Return one page. Each has its own deadline, and each is taken from what sweeps may use."""
        what = "A sweep of GitHub failed"
        clock = self._client.clock
        at, now = clock.monotonic(), clock.now().timestamp()
        budgets, asked = self._client.budgets, self._result.asked
        asked[where.number] += 0  # who may not be asked now is told of too
        if at >= self._ends_at or not budgets.take_for_sweep(where.number, at=at, now=now):
            raise _NoBudget
        parts = {**ask.parts, "per_page": 100, "page": number}
        asked[where.number] += 1
        async with self._client.deadline(what):
            page = await self._client.page(what, replace(ask, parts=parts), where.number, *wanted)
        self._result.charged[where.number] += not page.unchanged
        return page


def _joined(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for each in names for name in each}))


def _names(page: Repositories) -> tuple[str, ...]:
    usable = (r.full_name for r in page.repositories if not r.archived and not r.disabled)
    return tuple(name for name in usable if is_repository(name))


def _numbers(page: Runs) -> tuple[int, ...]:
    return tuple(run.id for run in page.workflow_runs)


def _queued(page: Jobs) -> tuple[GithubJob, ...]:
    return tuple(job for job in page.jobs if text(job.status) == "queued")


def _begun(page: Jobs) -> tuple[GithubJob, ...]:
    """Return what waits, and what a runner took: no message tells of that where there are none."""
    taken = {"in_progress", "completed"}
    return tuple(
        job
        for job in page.jobs
        if text(job.status) == "queued" or (text(job.status) in taken and text(job.runner_name))
    )
