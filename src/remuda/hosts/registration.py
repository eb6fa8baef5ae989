"""
How a builder gets a registration with GitHub, by a token that is minted when it is needed; and how that ends.

A token is good for an hour. It is minted as the organisation's own GitHub App, whose credentials are in the Secret that
the Host names. They are read anew each time, so a key that was replaced is used at once, and are kept nowhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from remuda.kube.core import SECRET
from remuda.model.errors import RemudaError
from remuda.model.secret import Secret
from remuda.ports.kube import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.kube.host import Builder, Host
    from remuda.ports.kube import Kube

APP_ID: Final = "app-id"
INSTALLATION_ID: Final = "installation-id"
_APP: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


class AppUnusable(RemudaError):
    """The Secret of a builder's GitHub App is not there, or not all of it is."""


class RunnerAtWork(RemudaError):
    """GitHub hears from a runner that should be removed. It may be another machine's by now, so it is left alone."""


class Registrations(Protocol):
    """Mints registration tokens of builders, and ends their registrations."""

    async def token(self, host: Host) -> Secret:
        """Return a fresh token for a builder's organisation. Raises a RemudaError with what to do."""
        ...

    async def forget(self, host: Host) -> None:
        """Have GitHub forget a builder's runner. Content if there is none. Raises a RemudaError if it may be left."""
        ...


@dataclass(frozen=True, slots=True)
class App:
    """A GitHub App, in one organisation."""

    app_id: str
    """The App's number or its client id."""
    installation: int
    key: Secret
    """RSA, PEM."""


class Tokens(Protocol):
    """GitHub, as far as builders need it."""

    async def registration_token(self, app: App, organisation: str) -> Secret:
        """Return a fresh token. Raises a RemudaError with what to do."""
        ...

    async def remove_runner(self, app: App, organisation: str, name: str) -> None:
        """Remove a runner that is offline, if there is one. Raises ``RunnerAtWork``, and a RemudaError as above."""
        ...


class AppRegistrations:
    """Fills ``Registrations`` by the Secrets that Hosts name."""

    def __init__(self, kube: Kube, tokens: Tokens) -> None:
        self._kube, self._tokens = kube, tokens

    async def token(self, host: Host) -> Secret:
        """Return a fresh token for a builder's organisation. Raises a RemudaError with what to do."""
        app, builder = await self._app(host)
        return await self._tokens.registration_token(app, builder.github_org)

    async def forget(self, host: Host) -> None:
        """Have GitHub forget a builder's runner. Content if there is none. Raises a RemudaError if it may be left."""
        app, builder = await self._app(host)
        await self._tokens.remove_runner(app, builder.github_org, host.name)

    async def _app(self, host: Host) -> tuple[App, Builder]:
        builder = host.spec.builder
        assert builder, "the API server takes no builder without it"
        name = builder.app_secret_ref.name
        try:
            found = await self._kube.get(SECRET, name, namespace=host.namespace)
        except NotFound:
            raise _unusable(host, f"there is no Secret {name}", "Create it") from None
        return read_app(host, builder, found.data), builder


def read_app(host: Host, builder: Builder, data: Mapping[str, bytes]) -> App:
    """Read the App in a Secret. What is missing is named; no value is quoted."""
    ref = builder.app_secret_ref
    fields = {name: data.get(name, b"").strip() for name in (APP_ID, INSTALLATION_ID, ref.key)}
    if missing := [name for name, value in fields.items() if not value]:
        why = f"the Secret {ref.name} has no {' and no '.join(missing)}"
        raise _unusable(host, why, "Put it in")
    app_id, number = (fields[name].decode(errors="replace") for name in (APP_ID, INSTALLATION_ID))
    if not _APP.fullmatch(app_id):
        why = f"{APP_ID} of the Secret {ref.name} is neither a number nor a client id"
        raise _unusable(host, why, "Take the App ID from the App's settings page")
    if not _NUMBER.fullmatch(number):
        why = f"{INSTALLATION_ID} of the Secret {ref.name} is no number"
        fix = "Take the number at the end of the address of the installation's page at GitHub"
        raise _unusable(host, why, fix)
    return App(app_id, int(number), Secret(fields[ref.key] + b"\n"))


def _unusable(host: Host, why: str, fix: str) -> AppUnusable:
    return AppUnusable(
        f"Host {host.name} cannot be registered as a builder, or unregistered", why=why, fix=fix
    )
