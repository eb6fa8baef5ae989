"""Images in a real registry: pushed, pulled, resumed, damaged, tagged anew."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from remuda.adapters.registry.client import Blob, RegistryClient, digest_of
from remuda.adapters.registry.names import ImageName
from remuda.adapters.registry.wire import RegistrySettings
from remuda.adapters.system import SystemClock, SystemIds
from tests.support.docker_registry import PASSWORD, USERNAME, DockerRegistry, docker_registry
from tests.support.eventually import eventually
from tests.support.tart.faults import Fault

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.support.tart.installed import StandIn

PROGRAM = "#!/bin/sh\ntouch up\nsleep 600\n"


def pushed(tart: StandIn, registry: DockerRegistry, name: str) -> str:
    """Push a VM and return the image's name."""
    vm = tart.make("source", PROGRAM, disk_bytes=30_000_000)
    with vm.disk.open("r+b") as disk:
        disk.seek(20_000_000)
        disk.write(os.urandom(3_000_000))
    image = f"{registry.host}/tests/{name}:1"
    answer = tart.call("push", "source", image, "--insecure")
    assert answer.returncode == 0, answer.stderr
    return image


async def manifest_of(registry: DockerRegistry, name: str) -> dict[str, Any]:
    url = f"http://{registry.host}/v2/tests/{name}/manifests/1"
    headers = {"accept": "application/vnd.oci.image.manifest.v1+json"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        body: dict[str, Any] = json.loads(await answer.read())
        return body


def digest_in(tart: StandIn) -> str:
    names = [name for name in tart.listed("--source", "oci") if "@" in name]
    assert len(names) == 1
    return names[0].partition("@")[2]


async def test_a_vm_goes_up_and_comes_down_the_same(
    tart: StandIn, registry: DockerRegistry
) -> None:
    image = pushed(tart, registry, "same")
    assert tart.call("pull", image, "--insecure").returncode == 0
    assert tart.call("clone", image, "copy").returncode == 0
    for file in ("config.json", "disk.img", "nvram.bin"):
        source, copy = tart.vm("source").folder / file, tart.vm("copy").folder / file
        if file != "config.json":
            assert source.read_bytes() == copy.read_bytes()
    manifest = await manifest_of(registry, "same")
    kinds = [layer["mediaType"].rpartition(".tart.")[2] for layer in manifest["layers"]]
    assert kinds == ["config.v1", "disk.v2", "nvram.v1"]
    assert tart.vm("copy").disk.stat().st_blocks * 512 < 13_000_000, "holes stay holes"


def test_an_image_is_listed_by_tag_and_by_digest(tart: StandIn, registry: DockerRegistry) -> None:
    image = pushed(tart, registry, "listed")
    tart.call("pull", image, "--insecure")
    cached = tart.listed("--source", "oci")
    names = list(cached)
    assert names[0] == image
    assert re.fullmatch(re.escape(image[:-2]) + r"@sha256:[0-9a-f]{64}", names[1])
    assert {row["Source"] for row in cached.values()} == {"OCI"}
    host = tart.home / "cache/OCIs" / registry.host.replace(":", "%3A")
    assert (host / "tests/listed/1").is_symlink()


def test_deleting_the_tag_takes_the_digest_along(tart: StandIn, registry: DockerRegistry) -> None:
    image = pushed(tart, registry, "deleted")
    tart.call("pull", image, "--insecure")
    by_digest = f"{image[:-2]}@{digest_in(tart)}"
    assert tart.call("delete", image).returncode == 0
    second = tart.call("delete", by_digest)
    assert second.returncode == 2, "what was listed twice went at once"
    assert tart.listed("--source", "oci") == {}


def test_an_image_pulled_by_digest_stays_without_a_tag(
    tart: StandIn, registry: DockerRegistry
) -> None:
    image = pushed(tart, registry, "digest")
    tart.call("pull", image, "--insecure")
    by_digest = f"{image[:-2]}@{digest_in(tart)}"
    assert tart.call("pull", by_digest, "--insecure").returncode == 0
    assert tart.call("delete", image).returncode == 0
    assert list(tart.listed("--source", "oci")) == [by_digest]
    assert tart.call("clone", by_digest, "copy").returncode == 0, "and needs no registry"


def test_a_tag_that_moved_drops_the_old_image(tart: StandIn, registry: DockerRegistry) -> None:
    image = pushed(tart, registry, "moved")
    tart.call("pull", image, "--insecure")
    first = digest_in(tart)
    tart.call("set", "source", "--cpu", "7")
    tart.call("push", "source", image, "--insecure")
    assert tart.call("pull", image, "--insecure").returncode == 0
    assert digest_in(tart) != first


def test_clone_pulls_what_is_not_there(tart: StandIn, registry: DockerRegistry) -> None:
    image = pushed(tart, registry, "cloned")
    assert tart.call("clone", image, "copy", "--insecure").returncode == 0
    assert tart.vm("copy").disk.read_bytes() == tart.vm("source").disk.read_bytes()


def test_an_image_that_is_not_there_is_code_1(tart: StandIn, registry: DockerRegistry) -> None:
    answer = tart.call("pull", f"{registry.host}/tests/nothing:1", "--insecure")
    assert answer.returncode == 1
    assert answer.stderr.startswith("UnexpectedHTTPStatusCode(when: ")
    assert "code: 404" in answer.stderr


async def test_a_damaged_image_is_refused_and_not_listed(
    tart: StandIn, registry: DockerRegistry
) -> None:
    image = pushed(tart, registry, "damaged")
    manifest = await manifest_of(registry, "damaged")
    stored = registry.blob_file(manifest["layers"][1]["digest"])
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(content)
    answer = tart.call("pull", image, "--insecure")
    assert answer.returncode == 1
    assert tart.listed("--source", "oci") == {}
    assert tart.call("clone", image, "copy", "--insecure").returncode == 1
    assert "copy" not in tart.listed()


async def stalled(tart: StandIn, image: str) -> subprocess.Popen[str]:
    """Start a pull and return when it stands still in the middle."""
    tart.order(Fault(verb="pull", kind="stall"))
    process = tart.start("pull", image, "--insecure")

    async def halfway() -> bool:
        return not tart.desk.waiting()

    await eventually(halfway)
    return process


async def test_a_pull_that_was_killed_is_resumed_unless_tmp_was_cleaned(
    tart: StandIn, registry: DockerRegistry
) -> None:
    image = pushed(tart, registry, "killed")
    pull = await stalled(tart, image)
    tart.call("list")
    scratch = tart.home / "tmp"
    assert len(list(scratch.iterdir())) == 1, "what a living pull holds is not cleaned"
    tart.kill(pull)
    assert tart.call("pull", image, "--insecure").returncode == 0, "into the same folder"
    assert list(scratch.iterdir()) == []
    tart.call("delete", image)
    pull = await stalled(tart, image)
    tart.kill(pull)
    tart.call("list")
    assert list(scratch.iterdir()) == [], "a list takes away what nobody holds"


async def test_pulls_from_one_registry_wait_for_each_other(
    tart: StandIn, registry: DockerRegistry
) -> None:
    image = pushed(tart, registry, "waits")
    pull = await stalled(tart, image)
    second = tart.start("pull", image, "--insecure")
    assert second.stdout is not None
    assert second.stdout.readline() == "waiting for lock...\n"
    tart.kill(pull)
    assert second.wait(30) == 0
    second.communicate()


def test_a_push_needs_its_password(tart: StandIn, tmp_path: Path) -> None:
    tart.make("a", PROGRAM)
    with docker_registry(tmp_path / "closed", with_password=True) as closed:
        image = f"{closed.host}/tests/closed:1"
        refused = tart.call("push", "a", image, "--insecure")
        assert refused.returncode == 1
        assert "code: 401" in refused.stderr
        known = {"TART_REGISTRY_USERNAME": USERNAME, "TART_REGISTRY_PASSWORD": PASSWORD}
        elsewhere = {**known, "TART_REGISTRY_HOSTNAME": "other.test"}
        assert tart.call("push", "a", image, "--insecure", env=elsewhere).returncode == 1
        assert tart.call("push", "a", image, "--insecure", env=known).returncode == 0
        assert tart.call("pull", image, "--insecure", env=known).returncode == 0
        wrong = {**known, "TART_REGISTRY_PASSWORD": "wrong"}
        answer = tart.call("pull", image, "--insecure", env=wrong)
        assert answer.returncode == 1
        assert "wrong" not in answer.stderr


def test_a_vm_can_be_deleted_in_the_middle_of_a_push(
    tart: StandIn, registry: DockerRegistry
) -> None:
    tart.make("a", PROGRAM)
    tart.order(Fault(verb="push", kind="slow", seconds=1.0))
    push = tart.start("push", "a", f"{registry.host}/tests/gone:1", "--insecure")
    assert tart.call("delete", "a").returncode == 0, "a push holds no lock: tart protects nothing"
    assert push.wait(30) != 0
    push.communicate()


@pytest.mark.parametrize("chunk", [0, 100_000, 300_000, 1_000_000], ids=lambda n: f"chunks of {n}")
async def test_the_client_stores_in_chunks_of_any_size(
    registry: DockerRegistry, chunk: int
) -> None:
    content = os.urandom(300_000)
    settings = RegistrySettings(
        plain_hosts=frozenset({registry.host}), upload_chunk_bytes=chunk, tries=1
    )
    client = RegistryClient(settings, SystemClock(), SystemIds())
    image = ImageName(registry.host, f"tests/chunks-{chunk}", "1")
    blob = Blob(digest_of(content), len(content))
    try:
        assert await client.push_blob(image, blob, content)
        pieces: list[bytes] = []
        assert sum([count async for count in client.blob(image, blob, pieces.append)]) == blob.size
        assert b"".join(pieces) == content
        empty = Blob(digest_of(b""), 0)
        assert await client.push_blob(image, empty, b"")
        assert [count async for count in client.blob(image, empty, pieces.append)] == []
    finally:
        await client.close()
