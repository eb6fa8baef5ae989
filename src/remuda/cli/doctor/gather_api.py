"""Reads what dispatch and GitHub know. Changes nothing."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.adapters.api_client import api_client
from remuda.cli.doctor.asking import CALL_S, ahead_s, asked, unread
from remuda.cli.doctor.decide.facts import ApiFacts, GithubFacts, Unread, Waiting
from remuda.cli.listing import as_commands
from remuda.model.errors import RemudaError
from remuda.model.job import JobState
from remuda.ports.api import JobsWanted, Subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.adapters.api_client import ApiSettings
    from remuda.cli.finding import Where
    from remuda.ports.api import Api, Explanation, JobRow
    from remuda.ports.clock import Clock

EXPLAINED_MAX: Final = 5
QUEUED_MAX: Final = 2000
_FILE: Final = "REMUDA_GITHUB_FILE"
_AWAY: Final = "Dispatch could not be asked."
_VIOLATIONS: Final = re.compile(
    r'^remuda_invariant_violations\{invariant="(?P<name>[^"]+)"\} (?P<count>[0-9.e+]+)$',
    re.MULTILINE,
)


def no_dispatch(where: Where) -> Unread | None:
    """Say why no dispatch is meant; None: one is."""
    if where.server:
        return None
    if where.is_named:
        why = "No server is named beside the kubeconfig: give --server to look at dispatch too."
        return Unread(why=why, asked=False)
    if not where.home.addresses_file.exists():
        return Unread(why="No remuda up has come up here, and no server is named.", asked=False)
    return None


async def api_facts(where: Where, clock: Clock) -> ApiFacts | Unread:
    """Ask for all of it. What is refused or does not come is left out, with the reason."""
    if (none := no_dispatch(where)) is not None:
        return none
    try:
        settings = replace(where.api_settings(), timeout_s=CALL_S)
        async with api_client(settings, clock) as api:
            return await _facts(api, settings, clock)
    except RemudaError as error:
        return unread(error)


async def _facts(api: Api, settings: ApiSettings, clock: Clock) -> ApiFacts:
    server = settings.base_url
    not_ready = await asked(api.ready(), CALL_S)
    if isinstance(not_ready, Unread):
        away = Unread(why=_AWAY)
        return ApiFacts(
            server=server,
            not_ready=not_ready,
            ahead_s=away,
            claims=away,
            runners=away,
            limits=away,
            waiting=away,
            violations=away,
        )
    time, claims, runners, limits, waiting, violations = await asyncio.gather(
        _ahead_s(settings, clock),
        asked(api.claims()),
        asked(api.runners()),
        asked(api.limits()),
        asked(_waiting(api)),
        asked(_violations(api)),
    )
    return ApiFacts(
        server=server,
        not_ready=not_ready,
        ahead_s=time,
        claims=claims,
        runners=runners,
        limits=limits,
        waiting=waiting,
        violations=violations,
    )


async def _ahead_s(settings: ApiSettings, clock: Clock) -> float | Unread:
    tls = None
    if settings.ca_file is not None:
        tls = await asyncio.to_thread(ssl.create_default_context, cafile=str(settings.ca_file))
    return await ahead_s(f"{settings.base_url.rstrip('/')}/healthz", clock, tls=tls)


async def _waiting(api: Api) -> tuple[Waiting, ...]:
    """Return the jobs that have waited longest, and why."""
    queued = await api.jobs(JobsWanted(states=(JobState.QUEUED,)), limit=QUEUED_MAX)
    oldest = sorted(queued, key=lambda job: (job.queued_at, job.id))[:EXPLAINED_MAX]
    return tuple([Waiting(job, await _explained(api, job)) for job in oldest])


async def _explained(api: Api, job: JobRow) -> Explanation | None:
    found = await asked(api.explain(Subject.JOB, job.id), CALL_S)
    if isinstance(found, Unread):
        return None
    return msgspec.structs.replace(found, next_step=as_commands(found.next_step))


async def _violations(api: Api) -> Mapping[str, int]:
    found = violations_in(await api.metrics())
    if not found:
        raise RemudaError(
            "Dispatch does not tell how the invariants fare",
            why="its metrics do not name them",
            fix="Use a server of this program's version",
        )
    return found


def violations_in(metrics: str) -> dict[str, int]:
    """Return how many findings there are for each invariant, from Prometheus's text."""
    return {found["name"]: int(float(found["count"])) for found in _VIOLATIONS.finditer(metrics)}


# --- GitHub -----------------------------------------------------------------------------------------------------------


class _App(msgspec.Struct, frozen=True):
    slug: str = ""
    name: str = ""


async def github_facts(
    clock: Clock, file: Path | None = None, env: Mapping[str, str] = os.environ
) -> GithubFacts | Unread:
    """
    Ask GitHub whether it knows the App that is set up, in a file or in the environment, if one is.

    As with the server, REMUDA_GITHUB_FILE names a file where no other one is meant.
    """
    if file is None and env.get(_FILE, "").strip():
        file = Path(env[_FILE])
    named = any(name.startswith("REMUDA_GITHUB_") and env[name].strip() for name in env)
    if not named and file is None:
        return Unread(why="No GitHub App is set up here.", asked=False)
    try:
        from remuda.adapters.github.app_key import AppKey  # noqa: PLC0415 - an extra's packages
        from remuda.adapters.github.client import GithubClient, decoded  # noqa: PLC0415 - likewise
        from remuda.adapters.github.settings import GithubSettings  # noqa: PLC0415 - likewise
        from remuda.adapters.github.settings_file import with_file  # noqa: PLC0415 - likewise
        from remuda.adapters.github.wire import Ask  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        why = f"The Python package {error.name} is not installed: pip install 'remuda[server]'."
        return Unread(why=why, asked=False)
    try:
        settings = GithubSettings.from_env(env if file is None else with_file(env, file))
        if settings is None:
            return Unread(why="No GitHub App is set up here.", asked=False)
        client = GithubClient(settings, AppKey(settings.app_id, settings.private_key, clock), clock)
        what = "The GitHub App could not be looked at"
        try:
            async with client.deadline(what):
                reply = await client.as_app(what, Ask(operation="app", path="/app"))
            app = decoded(what, reply, _App)
        finally:
            await client.close()
    except RemudaError as error:
        return unread(error)
    return GithubFacts(settings.host, app.slug or app.name or settings.app_id)
