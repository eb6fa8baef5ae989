"""What an agent calls, with a point before and after each call at which its life may end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from remuda.agent.mailbox import HostMailbox
from remuda.ports.vms import TimedOut
from tests.support.memory_vms import Disk, MemoryVms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from remuda.ports.vms import Abilities, Inventory, PullProgress, SeenVm, VmShape
    from remuda.ports.wire import Request, Response, Wire, WireStream
    from remuda.sim.clock import SimClock

T = TypeVar("T")

HUNG_S = 30.0


class Killed(BaseException):
    """The agent is no more: not an error that it could handle."""


class Life:
    """One life of an agent, and when it ends."""

    def __init__(self, ends_at: int | None = None, *, gently: bool = False) -> None:
        self.ends_at, self.gently = ends_at, gently
        self.cancel: Callable[[], object] = lambda: None
        """Tells the agent to stop, for a gentle end."""
        self.points: list[str] = []
        self.is_over = False

    def point(self, what: str) -> None:
        """Pass a point; the one at which it ends is not passed, nor is any later one."""
        if self.is_over and not self.gently:
            raise Killed(what)
        self.points.append(what)
        if self.is_over or self.ends_at is None or len(self.points) <= self.ends_at:
            return
        self.is_over = True
        if not self.gently:
            raise Killed(what)
        self.cancel()

    async def around(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        self.point(f"before {what}")
        answer = await call()
        self.point(f"after {what}")
        return answer


class CountingVms(MemoryVms):
    """VMs that count their boots, and can hang."""

    def __init__(self, disk: Disk, folder: Path, clock: SimClock) -> None:
        super().__init__(disk, folder, clock)
        self.clock = clock
        self.boots: Counter[str] = Counter()
        self.pulls: Counter[str] = Counter()
        self.hangs: set[tuple[str, str]] = set()
        """Which calls hang on which VM, by their names; the empty name: on every one."""
        self.fails: dict[str, Exception] = {}
        """Which calls raise what, once."""

    async def trouble(self, op: str, name: str) -> None:
        if error := self.fails.pop(op, None):
            raise error
        if {(op, name), (op, "")} & self.hangs:
            await self.clock.sleep(HUNG_S)
            raise TimedOut(f"{op} of {name} was killed", why="it hung", fix="Look", op=op)

    async def run(self, name: str) -> None:
        await super().run(name)
        self.boots[name] += 1

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        await self.clock.sleep(3.0)
        self.pulls[image] += 1
        await super().pull(image, progress)


class MortalVms:
    """The host's VMs, as one life of an agent calls them."""

    def __init__(self, inner: CountingVms, life: Life) -> None:
        self._inner, self._life = inner, life

    @property
    def abilities(self) -> Abilities:
        return self._inner.abilities

    async def _do(self, op: str, name: str, call: Callable[[], Awaitable[T]]) -> T:
        async def troubled() -> T:
            await self._inner.trouble(op, name)
            return await call()

        return await self._life.around(f"{op} {name}", troubled)

    async def inventory(self) -> Inventory:
        return await self._do("list", "", self._inner.inventory)

    def running(self) -> frozenset[str] | None:
        return self._inner.running()

    async def observe(self, name: str) -> SeenVm | None:
        return await self._do("get", name, lambda: self._inner.observe(name))

    async def image_bytes(self, image: str) -> int | None:
        return await self._inner.image_bytes(image)

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        await self._do("pull", image, lambda: self._inner.pull(image, progress))

    async def make_golden(self, image: str, golden: str) -> None:
        await self._do("golden", golden, lambda: self._inner.make_golden(image, golden))

    async def drop_image(self, image: str) -> None:
        await self._do("drop", image, lambda: self._inner.drop_image(image))

    async def clone(self, golden: str, name: str) -> None:
        await self._do("clone", name, lambda: self._inner.clone(golden, name))

    async def shape(self, name: str, shape: VmShape) -> None:
        await self._do("set", name, lambda: self._inner.shape(name, shape))

    async def run(self, name: str) -> None:
        await self._do("run", name, lambda: self._inner.run(name))

    async def stop(self, name: str, *, grace_s: float) -> None:
        await self._do("stop", name, lambda: self._inner.stop(name, grace_s=grace_s))

    async def delete(self, name: str) -> None:
        await self._do("delete", name, lambda: self._inner.delete(name))

    async def guest_disk_used(self, name: str) -> float | None:
        return await self._inner.guest_disk_used(name)

    def mailbox(self, name: str) -> Path:
        return self._inner.mailbox(name)

    def log_file(self, name: str) -> Path:
        return self._inner.log_file(name)


class MortalWire:
    """The way to the API server, for one life."""

    def __init__(self, inner: Wire, life: Life) -> None:
        self._inner, self._life = inner, life

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        what = f"{request.method} {request.path}"
        return await self._life.around(what, lambda: self._inner.send(request, timeout_s=timeout_s))

    def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AbstractAsyncContextManager[WireStream]:
        return self._inner.stream(
            request, connect_timeout_s=connect_timeout_s, idle_timeout_s=idle_timeout_s
        )

    async def close(self) -> None:
        await self._inner.close()


class MortalMailbox(HostMailbox):
    """A mailbox whose changes are points."""

    life: Life

    def __init__(self, folder: Path, life: Life, sync: Callable[[int], None]) -> None:
        super().__init__(folder, sync=sync)
        self.life = life

    def make(self) -> None:
        self.life.point("before make mailbox")
        super().make()
        self.life.point("after make mailbox")

    def put_job(self, document: bytes) -> None:
        self.life.point("before put job")
        super().put_job(document)
        self.life.point("after put job")

    def put_stop(self) -> None:
        self.life.point("before put stop")
        super().put_stop()
        self.life.point("after put stop")

    def take_job_back(self) -> None:
        self.life.point("before take job")
        super().take_job_back()
        self.life.point("after take job")

    def remove(self) -> None:
        self.life.point("before remove mailbox")
        super().remove()
        self.life.point("after remove mailbox")
