"""
Dispatch's HTTP API for people's commands, on aiohttp. Fills ``remuda.ports.api.Api``.

Every exchange has one deadline that covers all of it, the body too. Redirects are not followed, because the token would
go along. Errors are the server's own words, what, why and fix, cut short and without the token.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiohttp
import msgspec

from remuda.adapters.api_stream import EventReader
from remuda.adapters.api_words import Said, error_of, no_sense, path_of, unreachable
from remuda.adapters.dispatch_wire import WireSettings
from remuda.model.errors import BadInput
from remuda.ports.api import (
    ALL_EVENTS,
    ALL_JOBS,
    ApiUnavailable,
    Cancellation,
    ClaimRow,
    Event,
    Explanation,
    HostRow,
    JobRow,
    LimitRow,
    Outcome,
    PoolDetail,
    PoolRow,
    RunnerRow,
    Subject,
    Submitted,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from pathlib import Path

    from remuda.ports.api import EventsWanted, JobsWanted, NewJob
    from remuda.ports.clock import Clock

_T = TypeVar("_T")
PAGE: Final = 500
"""How many rows to ask for at once."""
_ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
_AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0)
"""How long to wait before a stream is opened again, by how often that failed in a row."""
_OK: Final = 200
_NO_TIMEOUTS: Final = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings(WireSettings):
    """Where the API is, who asks, and whom to trust."""

    ca_file: Path | None = None
    """Certificates to trust instead of the machine's own."""

    timeout_s: float = 30.0
    """For one exchange, all of it."""

    events_idle_s: float = 45.0
    """A stream of events that is silent for so long is broken: the server's heart beats more often."""

    if_unreachable: str = ""
    """What a person can do about a server that is not there, where more is known than its address."""

    log_idle_s: float = 20.0
    """A log may be silent for as long as its job is. After this, see whether the line still stands."""


class _JobPage(msgspec.Struct, frozen=True):
    jobs: tuple[JobRow, ...]
    next: str | None = None


class _RunnerPage(msgspec.Struct, frozen=True):
    runners: tuple[RunnerRow, ...]
    next: str | None = None


class _AuditPage(msgspec.Struct, frozen=True):
    entries: tuple[Event, ...]
    next: int | None = None


class _Claims(msgspec.Struct, frozen=True):
    claims: tuple[ClaimRow, ...]


class _Pools(msgspec.Struct, frozen=True):
    pools: tuple[PoolRow, ...]


class _Hosts(msgspec.Struct, frozen=True):
    hosts: tuple[HostRow, ...]


class _Limits(msgspec.Struct, frozen=True):
    limits: tuple[LimitRow, ...]


class _Next(msgspec.Struct, frozen=True):
    next_offset: int


class _Cancelled(msgspec.Struct, frozen=True):
    outcome: Cancellation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """One request."""

    what: str
    """What could not be done if it fails, as a sentence's beginning."""
    path: str
    method: str = "GET"
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


