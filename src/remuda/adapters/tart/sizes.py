"""How much disk an image will take, asked of its registry before a byte of it is fetched."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from remuda.adapters.registry.auth import Credentials
from remuda.adapters.registry.client import RegistryClient
from remuda.adapters.registry.wire import RegistrySettings
from remuda.adapters.tart_image import manifest
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from remuda.adapters.registry.names import ImageName
    from remuda.adapters.tart.settings import TartSettings
    from remuda.adapters.tart_image.manifest import TartManifest
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

_HOLE: Final = 200
"""A layer that packs better than this is zeros, and zeros are not written to the disk."""


async def fetched_manifest(
    image: ImageName, settings: TartSettings, clock: Clock, ids: Ids
) -> TartManifest | None:
    """Return what an image is made of; None: it cannot be asked for now. Whoever pulls it will say why."""
    known = settings.env.get("TART_REGISTRY_HOSTNAME", image.host) == image.host
    username = settings.env.get("TART_REGISTRY_USERNAME", "") if known else ""
    password = settings.env.get("TART_REGISTRY_PASSWORD", "")
    client = RegistryClient(
        RegistrySettings(
            plain_hosts=frozenset({image.host}) if settings.insecure else frozenset(),
            credentials={image.host: Credentials(username, password)} if username else {},
            tries=2,
        ),
        clock,
        ids,
    )
    try:
        async with asyncio.timeout(settings.deadlines.get):
            found = await client.manifest(image)
        return manifest.read(str(image), found.raw)
    except (RemudaError, TimeoutError):
        return None
    finally:
        await client.close()


def disk_bytes(found: TartManifest) -> int:
    """Return what an image takes on the disk, at most."""
    layers = (layer for layer in found.disk if layer.blob.size * _HOLE > layer.raw_size)
    return found.config.size + found.nvram.size + sum(layer.raw_size for layer in layers)
