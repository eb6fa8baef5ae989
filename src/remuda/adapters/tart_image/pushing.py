"""
Store a VM's files in a registry, as ``tart push`` does.

Layers are packed one after the other into a scratch file: a digest is needed before the first byte may go up. The VM
must not run meanwhile; that is the caller's to see to.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from remuda.adapters.registry.client import Blob, digest_of
from remuda.adapters.tart_image import manifest as manifests
from remuda.adapters.tart_image.apple_lz4 import pack
from remuda.adapters.tart_image.disk import usable
from remuda.adapters.tart_image.errors import FolderUnusable
from remuda.adapters.tart_image.manifest import CHUNK_BYTES, DiskLayer, Origin, TartManifest
from remuda.adapters.tart_image.pulling import CONFIG_FILE, DISK_FILE, NVRAM_FILE, Progress, silent
from remuda.adapters.tart_image.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from remuda.adapters.registry.names import ImageName

_PIECE_BYTES: Final = 4 * 1024 * 1024


class Store(Protocol):
    """Where blobs go. ``RegistryClient`` is one."""

    async def push_blob(self, image: ImageName, blob: Blob, content: Path | bytes) -> bool: ...

    async def push_manifest(self, image: ImageName, raw: bytes) -> str: ...


class _VmConfig(msgspec.Struct, frozen=True, rename="camel"):
    os: str = "darwin"
    arch: str = "arm64"
    disk_format: str = "raw"


@dataclass(frozen=True, slots=True)
class Push:
    """One folder on its way into one repository."""

    store: Store
    folder: Path
    images: tuple[ImageName, ...]
    """Names of one repository: the layers go up once."""
    uploaded: datetime
    progress: Progress = silent
    chunk_bytes: int = CHUNK_BYTES

    async def run(self) -> str:
        """Store everything and return the manifest's digest."""
        config = await in_thread(_read, self.folder / CONFIG_FILE)
        nvram = await in_thread(_read, self.folder / NVRAM_FILE)
        about = manifests.stub(_origin(self.folder / CONFIG_FILE, config))
        stub_blob = await self._small(about)
        config_blob = await self._small(config)
        disk = await self._disk()
        nvram_blob = await self._small(nvram)
        size = disk[-1].start + disk[-1].raw_size
        whole = TartManifest(config_blob, nvram_blob, disk, size)
        uploaded = self.uploaded.strftime("%Y-%m-%dT%H:%M:%SZ")
        raw = manifests.write(whole, stub_blob, uploaded)
        for image in self.images:
            await self.store.push_manifest(image, raw)
        return digest_of(raw)

    async def _small(self, content: bytes) -> Blob:
        blob = Blob(digest_of(content), len(content))
        await self.store.push_blob(self.images[0], blob, content)
        return blob

    async def _disk(self) -> tuple[DiskLayer, ...]:
        path = self.folder / DISK_FILE
        with usable(path, "read"):
            length = path.stat().st_size
        if not length:
            raise FolderUnusable(f"{path} cannot be pushed", why="it is empty", fix="Make the VM")
        layers = []
        with tempfile.TemporaryDirectory(prefix="remuda-push-") as scratch:
            for start in range(0, length, self.chunk_bytes):
                packed = Path(scratch) / "layer"
                layer = await in_thread(self._pack, packed, start, length)
                await self.store.push_blob(self.images[0], layer.blob, packed)
                layers.append(layer)
                self.progress(start + layer.raw_size, length)
        return tuple(layers)

    def _pack(self, into: Path, start: int, length: int) -> DiskLayer:
        raw_size = min(self.chunk_bytes, length - start)
        raw_seen, seen, size = hashlib.sha256(), hashlib.sha256(), 0

        def pieces() -> Iterator[bytes]:
            for piece in _range(self.folder / DISK_FILE, start, raw_size):
                raw_seen.update(piece)
                yield piece

        with usable(into, "written"), into.open("wb") as file:
            for block in pack(pieces()):
                seen.update(block)
                size += file.write(block)
        blob = Blob(f"sha256:{seen.hexdigest()}", size)
        return DiskLayer(blob, start, raw_size, f"sha256:{raw_seen.hexdigest()}")


def _origin(path: Path, config: bytes) -> Origin:
    try:
        said = msgspec.json.decode(config, type=_VmConfig)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FolderUnusable(f"{path} cannot be read", why=str(error), fix="Mend it") from None
    return Origin(said.arch, said.os, said.disk_format)


def _read(path: Path) -> bytes:
    with usable(path, "read"):
        return path.read_bytes()


def _range(path: Path, start: int, length: int) -> Iterator[bytes]:
    with usable(path, "read"), path.open("rb") as file:
        file.seek(start, os.SEEK_SET)
        while length:
            piece = file.read(min(length, _PIECE_BYTES))
            if not piece:
                why = "it became shorter while it was read"
                raise FolderUnusable(f"{path} cannot be read", why=why, fix="Stop the VM first")
            length -= len(piece)
            yield piece
