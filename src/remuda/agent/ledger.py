"""
The agent's records for the loop: read from memory, written on a thread of their own, durable when ``await`` returns.

Writes of one Pod follow one another; nobody waits for another Pod's longer than the disk takes.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.agent.decide.recorded import ImageRecord, VmRecord
    from remuda.agent.record import RecordFolder, Unreadable

T = TypeVar("T")


class Threads(Protocol):
    """Runs what blocks. Tests on virtual time run it on the spot."""

    async def __call__(self, blocking: Callable[[], T], /) -> T: ...


class OneThread:
    """One thread for one folder: what comes first is done first."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def __call__(self, blocking: Callable[[], T], /) -> T:
        doing = asyncio.get_running_loop().run_in_executor(self._pool, blocking)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            # What has begun ends before anybody goes on: whoever looks next must see it.
            await asyncio.wait({doing})
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True)


async def on_the_spot(blocking: Callable[[], T], /) -> T:
    """Run it here and now: for virtual time."""
    return blocking()


class Ledger:
    """All records of this host. What it says is what the disk has."""

    def __init__(self, folder: RecordFolder, threads: Threads) -> None:
        self._folder, self._threads = folder, threads
        self._vms = {record.pod_uid: record for record in folder.found.vms}
        self._images = {record.image: record for record in folder.found.images}
        self._unreadable = {bad.pod_uid: bad for bad in folder.found.unreadable if bad.pod_uid}
        self._handlers: list[Callable[[], None]] = []

    # --- VMs ---

    def get(self, pod_uid: str) -> VmRecord | None:
        return self._vms.get(pod_uid)

    def unreadable(self, pod_uid: str) -> Unreadable | None:
        return self._unreadable.get(pod_uid)

    def vms(self) -> tuple[VmRecord, ...]:
        return tuple(self._vms.values())

    @property
    def damaged(self) -> tuple[Unreadable, ...]:
        """Every file that cannot be read, also of images and of nobody."""
        return self._folder.found.unreadable

    async def write(self, record: VmRecord) -> None:
        """Make it durable; then the step that it stands for may be taken. Raises RecordFailed."""

        def write() -> None:
            self._folder.write(record)
            self._vms[record.pod_uid] = record

        await self._threads(write)

    async def forget(self, pod_uid: str) -> None:
        def forget() -> None:
            self._folder.forget(pod_uid)
            self._vms.pop(pod_uid, None)

        await self._threads(forget)

    # --- images ---

    def on_image(self, handler: Callable[[], None]) -> None:
        """Have a handler told whenever the record of an image was written or removed. It must not wait."""
        self._handlers.append(handler)

    def image(self, image: str) -> ImageRecord | None:
        return self._images.get(image)

    def images(self) -> tuple[ImageRecord, ...]:
        return tuple(self._images.values())

    async def write_image(self, record: ImageRecord) -> None:
        def write() -> None:
            self._folder.write_image(record)
            self._images[record.image] = record

        await self._threads(write)
        self._tell()

    async def forget_image(self, image: str) -> None:
        def forget() -> None:
            self._folder.forget_image(image)
            self._images.pop(image, None)

        await self._threads(forget)
        self._tell()

    def _tell(self) -> None:
        for handler in self._handlers:
            handler()
