"""Hosts for people: the Nodes of fleets, read from the API server when somebody asks. Dispatch itself needs none."""

import asyncio
from collections import Counter

from fastapi import APIRouter

from remuda.dispatch.api.auth import Reader
from remuda.dispatch.api.fleet_bodies import HostBody, HostList
from remuda.dispatch.api.problems import documented
from remuda.dispatch.view import DispatchView
from remuda.kube.core import NODE, Node
from remuda.kube.names import FLEET
from remuda.kube.runner_view import runner_of
from remuda.ports.clock import Clock
from remuda.ports.kube import Kube, Query

_REMEMBERED_S = 5.0
"""Many dashboards ask again and again: one list serves them all for so long."""


class HostRoutes:
    """The machines, and how many runners each has."""

    def __init__(self, kube: Kube, view: DispatchView, clock: Clock) -> None:
        self._kube = kube
        self._view = view
        self._clock = clock
        self._listing = asyncio.Lock()
        self._nodes: tuple[Node, ...] = ()
        self._listed_at: float | None = None

    async def list_hosts(self, _: Reader) -> HostList:
        """Return the hosts of all fleets, by name; at most a few seconds old."""
        nodes = await self._read()
        alive = (r.node for r in map(runner_of, self._view.pods.all()) if r.is_alive and r.node)
        runners = Counter(alive)
        hosts = sorted(nodes, key=lambda node: node.name)
        return HostList(hosts=tuple(HostBody.of(node, runners[node.name]) for node in hosts))

    async def _read(self) -> tuple[Node, ...]:
        async with self._listing:
            now, listed_at = self._clock.monotonic(), self._listed_at
            if listed_at is None or now - listed_at >= _REMEMBERED_S:
                self._nodes = (await self._kube.list(NODE, Query(labels=FLEET))).items
                self._listed_at = self._clock.monotonic()
            return self._nodes


def host_router(kube: Kube, view: DispatchView, clock: Clock) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["hosts"])
    router.add_api_route(
        "/hosts",
        HostRoutes(kube, view, clock).list_hosts,
        summary="List hosts",
        responses=documented(401, 403),
    )
    return router
