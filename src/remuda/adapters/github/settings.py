"""What the GitHub adapter is told when it starts. Keys and secrets are in no repr and in no error's text."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from remuda.adapters.github.payloads import is_repository
from remuda.model.errors import BadInput
from remuda.model.job import Os

if TYPE_CHECKING:
    from collections.abc import Mapping

APP_ID: Final = "REMUDA_GITHUB_APP_ID"
PRIVATE_KEY_FILE: Final = "REMUDA_GITHUB_PRIVATE_KEY_FILE"
WEBHOOK_SECRET: Final = "REMUDA_GITHUB_WEBHOOK_SECRET"  # noqa: S105 - the variable's name
WEBHOOK_SECRET_FILE: Final = "REMUDA_GITHUB_WEBHOOK_SECRET_FILE"  # noqa: S105 - the variable's name
API_URL: Final = "REMUDA_GITHUB_API_URL"
ACCOUNTS: Final = "REMUDA_GITHUB_ACCOUNTS"
RUNNER_GROUP: Final = "REMUDA_GITHUB_RUNNER_GROUP"
SCOPE: Final = "REMUDA_GITHUB_SCOPE"
REPOSITORIES: Final = "REMUDA_GITHUB_REPOSITORIES"
INTAKE: Final = "REMUDA_GITHUB_INTAKE"
VARIABLES: Final = (
    *(APP_ID, PRIVATE_KEY_FILE, WEBHOOK_SECRET, WEBHOOK_SECRET_FILE),
    *(API_URL, ACCOUNTS, RUNNER_GROUP, SCOPE, REPOSITORIES, INTAKE),
)

DOTCOM_API: Final = "https://api.github.com"
DEFAULT_GROUP: Final = 1
_FILE_MAX_BYTES: Final = 64 * 1024
_APP: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


class MintScope(StrEnum):
    """Where a runner is registered if both places are possible."""

    ORGANISATION = "organisation"
    REPOSITORY = "repository"
    """Pins a runner to its job's repository. The App needs the permission to administer repositories for it."""


