"""pull and push: images from a registry and to it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
from typing import TYPE_CHECKING

from remuda.adapters.registry.auth import Credentials
from remuda.adapters.registry.client import RegistryClient
from remuda.adapters.registry.errors import ImageNotFound, NotAllowed
from remuda.adapters.registry.wire import RegistrySettings
from remuda.adapters.system import SystemClock, SystemIds
from remuda.adapters.tart_image.errors import NoSpace
from remuda.adapters.tart_image.pulling import Pull
from remuda.adapters.tart_image.pushing import Push
from remuda.model.errors import RemudaError
from tests.support.tart.cache import KEPT, Cache
from tests.support.tart.cloning import image_of
from tests.support.tart.failures import TartError, is_running
from tests.support.tart.faults import NO_SPACE, Desk
from tests.support.tart.home import copy_sparse, remove
from tests.support.tart.locks import folder_lock
from tests.support.tart.moments import pause
from tests.support.tart.vms import FILES, Vm

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Iterator

    from remuda.adapters.registry.names import ImageName
    from tests.support.tart.home import Home

_STALL_AT = 0.5


def pull_(home: Home, desk: Desk, asked: argparse.Namespace) -> None:
    if "/" not in asked.name:
        _say(f'"{asked.name}" is a local image, there\'s no need to pull it!')
        return
    fetch(home, desk, image_of(asked.name), asked)


def fetch(home: Home, desk: Desk, image: ImageName, asked: argparse.Namespace) -> None:
    cache = Cache(home.images)
    host = cache.path(image).relative_to(home.images).parts[0]
    (home.images / host).mkdir(exist_ok=True)
    with folder_lock(home.images / host, waiting="waiting for lock..."), _told():
        asyncio.run(_fetch(home, desk, image, asked))


async def _fetch(home: Home, desk: Desk, image: ImageName, asked: argparse.Namespace) -> None:
    cache = Cache(home.images)
    async with _client(image, asked) as client:
        _say(f"pulling {image}...")
        fetched = await client.manifest(image)
        target = cache.path(image.at(fetched.digest))
        target.parent.mkdir(parents=True, exist_ok=True)
        if not Vm("", target).initialized:
            # Named after the image: another try finds what this one leaves, unless tmp was cleaned between.
            key = hashlib.md5(str(image).encode(), usedforsecurity=False).hexdigest()
            scratch = home.tmp / key
            scratch.mkdir(exist_ok=True)
            with folder_lock(scratch):
                desk.note("fetching", vm=str(image))
                pull = Pull(client, image, scratch, _progress(desk, str(image)), asked.concurrency)
                await pull.run(fetched)
                (scratch / "manifest.json").write_bytes(fetched.raw)
                if target.exists():
                    remove(target)
                scratch.rename(target)
        else:
            _say(f"{image} image is already cached and linked!")
    if image.has_digest:
        (target / KEPT).touch()
        cache.collect()
    else:
        cache.link(image, fetched.digest)


def _progress(desk: Desk, name: str) -> Callable[[int, int], None]:
    said = -1

    def tell(done: int, whole: int) -> None:
        nonlocal said
        percent = 100 * done // max(1, whole)
        if percent != said:
            said = percent
            _say(f"{percent}%")
        if done < _STALL_AT * whole:
            return
        if fault := desk.take("pull", name, "stall"):
            pause(fault.seconds or 1_000_000)

    return tell


def push_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    vm = home.open_local(asked.name)
    if vm.pid():
        raise is_running(asked.name)
    # Tart takes the VM's lock here and loses it at once, by reading config.json: so a push protects nothing.
    images = [image_of(text) for text in asked.images]
    with _told():
        for repository in sorted({(image.host, image.repository) for image in images}):
            names = tuple(i for i in images if (i.host, i.repository) == repository)
            asyncio.run(_store(vm, names, asked))
    if asked.populate_cache:
        for image in images:
            _populate(home, vm, image, asked)


async def _store(vm: Vm, names: tuple[ImageName, ...], asked: argparse.Namespace) -> None:
    async with _client(names[0], asked) as client:
        _say(f"pushing {vm.name} to {', '.join(map(str, names))}...")
        push = Push(client, vm.folder, names, SystemClock().now(), lambda *_: None)
        await push.run()


def _populate(home: Home, vm: Vm, image: ImageName, asked: argparse.Namespace) -> None:
    """Have the image cached without fetching it: its files are here."""
    cache = Cache(home.images)
    digest = asyncio.run(_digest(image, asked))
    target = cache.path(image.at(digest))
    if not target.exists():
        target.mkdir(parents=True)
        for name in FILES:
            copy_sparse(vm.folder / name, target / name)
    if not image.has_digest:
        cache.link(image, digest)


async def _digest(image: ImageName, asked: argparse.Namespace) -> str:
    async with _client(image, asked) as client:
        return (await client.manifest(image)).digest


@contextlib.asynccontextmanager
async def _client(image: ImageName, asked: argparse.Namespace) -> AsyncIterator[RegistryClient]:
    settings = RegistrySettings(
        plain_hosts=frozenset({image.host}) if asked.insecure else frozenset(),
        credentials=_credentials(image.host),
        upload_chunk_bytes=getattr(asked, "chunk_size", 0) * 1_000_000,
    )
    client = RegistryClient(settings, SystemClock(), SystemIds())
    try:
        yield client
    finally:
        await client.close()


def _credentials(host: str) -> dict[str, Credentials]:
    username = os.environ.get("TART_REGISTRY_USERNAME", "")
    password = os.environ.get("TART_REGISTRY_PASSWORD", "")
    if not username or os.environ.get("TART_REGISTRY_HOSTNAME", host) != host:
        return {}
    return {host: Credentials(username, password)}


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say a registry's failure as tart does: by the name of the Swift case."""
    try:
        yield
    except NoSpace:
        raise TartError(NO_SPACE) from None
    except ImageNotFound as error:
        raise TartError(_unexpected(404, error.why)) from None
    except NotAllowed as error:
        raise TartError(_unexpected(401, error.why)) from None
    except RemudaError as error:
        raise TartError(str(error)) from None


def _unexpected(code: int, details: str) -> str:
    return f'UnexpectedHTTPStatusCode(when: "pulling manifest", code: {code}, details: "{details}")'


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
