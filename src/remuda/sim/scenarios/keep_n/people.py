"""Those who use the herd: an owner who changes its mind, and riders who must not be thrown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.kube.patches import MergePatch
from remuda.ports.kube import AlreadyExists, KubeError, Query, Seen
from remuda.sim.scenarios.keep_n.things import CONFIG_MAP, HORSE_LABEL, NAMESPACE, ConfigMap, a_herd
from remuda.sim.trace import because

if TYPE_CHECKING:
    import asyncio

    from remuda.sim.world import Process

LOOK_S = 10.0
LOOK_WHEN_OVER_S = 60.0


class Owner:
    """Makes a herd, then now and then re-brands it or loses a horse of it."""

    def __init__(self, process: Process, over: asyncio.Event, copies: int) -> None:
        self._process = process
        self._over = over
        self._copies = copies

    async def run(self) -> None:
        await self._make_herd()
        brand = 1
        while True:
            await self._process.clock.sleep(20.0 + 60.0 * self._process.ids.fraction())
            if self._over.is_set():
                continue
            try:
                if self._process.ids.fraction() < 0.5:  # noqa: PLR2004 - one or the other
                    brand += 1
                    await self._rebrand(f"{self._process.life}.{brand}")
                else:
                    await self._lose_a_horse()
            except KubeError:
                continue  # whatever became of it: the controller must cope

    async def _make_herd(self) -> None:
        while True:
            try:
                await self._process.kube.create(
                    CONFIG_MAP, a_herd("herd", copies=self._copies, brand="1.1")
                )
            except AlreadyExists:
                return
            except KubeError:
                await self._process.clock.sleep(1.0)
            else:
                return

    async def _rebrand(self, brand: str) -> None:
        trace = self._process.link.trace
        trace.note(self._process.name, "rebrand", f"configmaps/{NAMESPACE}/herd", brand)
        patch = MergePatch({"data": {"brand": brand}})
        with because("the owner wants another brand"):
            await self._process.kube.patch(CONFIG_MAP, "herd", patch, namespace=NAMESPACE)

    async def _lose_a_horse(self) -> None:
        horses = await self._process.kube.list(
            CONFIG_MAP, Query(namespace=NAMESPACE, labels=HORSE_LABEL)
        )
        idle = [horse for horse in horses.items if not horse.rider]
        if not idle:
            return
        horse = self._process.ids.random.choice(idle)
        with because("it ran away"):
            await self._process.kube.delete(
                CONFIG_MAP,
                horse.name,
                namespace=NAMESPACE,
                seen=Seen(uid=horse.uid, resource_version=horse.resource_version),
            )


class Rider:
    """Takes an idle horse, rides it for a while, and gives it back, whatever happens in between."""

    def __init__(self, process: Process, over: asyncio.Event) -> None:
        self._process = process
        self._over = over

    async def run(self) -> None:
        while True:
            try:
                await self._once()
            except KubeError:
                await self._process.clock.sleep(1.0)  # an outcome is unknown: begin with a look

    async def _once(self) -> None:
        process = self._process
        horses = await process.kube.list(CONFIG_MAP, Query(namespace=NAMESPACE, labels=HORSE_LABEL))
        # A call of an earlier life may have been carried out after that life ended.
        for horse in horses.items:
            if horse.rider == process.name:
                await self._set_rider(horse, None, "the ride is over")
        idle = [horse for horse in horses.items if not horse.rider]
        if self._over.is_set() or not idle:
            await process.clock.sleep(LOOK_WHEN_OVER_S if self._over.is_set() else LOOK_S)
            return
        horse = process.ids.random.choice(idle)
        await self._set_rider(horse, process.name, "it is idle")
        await process.clock.sleep(5.0 + 40.0 * process.ids.fraction())

    async def _set_rider(self, horse: ConfigMap, rider: str | None, why: str) -> None:
        patch = MergePatch(
            {"metadata": {"resourceVersion": horse.resource_version}, "data": {"rider": rider}}
        )
        with because(why):
            await self._process.kube.patch(CONFIG_MAP, horse.name, patch, namespace=NAMESPACE)
