"""
Fetch from and store in an OCI registry.

A blob that breaks off is taken up again where it broke. Only a digest at the end says that it was the right one, so
what came before is to be thrown away if ``blob`` raises.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Final, TypeVar

from remuda.adapters.registry.errors import BadAnswer, ImageNotFound, RegistryUnavailable
from remuda.adapters.registry.wire import (
    Ask,
    RegistrySettings,
    RegistryWire,
    reached,
    read_bounded,
)
from remuda.control.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from remuda.adapters.registry.connections import Answer
    from remuda.adapters.registry.names import ImageName
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_TURN_BYTES: Final = 1024 * 1024
"""After how many bytes the progress of a blob is told."""
_ERROR_MAX_BYTES: Final = 2000
_BREAKS_MAX: Final = 100
"""How often one blob may break off at all: a byte each time is no progress worth having."""
_RANGE: Final = re.compile(r"bytes (\d{1,19})-\d{1,19}/(?:\d{1,19}|\*)")
_LATER: Final = frozenset({408, 425, 429})
_SERVER_FAULT: Final = 500
_BACKOFF: Final = Backoff(first_s=0.5, longest_s=15.0)
_LOOK: Final = "Look at the registry, or at what stands between"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Blob:
    """What is stored under a digest, and how long it is."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class FetchedManifest:
    """A manifest, byte for byte."""

    digest: str
    raw: bytes


class RegistryClient:
    """Any number of registries."""

    def __init__(self, settings: RegistrySettings, clock: Clock, ids: Ids) -> None:
        self._settings, self._clock, self._ids = settings, clock, ids
        self._wire = RegistryWire(settings)

    async def close(self) -> None:
        await self._wire.close()

    async def manifest(self, image: ImageName) -> FetchedManifest:
        ask = Ask(
            what=f"The image {image} cannot be looked up",
            image=image,
            path=f"manifests/{image.reference}",
            headers={"accept": MANIFEST},
        )
        raw = await self._again(lambda: self._small(ask))
        digest = digest_of(raw)
        if image.has_digest and digest != image.reference:
            why = f"the registry answered with {digest}"
            raise BadAnswer(ask.what, why=why, fix=_LOOK)
        return FetchedManifest(digest, raw)

    async def blob(
        self, image: ImageName, blob: Blob, take: Callable[[bytes], object]
    ) -> AsyncGenerator[int, None]:
        """
        Have the bytes of a blob taken, and raise at the end if they were the wrong ones.

        ``take`` is called piece by piece, in the thread that reads. Gives how many bytes came, again and again.
        """
        ask = Ask(
            what=f"A layer of {image} cannot be fetched", image=image, path=f"blobs/{blob.digest}"
        )
        arriving, failures = _Arriving(ask.what, blob, take), 0
        for turn in itertools.count(1):
            before = arriving.got
            try:
                async with aclosing(self._rest(ask, before, arriving.came)) as counts:
                    async for count in counts:
                        yield count
                fault = RegistryUnavailable(ask.what, why="it breaks off", fix=_LOOK)
            except RegistryUnavailable as error:
                fault = error
            if arriving.got >= blob.size:
                break
            if turn > _BREAKS_MAX:
                raise fault
            failures = 1 if arriving.got > before else failures + 1
            await self._pause(failures, fault)
        arriving.check()

    async def has_blob(self, image: ImageName, digest: str) -> bool:
        what = f"A layer of {image} cannot be looked for"
        ask = Ask(what=what, image=image, method="HEAD", path=f"blobs/{digest}")

        async def look() -> bool:
            async with self._wire.exchange(ask) as response:
                if response.status == HTTPStatus.NOT_FOUND:
                    return False
                await _accept(ask, response, HTTPStatus.OK)
                return True

        return await self._again(look)

    async def push_blob(self, image: ImageName, blob: Blob, content: Path | bytes) -> bool:
        """Store a blob. Returns False if it was there already."""
        if await self.has_blob(image, blob.digest):
            return False
        await self._again(lambda: self._upload(image, blob, content))
        return True

    async def push_manifest(self, image: ImageName, raw: bytes) -> str:
        """Store a manifest, after its blobs, and return its digest."""
        ask = Ask(
            what=f"The image {image} cannot be stored",
            image=image,
            method="PUT",
            path=f"manifests/{image.reference}",
            headers={"content-type": MANIFEST, "content-length": str(len(raw))},
            body=lambda: io.BytesIO(raw),
        )
        await self._again(lambda: self._small(ask, HTTPStatus.CREATED, HTTPStatus.OK))
        return digest_of(raw)

    async def _small(self, ask: Ask, *good: HTTPStatus) -> bytes:
        async with self._wire.exchange(ask) as response:
            await _accept(ask, response, *(good or (HTTPStatus.OK,)))
            return await read_bounded(ask, response, self._settings.manifest_max_bytes)

    async def _rest(
        self, ask: Ask, start: int, take: Callable[[bytes], object]
    ) -> AsyncGenerator[int, None]:
        """Have a blob taken from a byte on, in turns that are worth a thread's while."""
        headers = {"range": f"bytes={start}-"} if start else {}
        ranged = Ask(what=ask.what, image=ask.image, path=ask.path, headers=headers)
        async with self._wire.exchange(ranged) as response:
            await _accept(ranged, response, HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)
            skip = start - _begins_at(ranged, response)
            with reached(ask):
                # A server that knows no ranges sends everything again.
                while skip and (known := await response.pour(skip, len)):
                    skip -= known
                while count := await response.pour(_TURN_BYTES, take):
                    yield count

    async def _upload(self, image: ImageName, blob: Blob, content: Path | bytes) -> None:
        what = f"A layer of {image} cannot be stored"
        length = {"content-length": "0"}
        begin = Ask(what=what, image=image, method="POST", path="blobs/uploads/", headers=length)
        place = await self._step(begin, HTTPStatus.ACCEPTED)
        chunk = self._settings.upload_chunk_bytes or blob.size
        ends = [*range(chunk, blob.size, chunk or 1), blob.size]
        for start, end in itertools.pairwise([0, *ends]):
            last = end == blob.size
            step = Ask(
                what=what,
                image=image,
                method="PUT" if last else "PATCH",
                path=_with_digest(place, blob.digest) if last else place,
                headers=_upload_headers(start, end, whole=len(ends) == 1),
                body=partial(_part, content, start, end),
            )
            good = (HTTPStatus.CREATED, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT)
            place = await self._step(step, *good, or_place=place)

    async def _step(self, ask: Ask, *good: HTTPStatus, or_place: str = "") -> str:
        """Take one step of an upload and return where the next one goes."""
        async with self._wire.exchange(ask) as response:
            await _accept(ask, response, *good)
            location = response.headers.get("location", "")
            if not location and not or_place:
                raise BadAnswer(ask.what, why="the registry names no place for it", fix=_LOOK)
            return self._wire.next(ask, response.url, location) if location else or_place

    async def _again(self, act: Callable[[], Awaitable[T]]) -> T:
        for failures in itertools.count(1):
            try:
                return await act()
            except RegistryUnavailable as error:
                await self._pause(failures, error)
        raise AssertionError

    async def _pause(self, failures: int, fault: RegistryUnavailable) -> None:
        if failures >= self._settings.tries:
            raise fault
        await self._clock.sleep(_BACKOFF.wait_s(failures, self._ids.fraction()))


