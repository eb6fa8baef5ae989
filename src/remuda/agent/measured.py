"""A driver whose calls are timed and counted, and that is otherwise the driver itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from remuda.agent.metrics import OPS
from remuda.ports.vms import NotThere, TimedOut, VmsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from remuda.agent.metrics import AgentMetrics
    from remuda.ports.clock import Clock
    from remuda.ports.vms import Abilities, Inventory, PullProgress, SeenVm, Vms, VmShape


_OF_THE_HOST: Final = frozenset({"list", "drop", "exec"})
"""What is asked for the sake of the host: what is on it, what may go, how full its guests are."""


class MeasuredVms:
    """
    Implements ``Vms`` by another one.

    A call that was cancelled says nothing about the host and is not counted. "Not there" is an answer, not a failure.
    """

    def __init__(
        self,
        vms: Vms,
        metrics: AgentMetrics,
        clock: Clock,
        *,
        host_stuck: Callable[[TimedOut], None] = lambda _: None,
    ) -> None:
        self._vms, self._metrics, self._clock = vms, metrics, clock
        self._host_stuck = host_stuck
        """Told of a call that hung and was for no Pod in particular: nobody else has whom to tell."""

    @property
    def abilities(self) -> Abilities:
        return self._vms.abilities

    async def inventory(self) -> Inventory:
        with self._measured("list"):
            return await self._vms.inventory()

    def running(self) -> frozenset[str] | None:
        return self._vms.running()

    async def observe(self, name: str) -> SeenVm | None:
        with self._measured("get"):
            return await self._vms.observe(name)

    async def image_bytes(self, image: str) -> int | None:
        # It asks a registry, not the host: a slow one must not look like a slow driver.
        return await self._vms.image_bytes(image)

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        with self._measured("pull"):
            await self._vms.pull(image, progress)

    async def make_golden(self, image: str, golden: str) -> None:
        with self._measured("golden"):
            await self._vms.make_golden(image, golden)

    async def drop_image(self, image: str) -> None:
        with self._measured("drop"):
            await self._vms.drop_image(image)

    async def clone(self, golden: str, name: str) -> None:
        with self._measured("clone"):
            await self._vms.clone(golden, name)

    async def shape(self, name: str, shape: VmShape) -> None:
        with self._measured("set"):
            await self._vms.shape(name, shape)

    async def run(self, name: str) -> None:
        with self._measured("run"):
            await self._vms.run(name)

    async def stop(self, name: str, *, grace_s: float) -> None:
        with self._measured("stop"):
            await self._vms.stop(name, grace_s=grace_s)

    async def delete(self, name: str) -> None:
        with self._measured("delete"):
            await self._vms.delete(name)

    async def guest_disk_used(self, name: str) -> float | None:
        with self._measured("exec"):
            return await self._vms.guest_disk_used(name)

    def mailbox(self, name: str) -> Path:
        return self._vms.mailbox(name)

    def log_file(self, name: str) -> Path:
        return self._vms.log_file(name)

    @contextmanager
    def _measured(self, op: str) -> Iterator[None]:
        began = self._clock.monotonic()
        try:
            yield
        except NotThere:
            self._took(op, began)
            raise
        except VmsError as error:
            self._took(op, began)
            self._metrics.failures.labels(op).inc()
            if isinstance(error, TimedOut):
                # One call of ours may be several of the driver's: it knows which of them hung.
                self._metrics.timeouts.labels(error.op if error.op in OPS else op).inc()
                if op in _OF_THE_HOST:
                    self._host_stuck(error)
            raise
        else:
            self._took(op, began)

    def _took(self, op: str, began: float) -> None:
        self._metrics.op.labels(op).observe(self._clock.monotonic() - began)
