"""
The manifest of a Tart image: what it is made of, and how large it becomes.

Pure. ``read`` takes nothing on trust: what it returns adds up, is bounded, and names digests only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from remuda.adapters.registry.client import MANIFEST, Blob
from remuda.adapters.registry.names import is_digest
from remuda.adapters.tart_image.errors import BadImage

CONFIG: Final = "application/vnd.cirruslabs.tart.config.v1"
DISK: Final = "application/vnd.cirruslabs.tart.disk.v2"
NVRAM: Final = "application/vnd.cirruslabs.tart.nvram.v1"
STUB: Final = "application/vnd.oci.image.config.v1+json"
_OLD_DISK: Final = "application/vnd.cirruslabs.tart.disk.v1"
_DISK_SIZE: Final = "org.cirruslabs.tart.uncompressed-disk-size"
_UPLOADED: Final = "org.cirruslabs.tart.upload-time"
_RAW_SIZE: Final = "org.cirruslabs.tart.uncompressed-size"
_RAW_DIGEST: Final = "org.cirruslabs.tart.uncompressed-content-digest"
_FORMAT: Final = "org.cirruslabs.tart.disk.format"

CONFIG_MAX_BYTES: Final = 1024 * 1024
NVRAM_MAX_BYTES: Final = 256 * 1024 * 1024
CHUNK_BYTES: Final = 512 * 1024 * 1024
"""How much of a disk goes into one layer."""
DISK_MAX_BYTES: Final = 4 * 1024**4
_LAYERS_MAX: Final = DISK_MAX_BYTES // CHUNK_BYTES + 2
_NUMBER_MAX_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class DiskLayer:
    """A piece of the disk."""

    blob: Blob
    start: int
    raw_size: int
    raw_digest: str


@dataclass(frozen=True, slots=True)
class TartManifest:
    """What an image is made of."""

    config: Blob
    nvram: Blob
    disk: tuple[DiskLayer, ...]
    disk_size: int

    @property
    def download_bytes(self) -> int:
        return self.config.size + self.nvram.size + sum(layer.blob.size for layer in self.disk)


class _Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    media_type: Annotated[str, Meta(max_length=200)]
    digest: Annotated[str, Meta(max_length=100)]
    size: Annotated[int, Meta(ge=0)]
    annotations: dict[str, str] = {}

    @property
    def blob(self) -> Blob:
        return Blob(self.digest, self.size)


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int
    layers: Annotated[list[_Descriptor], Meta(max_length=_LAYERS_MAX)]
    annotations: dict[str, str] = {}


def read(image: str, raw: bytes) -> TartManifest:
    """Read a manifest. Raises BadImage if it is none of Tart's."""
    try:
        body = msgspec.json.decode(raw, type=_Body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _bad(image, f"its manifest cannot be read ({str(error)[:200]})") from None
    layers = body.layers
    for layer in layers:
        if not is_digest(layer.digest):
            raise _bad(image, f"a layer's digest is {layer.digest!r}")
        if layer.media_type == _OLD_DISK:
            raise _bad(image, "its disk is in the first format, which nothing reads any more")
    config = _only(image, layers, CONFIG, CONFIG_MAX_BYTES)
    nvram = _only(image, layers, NVRAM, NVRAM_MAX_BYTES)
    disk = _disk(image, [layer for layer in layers if layer.media_type == DISK])
    size = disk[-1].start + disk[-1].raw_size
    if _number(image, body.annotations, _DISK_SIZE, DISK_MAX_BYTES) not in {None, size}:
        raise _bad(image, f"its layers are {size} bytes of disk, which is not what it says")
    return TartManifest(config, nvram, disk, size)


def _only(image: str, layers: list[_Descriptor], media_type: str, max_bytes: int) -> Blob:
    found = [layer for layer in layers if layer.media_type == media_type]
    if len(found) != 1:
        raise _bad(image, f"it has {len(found)} layers of type {media_type}")
    if found[0].size > max_bytes:
        raise _bad(image, f"its {media_type} is {found[0].size} bytes")
    return found[0].blob


def _disk(image: str, layers: list[_Descriptor]) -> tuple[DiskLayer, ...]:
    if not layers:
        raise _bad(image, "it has no disk")
    made: list[DiskLayer] = []
    start = 0
    for layer in layers:
        raw_size = _number(image, layer.annotations, _RAW_SIZE, CHUNK_BYTES)
        raw_digest = layer.annotations.get(_RAW_DIGEST, "")
        if not raw_size or not is_digest(raw_digest):
            raise _bad(image, "a disk layer does not say what it unpacks to")
        # Each block has a header, and what cannot be packed grows a little; more is no honest layer.
        if layer.size > raw_size + raw_size // 64 + 64 * 1024:
            raise _bad(image, f"a disk layer of {raw_size} bytes is packed into {layer.size}")
        made.append(DiskLayer(layer.blob, start, raw_size, raw_digest))
        start += raw_size
    return tuple(made)


def _number(image: str, annotations: dict[str, str], name: str, maximum: int) -> int | None:
    text = annotations.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_MAX_DIGITS):
        raise _bad(image, f"its {name} is {text[:50]!r}")
    if int(text) > maximum:
        raise _bad(image, f"its {name} is {text}, more than {maximum}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the stub config says about the VM. Nobody boots by it; registries show it."""

    architecture: str
    os: str
    disk_format: str = "raw"


def stub(origin: Origin) -> bytes:
    """Write the image config that the OCI rules ask for."""
    labels = {_FORMAT: origin.disk_format}
    body = {"architecture": origin.architecture, "os": origin.os, "config": {"Labels": labels}}
    return msgspec.json.encode(body, order="sorted")


def write(manifest: TartManifest, stub_blob: Blob, uploaded: str) -> bytes:
    """Write a manifest: config, disk in order, nvram."""
    layers = [
        _descriptor(CONFIG, manifest.config),
        *(_disk_descriptor(layer) for layer in manifest.disk),
        _descriptor(NVRAM, manifest.nvram),
    ]
    body = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(STUB, stub_blob),
        "layers": layers,
        "annotations": {_DISK_SIZE: str(manifest.disk_size), _UPLOADED: uploaded},
    }
    return msgspec.json.encode(body, order="sorted")


def _descriptor(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": blob.digest, "size": blob.size}


def _disk_descriptor(layer: DiskLayer) -> dict[str, Any]:
    said = {_RAW_SIZE: str(layer.raw_size), _RAW_DIGEST: layer.raw_digest}
    return {**_descriptor(DISK, layer.blob), "annotations": said}


def _bad(image: str, why: str) -> BadImage:
    fix = "Name an image that `tart push` made"
    return BadImage(f"The image {image} cannot be used", why=why, fix=fix)
