"""What the Node's annotation names is fetched, wanted, and started by nobody."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from remuda.agent.staging import NOT_STAGED, STAGED, Staging
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.reflector import Reflector
from remuda.kube.core import EVENT, NODE, Node
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import STAGE
from remuda.kube.patches import MergePatch
from remuda.ports.kube import Query
from remuda.ports.vms import Refused, golden_name
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.agent.a_host import PULL_S, A, AHost, B, C, D, broken
from tests.unit.control.fake_kube import FakeKube

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NODE_NAME = "mac-1"


class StagedHost:
    """A host with its Node, and the loops that staging needs."""

    def __init__(self, folder: Path) -> None:
        self.host = AHost(folder)
        clock, ids = self.host.clock, SeededIds(1, "staging")
        self.kube, self.event_kube = FakeKube(), FakeKube()
        self.nodes = Reflector(
            self.kube, NODE, Query(fields=f"metadata.name={NODE_NAME}"), clock=clock, ids=ids
        )
        self.events = EventRecorder(
            self.event_kube, EventSettings(component="agent"), clock=clock, ids=ids
        )
        self.staging = Staging(self.host.shelf, self.host.goldens, self.nodes, self.events, ids)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.kube.create(NODE, Node(metadata=ObjectMeta(name=NODE_NAME)))
        async with self.host.running() as group:
            loops = [
                group.create_task(loop())
                for loop in (self.nodes.run, self.events.run, self.staging.run)
            ]
            await self.nodes.wait_synced()
            yield
            for task in loops:
                task.cancel()

    async def ask(self, text: str | None) -> None:
        changes = MergePatch({"metadata": {"annotations": {STAGE: text}}})
        await self.kube.patch(NODE, NODE_NAME, changes)

    async def told(self) -> list[tuple[str, str]]:
        await self.events.flush()
        events = await self.event_kube.list(EVENT, Query())
        return sorted((event.reason, event.message) for event in events.items)


def test_what_is_named_is_fetched_and_wanted_and_nothing_is_started(tmp_path: Path) -> None:
    async def story() -> None:
        staged = StagedHost(tmp_path)
        assert not staged.staging.synced
        async with staged.running():
            assert staged.staging.synced
            await staged.ask(f'["{A}", "{B}"]')
            await asyncio.sleep(5 * PULL_S)
            assert staged.host.goldens.ready_images() == {A, B}
            assert staged.staging.wanted_images() == {A, B}
            assert staged.host.names == sorted(map(golden_name, (A, B)))
            assert [reason for reason, _ in await staged.told()] == [STAGED, STAGED]
            await staged.ask(None)
            await asyncio.sleep(1)
            assert staged.staging.wanted_images() == set()
            assert staged.host.goldens.ready_images() == {A, B}  # kept as any that nobody wants

    run(story)


def test_bad_names_are_told_and_keep_no_good_one_back(tmp_path: Path) -> None:
    async def story() -> None:
        staged = StagedHost(tmp_path)
        async with staged.running():
            await staged.ask(f"--help {A}")
            await asyncio.sleep(5 * PULL_S)
            assert staged.host.goldens.ready_images() == {A}
            told = await staged.told()
            assert [reason for reason, _ in told] == [NOT_STAGED, STAGED]
            assert "'--help' is no reference of an image" in dict(told)[NOT_STAGED]

    run(story)


def test_one_image_that_hangs_or_fails_delays_no_other_and_is_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        staged = StagedHost(tmp_path)
        host = staged.host
        async with staged.running():
            host.vms.hung = {A}
            await staged.ask(f"{A} {B} {C}")
            await asyncio.sleep(5 * PULL_S)
            assert host.goldens.ready_images() == {B, C}
            host.vms.hung = set()
            host.vms.faults["pull"] = [broken(Refused)]
            await staged.ask(f"{A} {B} {C} {D}")
            await asyncio.sleep(3600)
            assert host.goldens.ready_images() == {A, B, C, D}
            assert NOT_STAGED in dict(await staged.told())

    run(story)


def test_a_staged_image_that_goes_missing_is_fetched_again(tmp_path: Path) -> None:
    async def story() -> None:
        staged = StagedHost(tmp_path)
        host = staged.host
        async with staged.running():
            await staged.ask(A)
            await asyncio.sleep(2 * PULL_S)
            del host.disk.vms[golden_name(A)]
            host.goldens.saw(await host.vms.inventory())
            assert host.goldens.ready_images() == set()
            await asyncio.sleep(600)
            assert host.goldens.ready_images() == {A}

    run(story)
