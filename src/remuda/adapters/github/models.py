"""What we read of the answers of GitHub's API. A field that we do not need is not here, so it cannot be wrong."""

from __future__ import annotations

import msgspec

from remuda.adapters.github.payloads import GithubJob, Number  # noqa: TC001 - msgspec reads them as it decodes


class Account(msgspec.Struct, frozen=True):
    """Whom an App is installed for. An enterprise has a slug in place of a login."""

    login: str = ""
    slug: str = ""
    type: str = ""


class Installed(msgspec.Struct, frozen=True):
    id: Number
    account: Account | None = None
    target_type: str = ""
    suspended_at: object = None


class InstallationToken(msgspec.Struct, frozen=True):
    token: str
    expires_at: str = ""

    def __repr__(self) -> str:
        return "InstallationToken(…)"


class RegistrationToken(msgspec.Struct, frozen=True):
    token: str

    def __repr__(self) -> str:
        return "RegistrationToken(…)"


class Runner(msgspec.Struct, frozen=True):
    id: Number
    name: str = ""
    busy: bool = False
    status: str = ""
    """``online`` or ``offline``."""


class JitConfig(msgspec.Struct, frozen=True):
    runner: Runner
    encoded_jit_config: str

    def __repr__(self) -> str:
        return f"JitConfig({self.runner!r}, …)"


class Runners(msgspec.Struct, frozen=True):
    runners: list[Runner]


class RunnerGroup(msgspec.Struct, frozen=True):
    id: Number
    name: str = ""


class RunnerGroups(msgspec.Struct, frozen=True):
    runner_groups: list[RunnerGroup]


class RunRepository(msgspec.Struct, frozen=True):
    id: object = None
    full_name: object = None


class Run(msgspec.Struct, frozen=True):
    id: Number
    head_repository: RunRepository | None = None
    repository: RunRepository | None = None


class RunNumber(msgspec.Struct, frozen=True):
    """A run in a list: only its number is needed, and only that is kept."""

    id: Number


class Runs(msgspec.Struct, frozen=True):
    workflow_runs: list[RunNumber]


class Jobs(msgspec.Struct, frozen=True):
    jobs: list[GithubJob]


class Repository(msgspec.Struct, frozen=True):
    full_name: str
    archived: bool = False
    disabled: bool = False


class Repositories(msgspec.Struct, frozen=True):
    repositories: list[Repository]


class HookDelivery(msgspec.Struct, frozen=True):
    """One attempt to deliver a message. Attempts of one message share its GUID."""

    id: Number
    guid: str
    event: str = ""
    delivered_at: str = ""
    status: str = ""
    status_code: int = 0
