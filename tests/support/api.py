"""A replica of dispatch with its API, on stores and a control plane in memory: everything is real but the world."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.adapters.github import GithubSettings, GithubWebhooks
from remuda.adapters.kube_client import KubeClient
from remuda.dispatch import tokens
from remuda.dispatch.api.assembly import assemble
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.process import Dispatch, Ports
from remuda.dispatch.settings import DispatchSettings
from remuda.kube.core import NODE, POD, SERVICE_ACCOUNT, Node, Pod, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import AUDIENCE, FLEET, POOL, RUNNER, TEMPLATE
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.job import JobSpec, Kind, Os, Size
from remuda.ports.api_tokens import Role
from remuda.ports.jobs import Claimed, WarmRunner
from remuda.ports.kube import BoundPod, Manifest
from remuda.sim.clock import SimClock
from remuda.sim.fleet.furnish import a_pool, furnish
from remuda.sim.forge.github import FakeGithub
from remuda.sim.ids import SeededIds
from remuda.sim.jobs.api_tokens import MemoryApiTokens
from remuda.sim.jobs.deliveries import MemoryDeliveries
from remuda.sim.jobs.local import MemoryLocalJobs
from remuda.sim.jobs.local_files import MemoryLocalFiles
from remuda.sim.jobs.locks import MemoryLocks
from remuda.sim.jobs.registrations import MemoryRegistrations
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from remuda.sim.jobs.wakeups import MemoryWakeups
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane
from tests.support.asgi import Answer, Sent, call, streaming
from tests.support.jobs import a_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from fastapi import FastAPI

    from remuda.dispatch.api.feed import AuditFeed, FeedSettings
    from remuda.kube.patches import JsonValue
    from remuda.ports.clock import Clock
    from tests.support.asgi import Stream

SPACE = "runners"
SETTINGS = DispatchSettings(namespace=SPACE)
WEBHOOK_SECRET = "what only the forge and we know"  # noqa: S105 - a test's
GITHUB = GithubSettings(app_id="1", private_key="", webhook_secrets=(WEBHOOK_SECRET,))


@dataclass
class Office:
    """What a test of the API has in hand."""

    dispatch: Dispatch
    tables: Tables
    app: FastAPI
    feed: AuditFeed
    clock: Clock
    group: asyncio.TaskGroup
    registry: CollectorRegistry
    keys: dict[str, str] = field(default_factory=dict)
    """Tokens of people by role, and of ServiceAccounts by name."""

    async def call(self, method: str, path: str, role: str = "read", **sent: Any) -> Answer:  # noqa: ANN401 - a request
        given = {"token": self.keys[role] if role else "", **sent}
        return await call(self.app, Sent(method, path, **given))

    async def get(self, path: str, role: str = "read", **query: Any) -> Any:  # noqa: ANN401 - JSON
        """Read something, and be sure of it."""
        answer = await self.call("GET", path, role, query=query)
        assert answer.status == 200, answer.body
        return answer.json()

    def events(self, **sent: Any) -> AbstractAsyncContextManager[Stream]:  # noqa: ANN401 - a request
        given = {"token": self.keys["read"], **sent}
        return streaming(self.app, Sent("GET", "/api/v1/events", **given))

    # --- The world ---------------------------------------------------------------------------------------------------

    async def add_pool(self, name: str = "linux", **spec: Any) -> None:  # noqa: ANN401 - a pool's spec
        given = {"labels": ("self-hosted", "fast", name), "replicas": 2, **spec}
        await self.kube.create(RUNNER_POOL, a_pool(name, SPACE, **given))
        await self.until(lambda: self.dispatch.view.pool(name) is not None)

    async def pool_says(self, name: str, **status: Any) -> None:  # noqa: ANN401 - a pool's status
        patch = MergePatch({"status": status})
        await self.kube.patch(RUNNER_POOL, name, patch, namespace=SPACE, subresource="status")
        await asyncio.sleep(0.2)

    async def add_pod(self, name: str, pool: str = "linux", *, warm: bool = True) -> Pod:
        labels = {RUNNER: "true", POOL: pool, TEMPLATE: "t1"}
        meta = ObjectMeta(name=name, namespace=SPACE, labels=labels)
        await self.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE, "labels": labels},
            "spec": {
                "serviceAccountName": name,
                "automountServiceAccountToken": False,
                "containers": [{"name": "runner", "image": "registry.test/runner:1"}],
            },
        }
        made = await self.kube.create(POD, Manifest(_json(pod), namespace=SPACE))
        if warm:
            await self.pod_says(name, phase="Running", conditions=[a_condition("Ready")])
        await self.until(lambda: self.dispatch.view.pod(name) is not None)
        return made

    async def pod_says(self, name: str, **status: JsonValue) -> None:
        patch = MergePatch({"status": status})
        await self.kube.patch(POD, name, patch, namespace=SPACE, subresource="status")
        await asyncio.sleep(0.2)

    async def label(self, name: str, labels: dict[str, str]) -> None:
        patch = MergePatch({"metadata": {"labels": dict(labels)}})
        await self.kube.patch(POD, name, patch, namespace=SPACE)
        await asyncio.sleep(0.2)

    async def add_node(self, name: str, fleet: str = "barn") -> None:
        meta = ObjectMeta(name=name, labels={FLEET: fleet})
        await self.kube.create(NODE, Node(metadata=meta))

    async def queue(self, *numbers: int, **spec: Any) -> None:  # noqa: ANN401 - a job's fields
        for number in numbers:
            given = {"queued_at": self.clock.now(), **spec}
            await self.dispatch.ports.store.enqueue(a_job(number, **given), by="test")

    async def limit(self, tenant: str = "acme", vcpus: int = 8) -> None:
        size = Size(vcpus, vcpus * 2048)
        await self.dispatch.ports.store.set_limits(tenant, Os.LINUX, size, by="test")

    async def run_on(self, pod: str, pool: str = "linux", *, runner: str = "r-1") -> JobSpec:
        """Hand the next job to a Pod."""
        found = self.dispatch.view.pod(pod)
        uid = found.uid if found is not None else f"uid-{pod}"
        claimed = await self.dispatch.ports.store.claim(WarmRunner(pod, uid, pool))
        assert isinstance(claimed, Claimed), claimed
        await self.dispatch.ports.store.mark_running(claimed.claim, runner)
        return claimed.job.spec

    async def account(self, name: str, *, audience: str = AUDIENCE, pod: Pod | None = None) -> str:
        """Return a token of a ServiceAccount, which is made if need be."""
        if pod is None:
            meta = ObjectMeta(name=name, namespace=SPACE)
            await self.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
        bound = None if pod is None else BoundPod(pod.name, pod.uid)
        token = await self.kube.request_token(
            name, namespace=SPACE, audience=audience, expiration_s=3600, pod=bound
        )
        self.keys[name] = token.text
        return token.text

    async def until(self, what: Callable[[], bool], within_s: float = 10.0) -> None:
        ends_at = self.clock.monotonic() + within_s
        while not what():
            assert self.clock.monotonic() < ends_at, f"not within {within_s} s"
            await self.clock.sleep(0.05)

    @property
    def kube(self) -> KubeClient:
        kube = self.dispatch.ports.kube
        assert isinstance(kube, KubeClient)
        return kube


def a_condition(kind: str, status: str = "True", **more: str) -> dict[str, JsonValue]:
    return {
        "type": kind,
        "status": status,
        "reason": "Test",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        **more,
    }


@asynccontextmanager
async def an_office(
    clock: Clock | None = None,
    feed_settings: FeedSettings | None = None,
    *,
    sees: bool = True,
    meddle: Callable[[Ports], Ports] = lambda ports: ports,
) -> AsyncIterator[Office]:
    """Open one. It may be one that never gets to see the fleet, or one with other stores than those in memory."""
    clock = clock or SimClock(asyncio.get_running_loop())
    plane = ControlPlane.in_memory(clock, SeededIds(1, "plane"))
    tables = Tables(clock)
    kube = KubeClient(plane.wire())
    ports = meddle(_ports(kube, tables, clock))
    dispatch = Dispatch(ports, SETTINGS, DispatchMetrics(CollectorRegistry()))
    front = assemble(dispatch, GithubWebhooks(GITHUB))
    feed = front.feed
    feed.settings = feed_settings or feed.settings
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(plane.run(), name="plane")]
        await furnish(plane.wire(), kube, SPACE)
        tasks.append(group.create_task(feed.run(), name="feed"))
        if sees:
            tasks.append(group.create_task(dispatch.view.run(), name="view"))
            await dispatch.view.wait_synced()
        office = Office(
            dispatch=dispatch,
            tables=tables,
            app=front.app,
            feed=feed,
            clock=clock,
            group=group,
            registry=dispatch.metrics.registry,
        )
        await _make_keys(office)
        yield office
        for task in tasks:
            task.cancel()


def _ports(kube: KubeClient, tables: Tables, clock: Clock) -> Ports:
    github = FakeGithub(clock, SeededIds(1, "forge"))
    local_jobs = MemoryLocalJobs(tables)
    return Ports(
        kube=kube,
        store=MemoryJobs(tables),
        views=MemoryJobViews(tables),
        deliveries=MemoryDeliveries(clock),
        registrations=MemoryRegistrations(tables),
        local_jobs=local_jobs,
        local_files=MemoryLocalFiles(local_jobs.peek),
        tokens=MemoryApiTokens(tables),
        wakeups=MemoryWakeups(tables),
        locks=MemoryLocks(tables),
        clock=clock,
        ids=SeededIds(1, "dispatch"),
        forges={Kind.GITHUB: github},
        announcer=github,
    )


async def _make_keys(office: Office) -> None:
    p = office.dispatch.ports
    for role in Role:
        made = await tokens.create(p.tokens, f"a-{role}", role, ids=p.ids, clock=p.clock)
        office.keys[role.value] = made.text
    office.keys["unknown"] = tokens.token_text(p.ids)
    office.keys["rubbish"] = "rmd_this-is-none"
    await office.account(SETTINGS.controller)
    await office.account("prometheus")


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


def api_story(
    play: Callable[[Office], Coroutine[Any, Any, None]],
) -> Callable[[], None]:
    """Turn a play in an office into a test on virtual time."""

    async def main() -> None:
        async with an_office() as office:
            await play(office)

    def test() -> None:
        run(main)

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    return test
