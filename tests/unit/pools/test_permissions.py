"""The permissions that the operator checks for, those of the manifest, and what it says when one is missing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from remuda.control.health import Health
from remuda.control.preflight import Preflight
from remuda.kube.meta import Resource
from remuda.kube.runner_pod import PodSettings
from remuda.pools.permissions import rights
from remuda.pools.settings import PoolSettings
from remuda.ports.kube import Listing, NotFound, Query, Refused, Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.support.rights import granted, unbound_roles, wanted
from tests.unit.control.fake_kube import FakeKube, broken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.kinds import Kind

T = TypeVar("T", bound=Resource)

MANIFEST = Path(__file__).resolve().parents[3] / "docs/howto/operator-rbac.yaml"
SETTINGS = PoolSettings(namespace="remuda", identity="one", pod=PodSettings(dispatch_url=""))


def test_the_manifest_grants_what_the_operator_needs_and_nothing_more() -> None:
    assert granted(MANIFEST) == wanted(rights(SETTINGS).needs)


def test_every_role_of_the_manifest_is_bound_to_the_service_account() -> None:
    assert unbound_roles(MANIFEST, "remuda-controller") == set()


class Server(FakeKube):
    """An API server that grants all but what the test says, and fails as told."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: set[str] = set()
        self.has_crds = True
        self.answers_after_s = 0.0

    async def may_i(
        self, verb: str, kind: Kind[T], *, namespace: str = "", subresource: str = ""
    ) -> bool:
        await self._called("may_i")
        await asyncio.sleep(self.answers_after_s)
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        return f"{verb} {resource} {namespace}".rstrip() not in self.denied

    async def list(self, kind: Kind[T], query: Query = Query()) -> Listing[T]:  # noqa: B008 - frozen
        if not self.has_crds:
            raise broken(NotFound)
        return await super().list(kind, query)


class Looking:
    def __init__(self, server: Server) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        self.health = Health(self.clock)
        self.preflight = Preflight(
            server, rights(SETTINGS), ids=SeededIds(1, "op"), health=self.health
        )


@asynccontextmanager
async def looking(server: Server) -> AsyncIterator[Looking]:
    found = Looking(server)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(found.preflight.run(), name="preflight")
        yield found
        task.cancel()


def test_with_everything_in_place_it_goes_on_at_once() -> None:
    async def story() -> None:
        async with looking(Server()) as found:
            await found.clock.sleep(0.1)
            assert found.preflight.done
            assert found.preflight.obstacle is None

    run(story)


def test_each_missing_permission_is_named_until_somebody_grants_it() -> None:
    async def story() -> None:
        server = Server()
        server.denied = {"patch nodes/status", "delete pods remuda"}
        async with looking(server) as found:
            await found.clock.sleep(120)
            assert not found.preflight.done
            said = str(found.preflight.obstacle)
            assert (
                "2 permissions: delete pods in namespace remuda; patch nodes/status in the whole cluster"
                in said
            )
            assert "operator-rbac.yaml" in said
            assert (
                found.health.problems(found.clock.monotonic()) == ()
            )  # it waits, it does not hang
            server.denied.clear()
            await found.clock.sleep(20)
            assert found.preflight.done

    run(story)


def test_an_api_server_that_is_away_is_waited_for() -> None:
    async def story() -> None:
        server = Server()
        server.faults["may_i"] = [broken(Unavailable, "The review"), broken(Refused, "The review")]
        async with looking(server) as found:
            await found.clock.sleep(0.1)
            assert str(found.preflight.obstacle).startswith(
                "The review failed: the test wants it so"
            )
            await found.clock.sleep(20)
            assert found.preflight.done

    run(story)


def test_a_slow_api_server_is_no_loop_that_hangs() -> None:
    async def story() -> None:
        server = Server()
        server.answers_after_s = 5.0
        async with looking(server) as found:
            await found.clock.sleep(100)
            assert not found.preflight.done
            assert found.health.problems(found.clock.monotonic()) == ()
            await found.clock.sleep(100)
            assert found.preflight.done

    run(story)


def test_missing_crds_are_told_apart_from_an_empty_cluster() -> None:
    async def story() -> None:
        server = Server()
        server.has_crds = False
        async with looking(server) as found:
            await found.clock.sleep(1)
            assert "Apply charts/remuda/crds" in str(found.preflight.obstacle)
            server.has_crds = True
            await found.clock.sleep(20)
            assert found.preflight.done

    run(story)