class ApiClient:
    """One server. Opens its session on first use, inside the running loop."""

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self.base = settings.base_url.rstrip("/")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- what there is ---

    async def jobs(
        self, wanted: JobsWanted = ALL_JOBS, *, limit: int | None = None
    ) -> tuple[JobRow, ...]:
        narrowed = _query(pool=wanted.pool, tenant=wanted.tenant, repository=wanted.repository)
        states = tuple(("state", state.value) for state in wanted.states)
        found: list[JobRow] = []
        cursor: str | None = ""
        while cursor is not None and (size := _room(found, limit)):
            more = _query(limit=str(size), cursor=cursor)
            ask = _Ask(
                what="The jobs could not be listed",
                path="/api/v1/jobs",
                query=(*narrowed, *states, *more),
            )
            page = await self._read(ask, _JobPage)
            found += page.jobs
            cursor = page.next
        return tuple(found)

    async def job(self, job_id: str) -> JobRow:
        what = f"The job {job_id} could not be read"
        return await self._read(_Ask(what=what, path=path_of(what, "jobs", job_id)), JobRow)

    async def runners(self, *, pool: str = "", limit: int | None = None) -> tuple[RunnerRow, ...]:
        found: list[RunnerRow] = []
        after: str | None = ""
        while after is not None and (size := _room(found, limit)):
            query = _query(pool=pool, limit=str(size), after=after)
            what = "The runners could not be listed"
            page = await self._read(
                _Ask(what=what, path="/api/v1/runners", query=query), _RunnerPage
            )
            found += page.runners
            after = page.next
        return tuple(found)

    async def runner(self, name: str) -> RunnerRow:
        what = f"The runner {name} could not be read"
        return await self._read(_Ask(what=what, path=path_of(what, "runners", name)), RunnerRow)

    async def claims(self) -> tuple[ClaimRow, ...]:
        ask = _Ask(what="The claims could not be listed", path="/api/v1/claims")
        return (await self._read(ask, _Claims)).claims

    async def pools(self) -> tuple[PoolRow, ...]:
        ask = _Ask(what="The pools could not be listed", path="/api/v1/pools")
        return (await self._read(ask, _Pools)).pools

    async def pool(self, name: str) -> PoolDetail:
        what = f"The pool {name} could not be read"
        return await self._read(_Ask(what=what, path=path_of(what, "pools", name)), PoolDetail)

    async def hosts(self) -> tuple[HostRow, ...]:
        ask = _Ask(what="The hosts could not be listed", path="/api/v1/hosts")
        return (await self._read(ask, _Hosts)).hosts

    async def limits(self, *, tenant: str = "") -> tuple[LimitRow, ...]:
        ask = _Ask(
            what="The limits could not be listed",
            path="/api/v1/limits",
            query=_query(tenant=tenant),
        )
        return (await self._read(ask, _Limits)).limits

    # --- why it is so ---

    async def explain(self, subject: Subject, name: str) -> Explanation:
        what = f"{name} could not be explained"
        path = path_of(what, subject.value, name) + "/explain"
        return await self._read(_Ask(what=what, path=path), Explanation)

    async def explain_labels(self, labels: tuple[str, ...], *, fork: bool = False) -> Explanation:
        query = tuple(("label", label) for label in labels)
        ask = _Ask(
            what="The labels could not be explained",
            path="/api/v1/explain/labels",
            query=(*query, *_query(fork="true" if fork else "")),
        )
        return await self._read(ask, Explanation)

    async def audit(
        self, *, after: int = 0, job_id: str = "", limit: int | None = None
    ) -> tuple[Event, ...]:
        found: list[Event] = []
        behind: int | None = after
        while behind is not None and (size := _room(found, limit)):
            query = _query(after=str(behind), job_id=job_id, limit=str(size))
            what = "The audit could not be read"
            page = await self._read(_Ask(what=what, path="/api/v1/audit", query=query), _AuditPage)
            found += page.entries
            behind = page.next
        return tuple(found)

    async def events(
        self,
        wanted: EventsWanted = ALL_EVENTS,
        *,
        trouble: Callable[[ApiUnavailable], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        if wanted.after is None:  # a number to come back with, should the line break at once
            wanted = replace(wanted, after=await self.newest_event())
        failures = 0
        while True:
            try:
                async with aclosing(self._events_once(wanted)) as events:
                    async for event in events:
                        failures = 0
                        wanted = replace(wanted, after=event.number)
                        yield event
            except ApiUnavailable as error:
                if trouble is not None:
                    trouble(error)
                wait_s = _AGAIN_S[min(failures, len(_AGAIN_S) - 1)]
                await self._clock.sleep(max(wait_s, error.after_s or 0.0))
                failures += 1

    async def newest_event(self) -> int:
        what = "The events could not be followed"
        query = _query(after=str(2**62), limit="1")
        ask = _Ask(what=what, path="/api/v1/audit", query=query)
        return int((await self._read(ask, dict[str, Any])).get("end", 0))

    async def _events_once(self, wanted: EventsWanted) -> AsyncGenerator[Event, None]:
        """Follow over one connection; ends when the server ends it."""
        what = "The events could not be followed"
        ask = _Ask(
            what=what,
            path="/api/v1/events",
            query=_query(job_id=wanted.job_id, pool=wanted.pool, tenant=wanted.tenant),
            headers=(("Accept", "text/event-stream"), ("Last-Event-ID", str(wanted.after))),
        )
        reader = EventReader()
        async with self._streaming(ask) as response:
            while True:
                piece = await self._piece(what, response, self._settings.events_idle_s)
                if piece is None:
                    why = "nothing came for long, not even a sign of life"
                    raise ApiUnavailable(what, why=f"{self.base}: {why}", fix="It is tried again")
                if not piece:
                    return
                for data in reader.feed(piece):
                    yield self._decode(what, data, Event)

    # --- jobs ---

    async def submit(self, job: NewJob, *, key: str) -> Submitted:
        body: dict[str, Any] = {
            "pool": job.pool,
            "env": dict(job.env),
            "timeout_s": job.timeout_s,
            "name": job.name,
        }
        if job.command:
            body["command"] = list(job.command)
        else:
            body["script"] = job.script
        if job.upload is not None:
            body["upload"] = {"file": job.upload.file_id, "sha256": job.upload.sha256}
        if job.download:
            body["download"] = list(job.download)
        ask = _Ask(
            what="The job was not taken",
            method="POST",
            path="/api/v1/jobs",
            body=msgspec.json.encode(body),
            headers=(("Idempotency-Key", key),),
        )
        return await self._read(ask, Submitted)

    async def cancel(self, job_id: str) -> Cancellation:
        what = f"The job {job_id} could not be cancelled"
        path = path_of(what, "jobs", job_id) + "/cancel"
        return (await self._read(_Ask(what=what, method="POST", path=path), _Cancelled)).outcome

    async def outcome(self, job_id: str) -> Outcome:
        what = f"How the job {job_id} goes could not be read"
        path = path_of(what, "jobs", job_id) + "/outcome"
        return await self._read(_Ask(what=what, path=path), Outcome)

    async def log(
        self, job_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        what = f"The output of the job {job_id} could not be read"
        ask = _Ask(
            what=what,
            path=path_of(what, "jobs", job_id) + "/logs",
            query=_query(offset=str(offset), follow="true" if follow else ""),
            headers=(("Accept", "text/plain"),),
        )
        idle_s = self._settings.log_idle_s if follow else self._settings.timeout_s
        async with self._streaming(ask) as response:
            while piece := await self._piece(what, response, idle_s):
                yield piece
            if piece is None and not follow:
                raise self._unreachable(what, f"it said nothing for {idle_s:g} s")

    async def send_files(self, file_id: str, *, size: int, offset: int, data: bytes) -> int:
        what = "The files were not taken"
        ask = _Ask(
            what=what,
            method="PUT",
            path=path_of(what, "files", file_id),
            query=_query(size=str(size), offset=str(offset)),
            body=data,
            headers=(("Content-Type", "application/octet-stream"),),
        )
        return (await self._read(ask, _Next)).next_offset

    async def files(self, job_id: str, *, offset: int = 0) -> AsyncGenerator[bytes, None]:
        what = f"The files of the job {job_id} could not be fetched"
        ask = _Ask(
            what=what,
            path=path_of(what, "jobs", job_id) + "/files",
            query=_query(offset=str(offset)),
            headers=(("Accept", "application/octet-stream"),),
        )
        idle_s = self._settings.timeout_s
        async with self._streaming(ask) as response:
            while piece := await self._piece(what, response, idle_s):
                yield piece
            if piece is None:
                raise self._unreachable(what, f"it said nothing for {idle_s:g} s")

    # --- the server itself ---

    async def ready(self) -> str:
        ask = _Ask(what="The server could not be asked how it does", path="/readyz")
        said = await self._exchange(ask)
        text = said.body.decode(errors="replace").strip()
        return "" if said.status == _OK else text or f"it answered {said.status}"

    async def metrics(self) -> str:
        ask = _Ask(what="The server's metrics could not be read", path="/metrics")
        said = await self._exchange(ask)
        if said.status != _OK:
            raise error_of(ask.what, self.base, said, self._token(ask.what))
        return said.body.decode(errors="replace")

    # --- the wire ---

    async def _read(self, ask: _Ask, shape: type[_T]) -> _T:
        said = await self._exchange(ask)
        if not 200 <= said.status < 300:  # noqa: PLR2004 - that is what 2xx means
            raise error_of(ask.what, self.base, said, self._token(ask.what))
        return self._decode(ask.what, said.body, shape)

    def _decode(self, what: str, body: bytes, shape: type[_T]) -> _T:
        try:
            return msgspec.json.decode(body, type=shape)
        except (msgspec.MsgspecError, ValueError) as error:
            raise no_sense(what, self.base, str(error)) from None

    async def _exchange(self, ask: _Ask) -> Said:
        timeout_s = self._settings.timeout_s
        headers = self._headers(ask)
        try:
            async with asyncio.timeout(timeout_s), self._request(ask, headers) as response:
                return await self._said(ask, response)
        except TimeoutError:
            why = f"it did not answer within {timeout_s:g} s"
            raise self._unreachable(ask.what, why) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(ask.what, error) from None

    async def _said(self, ask: _Ask, response: aiohttp.ClientResponse) -> Said:
        body = bytearray()
        while piece := await response.content.readany():
            body += piece
            if len(body) > _ANSWER_MAX_BYTES:
                size = _ANSWER_MAX_BYTES // 1024**2
                raise no_sense(ask.what, self.base, f"it is longer than {size} MiB")
        return Said(response.status, bytes(body), response.headers.get("Retry-After", ""))

    @asynccontextmanager
    async def _streaming(self, ask: _Ask) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a stream: the deadline is for its beginning, what comes after has its own."""
        headers = self._headers(ask)
        context = self._request(ask, headers)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                response = await context.__aenter__()
        except TimeoutError:
            why = f"it did not answer within {self._settings.timeout_s:g} s"
            raise self._unreachable(ask.what, why) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(ask.what, error) from None
        try:
            if response.status != _OK:
                said = await self._refused(ask, response)
                raise error_of(ask.what, self.base, said, self._token(ask.what))
            yield response
        finally:
            response.close()  # what is left of it is nobody's

    async def _refused(self, ask: _Ask, response: aiohttp.ClientResponse) -> Said:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await self._said(ask, response)
        except (TimeoutError, aiohttp.ClientError, OSError):
            return Said(response.status, b"", response.headers.get("Retry-After", ""))

    async def _piece(
        self, what: str, response: aiohttp.ClientResponse, idle_s: float
    ) -> bytes | None:
        """Return what comes next; empty at the end; None if nothing came for long."""
        try:
            async with asyncio.timeout(idle_s):
                return await response.content.read(_PIECE_BYTES)
        except TimeoutError:
            return None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(what, error) from None

    def _unreachable(self, what: str, why: Exception | str) -> ApiUnavailable:
        return unreachable(what, self.base, why, self._settings.if_unreachable)

    def _request(self, ask: _Ask, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 - aiohttp's own context manager
        return self._open_session().request(
            ask.method,
            f"{self.base}{ask.path}",
            params=list(ask.query),
            data=ask.body,
            headers=headers,
            allow_redirects=False,
        )

    def _headers(self, ask: _Ask) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **dict(ask.headers)}
        if ask.body is not None:
            headers.setdefault("Content-Type", "application/json")
        if token := self._token(ask.what):
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self, what: str) -> str:
        file = self._settings.token_file
        token, where = self._settings.token, "the setting"
        if not token and file is not None:
            where = f"the file {file}"
            try:
                token = file.read_text("ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = (isinstance(error, OSError) and error.strerror) or "it is not text"
                fix = "Check the path, its permissions, and what writes it"
                raise BadInput(what, why=f"the token in {where}: {why}", fix=fix) from None
        if (file is not None and not token) or not (token.isascii() and token.isprintable()):
            raise BadInput(what, why=f"{where} holds no token", fix="Make one, and write it there")
        return token

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._settings.connections_max, ssl=self._ssl()
                ),
                timeout=_NO_TIMEOUTS,
                headers={"User-Agent": "remuda"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _ssl(self) -> ssl.SSLContext | bool:
        file = self._settings.ca_file
        if file is None:
            return True
        try:
            return ssl.create_default_context(cafile=file)
        except (OSError, ssl.SSLError) as error:
            why = (isinstance(error, OSError) and error.strerror) or "it holds no certificate"
            raise BadInput(
                f"The certificates in {file} cannot be used",
                why=str(why),
                fix="Give a file with the server's certificate authority in PEM",
            ) from None


@asynccontextmanager
async def api_client(settings: ApiSettings, clock: Clock) -> AsyncIterator[ApiClient]:
    """Return a client that is closed at the end."""
    client = ApiClient(settings, clock)
    try:
        yield client
    finally:
        await client.close()


def _query(**given: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in given.items() if value)


def _room(found: list[Any], limit: int | None) -> int:
    """Return how many rows to ask for now; 0 if there are enough."""
    return PAGE if limit is None else max(0, min(PAGE, limit - len(found)))
