"""The client against a registry that misbehaves. How it does with a good one is told by tests/contract/tart."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.registry.auth import Credentials
from remuda.adapters.registry.client import Blob, RegistryClient, digest_of
from remuda.adapters.registry.errors import (
    BadAnswer,
    ImageNotFound,
    NotAllowed,
    RegistryError,
    RegistryUnavailable,
)
from remuda.adapters.registry.names import ImageName
from remuda.adapters.registry.wire import RegistrySettings
from remuda.adapters.system import SystemClock, SystemIds
from tests.support.processes import free_port
from tests.support.troubled_registry import TroubledRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONTENT = bytes(range(256)) * 4096


@dataclass
class Impatient(SystemClock):
    """Real time, but a pause is only noted."""

    pauses: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@contextlib.asynccontextmanager
async def client(
    registry: TroubledRegistry, clock: Impatient | None = None, **settings: object
) -> AsyncIterator[RegistryClient]:
    given = RegistrySettings(plain_hosts=frozenset({registry.host}), **settings)  # type: ignore[arg-type]  # each test names its own
    made = RegistryClient(given, clock or Impatient(), SystemIds())
    try:
        yield made
    finally:
        await made.close()


def image(registry: TroubledRegistry, reference: str = "1") -> ImageName:
    return ImageName(registry.host, "team/vm", reference)


async def fetch(registry: TroubledRegistry, blob: Blob, **settings: object) -> bytes:
    pieces: list[bytes] = []
    async with client(registry, **settings) as asked:  # type: ignore[arg-type]  # likewise
        counts = [count async for count in asked.blob(image(registry), blob, pieces.append)]
    assert sum(counts) == sum(map(len, pieces))
    return b"".join(pieces)


def held(registry: TroubledRegistry, content: bytes = CONTENT) -> Blob:
    return Blob(registry.hold(content), len(content))


@pytest.mark.parametrize("size", [0, 1, len(CONTENT)], ids=["empty", "a byte", "a megabyte"])
async def test_a_blob_comes_whole(registry: TroubledRegistry, size: int) -> None:
    assert await fetch(registry, held(registry, CONTENT[:size])) == CONTENT[:size]


@pytest.mark.parametrize("knows_ranges", [True, False], ids=["by range", "all over again"])
async def test_a_blob_that_breaks_off_is_taken_up_again(
    registry: TroubledRegistry, *, knows_ranges: bool
) -> None:
    registry.knows_ranges = knows_ranges
    registry.breaks_after = [100_000, 300_000, 0, 0, 700_000]
    assert await fetch(registry, held(registry)) == CONTENT


async def test_tries_are_counted_only_where_nothing_comes(registry: TroubledRegistry) -> None:
    registry.breaks_after = [50_000] * 12
    assert await fetch(registry, held(registry), tries=2) == CONTENT
    registry.breaks_after = [50_000, 0, 0, 0]
    with pytest.raises(RegistryUnavailable):
        await fetch(registry, held(registry), tries=3)


async def test_a_registry_that_trickles_is_given_up(registry: TroubledRegistry) -> None:
    registry.breaks_after = [1] * 1000
    with pytest.raises(RegistryUnavailable):
        await fetch(registry, held(registry))
    assert registry.asked.total() < 150


async def test_pauses_grow_and_are_bounded(registry: TroubledRegistry) -> None:
    clock = Impatient()
    registry.statuses = [503] * 9
    async with client(registry, clock, tries=9) as asked:
        with pytest.raises(RegistryUnavailable, match="trouble"):
            await asked.manifest(image(registry))
    assert len(clock.pauses) == 8
    assert clock.pauses[0] < clock.pauses[4] <= 15.0
    assert max(clock.pauses) <= 15.0


async def test_a_blob_of_other_bytes_is_refused(registry: TroubledRegistry) -> None:
    blob = held(registry)
    registry.blobs[blob.digest] = CONTENT[:-1] + b"!"
    with pytest.raises(BadAnswer, match="is not sha256"):
        await fetch(registry, blob)


async def test_a_blob_longer_than_promised_is_cut_at_once(registry: TroubledRegistry) -> None:
    blob = held(registry)
    with pytest.raises(BadAnswer, match="more than its 10 bytes"):
        await fetch(registry, Blob(blob.digest, 10))


async def test_a_blob_shorter_than_promised_is_refused(registry: TroubledRegistry) -> None:
    blob = held(registry)
    with pytest.raises(RegistryError):
        await fetch(registry, Blob(blob.digest, len(CONTENT) + 1))


async def test_another_range_than_asked_for_is_refused(registry: TroubledRegistry) -> None:
    registry.breaks_after, registry.wrong_range = [1000], True
    with pytest.raises(BadAnswer, match="another range"):
        await fetch(registry, held(registry))


async def test_nothing_is_unpacked_on_the_way(registry: TroubledRegistry) -> None:
    registry.gzip = True
    assert await fetch(registry, held(registry)) == CONTENT


async def test_a_manifest_asked_for_by_digest_must_be_that_one(registry: TroubledRegistry) -> None:
    digest = digest_of(b"{}")
    registry.manifests = {"1": b"{}", digest: b"{ }"}
    async with client(registry) as asked:
        assert (await asked.manifest(image(registry))).digest == digest
        with pytest.raises(BadAnswer, match="answered with"):
            await asked.manifest(image(registry, digest))


async def test_a_manifest_without_end_is_not_read_to_its_end(registry: TroubledRegistry) -> None:
    registry.manifests = {"1": bytes(10_000)}
    async with client(registry, manifest_max_bytes=9999) as asked:
        with pytest.raises(BadAnswer, match="longer than 9999"):
            await asked.manifest(image(registry))


async def test_what_is_not_there_is_not_asked_for_twice(registry: TroubledRegistry) -> None:
    async with client(registry) as asked:
        with pytest.raises(ImageNotFound, match="Check the image's name"):
            await asked.manifest(image(registry))
        assert not await asked.has_blob(image(registry), digest_of(b"x"))
    assert registry.asked.total() == 2


async def test_a_token_is_fetched_once_and_again_when_it_is_refused(
    registry: TroubledRegistry,
) -> None:
    registry.manifests, registry.token = {"1": b"{}"}, "first"
    who = Credentials("me", "hunter2")
    registry.password = who.basic
    async with client(registry, credentials={registry.host: who}) as asked:
        for _ in range(3):
            await asked.manifest(image(registry))
        assert registry.asked["token"] == 1
        registry.token = "second"  # noqa: S105 - of this test
        await asked.manifest(image(registry))
        assert registry.asked["token"] == 2


async def test_a_refusal_names_who_asked_and_no_password(registry: TroubledRegistry) -> None:
    registry.token, registry.password = "t", "Basic other"
    who = Credentials("me", "hunter2")
    async with client(registry, credentials={registry.host: who}) as asked:
        with pytest.raises(NotAllowed, match="as 'me'") as caught:
            await asked.manifest(image(registry))
    assert "hunter2" not in str(caught.value)
    async with client(registry) as asked:
        with pytest.raises(NotAllowed, match="without credentials"):
            await asked.manifest(image(registry))


async def test_a_token_does_not_follow_a_redirect(registry: TroubledRegistry) -> None:
    async with TroubledRegistry().served() as elsewhere:
        blob = held(elsewhere)
        registry.token = "secret"  # noqa: S105 - of this test
        registry.blobs_elsewhere = f"{elsewhere.url}/v2/x/blobs/{blob.digest}"
        assert await fetch(registry, blob) == CONTENT
        assert "Bearer secret" in registry.authorizations
        assert elsewhere.authorizations == [""]


async def test_a_password_is_no_business_of_where_a_redirect_leads(
    registry: TroubledRegistry,
) -> None:
    who = Credentials("me", "hunter2")
    async with TroubledRegistry().served() as elsewhere:
        blob = held(elsewhere)
        elsewhere.token = "its own"  # noqa: S105 - of this test
        registry.blobs_elsewhere = f"{elsewhere.url}/v2/x/blobs/{blob.digest}"
        with pytest.raises(NotAllowed, match="where it sends us"):
            await fetch(registry, blob, credentials={registry.host: who})
        assert elsewhere.asked["token"] == 0, (
            "whoever serves blobs may name no place for a password"
        )
        assert elsewhere.authorizations == [""]


@pytest.mark.parametrize("place", ["http://[", "http://x:99999/", "http://x:y/", "//[/"])
async def test_an_address_that_is_none_is_a_bad_answer(
    registry: TroubledRegistry, place: str
) -> None:
    registry.blobs_elsewhere = registry.upload_to = place
    registry.token, registry.realm = "t", place
    registry.manifests = {"1": b"{}"}
    async with client(registry, tries=1) as asked:
        with pytest.raises(RegistryError):
            await asked.manifest(image(registry))
        registry.token = ""
        with pytest.raises(RegistryError):
            await asked.push_blob(image(registry), Blob(digest_of(b"x"), 1), b"x")
    with pytest.raises(RegistryError):
        await fetch(registry, held(registry), tries=1)


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://x/y", "gopher://x"])
async def test_a_redirect_leads_to_http_only(registry: TroubledRegistry, place: str) -> None:
    registry.blobs_elsewhere = place
    with pytest.raises(BadAnswer, match="sends us to"):
        await fetch(registry, held(registry))


async def test_a_redirect_without_end_is_left(registry: TroubledRegistry) -> None:
    blob = held(registry)
    registry.blobs_elsewhere = f"/v2/x/blobs/{blob.digest}"
    with pytest.raises(BadAnswer, match="without an end"):
        await fetch(registry, blob)
    assert registry.asked.total() == 6


async def test_an_upload_is_begun_again_after_trouble(registry: TroubledRegistry) -> None:
    blob = Blob(digest_of(CONTENT), len(CONTENT))
    registry.statuses = [200, 200, 502]
    async with client(registry) as asked:
        assert await asked.push_blob(image(registry), blob, CONTENT)
        assert not await asked.push_blob(image(registry), blob, CONTENT), "it is there already"
    assert registry.blobs[blob.digest] == CONTENT


async def test_an_upload_goes_where_http_goes_only(registry: TroubledRegistry) -> None:
    registry.upload_to = "file:///tmp/x"
    async with client(registry) as asked:
        with pytest.raises(BadAnswer, match="sends us to"):
            await asked.push_blob(image(registry), Blob(digest_of(b"x"), 1), b"x")


async def test_a_registry_that_is_not_there_is_named() -> None:
    nobody = TroubledRegistry(url=f"http://127.0.0.1:{free_port()}")
    async with client(nobody, tries=2) as asked:
        with pytest.raises(RegistryUnavailable, match=nobody.host):
            await asked.manifest(image(nobody))


async def test_a_registry_that_says_nothing_is_given_up(registry: TroubledRegistry) -> None:
    registry.stalls = True
    async with client(registry, stall_s=0.05, tries=1) as asked:
        with pytest.raises(RegistryUnavailable, match=registry.host):
            await asked.manifest(image(registry))