class Taking(StrEnum):
    """How news of jobs come in."""

    WEBHOOK = "webhook"
    """GitHub sends messages; a sweep finds what they missed."""
    POLLING = "polling"
    """GitHub is asked every few seconds and need not reach us. With a secret, messages are taken too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GithubSettings:
    """One GitHub App on one GitHub: github.com, or an Enterprise Server of one's own."""

    app_id: str
    """The App's number or its client id."""

    private_key: str = field(repr=False)
    """The App's RSA key, PEM."""

    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    """A message signed with any of them is taken: while a secret is replaced there are two. None: no message is."""

    intake: Taking = Taking.WEBHOOK

    api_url: str = DOTCOM_API

    accounts: tuple[str, ...] = ()
    """The organisations and users that are served; empty: wherever the App is installed."""

    repositories: tuple[str, ...] = ()
    """The repositories that are served, OWNER/NAME; empty: all that an installation may see."""

    runner_group: int | str = DEFAULT_GROUP
    """The organisation's runner group, by number or by name."""

    runner_groups: Mapping[str, int | str] = field(default_factory=dict)
    """Another one for some accounts, by their login in lower case."""

    scope: MintScope = MintScope.ORGANISATION

    work_folders: Mapping[Os, str] = field(
        default_factory=lambda: {Os.LINUX: "/home/runner/work", Os.DARWIN: "/Users/runner/work"}
    )
    """The same as on GitHub's own runners: absolute paths in caches then fit."""

    call_s: float = 8.0
    """How long one call may take, the waiting for a token included."""

    mint_s: float = 12.0
    """How long a mint may take, with both places that it may try. An attempt of dispatch has 20 s in all."""

    body_max_bytes: int = 16 * 1024 * 1024
    """A hundred runs or jobs with their steps have some 2 MiB."""

    installations_s: float = 300.0
    """How long the list of installations is believed."""

    installations_miss_s: float = 10.0
    """How often the list is read again, at most, because an installation is not on it."""

    repositories_s: float = 600.0
    """How long the list of an installation's repositories is believed."""

    sweep_reserve: float = 0.2
    """The part of an installation's rate limit that sweeps never touch: minting needs it."""

    sweep_per_minute_max: int = 450
    """Half of what GitHub's secondary limit allows in a minute."""

    sweep_at_once: int = 8

    def __post_init__(self) -> None:
        if not _APP.fullmatch(self.app_id):
            raise BadInput(
                "The GitHub App's id cannot be used",
                why="it is empty, or holds other than letters, digits, dots and hyphens",
                fix=f"Set {APP_ID} to the App ID or the Client ID on the App's settings page",
            )
        unsigned = not self.webhook_secrets and self.intake is Taking.WEBHOOK
        if unsigned or not all(self.webhook_secrets):
            raise BadInput(
                "The GitHub webhook secret is missing",
                why="without it anybody could announce jobs",
                fix=f"Set {WEBHOOK_SECRET_FILE} (or {WEBHOOK_SECRET}) to what the App's settings page has, or"
                f" {INTAKE}=polling to do without webhooks",
            )
        if fault := url_fault(self.api_url):
            raise BadInput(
                f"The address of GitHub's API, {self.api_url.rpartition('@')[2]!r}, cannot be used",
                why=fault,
                fix=f"Leave {API_URL} unset for github.com, or set it to https://HOST/api/v3",
            )

    @property
    def host(self) -> str:
        """The word for this GitHub in the ids of jobs: ``github.com``, or an Enterprise Server's own name."""
        return host_of(self.api_url)

    @property
    def takes_messages(self) -> bool:
        """Whether GitHub's webhook is listened to."""
        return bool(self.webhook_secrets)

    @property
    def polls(self) -> bool:
        """Whether jobs are found by asking, again and again."""
        return self.intake is Taking.POLLING

    def group_for(self, login: str) -> int | str:
        return self.runner_groups.get(login.lower(), self.runner_group)

    def serves(self, login: str) -> bool:
        return not self.accounts or login.lower() in {name.lower() for name in self.accounts}

    def serves_repository(self, name: str) -> bool:
        return not self.repositories or name.lower() in {one.lower() for one in self.repositories}

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Return the settings, or None where nothing about GitHub is set: then there is no such forge."""
        given = {name: env.get(name, "").strip() for name in VARIABLES}
        if not any(given.values()):
            return None
        for name in (APP_ID, PRIVATE_KEY_FILE):
            if not given[name]:
                raise BadInput(
                    f"{name} is not set",
                    why="other settings of GitHub are, and a GitHub App needs it",
                    fix=f"Set {name}, or unset every REMUDA_GITHUB_ variable to run without GitHub",
                )
        group, groups = _groups(given[RUNNER_GROUP])
        intake = _intake(given[INTAKE])
        found = cls(
            app_id=given[APP_ID],
            private_key=_file_text(PRIVATE_KEY_FILE, given[PRIVATE_KEY_FILE]),
            webhook_secrets=_secrets(given[WEBHOOK_SECRET], given[WEBHOOK_SECRET_FILE]),
            api_url=(given[API_URL] or DOTCOM_API).rstrip("/"),
            intake=intake,
            accounts=_accounts(given[ACCOUNTS]),
            repositories=read_repositories(given[REPOSITORIES], REPOSITORIES),
            runner_group=group,
            runner_groups=groups,
            scope=_scope(given[SCOPE]),
        )
        if intake is Taking.WEBHOOK:
            return found
        # No message makes us look for an installation or a repository that is new.
        return replace(found, installations_s=30.0, repositories_s=60.0)


def host_of(api_url: str) -> str:
    """Return the name of a GitHub whose API is at this address."""
    parts = urlsplit(api_url)
    name = (parts.hostname or "").lower()
    if not parts.path.strip(
        "/"
    ):  # github.com and its data-residency twins: the API has a name of its own
        name = name.removeprefix("api.")
    return f"{name}:{parts.port}" if parts.port else name


def url_fault(url: str) -> str:
    """Say why nobody should send a credential to this address; nothing if it is fine."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "it is not a URL"
    if not usable:
        return "it is not a URL with a host"
    if "@" in parts.netloc or parts.query or parts.fragment:
        return "a user, a query or a fragment stands in it"
    if parts.scheme == "http" and not _loopback(parts.hostname or ""):
        return "the App's tokens would go over the network in clear"
    return ""


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _file_text(variable: str, name: str) -> str:
    fix = "Check the path and that this user may read it"
    try:
        with Path(name).open("rb") as file:
            content = file.read(_FILE_MAX_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "it is not text"
        raise BadInput(f"The file in {variable} cannot be read", why=why, fix=fix) from None
    if not text.strip() or len(content) > _FILE_MAX_BYTES:
        why = "it is empty" if not text.strip() else "it is far too long"
        raise BadInput(f"The file in {variable} cannot be used", why=why, fix=fix)
    return text


def _secrets(one: str, file: str) -> tuple[str, ...]:
    """Return the secrets: the one in the environment and one for each line of the file."""
    lines = _file_text(WEBHOOK_SECRET_FILE, file).splitlines() if file else []
    return tuple(dict.fromkeys(s for s in (one, *(line.strip() for line in lines)) if s))


def _accounts(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not _ACCOUNT.fullmatch(name):
            raise BadInput(
                f"{name!r} in {ACCOUNTS} is no account",
                why="a login holds letters, digits and hyphens only",
                fix=f"Write {ACCOUNTS} as logins with commas between them: acme,globex",
            )
    return names


def read_repositories(text: str, setting: str) -> tuple[str, ...]:
    """Read names of repositories with commas between them. ``setting`` is where they stand, for the error."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not is_repository(name):
            raise BadInput(
                f"{name!r} in {setting} is no repository",
                why="it is not OWNER/NAME",
                fix=f"Write {setting} as names with commas between them: acme/widgets,acme/gadgets",
            )
    return names


def _groups(text: str) -> tuple[int | str, dict[str, int | str]]:
    """Read ``CI``, ``7`` or ``acme=CI,globex=7,1``: the one without an account is for all others."""
    default: int | str | None = None
    groups: dict[str, int | str] = {}
    for part in (p.strip() for p in text.split(",") if p.strip()):
        account, equals, name = (p.strip() for p in part.rpartition("="))
        if not name or (equals and not _ACCOUNT.fullmatch(account)) or (not equals and default):
            raise BadInput(
                f"{part!r} in {RUNNER_GROUP} cannot be used",
                why="it is neither one group for all nor a group for an account",
                fix=f"Write {RUNNER_GROUP} as NAME, NUMBER or ACCOUNT=NAME, with commas between them",
            )
        group = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name  # noqa: PLR2004 - fits an id
        if equals:
            groups[account.lower()] = group
        else:
            default = group
    return DEFAULT_GROUP if default is None else default, groups


def _intake(text: str) -> Taking:
    try:
        return Taking(text or Taking.WEBHOOK)
    except ValueError:
        raise BadInput(
            f"{INTAKE}={text!r} cannot be used",
            why="GitHub either sends messages or is asked for news",
            fix=f"Set {INTAKE} to webhook or to polling",
        ) from None


def _scope(text: str) -> MintScope:
    if text in {"", "organization"}:
        return MintScope.ORGANISATION
    try:
        return MintScope(text)
    except ValueError:
        raise BadInput(
            f"{SCOPE}={text!r} cannot be used",
            why="a runner is registered at an organisation or at a repository",
            fix=f"Set {SCOPE} to organisation or to repository",
        ) from None
