"""
An image fetched to a host, beside ``skopeo copy`` of the same image from the same registry.

The driver of Tart fetches it as an agent has it do, through the stand-in, which uses our own client of registries: it
asks what is cached already, which is one more program started, and for the manifest; then each layer is hashed,
unpacked, hashed again, written where it belongs on the disk, and made durable. ``skopeo`` hashes each blob, writes it
down as it came, which is half as many bytes, and makes it durable. Both look for four layers or more at once, and both
times are those of whole programs, from nothing to the end. The two take turns, and take turns in being first.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from remuda.adapters.registry.client import RegistryClient
from remuda.adapters.registry.names import ImageName
from remuda.adapters.registry.wire import RegistrySettings
from remuda.adapters.system import SystemClock, SystemIds
from remuda.adapters.tart_image.pushing import Push
from tests.support.debian import PLACE, NotFetched, unpacked
from tests.support.docker_registry import docker_registry
from tests.support.tart.driven import DrivenTart
from tests.support.tart.installed import StandIn

if TYPE_CHECKING:
    from tests.support.docker_registry import DockerRegistry

MIB = 1024 * 1024
DISK_BYTES = 384 * MIB
LAYER_BYTES = 64 * MIB
BLOCK_BYTES = 64 * 1024
ROUNDS = 5
WITHIN_S = 45.0
"""When no round is begun any more."""
TARGET = 1.2
PACKAGES = ("docker-registry", "libassuan0", "libgpgme11", "skopeo")


@dataclass(frozen=True, slots=True)
class Took:
    """What one pull took."""

    wall_s: float
    cpu_s: float


async def push_image(registry: DockerRegistry, folder: Path) -> str:
    """Push an image whose disk packs to about a half, as those of systems do, and return it by its digest."""
    vm = StandIn(folder / "builder").make("source", "#!/bin/sh\n", disk_bytes=DISK_BYTES)
    with vm.disk.open("r+b") as disk:
        disk.seek(BLOCK_BYTES)
        while disk.tell() < DISK_BYTES:
            disk.write(os.urandom(BLOCK_BYTES // 2) + b"remuda " * (BLOCK_BYTES // 14))
            disk.seek(-disk.tell() % BLOCK_BYTES, os.SEEK_CUR)
    os.truncate(vm.disk, DISK_BYTES)
    name = ImageName.parse(f"{registry.host}/bench/image:1")
    settings = RegistrySettings(plain_hosts=frozenset({registry.host}))
    client = RegistryClient(settings, SystemClock(), SystemIds())
    try:
        now = SystemClock().now()
        push = Push(client, vm.folder, (name,), now, chunk_bytes=LAYER_BYTES)
        return str(name.at(await push.run()))
    finally:
        await client.close()


async def by_driver(folder: Path, image: str) -> Took:
    """Pull with a Tart that has nothing yet."""
    host = DrivenTart(folder / "driven")
    began, spent_s = perf_counter(), _children_s()
    await host.vms.pull(image, lambda _: None)
    took = Took(perf_counter() - began, _children_s() - spent_s)
    assert (await host.vms.inventory()).images, "it is there"
    host.close()
    shutil.rmtree(host.folder)
    return took


def by_skopeo(folder: Path, image: str) -> Took:
    """Copy an image, byte for byte, into a folder that is not there yet."""
    target = folder / "copied"
    words = ("--insecure-policy", "copy", "--quiet", "--src-tls-verify=false")
    libraries = (str(path) for path in PLACE.glob("lib*/usr/lib/*") if path.is_dir())
    began, spent_s = perf_counter(), _children_s()
    subprocess.run(  # noqa: S603 - fixed words and an image of ours
        [PLACE / "skopeo/usr/bin/skopeo", *words, f"docker://{image}", f"dir:{target}"],
        check=True,
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)},
    )
    took = Took(perf_counter() - began, _children_s() - spent_s)
    shutil.rmtree(target)
    return took


def _children_s() -> float:
    """Return the CPU time of all processes that we started and that are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def compare() -> bool:
    """Print the ratio, and say whether the target was met. What cannot be measured was not met."""
    try:
        for package in PACKAGES:
            unpacked(package)
    except NotFetched as error:
        print(f"image pull: not measured, since Debian's packages cannot be had: {error}")
        return False
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as made:
        folder = Path(made)
        with docker_registry(folder / "registry") as registry:
            image = await push_image(registry, folder)
            by_skopeo(folder, image)  # the first reads what nobody has read for long
            return await _compare(folder, image)


async def _compare(folder: Path, image: str) -> bool:
    ours: list[Took] = []
    theirs: list[Took] = []
    began = perf_counter()
    for number in range(ROUNDS):
        if number and perf_counter() - began > WITHIN_S:
            break
        if number % 2:
            ours.append(await by_driver(folder, image))
        theirs.append(by_skopeo(folder, image))
        if not number % 2:
            ours.append(await by_driver(folder, image))
    ratios = [mine.wall_s / other.wall_s for mine, other in zip(ours, theirs, strict=True)]
    met = median(ratios) <= TARGET
    print(
        f"image pull: {median(t.wall_s for t in ours):.2f} s for {DISK_BYTES // MIB} MiB of disk, skopeo copy"
        f" {median(t.wall_s for t in theirs):.2f} s: {median(ratios):.2f} x"
        f" ({min(ratios):.2f} to {max(ratios):.2f}; target <= {TARGET}, {'met' if met else 'MISSED'});"
        f" CPU {median(t.cpu_s for t in ours):.2f} s, skopeo {median(t.cpu_s for t in theirs):.2f} s"
    )
    return met


def main() -> int:
    return 0 if asyncio.run(compare()) else 1


if __name__ == "__main__":
    sys.exit(main())
