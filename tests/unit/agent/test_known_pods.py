"""What is known of a host's Pods: gone only after two proofs, and newest what the server answered."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import KubeClient
from remuda.agent.decide.lifecycle import Wanted
from remuda.agent.known_pods import KnownPods
from remuda.control.cache import Key
from remuda.kube.core import (
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    Container,
    Namespace,
    Pod,
    PodSpec,
    ServiceAccount,
)
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import VM_CLEANUP
from remuda.kube.patches import MergePatch
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane
from tests.unit.pools.ranch import Hurt, Tap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

SPACE, NODE = "ci", "mini-1"
KEY = Key(SPACE, "mac-1")


@dataclass
class Watched:
    clock: SimClock
    kube: KubeClient
    tap: Tap
    pods: KnownPods
    told: list[str]

    async def add(self, name: str = "mac-1") -> Pod:
        meta = ObjectMeta(name=name, namespace=SPACE)
        spec = PodSpec(node_name=NODE, containers=(Container(name="runner", image="i"),))
        return await self.kube.create(POD, Pod(metadata=meta, spec=spec))

    async def patch(self, **body: Any) -> Pod:  # noqa: ANN401 - JSON
        status = "status" if "status" in body else ""
        return await self.kube.patch(
            POD, "mac-1", MergePatch(body), namespace=SPACE, subresource=status
        )

    async def remove(self) -> None:
        await self.kube.delete(POD, "mac-1", namespace=SPACE, grace_s=0)
        await self.clock.sleep(1)

    async def wanted(self, uid: str) -> Wanted:
        found, _ = await self.pods.wanted(uid, KEY)
        return found


@asynccontextmanager
async def a_watch() -> AsyncIterator[Watched]:
    clock = SimClock(asyncio.get_running_loop())
    plane = ControlPlane.in_memory(clock, SeededIds(1, "plane"))
    kube = KubeClient(plane.wire())
    await kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=SPACE)))
    account = ServiceAccount(metadata=ObjectMeta(name="default", namespace=SPACE))
    await kube.create(SERVICE_ACCOUNT, account)
    tap = Tap(plane.wire(), clock)
    pods = KnownPods(
        KubeClient(tap), NODE, clock=clock, ids=SeededIds(1, "pods"), resync_s=10_000.0
    )
    told: list[str] = []
    pods.on_change(told.append)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(pods.run())
        try:
            yield Watched(clock, kube, tap, pods, told)
        finally:
            following.cancel()


def played(play: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with a_watch() as watched:
            await play(watched)

    run(main)


def test_before_the_first_list_nothing_follows_from_not_knowing_a_pod() -> None:
    async def play(watched: Watched) -> None:
        watched.tap.hurts.append(Hurt(r"GET .*", "dropped", times=10_000))
        assert await watched.wanted("some-uid") is Wanted.UNREAD
        watched.tap.hurts.clear()
        await watched.pods.wait_synced()
        assert await watched.wanted("some-uid") is Wanted.GONE

    played(play)


def test_deletion_counts_before_an_end_and_an_end_before_a_missing_finalizer() -> None:
    async def play(watched: Watched) -> None:
        await watched.pods.wait_synced()
        uid = (await watched.add()).uid
        await watched.clock.sleep(1)
        assert await watched.wanted(uid) is Wanted.NEW
        await watched.patch(metadata={"finalizers": [VM_CLEANUP]})
        await watched.clock.sleep(1)
        assert await watched.wanted(uid) is Wanted.LIVE
        await watched.patch(status={"phase": "Failed"})
        await watched.clock.sleep(1)
        assert await watched.wanted(uid) is Wanted.ENDED
        await watched.remove()
        assert await watched.wanted(uid) is Wanted.DELETING

    played(play)


def test_what_the_server_answered_counts_before_the_watch_says_it() -> None:
    async def play(watched: Watched) -> None:
        await watched.pods.wait_synced()
        uid = (await watched.add()).uid
        await watched.clock.sleep(1)
        watched.tap.frozen = "pods"
        written = await watched.patch(metadata={"finalizers": [VM_CLEANUP]})
        assert await watched.wanted(uid) is Wanted.NEW
        watched.pods.learned(written)
        assert await watched.wanted(uid) is Wanted.LIVE
        await watched.patch(metadata={"finalizers": None})
        watched.tap.frozen = ""
        await watched.clock.sleep(1)
        assert await watched.wanted(uid) is Wanted.NEW, "newer news count"

    played(play)


def test_a_pod_is_gone_when_it_is_in_no_list_and_not_found_by_name() -> None:
    async def play(watched: Watched) -> None:
        await watched.pods.wait_synced()
        uid = (await watched.add()).uid
        await watched.clock.sleep(1)
        await watched.remove()
        watched.tap.hurts.append(Hurt(r"GET .*/pods/mac-1", "dropped"))
        assert await watched.wanted(uid) is Wanted.UNREAD, "one proof is none"
        assert not watched.pods.gone_since
        assert await watched.wanted(uid) is Wanted.GONE
        assert list(watched.pods.gone_since) == [uid]
        watched.pods.forget(uid)
        assert not watched.pods.gone_since

    played(play)


def test_another_pod_of_the_same_name_is_another_pod() -> None:
    async def play(watched: Watched) -> None:
        await watched.pods.wait_synced()
        old = (await watched.add()).uid
        await watched.clock.sleep(1)
        await watched.remove()
        new = (await watched.add()).uid
        await watched.clock.sleep(1)
        assert await watched.wanted(old) is Wanted.GONE
        assert await watched.wanted(new) is Wanted.NEW
        assert {old, new} <= set(watched.told)

    played(play)


def test_a_node_that_is_refused_a_pod_believes_a_fresh_list() -> None:
    async def play(watched: Watched) -> None:
        await watched.pods.wait_synced()
        uid = (await watched.add()).uid
        await watched.clock.sleep(1)
        await watched.remove()
        watched.tap.hurts.append(Hurt(r"GET .*/pods/mac-1", "refused", times=10))
        watched.tap.hurts.append(Hurt(r"GET .*/pods$", "dropped"))
        assert await watched.wanted(uid) is Wanted.UNREAD, "no list, no proof"
        assert await watched.wanted(uid) is Wanted.GONE

    played(play)


def test_a_refusal_alone_proves_nothing_of_a_pod_that_is_listed() -> None:
    async def play(watched: Watched) -> None:
        await watched.pods.wait_synced()
        watched.tap.frozen = "pods"
        uid = (await watched.add()).uid
        watched.tap.hurts.append(Hurt(r"GET .*/pods/mac-1", "refused", times=10))
        assert await watched.wanted(uid) is Wanted.NEW
        assert not watched.pods.gone_since

    played(play)
