"""
Registering single-use runners at GitHub, and removing those that nobody used.

A mint is asked for once. If its answer is lost, the runner may be there, under its name: the caller wrote the name down
first, and removes by it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from remuda.adapters.github import faults
from remuda.adapters.github.client import decoded
from remuda.adapters.github.models import JitConfig, Runner, RunnerGroups, Runners
from remuda.adapters.github.payloads import is_repository
from remuda.adapters.github.settings import DEFAULT_GROUP, MintScope
from remuda.adapters.github.wire import Ask
from remuda.model.job import Kind
from remuda.ports.forge import ForgeRefused, ForgeUnavailable, Minted, Removal, Scope
from remuda.ports.registrations import Registration

if TYPE_CHECKING:
    from remuda.adapters.github.client import GithubClient
    from remuda.adapters.github.installations import Installation, Installations
    from remuda.model.job import JobSpec
    from remuda.ports.forge import NewRunner

_GROUP_KEPT_S: Final = 600.0
_GROUPS_MAX: Final = 1000
_PAGES_MAX: Final = 20
_ORGANISATION: Final = "/orgs/{org}/actions/runners"
_REPOSITORY: Final = "/repos/{owner}/{repo}/actions/runners"


class Place:
    """Where a runner is registered: at an organisation, or at a repository."""

    def __init__(self, path: str, parts: dict[str, str], scope: str) -> None:
        self.path, self.parts, self.scope = path, parts, scope

    @classmethod
    def organisation(cls, login: str) -> Place:
        return cls(_ORGANISATION, {"org": login}, f"orgs/{login}")

    @classmethod
    def repository(cls, name: str) -> Place:
        owner, _, repo = name.partition("/")
        return cls(_REPOSITORY, {"owner": owner, "repo": repo}, f"repos/{name}")

    @classmethod
    def read(cls, scope: str) -> Place | None:
        """Return the place that a registration names; None if it names none."""
        kind, _, name = scope.partition("/")
        if kind == "repos" and is_repository(name):
            return cls.repository(name)
        if kind == "orgs" and is_repository(f"{name}/x"):
            return cls.organisation(name)
        return None

    @property
    def is_organisation(self) -> bool:
        return self.path == _ORGANISATION

    @property
    def permission(self) -> str:
        """What the App needs to register runners here."""
        if self.is_organisation:
            need = "organisation permission 'Self-hosted runners: write'"
        else:
            need = "repository permission 'Administration: write'"
        return f"Give the App the {need}, and let the account's owner accept it"


class RunnerDesk:
    """Mints and removes."""

    def __init__(self, client: GithubClient, installations: Installations) -> None:
        self._client = client
        self._installations = installations
        self._groups: OrderedDict[tuple[int, str], tuple[int, float]] = OrderedDict()

    async def mint(self, job: JobSpec, runner: NewRunner) -> Minted:
        what = f"No runner could be registered for {job.repository}"
        if not is_repository(job.repository):
            raise ForgeRefused(
                what, why="that is no repository", fix="See the job's own page", scope=Scope.JOB
            )
        async with self._client.deadline(what, self._client.settings.mint_s):
            where = await self._installations.of_tenant(what, job.tenant)
            return await self._mint_somewhere(what, job, runner, where)

    async def _mint_somewhere(
        self, what: str, job: JobSpec, runner: NewRunner, where: Installation
    ) -> Minted:
        first, *others = self._places(job, where)
        minted = await self._mint_at(what, job, runner, where, first)
        for place in others:
            if minted is None:
                minted = await self._mint_at(what, job, runner, where, place)
        if minted is None:
            raise ForgeRefused(
                what,
                why="GitHub answered 404: it does not show the App that place",
                fix="Check that the App is installed for the repository, and its permissions",
                scope=Scope.REPOSITORY,
            )
        return minted

    def _places(self, job: JobSpec, where: Installation) -> tuple[Place, ...]:
        """Return where to try, in order. A group of one's own means: nowhere but in that group."""
        repository = Place.repository(job.repository)
        if not where.organisation:
            return (repository,)
        organisation = Place.organisation(job.repository.partition("/")[0])
        if self._client.settings.scope is MintScope.REPOSITORY:
            return (repository, organisation)
        if self._client.settings.group_for(where.login) != DEFAULT_GROUP:
            return (organisation,)
        return (organisation, repository)

    async def _mint_at(
        self, what: str, job: JobSpec, runner: NewRunner, where: Installation, place: Place
    ) -> Minted | None:
        """Return None if GitHub knows no such place."""
        group = await self._group(what, where) if place.is_organisation else DEFAULT_GROUP
        ask = Ask(
            operation="mint",
            method="POST",
            path=f"{place.path}/generate-jitconfig",
            parts=place.parts,
            body={
                "name": runner.name,
                "runner_group_id": group,
                "labels": list(dict.fromkeys(runner.labels)),
                "work_folder": self._client.settings.work_folders[runner.os],
            },
        )
        reply = await self._client.as_installation(
            what,
            ask,
            where.number,
            allowed={faults.NOT_FOUND, faults.CONFLICT},
            unless={faults.FORBIDDEN: (Scope.TENANT, place.permission)},
        )
        if reply.status == faults.NOT_FOUND:
            return None
        if reply.status == faults.CONFLICT:
            why = "GitHub has a runner of that name already"
            raise ForgeUnavailable(what, why=why, fix="Try again: each try takes a new name")
        return _minted(decoded(what, reply, JitConfig), job, runner, place)

    async def _group(self, what: str, where: Installation) -> int:
        """Return the number of the runner group, looked up by its name if need be."""
        wanted = self._client.settings.group_for(where.login)
        if isinstance(wanted, int):
            return wanted
        key, at = (where.number, wanted), self._client.clock.monotonic()
        number, until = self._groups.get(key, (0, at))
        if at >= until:
            number = await self._find_group(what, where, wanted)
            self._groups[key] = (number, at + _GROUP_KEPT_S)
            while len(self._groups) > _GROUPS_MAX:
                self._groups.popitem(last=False)
        return number

    async def _find_group(self, what: str, where: Installation, wanted: str) -> int:
        page = "1"
        for _ in range(_PAGES_MAX):
            ask = Ask(
                operation="runner_groups",
                path="/orgs/{org}/actions/runner-groups{?per_page,page}",
                parts={"org": where.login, "per_page": 100, "page": page},
            )
            reply = await self._client.as_installation(what, ask, where.number, scope=Scope.TENANT)
            groups = decoded(what, reply, RunnerGroups).runner_groups
            for group in groups:
                if group.name.casefold() == wanted.casefold():
                    return group.id
            page = reply.next("page")
            if not page:
                break
        raise ForgeRefused(
            what,
            why=f"{where.login} has no runner group {wanted!r} that the App can see",
            fix="Make the group, or change REMUDA_GITHUB_RUNNER_GROUP",
            scope=Scope.TENANT,
        )

    # --- Removing -----------------------------------------------------------------------------------------------------

    async def remove(self, registration: Registration) -> Removal:
        what = f"The runner {registration.runner_name} could not be removed"
        async with self._client.deadline(what, self._client.settings.mint_s):
            where = await self._installations.of_tenant(what, registration.tenant)
            places = self._registered_at(registration, where)
            if registration.number is not None and len(places) == 1:
                return await remove_runner(
                    self._client, what, where.number, places[0], registration.number
                )
            for place in places:
                name = registration.runner_name
                found = await find_runner(self._client, what, where.number, place, name)
                if found is not None:
                    return await remove_runner(self._client, what, where.number, place, found.id)
            return Removal.GONE

    def _registered_at(self, registration: Registration, where: Installation) -> tuple[Place, ...]:
        """Return where the runner may be. A mint whose answer was lost may have been at either place."""
        if (place := Place.read(registration.scope)) is not None:
            return (place,)
        if not is_repository(registration.repository):
            return ()
        repository = Place.repository(registration.repository)
        owner = registration.repository.partition("/")[0]
        return (Place.organisation(owner), repository) if where.organisation else (repository,)


