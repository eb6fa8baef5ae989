"""A VM's files up into a store and down again, and what an image can do to the one who fetches it."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from remuda.adapters.registry.client import Blob, FetchedManifest, digest_of
from remuda.adapters.registry.errors import RegistryUnavailable
from remuda.adapters.registry.names import ImageName
from remuda.adapters.tart_image.errors import BadImage, FolderUnusable
from remuda.adapters.tart_image.pulling import Pull
from remuda.adapters.tart_image.pushing import Push
from remuda.adapters.tart_image.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

IMAGE = ImageName("registry.test", "team/vm", "1")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
CONFIG = b'{"version":1,"os":"linux","arch":"amd64"}'
CHUNK = 5 * 1024 * 1024
PREFIX = "org.cirruslabs.tart.uncompressed-"


@dataclass
class Shelf:
    """Blobs in memory."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    piece_bytes: int = 70_000
    fails_on: str = ""

    async def push_blob(self, image: ImageName, blob: Blob, content: Path | bytes) -> bool:
        raw = content if isinstance(content, bytes) else await asyncio.to_thread(content.read_bytes)
        assert (digest_of(raw), len(raw)) == (blob.digest, blob.size)
        assert image.repository == IMAGE.repository
        self.blobs[blob.digest] = raw
        return True

    async def push_manifest(self, image: ImageName, raw: bytes) -> str:
        assert all(layer["digest"] in self.blobs for layer in json.loads(raw)["layers"])
        self.manifests[image.reference] = raw
        return digest_of(raw)

    async def blob(
        self, _image: ImageName, blob: Blob, take: Callable[[bytes], object]
    ) -> AsyncGenerator[int, None]:
        self.fetched.append(blob.digest)
        if blob.digest == self.fails_on:
            raise RegistryUnavailable("No blob", why="of this test", fix="None")
        raw = self.blobs[blob.digest]
        for start in range(0, len(raw), self.piece_bytes):
            piece = raw[start : start + self.piece_bytes]
            await in_thread(take, piece)
            yield len(piece)


def a_vm(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "nvram.bin").write_bytes(b"nvram")
    disk = bytearray(2 * CHUNK + 12_345)
    disk[:9] = b"boot code"
    disk[CHUNK + 100 : CHUNK + 70_100] = os.urandom(70_000)
    disk[-3:] = b"end"
    (folder / "disk.img").write_bytes(disk)
    return folder


async def pushed(folder: Path) -> Shelf:
    shelf = Shelf()
    await Push(shelf, folder, (IMAGE,), NOON, chunk_bytes=CHUNK).run()
    return shelf


def manifest(shelf: Shelf, raw: bytes | None = None) -> FetchedManifest:
    content = shelf.manifests["1"] if raw is None else raw
    return FetchedManifest(digest_of(content), content)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


async def test_what_goes_up_comes_down(tmp_path: Path) -> None:
    vm = a_vm(tmp_path / "vm")
    shelf = await pushed(vm)
    told: list[tuple[int, int]] = []
    (tmp_path / "copy").mkdir()
    pull = Pull(shelf, IMAGE, tmp_path / "copy", progress=lambda *said: told.append(said))
    await pull.run(manifest(shelf))
    assert contents(tmp_path / "copy") == contents(vm)
    assert told == sorted(told), "progress only grows"
    assert told[-1][0] == told[-1][1], "and reaches its end"
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "copy").iterdir()}
    assert modes == {0o600}


async def test_several_names_share_one_upload(tmp_path: Path) -> None:
    shelf = Shelf()
    names = (IMAGE, IMAGE.at("2"))
    digest = await Push(shelf, a_vm(tmp_path / "vm"), names, NOON, chunk_bytes=CHUNK).run()
    assert {digest_of(raw) for raw in shelf.manifests.values()} == {digest}
    assert set(shelf.manifests) == {"1", "2"}


