"""From a Pod to a VM that runs: the finalizer, the disk, the boot. A disk boots once, whatever happens on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.decide.capacity import shape_of
from remuda.agent.decide.recorded import ImageState, State, VmRecord
from remuda.agent.decide.shown import Waits
from remuda.agent.decide.verdict import failed
from remuda.agent.known_pods import vm_container
from remuda.control.backoff import spread
from remuda.ports.vms import (
    Ending,
    HostUnfit,
    NoSlot,
    NotThere,
    Power,
    Refused,
    RunEnd,
    SeenVm,
    VmsError,
)

if TYPE_CHECKING:
    from remuda.agent.care import Care, Sight, Tools
    from remuda.kube.core import Container

log = structlog.get_logger(__name__)

SLOT_S: Final = 2.0
"""How often to ask again for a slot, beside being told that one is free."""


class Making:
    """The steps until a VM runs."""

    def __init__(self, tools: Tools) -> None:
        self._tools, self._parts = tools, tools.parts

    async def hold(self, care: Care, sight: Sight) -> None:
        care.is_in("waiting", self._parts.clock.monotonic())
        await self._tools.publisher.hold(sight.known_pod())

    async def clone(self, care: Care, sight: Sight) -> None:
        """Write CLONING, fetch, clone, shape, write CLONED."""
        vms, clock = self._parts.vms, self._parts.clock
        container = _container(sight)
        image = container.image
        record = await self._cloning(care, sight, image)
        try:
            async with self._parts.shelf.using(image, self._fetching(care, image)) as golden:
                care.is_in("cloning", clock.monotonic())
                self._tools.say(care, "CreatingVM", f"Creating the VM {care.vm} from {image}")
                self._tools.show(care, Waits("CreatingVM"))
                await vms.clone(golden, care.vm)
                await vms.shape(care.vm, shape_of(container.resources))
        except Refused as error:
            verdict = failed("VMRefused", f"{error.what}: {error.why}", clock.now())
            await self._tools.over(care, record, verdict)
            return
        await self._tools.write(care, replace(record, state=State.CLONED))
        care.just_seen = SeenVm(name=care.vm, power=Power.STOPPED)

    async def clone_again(self, care: Care, _sight: Sight) -> None:
        """Delete a disk that may be half of one and has never booted."""
        try:
            await self._parts.vms.delete(care.vm)
        except NotThere:
            log.debug("a half cloned VM was gone already", vm=care.vm)

    async def start(self, care: Care, sight: Sight) -> None:
        """Wait for a slot, make the mailbox, write STARTED, run: once."""
        record, slots = sight.known_record(), self._tools.slots
        await self._slot(care)
        try:
            self._tools.mailbox(care.uid).make()
            started_at = self._parts.clock.now()
            record = replace(record, state=State.STARTED, started_at=started_at)
            await self._tools.write(care, record)
        except BaseException:
            known = self._parts.ledger.get(care.uid)
            if known is None or known.state is not State.STARTED:
                slots.release(care.vm)
            raise
        await self._run(care, record)

    async def _cloning(self, care: Care, sight: Sight, image: str) -> VmRecord:
        pod, clock = sight.known_pod(), self._parts.clock
        if care.began_at is None:
            care.began_at = clock.monotonic()
            held = self._parts.ledger.image(image)
            care.warm = held is not None and held.state is ImageState.READY
        if sight.record is not None:
            # The image of a Pod may be changed; which golden a disk is made from must be written down before it is.
            record = replace(sight.record, state=State.CLONING, image=image)
            return record if record == sight.record else await self._tools.write(care, record)
        now = clock.now()
        if created := pod.metadata.creation_timestamp:
            delay_s = max(0.0, (now - created).total_seconds())
            self._parts.metrics.provision_delay.observe(delay_s)
        record = VmRecord(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            pod=pod.name,
            image=image,
            state=State.CLONING,
            accepted_at=now,
        )
        return await self._tools.write(care, record)

    def _fetching(self, care: Care, image: str) -> _Fetching:
        return _Fetching(self._tools, care, image)

    async def _slot(self, care: Care) -> None:
        slots, clock = self._tools.slots, self._parts.clock
        while not await slots.take(care.vm):
            care.is_in("waiting", clock.monotonic())
            why = "The host runs as many VMs as it can; it starts when one of them has ended"
            self._tools.say(care, "WaitingForSlot", why)
            self._tools.show(care, Waits("WaitingForSlot", why))
            slots.freed.clear()
            try:
                async with asyncio.timeout(spread(SLOT_S, self._parts.ids.fraction())):
                    await slots.freed.wait()
            except TimeoutError:
                continue

    async def _run(self, care: Care, record: VmRecord) -> None:
        clock, metrics = self._parts.clock, self._parts.metrics
        care.is_in("booting", clock.monotonic())
        care.ran_at = clock.monotonic()
        try:
            await self._parts.vms.run(care.vm)
        except NoSlot as error:
            # It is written down as started, so it never will be: another Pod has to take its place.
            self._tools.slots.release(care.vm)
            self._tools.slots.full()
            await self._tools.over(care, record, failed("NoSlot", error.why, clock.now()))
            return
        except VmsError as error:
            if isinstance(error, HostUnfit):
                self._tools.slots.cannot_run(error)
            # It may run all the same. The next look tells; if it does not, this is why.
            care.run_end = RunEnd(how=Ending.NEVER_BOOTED, why=f"{error.what}: {error.why}")
            log.warning("a VM could not be started", vm=care.vm, error=str(error))
            return
        if care.began_at is not None:
            path = "warm" if care.warm else "cold"
            metrics.provision.labels(path).observe(clock.monotonic() - care.began_at)
        self._tools.slots.can_run()
        care.just_seen = SeenVm(name=care.vm, power=Power.RUNNING)


class _Fetching:
    """Told by the shelf that and how far an image is being fetched."""

    def __init__(self, tools: Tools, care: Care, image: str) -> None:
        self._tools, self._care, self._image = tools, care, image

    def __call__(self, sentence: str) -> None:
        self._care.is_in("pulling", self._tools.parts.clock.monotonic())
        self._tools.say(self._care, "PullingImage", sentence)
        self._tools.show(self._care, Waits("PullingImage", sentence))


def _container(sight: Sight) -> Container:
    container = vm_container(sight.known_pod())
    assert container is not None, "only Pods that ask for a VM are cared for"
    return container
