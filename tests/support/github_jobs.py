"""Builders for what the tests of GitHub ask for."""

from __future__ import annotations

from datetime import UTC, datetime

from remuda.model.job import JobSpec, Kind, Os, Size
from remuda.ports.forge import NewRunner
from remuda.ports.registrations import Registration


def a_job(
    host: str, number: int = 1, *, tenant: str = "acme", repository: str = "acme/widgets"
) -> JobSpec:
    return JobSpec(
        id=f"{host}/{number}",
        tenant=tenant,
        repository=repository,
        pool="fast",
        os=Os.LINUX,
        size=Size(4, 8192),
        queued_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        label="fast",
        labels=("fast",),
    )


def a_runner(name: str = "fast-1-0badcafe", *, os: Os = Os.LINUX) -> NewRunner:
    return NewRunner(name=name, labels=("fast", "self-hosted"), os=os, pool="fast")


def a_registration(
    name: str = "fast-1-0badcafe", *, scope: str = "", number: int | None = None
) -> Registration:
    return Registration(
        runner_name=name,
        kind=Kind.GITHUB,
        tenant="acme",
        repository="acme/widgets",
        job_id="127.0.0.1/1",
        pod="fast-1",
        scope=scope,
        number=number,
    )
