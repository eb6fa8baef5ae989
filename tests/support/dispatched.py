"""A fleet with its operator and real dispatch: the stage on which a job goes all the way."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.pool import URL_VARIABLE, DatabaseSettings, open_database
from remuda.adapters.system import SystemClock
from remuda.kube.core import SERVICE_ACCOUNT, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import AUDIENCE
from remuda.ports.kube import AlreadyExists
from tests.support.eventually import eventually
from tests.support.fleet import a_fleet
from tests.support.operators import Operators
from tests.support.pool_checks import doubled, killed, leftovers
from tests.support.runner_desk import RunnerDesk
from tests.support.servers import Api, Servers, a_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path
    from typing import Any

    from remuda.adapters.postgres.pool import Database
    from remuda.ports.kube import Kube
    from tests.support.fleet import Fleet

CONTROLLER = "remuda-controller"
OVER = frozenset({"completed", "cancelled"})
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a test plays on. ``database`` sees what the replicas see."""

    fleet: Fleet
    desk: RunnerDesk
    servers: Servers
    operators: Operators
    database: Database
    api_token: str

    def api(self, name: str) -> Api:
        return Api(self.servers.url(name), self.api_token)

    async def until_job(self, api: Api, job_id: str, *states: str, within_s: float = 60.0) -> Any:  # noqa: ANN401 - JSON
        """Wait for a job to be in one of these states, over if none is given."""
        wanted = frozenset(states) or OVER

        async def probe() -> Any:  # noqa: ANN401 - JSON
            return await api.get(f"/api/v1/jobs/{job_id}")

        return await eventually(probe, lambda job: job["state"] in wanted, within_s=within_s)

    async def calm(self) -> None:
        """Check what holds of every run once it is over: no job killed, nothing doubled, nothing left behind."""

        async def rows() -> tuple[int, int, int]:
            async with self.database.connection() as c:
                claims = await c.fetchval("SELECT count(*) FROM claims")
                sessions = await c.fetchval("SELECT count(*) FROM sessions WHERE ended_at IS NULL")
                used = await c.fetchval("SELECT coalesce(sum(used_vcpus), 0) FROM limits")
                return claims, sessions, int(used)

        await eventually(rows, lambda left: left == (0, 0, 0), within_s=60)
        await self.fleet.until(lambda: leftovers(self.fleet.now) == [])
        steps = await self.fleet.recorder.caught_up()
        assert killed(steps) == []
        assert doubled(steps) == []


@asynccontextmanager
async def dispatched(
    kubeconfig: Path,
    database_url: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    *,
    operators: int = 2,
    who: Callable[[str], Path] | None = None,
) -> AsyncIterator[Stage]:
    """
    Start all but the replicas: the test says which, and when.

    ``who`` makes the replicas' kubeconfig in the namespace; else they are administrators.
    """
    namespace = f"range-{next(_numbers)}"
    kube = KubeClient(HttpWire(load(kubeconfig)))
    server_env = {URL_VARIABLE: database_url, **(env or {})}
    servers = Servers(folder / "servers", kubeconfig, namespace, server_env)
    desk = RunnerDesk(kube, SystemClock(), servers.some_url)
    settings = DatabaseSettings(url=database_url, connections_min=1, connections_max=4)
    try:
        async with (
            a_fleet(kubeconfig, namespace, desk) as fleet,
            open_database(settings) as database,
            asyncio.TaskGroup() as group,
        ):
            running = group.create_task(desk.run(), name="desk")
            if who is not None:
                servers.act_as(await asyncio.to_thread(who, namespace))
            token_file = folder / "controller-token"
            token_file.write_text(await controller_token(kube, namespace))
            token = await a_token(PostgresApiTokens(database, SystemClock()))
            url = servers.url("one")
            logs = folder / "operators"
            with (
                servers,
                Operators(logs, kubeconfig, namespace, url, token_file, operators) as herders,
            ):
                yield Stage(fleet, desk, servers, herders, database, token)
                assert herders.crashed() == []
            running.cancel()
    finally:
        await kube.close()


async def controller_token(kube: Kube, namespace: str) -> str:
    """Make the operator's account and return a token of it for dispatch."""
    account = ServiceAccount(metadata=ObjectMeta(name=CONTROLLER, namespace=namespace))
    with suppress(AlreadyExists):
        await kube.create(SERVICE_ACCOUNT, account)
    token = await kube.request_token(
        CONTROLLER, namespace=namespace, audience=AUDIENCE, expiration_s=3600
    )
    return token.text
