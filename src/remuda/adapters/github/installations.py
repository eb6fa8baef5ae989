"""
Where the App is installed: which tenant that is, and which number GitHub knows it by.

The list is believed for some minutes, and read again when somebody asks for what is not on it, but not each time. A
tenant is an account's login. One that is no label value as it stands, is no login, or is the tenant of local jobs gets
the installation's number behind a dot, which no login has: so no two installations share a tenant.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.adapters.github.client import decoded
from remuda.adapters.github.models import Installed
from remuda.adapters.github.wire import Ask
from remuda.dispatch.local import TENANT as LOCAL
from remuda.ports.forge import ForgeError, ForgeRefused, ForgeUnavailable, Scope

if TYPE_CHECKING:
    from remuda.adapters.github.client import GithubClient

_LABEL_VALUE: Final = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII)
_NOT_IN_LABELS: Final = re.compile(r"[^a-z0-9_-]+")
_LABEL_MAX: Final = 63
_PAGES_MAX: Final = 500
_WHAT: Final = "The App's installations could not be listed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The App at one account."""

    number: int
    login: str
    tenant: str
    organisation: bool
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class _Listed:
    by_number: dict[int, Installation]
    by_tenant: dict[str, int]
    by_login: dict[str, int]
    at: float


class Installations:
    """Looks installations up."""

    def __init__(self, client: GithubClient) -> None:
        self._client = client
        self._listed: _Listed | None = None
        self._listing = asyncio.Lock()
        self._tried_at = float("-inf")

    async def of_tenant(self, what: str, tenant: str) -> Installation:
        """Return a tenant's installation, or raise ForgeRefused: nobody can act for it."""
        listed = await self._fresh()
        if tenant not in listed.by_tenant:
            listed = await self._again(listed, give_up=True)
        number = listed.by_tenant.get(tenant)
        if number is None:
            raise _refused(what, f"the App is not installed for {tenant!r}, or it is not served")
        return _usable(what, listed.by_number[number])

    async def numbered(self, number: int) -> Installation | None:
        """
        Return an installation by its number; None if there is none or it is not served.

        Raises ForgeUnavailable where the list was read too recently to be read again: ask later.
        """
        listed = await self._fresh()
        if number not in listed.by_number:
            listed = await self._again(listed, give_up=False)
        found = listed.by_number.get(number)
        return found if found is not None and self._client.settings.serves(found.login) else None

    async def of_owner(self, login: str) -> Installation | None:
        """Return the installation at a repository's owner, by the list as it is."""
        listed = await self._fresh()
        number = listed.by_login.get(login.lower())
        return None if number is None else listed.by_number[number]

    async def all(self) -> tuple[Installation, ...]:
        """Return those that are served and not suspended, by number."""
        listed = await self._fresh()
        served = sorted(set(listed.by_tenant.values()))
        return tuple(i for n in served if not (i := listed.by_number[n]).suspended)

    async def _fresh(self) -> _Listed:
        """Return the list. An old one is better than none: GitHub's failing to list must not stop a mint."""
        listed, settings = self._listed, self._client.settings
        if listed is None:
            return await self._read(None)
        tried_s = self._client.clock.monotonic() - self._tried_at
        if self._age(listed) < settings.installations_s or tried_s < settings.installations_miss_s:
            return listed
        try:
            return await self._read(listed)
        except ForgeError:
            return listed

    async def _again(self, seen: _Listed, *, give_up: bool) -> _Listed:
        """Read the list again, unless that was done a moment ago."""
        left_s = self._client.settings.installations_miss_s - self._age(seen)
        if left_s <= 0:
            return await self._read(seen)
        if give_up:
            return seen
        raise ForgeUnavailable(
            "An installation is not known yet",
            why="it is not on the list of the App's installations, which was read just now",
            fix=f"Ask again in {left_s:.0f} s",
        )

    def _age(self, listed: _Listed) -> float:
        return self._client.clock.monotonic() - listed.at

    async def _read(self, seen: _Listed | None) -> _Listed:
        """Read the whole list. However many need it at once, one of them reads."""
        async with self._client.deadline(_WHAT), self._listing:
            if self._listed is not None and self._listed is not seen:
                return self._listed
            self._tried_at = began = self._client.clock.monotonic()
            self._listed = self._sorted(await self._pages(), began)
            return self._listed

    async def _pages(self) -> list[Installed]:
        found: list[Installed] = []
        page = "1"
        for _ in range(_PAGES_MAX):
            ask = Ask(
                operation="installations",
                path="/app/installations{?per_page,page}",
                parts={"per_page": 100, "page": page},
            )
            reply = await self._client.as_app(_WHAT, ask)
            found += decoded(_WHAT, reply, list[Installed])
            page = reply.next("page")
            if not page:
                break
        return found

    def _sorted(self, found: list[Installed], at: float) -> _Listed:
        by_number = {i.number: i for raw in found if (i := installation(raw)) is not None}
        served = [i for i in by_number.values() if self._client.settings.serves(i.login)]
        by_tenant = {i.tenant: i.number for i in served}
        if self._listed is not None:
            # An account that was renamed has jobs under its old name; they are still its own.
            for tenant, number in self._listed.by_tenant.items():
                if number in by_number and self._client.settings.serves(by_number[number].login):
                    by_tenant.setdefault(tenant, number)
        by_login = {i.login.lower(): i.number for i in served}
        return _Listed(by_number, by_tenant, by_login, at)


def installation(raw: Installed) -> Installation | None:
    """Return an installation in our words; None for one without an account: it is being deleted."""
    account = raw.account
    name = "" if account is None else account.login or account.slug
    if account is None or not name:
        return None
    return Installation(
        number=raw.id,
        login=name,
        tenant=tenant_name(name, raw.id, is_login=bool(account.login)),
        organisation="Organization" in {account.type, raw.target_type},
        suspended=raw.suspended_at is not None,
    )


def tenant_name(name: str, number: int, *, is_login: bool = True) -> str:
    """Return a name that is fit for a label's value and no other installation's."""
    lower = name.lower()
    if is_login and _LABEL_VALUE.fullmatch(lower) and lower != LOCAL:
        return lower
    ending = f".{number}"
    safe = _NOT_IN_LABELS.sub("-", lower)[: _LABEL_MAX - len(ending)].strip("-_")
    return f"{safe or 'account'}{ending}"


def _usable(what: str, found: Installation) -> Installation:
    if found.suspended:
        raise _refused(what, f"the App's installation for {found.login} is suspended")
    return found


def _refused(what: str, why: str) -> ForgeRefused:
    return ForgeRefused(
        what,
        why=why,
        fix="Look at the App's installations at GitHub, and at REMUDA_GITHUB_ACCOUNTS",
        scope=Scope.TENANT,
    )
