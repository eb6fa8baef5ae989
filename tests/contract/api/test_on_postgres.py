"""The API on a real PostgreSQL: what callers write must reach the database as data, or not at all."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.job_views import PostgresJobViews
from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.adapters.system import SystemClock
from remuda.dispatch.api.feed import FeedSettings
from tests.support.api import an_office

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.adapters.postgres.pool import Database
    from tests.support.api import Office

HOSTILE = (
    "x",
    "' OR 1=1 --",
    "%",
    "_",
    "\\",
    "{}",
    "$1",
    "\u0085\u2028\ufffd\U0010ffff",
    "e\u0301",
    "a" * 300,
)


@asynccontextmanager
async def on(database: Database) -> AsyncIterator[Office]:
    clock = SystemClock()
    async with an_office(
        clock,
        FeedSettings(poll_s=0.02),
        meddle=lambda ports: replace(
            ports,
            store=PostgresJobs(database, clock),
            views=PostgresJobViews(database, clock),
            tokens=PostgresApiTokens(database, clock),
        ),
    ) as office:
        yield office


async def test_whatever_a_caller_writes_is_only_data(database: Database) -> None:
    async with on(database) as office:
        await office.limit()
        await office.queue(1)
        for text in HOSTILE:
            for name in ("pool", "tenant", "repository"):
                assert (await office.get("/api/v1/jobs", **{name: text}))["jobs"] == []
            assert (await office.get("/api/v1/limits", tenant=text))["limits"] == []
            assert (await office.get("/api/v1/audit", job_id=text))["entries"] == []
            limit = {"tenant": text, "os": "darwin", "vcpus": 1, "memory_mib": 1}
            made = await office.call("POST", "/api/v1/limits", "operate", body=limit)
            assert (made.status, made.json()["tenant"]) == (200, text)
            for path in ("jobs/", "jobs/explain/", "runners/", "pools/"):
                raw = text.encode().hex("%")
                answer = await office.call("GET", f"/api/v1/{path}%{raw}")
                assert answer.status in {404, 422}, (path, text)
            body = {"ended_at": "2026-01-01T00:00:00Z", "reason": text}
            stop = f"/api/v1/runners/%{text.encode()[:250].hex('%')}/stopped"
            done = await office.call("POST", stop, "remuda-controller", body=body)
            assert done.status in {204, 404, 422}, text
        assert len((await office.get("/api/v1/jobs"))["jobs"]) == 1


async def test_pages_hold_every_job_once(database: Database) -> None:
    async with on(database) as office:
        now = office.clock.now()
        await office.queue(*range(1, 24), queued_at=now)
        seen: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await office.get("/api/v1/jobs", limit=5, **cursor)
            seen += [job["id"] for job in page["jobs"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}

        assert sorted(seen) == sorted(f"forge/{n}" for n in range(1, 24))
        assert len(seen) == 23


async def test_a_transaction_that_commits_late_is_told_in_its_place(database: Database) -> None:
    """Numbers are taken when an entry is written, not when it is committed: a real one holds its number open here."""
    async with on(database) as office, office.events(query={"after": 0}) as stream:
        await office.limit()
        await office.until(lambda: len(stream.events()) == 1)
        async with database.transaction() as late:
            await late.execute(
                "INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool)"
                " VALUES (now(), 'late', 'said', '', '', '', '', '')"
            )
            await office.limit("zoo")
            await asyncio.sleep(0.3)
            assert len(stream.events()) == 1, "what stands behind the open number waits"
        await office.until(lambda: len(stream.events()) == 3)

        assert [event["who"] for _, event in stream.events()] == ["test", "late", "test"]
        numbers = [number for number, _ in stream.events()]
        assert numbers == sorted(numbers)