async def find_runner(
    client: GithubClient, what: str, installation: int, place: Place, name: str
) -> Runner | None:
    """Return the runner of exactly this name, if there is one."""
    ask = Ask(
        operation="find_runner",
        path=f"{place.path}{{?name,per_page}}",
        parts={**place.parts, "name": name, "per_page": 100},
    )
    reply = await client.as_installation(
        what, ask, installation, allowed={faults.NOT_FOUND}, scope=Scope.TENANT
    )
    if reply.status == faults.NOT_FOUND:
        return None
    # The forge's filter is not ours to trust: only the very name is removed.
    runners = decoded(what, reply, Runners).runners
    return next((runner for runner in runners if runner.name == name), None)


async def remove_runner(
    client: GithubClient, what: str, installation: int, place: Place, number: int
) -> Removal:
    """Remove a runner. One that has a job is left to it."""
    ask = Ask(
        operation="remove_runner",
        method="DELETE",
        path=f"{place.path}/{{runner_id}}",
        parts={**place.parts, "runner_id": number},
    )
    reply = await client.as_installation(
        what,
        ask,
        installation,
        allowed={faults.NOT_FOUND, faults.UNPROCESSABLE},
        scope=Scope.TENANT,
    )
    if reply.status == faults.NOT_FOUND:
        return Removal.GONE
    return Removal.BUSY if reply.status == faults.UNPROCESSABLE else Removal.REMOVED


def _minted(jit: JitConfig, job: JobSpec, runner: NewRunner, place: Place) -> Minted:
    return Minted(
        encoded_jit_config=jit.encoded_jit_config,
        registration=Registration(
            runner_name=runner.name,
            kind=Kind.GITHUB,
            tenant=job.tenant,
            repository=job.repository,
            job_id=job.id,
            pod="",  # the forge does not know it; who noted the registration before the mint does
            scope=place.scope,
            number=jit.runner.id,
        ),
    )
