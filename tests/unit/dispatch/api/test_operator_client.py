"""The operator's own client against the real application on a real socket."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.dispatch_client import DispatchClientSettings, dispatch_client
from remuda.adapters.http_server import serving_http
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock
from remuda.ports.dispatch import DispatchError, Signals, Stopped
from tests.support.api import an_office

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.adapters.dispatch_client import DispatchClient
    from tests.support.api import Office

ENDED = Stopped(ended_at=datetime(2026, 11, 15, 12, 0, 1, tzinfo=UTC), exit_code=137, reason="OOM")


@asynccontextmanager
async def a_client(role: str = "remuda-controller") -> AsyncIterator[tuple[Office, DispatchClient]]:
    async with (
        an_office(SystemClock()) as office,
        serving_http(office.app, Listen(port=0), shutdown_s=1.0) as server,
        dispatch_client(
            DispatchClientSettings(
                base_url=server.address,
                token=office.keys[role],
                signals_timeout_s=10.0,
                stopped_timeout_s=10.0,
            )
        ) as client,
    ):
        yield office, client


async def test_the_operator_reads_signals() -> None:
    async with a_client() as (office, client):
        await office.limit(vcpus=2)
        await office.queue(1, 2)

        signals = await client.signals("linux")

        assert (signals.queued, signals.withheld, signals.claimed) == (1, 1, 0)
        assert 0 <= signals.oldest_queued_s < 600
        assert await client.signals("a pool that..is?not#there") == Signals()


async def test_the_operator_reports_a_stop() -> None:
    async with a_client() as (office, client):
        await office.limit()
        await office.queue(1)
        await office.run_on("ghost")

        await client.stopped("ghost", ENDED)
        await client.stopped("ghost", ENDED)
        await client.stopped("never-heard-of", ENDED)

        session = await office.dispatch.ports.views.session_of("ghost")
        assert session is not None
        assert (session.exit_code, session.end_reason) == (137, "OOM")


@pytest.mark.parametrize("role", ["prometheus", "unknown"])
async def test_somebody_else_is_told_why_not(role: str) -> None:
    async with a_client(role) as (office, client):
        with pytest.raises(DispatchError, match=r"answered 40[13]") as caught:
            await client.stopped("ghost", ENDED)

        assert office.keys[role] not in str(caught.value)
