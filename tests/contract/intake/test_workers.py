"""The workers on PostgreSQL: every message once, in order for each job, over restarts."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.adapters.postgres.deliveries import PostgresDeliveries
from remuda.adapters.postgres.job_views import PostgresJobViews
from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.adapters.postgres.registrations import PostgresRegistrations
from remuda.adapters.system import SystemClock, SystemIds
from remuda.dispatch.announcements import Announcements
from remuda.dispatch.intake import IntakeWorkers
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import DispatchSettings, IntakeSettings
from remuda.kube.runner_pool import Forks
from remuda.model.job import JobState
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import Action
from tests.support.eventually import eventually
from tests.support.jobs import check_books
from tests.unit.dispatch.mailroom import FixedPools, Hub, a_pool, news, running

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database

JOBS = 120
IMPATIENT = IntakeSettings(poll_s=0.05, lease=timedelta(seconds=2))
ACTIONS = (Action.QUEUED, Action.WAITING, Action.IN_PROGRESS, Action.COMPLETED)


def a_replica(database: Database, hub: Hub, how: IntakeSettings = IMPATIENT) -> IntakeWorkers:
    clock = SystemClock()
    settings = DispatchSettings(namespace="runners", intake=how)
    metrics = DispatchMetrics(CollectorRegistry())
    announcements = Announcements(
        store=PostgresJobs(database, clock),
        views=PostgresJobViews(database, clock),
        view=FixedPools(a_pool(forks=Forks.DENY)),
        announcer=hub,
        registrations=PostgresRegistrations(database, clock),
        settings=settings,
        metrics=metrics,
        clock=clock,
    )
    return IntakeWorkers(
        deliveries=PostgresDeliveries(database, clock),
        announcer=hub,
        announcements=announcements,
        settings=how,
        metrics=metrics,
        clock=clock,
        ids=SystemIds(),
    )


async def _post(database: Database, hub: Hub, jobs: range) -> None:
    """Post all messages of each job, in its order, but the jobs among each other in any."""
    inbox = PostgresDeliveries(database, SystemClock())
    left = {number: list(ACTIONS) for number in jobs}
    chance = random.Random(7)  # noqa: S311 - replays must be predictable
    while left:
        number = chance.choice(sorted(left))
        action = left[number].pop(0)
        if not left[number]:
            del left[number]
        body = f"{number} {action.value}".encode()
        hub.written[body] = news(action, number, runner_name="")
        guid = f"{number}-{action.value}"
        await inbox.record(
            Delivery(guid=guid, event="workflow_job", body=body, subject=f"forge/{number}")
        )


async def test_replicas_that_come_and_go_work_every_message_off(database: Database) -> None:
    hub = Hub()
    views = PostgresJobViews(database, SystemClock())
    inbox = PostgresDeliveries(database, SystemClock())
    await _post(database, hub, range(JOBS))
    for _ in range(6):  # stopped in the middle, again and again
        async with running(a_replica(database, hub).run()):
            await asyncio.sleep(0.05)
    async with running(a_replica(database, hub).run()), running(a_replica(database, hub).run()):
        await eventually(inbox.backlog, lambda backlog: backlog == 0, within_s=60)

    jobs = await views.jobs(states=frozenset(JobState), limit=1000)
    assert len(jobs) == JOBS
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    await check_books(views)


async def test_a_message_that_fails_holds_up_only_those_about_its_own_job(
    database: Database,
) -> None:
    hub = Hub()
    views = PostgresJobViews(database, SystemClock())
    inbox = PostgresDeliveries(database, SystemClock())
    await _post(database, hub, range(10))
    hub.hangs.add(9003)
    how = replace(IMPATIENT, lease=timedelta(seconds=60))
    async with running(a_replica(database, hub, how).run()):
        await eventually(inbox.backlog, lambda backlog: backlog == len(ACTIONS))
        over = await views.completions([f"forge/{number}" for number in range(10)])
    assert sorted(over) == [f"forge/{number}" for number in range(10) if number != 3]
    assert await views.job("forge/3") is None


async def test_a_text_that_no_database_takes_costs_only_itself(database: Database) -> None:
    hub = Hub()
    inbox = PostgresDeliveries(database, SystemClock())
    views = PostgresJobViews(database, SystemClock())
    hub.written[b"odd"] = news(branch="\0\ud800", name="\udfff" * 9, repository="a\0b", number=1)
    await inbox.record(Delivery(guid="odd", event="workflow_job", body=b"odd", subject="forge/1"))
    async with running(a_replica(database, hub).run()):
        await eventually(inbox.backlog, lambda backlog: backlog == 0)
    job = await views.job("forge/1")
    assert job is not None
    assert (job.spec.branch, job.spec.repository) == ("", "ab")
