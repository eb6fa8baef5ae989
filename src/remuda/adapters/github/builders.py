"""
Registration tokens of builders, minted as a GitHub App: the App's own token, its installation's, and then that one.

And the end of a registration, for a builder that is one no more.

Nothing is kept between two of them: builders are registered seldom, and each may have an App of its own.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from remuda.adapters.github import faults
from remuda.adapters.github.app_key import AppKey
from remuda.adapters.github.client import GithubClient, decoded
from remuda.adapters.github.models import RegistrationToken
from remuda.adapters.github.runners import Place, find_runner, remove_runner
from remuda.adapters.github.settings import DOTCOM_API, GithubSettings, Taking
from remuda.adapters.github.wire import Ask
from remuda.hosts.registration import RunnerAtWork
from remuda.model.secret import Secret
from remuda.ports.forge import ForgeUnavailable, Removal, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.hosts.registration import App
    from remuda.ports.clock import Clock

_ONLINE: Final = "online"
_CALL_S: Final = 30.0
"""For all three requests. Nobody waits for a builder, so a slow GitHub is waited for."""


class BuilderTokens:
    """Fills ``Tokens`` of ``remuda.hosts.registration`` for one GitHub."""

    def __init__(self, clock: Clock, api_url: str = DOTCOM_API, *, call_s: float = _CALL_S) -> None:
        self._clock, self._api_url, self._call_s = clock, api_url, call_s

    async def registration_token(self, app: App, organisation: str) -> Secret:
        """Return a fresh token. Raises BadInput for a key that is none, else a ForgeError."""
        async with self._client(app) as client:
            return await _token(client, app.installation, Place.organisation(organisation))

    async def remove_runner(self, app: App, organisation: str, name: str) -> None:
        """Remove a runner that is offline. Raises ``RunnerAtWork`` if it is not, and as ``registration_token`` does."""
        async with self._client(app) as client:
            await _remove(client, app.installation, Place.organisation(organisation), name)

    @asynccontextmanager
    async def _client(self, app: App) -> AsyncIterator[GithubClient]:
        settings = GithubSettings(
            app_id=app.app_id,
            private_key=app.key.reveal().decode(errors="replace"),
            intake=Taking.POLLING,  # nobody sends messages here
            api_url=self._api_url,
            call_s=self._call_s,
        )
        client = GithubClient(
            settings, AppKey(app.app_id, settings.private_key, self._clock), self._clock
        )
        try:
            yield client
        finally:
            await client.close()


async def _remove(client: GithubClient, installation: int, place: Place, name: str) -> None:
    what = f"The runner {name} of {place.parts['org']} could not be removed"
    async with client.deadline(what):
        found = await find_runner(client, what, installation, place, name)
        if found is None:
            return
        # Somebody's machine may have taken the name over: what is at work is not cut off.
        if found.busy or found.status == _ONLINE:
            raise _at_work(what)
        if await remove_runner(client, what, installation, place, found.id) is Removal.BUSY:
            raise _at_work(what)


def _at_work(what: str) -> RunnerAtWork:
    return RunnerAtWork(
        what,
        why="GitHub still hears from it: it is not offline yet, or another machine has its name",
        fix="If it is nobody's, remove it in the organisation's settings, under Actions, Runners",
    )


async def _token(client: GithubClient, installation: int, place: Place) -> Secret:
    organisation = place.parts["org"]
    what = f"No builder could be registered for {organisation}"
    ask = Ask(
        operation="registration_token",
        method="POST",
        path=f"{place.path}/registration-token",
        parts=place.parts,
    )
    other = f"Check that installation-id is that of {organisation}, and that it is an organisation"
    async with client.deadline(what):
        reply = await client.as_installation(
            what,
            ask,
            installation,
            scope=Scope.TENANT,
            unless={
                faults.FORBIDDEN: (Scope.TENANT, place.permission),
                faults.NOT_FOUND: (Scope.TENANT, other),
            },
        )
    token = decoded(what, reply, RegistrationToken).token
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ForgeUnavailable(
            what, why="GitHub's answer holds no token", fix="Look what answers in place of GitHub"
        )
    return Secret(token.encode())
