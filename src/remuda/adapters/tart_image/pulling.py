"""
Fetch a VM's files from a registry into a folder.

The folder is the caller's, and so is what becomes of it: nobody may boot from it before ``pull`` returned. A second try
into the same folder keeps the pieces of disk that are good.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from remuda.adapters.tart_image import manifest as manifests
from remuda.adapters.tart_image.apple_lz4 import Unpacker
from remuda.adapters.tart_image.disk import Disk, RangeWriter, usable
from remuda.adapters.tart_image.errors import BadImage
from remuda.adapters.tart_image.threads import in_thread
from remuda.control.tasks import ungrouped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from remuda.adapters.registry.client import Blob, FetchedManifest
    from remuda.adapters.registry.names import ImageName
    from remuda.adapters.tart_image.manifest import DiskLayer, TartManifest

CONFIG_FILE: Final = "config.json"
DISK_FILE: Final = "disk.img"
NVRAM_FILE: Final = "nvram.bin"
LAYERS_AT_ONCE: Final = 4
_KEPT_BYTES: Final = 16 * 1024 * 1024
"""More than the pieces of all layers that are on their way at once."""


class Source(Protocol):
    """Where blobs come from. ``RegistryClient`` is one."""

    def blob(
        self, image: ImageName, blob: Blob, take: Callable[[bytes], object]
    ) -> AsyncGenerator[int, None]:
        """Have a blob taken, maybe in a thread, but not when it is cancelled; give how many bytes came."""


class Progress(Protocol):
    """Is told how many bytes of an image are done, again and again: a pull that says nothing stands still."""

    def __call__(self, done_bytes: int, all_bytes: int, /) -> None: ...


def silent(_done_bytes: int, _all_bytes: int, /) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Pull:
    """One image on its way into one folder."""

    source: Source
    image: ImageName
    folder: Path
    progress: Progress = silent
    layers_at_once: int = LAYERS_AT_ONCE

    async def run(self, fetched: FetchedManifest) -> TartManifest:
        """Fetch everything. Raises BadImage, NoSpace, FolderUnusable, or what the registry raises."""
        manifest = manifests.read(str(self.image), fetched.raw)
        _keep_freed_memory()
        meter = _Meter(self.progress, manifest.download_bytes)
        await self._file(manifest.config, self.folder / CONFIG_FILE, meter)
        await self._file(manifest.nvram, self.folder / NVRAM_FILE, meter)
        with Disk(self.folder / DISK_FILE, manifest.disk_size) as disk:
            await self._layers(manifest, disk, meter)
            await in_thread(disk.sync)
        return manifest

    async def _file(self, blob: Blob, path: Path, meter: _Meter) -> None:
        content = bytearray()  # bounded: the manifest was read
        async with aclosing(self.source.blob(self.image, blob, content.extend)) as counts:
            async for count in counts:
                meter.add(count)
        await in_thread(_write, path, bytes(content))

    async def _layers(self, manifest: TartManifest, disk: Disk, meter: _Meter) -> None:
        waiting = iter(manifest.disk)

        async def worker() -> None:
            for layer in waiting:
                await self._layer(layer, disk, meter)

        async def all_workers() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(min(self.layers_at_once, len(manifest.disk))):
                    group.create_task(worker(), name=f"layer-{number}")

        await ungrouped(all_workers())

    async def _layer(self, layer: DiskLayer, disk: Disk, meter: _Meter) -> None:
        if disk.had_content and await _is_there(layer, disk):
            meter.add(layer.blob.size)
            return
        sink = _LayerSink(layer, disk)
        async with aclosing(self.source.blob(self.image, layer.blob, sink.feed)) as counts:
            async for count in counts:
                meter.add(count)
        await in_thread(sink.finish, str(self.image))


class _LayerSink:
    """Unpacks, checks and writes one layer. In a thread: none of it waits for the network."""

    def __init__(self, layer: DiskLayer, disk: Disk) -> None:
        self._layer = layer
        self._unpacker = Unpacker(raw_bytes=layer.raw_size)
        self._seen = hashlib.sha256()
        self._writer = RangeWriter(disk, layer.start)

    def feed(self, piece: bytes) -> None:
        for raw in self._unpacker.feed(piece):
            self._seen.update(raw)
            self._writer.write(raw)

    def finish(self, image: str) -> None:
        self._unpacker.finish()
        if f"sha256:{self._seen.hexdigest()}" != self._layer.raw_digest:
            why = f"a disk layer does not unpack to {self._layer.raw_digest}"
            raise BadImage(f"The image {image} cannot be used", why=why, fix="Push it again")
        self._writer.finish()


@dataclass(slots=True)
class _Meter:
    progress: Progress
    all_bytes: int
    done_bytes: int = 0

    def add(self, count: int) -> None:
        self.done_bytes += count
        self.progress(self.done_bytes, self.all_bytes)


def _keep_freed_memory() -> None:
    """
    Have the memory of a piece stay ours for the next one.

    The C library of Linux gives freed memory back to the system, which then has to find, clear and map each page anew,
    for every piece: a third of the system's time in a pull. It keeps as much as it has once seen freed at a time.
    """
    held = bytes(_KEPT_BYTES)  # never touched, so it costs nothing
    del held


async def _is_there(layer: DiskLayer, disk: Disk) -> bool:
    return await in_thread(disk.digest, layer.start, layer.raw_size) == layer.raw_digest


def _write(path: Path, content: bytes) -> None:
    """Write a small file anew; whatever stood there before is not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with usable(path, "written"):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