class _Arriving:
    """A blob of which a part has come, over as many answers as it takes."""

    def __init__(self, what: str, blob: Blob, take: Callable[[bytes], object]) -> None:
        self._what, self._blob, self._take = what, blob, take
        self._seen = hashlib.sha256()
        self.got = 0

    def came(self, piece: bytes) -> None:
        self.got += len(piece)
        if self.got > self._blob.size:
            why = f"more than its {self._blob.size} bytes come"
            raise BadAnswer(self._what, why=why, fix=_LOOK)
        self._seen.update(piece)
        self._take(piece)

    def check(self) -> None:
        if f"sha256:{self._seen.hexdigest()}" != self._blob.digest:
            why = f"what came is not {self._blob.digest}"
            raise BadAnswer(self._what, why=why, fix=_LOOK)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


async def _accept(ask: Ask, response: Answer, *good: HTTPStatus) -> None:
    status = response.status
    if status in good:
        return
    host = ask.image.host
    if status == HTTPStatus.NOT_FOUND:
        why = f"{host} has no {ask.path[:200]} in {ask.image.repository}"
        raise ImageNotFound(ask.what, why=why, fix="Check the image's name, and that it was pushed")
    with reached(ask):
        said = (await response.read(_ERROR_MAX_BYTES)).decode(errors="replace")
    why = f"{host} answered {status} {' '.join(said.split())[:300]}".rstrip()
    if status in _LATER or status >= _SERVER_FAULT:
        raise RegistryUnavailable(ask.what, why=why, fix="Wait, or look at the registry")
    raise BadAnswer(ask.what, why=why, fix=_LOOK)


def _begins_at(ask: Ask, response: Answer) -> int:
    if response.status == HTTPStatus.OK:
        return 0
    given = _RANGE.fullmatch(response.headers.get("content-range", ""))
    wanted = ask.headers.get("range", "")
    if given is None or f"bytes={given[1]}-" != wanted:
        raise BadAnswer(ask.what, why=f"another range comes than {wanted}", fix=_LOOK)
    return int(given[1])


def _with_digest(place: str, digest: str) -> str:
    return f"{place}{'&' if '?' in place else '?'}digest={digest}"


def _upload_headers(start: int, end: int, *, whole: bool) -> dict[str, str]:
    headers = {"content-type": "application/octet-stream", "content-length": str(end - start)}
    if not whole:
        headers["content-range"] = f"{start}-{end - 1}"
    return headers


def _part(content: Path | bytes, start: int, end: int) -> IO[bytes]:
    if isinstance(content, bytes):
        return io.BytesIO(content[start:end])
    file = content.open("rb")
    if start == 0 and end == content.stat().st_size:
        return file
    with file:
        file.seek(start)
        return io.BytesIO(file.read(end - start))