async def test_a_second_try_fetches_only_what_is_missing(tmp_path: Path) -> None:
    vm = a_vm(tmp_path / "vm")
    shelf = await pushed(vm)
    layers = json.loads(shelf.manifests["1"])["layers"]
    copy = tmp_path / "copy"
    copy.mkdir()
    shelf.fails_on = layers[2]["digest"]
    with pytest.raises(RegistryUnavailable):
        await Pull(shelf, IMAGE, copy, layers_at_once=1).run(manifest(shelf))
    shelf.fetched, shelf.fails_on = [], ""
    await Pull(shelf, IMAGE, copy).run(manifest(shelf))
    assert layers[1]["digest"] not in shelf.fetched
    assert layers[2]["digest"] in shelf.fetched
    assert contents(copy) == contents(vm)


async def test_what_a_first_try_left_wrong_is_replaced(tmp_path: Path) -> None:
    vm = a_vm(tmp_path / "vm")
    shelf = await pushed(vm)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "disk.img").write_bytes(b"j" * (2 * CHUNK + 99_999))
    await Pull(shelf, IMAGE, copy).run(manifest(shelf))
    assert contents(copy) == contents(vm)


def changed(shelf: Shelf, layer: int, **annotations: str) -> bytes:
    body: dict[str, Any] = json.loads(shelf.manifests["1"])
    given = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    body["layers"][layer]["annotations"].update(given)
    del body["annotations"]
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"size": "100"}, "is packed into|more bytes", id="says less than it holds"),
        pytest.param({"size": str(CHUNK + 1)}, "1 bytes fewer", id="says more than it holds"),
        pytest.param(
            {"content_digest": f"sha256:{'0' * 64}"}, "does not unpack to", id="a wrong raw digest"
        ),
    ],
)
async def test_an_image_is_refused_that(tmp_path: Path, changes: dict[str, str], why: str) -> None:
    shelf = await pushed(a_vm(tmp_path / "vm"))
    (tmp_path / "copy").mkdir()
    with pytest.raises(BadImage, match=why):
        await Pull(shelf, IMAGE, tmp_path / "copy").run(
            manifest(shelf, changed(shelf, 1, **changes))
        )


async def test_links_in_the_folder_are_not_followed(tmp_path: Path) -> None:
    shelf = await pushed(a_vm(tmp_path / "vm"))
    copy, victim = tmp_path / "copy", tmp_path / "victim"
    copy.mkdir()
    victim.write_bytes(b"mine")
    for name in ("config.json", "nvram.bin", "disk.img"):
        (copy / name).symlink_to(victim)
    with pytest.raises(FolderUnusable):
        await Pull(shelf, IMAGE, copy).run(manifest(shelf))
    assert victim.read_bytes() == b"mine"


async def test_a_pull_that_is_cancelled_leaves_no_thread_that_writes_on(tmp_path: Path) -> None:
    shelf = await pushed(a_vm(tmp_path / "vm"))
    copy = tmp_path / "copy"
    copy.mkdir()
    begun = asyncio.Event()
    pull = Pull(shelf, IMAGE, copy, progress=lambda done, _: begun.set() if done > 50_000 else None)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pull.run(manifest(shelf)), name="pull")
        await begun.wait()
        task.cancel()
    assert task.cancelled()
    await Pull(shelf, IMAGE, copy).run(manifest(shelf))
    assert contents(copy) == contents(tmp_path / "vm")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("nvram.bin", "nvram.bin", id="nvram"),
        pytest.param("config.json", "config.json", id="config"),
        pytest.param("disk.img", "disk.img", id="disk"),
    ],
)
async def test_nothing_is_pushed_without(tmp_path: Path, name: str, why: str) -> None:
    vm = a_vm(tmp_path / "vm")
    (vm / name).unlink()
    shelf = Shelf()
    with pytest.raises(FolderUnusable, match=why):
        await Push(shelf, vm, (IMAGE,), NOON).run()
    assert shelf.manifests == {}
