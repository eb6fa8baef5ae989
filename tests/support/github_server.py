"""
A GitHub of our own over real HTTP, on loopback: what the adapter asks of it, and the faults that GitHub has had.

It checks the App's signature, hands out tokens that end, counts rate limits, answers 304 for what has not changed, and
keeps the runners that were registered. ``watch`` sees every request and answer: the contract tests hold both against
GitHub's own OpenAPI.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from remuda.adapters.github import GithubSettings
from remuda.adapters.system import SystemClock
from tests.support import github_shapes as shapes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from tests.support.github_shapes import Json

APP_ID: Final = "7"
SECRET: Final = "hook-secret-canary-5517"  # noqa: S105 - the tests' own


class MovedClock(SystemClock):
    """The machine's clock, set ahead by hand."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@cache
def app_key() -> tuple[str, bytes]:
    """Return a key of an App and its public half, made once for all tests."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private, public


@dataclass(slots=True)
class Seen:
    """A request and its answer, as an observer sees them."""

    operation: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    status: int = 0
    answer: bytes = b""
    by_fault: bool = False


@dataclass(slots=True)
class Fault:
    """Something that goes wrong: ``hang``, ``lost`` (done, but the answer never comes), or an answer of its own."""

    operation: str
    kind: str = "answer"
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"message": "Something broke"}'
    times: int = 1
    path: str = ""
    """Only requests whose path holds this."""

    def fits(self, operation: str, path: str) -> bool:
        return self.times > 0 and self.operation in {operation, "*"} and self.path in path


@dataclass(slots=True)
class Account:
    login: str
    installation: int
    kind: str = "Organization"
    suspended: bool = False
    limit: int = 5000
    used: int = 0
    groups: dict[int, str] = field(default_factory=lambda: {1: "Default"})


@dataclass(slots=True)
class Repository:
    number: int
    account: Account
    full_name: str
    archived: bool = False
    answers: int = 0
    """Answer every request about it with this status."""


@dataclass(slots=True)
class Runner:
    number: int
    name: str
    scope: str
    body: Json
    busy: bool = False
    online: bool = False


class GithubServer:
    """The state, and the answers."""

    def __init__(self, clock: MovedClock | None = None) -> None:
        self.clock = clock or MovedClock()
        self.accounts: dict[int, Account] = {}
        self.repositories: dict[str, Repository] = {}
        self.runs: dict[int, Json] = {}
        self.jobs: dict[int, Json] = {}
        self.runners: dict[int, Runner] = {}
        self.deliveries: list[Json] = []
        self.redelivered: list[int] = []
        self.not_redeliverable: set[int] = set()
        self.app: Account | None = None
        """Counts what the App asks as itself, if it is set."""
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.watch: Callable[[Seen], None] = lambda _: None
        self.tokens: dict[str, tuple[int, datetime]] = {}
        self.jit_config = "jit-config-canary-90210"
        self.registration_token = "AREGCANARY"  # noqa: S105 - how those of the tests begin
        self.prefix = ""
        self.url = ""
        self.moved: dict[str, str] = {}
        self.codes: dict[str, Json] = {}
        """Apps that were made from a manifest and are not taken over yet, by their code."""
        self._resets_at = int(self.clock.now().timestamp()) + 3000
        self._closing = asyncio.Event()
        self._numbers = iter(range(1000, 10_000_000))

    # --- What there is ------------------------------------------------------------------------------------------------

    def account(self, login: str, *, kind: str = "Organization") -> Account:
        account = Account(login, len(self.accounts) + 41, kind)
        self.accounts[account.installation] = account
        return account

    def repository(self, account: Account, name: str) -> Repository:
        full_name = f"{account.login}/{name}"
        repository = Repository(next(self._numbers), account, full_name)
        self.repositories[full_name.lower()] = repository
        return repository

    def run(
        self, repository: Repository, *, head: Repository | None = None, status: str = "queued"
    ) -> int:
        number = next(self._numbers)
        self.runs[number] = shapes.run(
            number, self._spelled(repository), self._spelled(head or repository), status=status
        )
        return number

    def job(self, run_id: int, labels: Sequence[str] = ("fast",), **fields: object) -> int:
        number = next(self._numbers)
        self.jobs[number] = shapes.job(number, run_id, labels, fields)
        return number

    def deliver(self, guid: str, ago: timedelta, status_code: int, event: str) -> int:
        """Note an attempt to deliver a message, the newest first."""
        number = next(self._numbers)
        at = (self.clock.now() - ago).isoformat()
        self.deliveries.append(shapes.delivery(number, guid, at, status_code, event))
        self.deliveries.sort(key=lambda d: str(d["delivered_at"]), reverse=True)
        return number

    def message(self, job_id: int, action: str) -> tuple[dict[str, str], bytes]:
        """Return a signed ``workflow_job`` message about a job: its headers and its body."""
        job = self.jobs[job_id]
        repo = self.runs[int(str(job["run_id"]))]["repository"]
        assert isinstance(repo, dict)
        account = self.repositories[str(repo["full_name"]).lower()].account
        body = {
            "action": action,
            "workflow_job": job,
            "repository": repo,
            "installation": {"id": account.installation, "node_id": "I_1"},
            "sender": repo["owner"],
        }
        raw = json.dumps(body).encode()
        return signed(raw, guid=f"{next(self._numbers):08x}-0000-4000-8000-000000000000"), raw

    def settings(self, **changes: object) -> GithubSettings:
        given: dict[str, object] = {
            "app_id": APP_ID,
            "private_key": app_key()[0],
            "webhook_secrets": (SECRET,),
            "api_url": self.url,
            "call_s": 5.0,
            "mint_s": 5.0,
            **changes,
        }
        return GithubSettings(**given)  # type: ignore[arg-type]

    def asked(self, operation: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.operation == operation]

    def _spelled(self, repository: Repository) -> Json:
        account = repository.account
        owner = shapes.user(account.login, account.kind)
        return shapes.repository(
            repository.number, repository.full_name, owner=owner, archived=repository.archived
        )

    # --- The server ---------------------------------------------------------------------------------------------------

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._middleware], client_max_size=2**20)
        runners = "/actions/runners"
        for place in ("/orgs/{org}", "/repos/{owner}/{repo}"):
            app.router.add_post(f"{place}{runners}/generate-jitconfig", self._mint)
            app.router.add_post(f"{place}{runners}/registration-token", self._registration_token)
            app.router.add_get(f"{place}{runners}", self._runners)
            app.router.add_delete(f"{place}{runners}/{{runner_id}}", self._remove)
        app.router.add_get("/orgs/{org}/actions/runner-groups", self._groups)
        repo = "/repos/{owner}/{repo}/actions"
        app.router.add_get(f"{repo}/jobs/{{job_id}}", self._job)
        app.router.add_get(f"{repo}/runs", self._runs)
        app.router.add_get(f"{repo}/runs/{{run_id}}", self._run)
        app.router.add_get(f"{repo}/runs/{{run_id}}/jobs", self._jobs)
        app.router.add_get("/repositories/{moved:.+}", self._job_moved)
        app.router.add_get("/installation/repositories", self._repositories)
        app.router.add_get("/app/installations", self._installations)
        app.router.add_post("/app-manifests/{code}/conversions", self._conversion)
        app.router.add_post("/app/installations/{number}/access_tokens", self._token)
        app.router.add_get("/app/hook/deliveries", self._deliveries)
        app.router.add_post("/app/hook/deliveries/{number}/attempts", self._attempt)
        return app

    @asynccontextmanager
    async def running(
        self, prefix: str = "", pages: Sequence[web.AbstractRouteDef] = ()
    ) -> AsyncIterator[GithubServer]:
        """Serve on loopback; ``prefix`` is ``/api/v3`` for an Enterprise Server, which may have pages beside it."""
        outer = web.Application() if prefix else self.application()
        if prefix:
            outer.add_routes(pages)
            outer.add_subapp(prefix, self.application())
        runner = web.AppRunner(outer, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.prefix, self.url = prefix, f"http://{host}:{port}{prefix}"
        try:
            yield self
        finally:
            self._closing.set()
            await runner.cleanup()

    @web.middleware
    async def _middleware(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        operation = getattr(request.match_info.handler, "__name__", "?").strip("_")
        path = request.path.removeprefix(self.prefix)
        body = await request.read()
        seen = Seen(operation, request.method, path, dict(request.query), request.headers, body)
        self.seen.append(seen)
        fault = next((f for f in self.faults if f.fits(operation, path)), None)
        if fault is not None:
            fault.times -= 1
            seen.by_fault = True
            answer = await self._faulty(fault, request, handler)
        else:
            answer = await self._answer(request, handler)
        assert isinstance(answer, web.Response)
        seen.status, seen.answer = answer.status, bytes(answer.body or b"")  # type: ignore[arg-type]
        self.watch(seen)
        return answer

    async def _faulty(
        self,
        fault: Fault,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if fault.kind == "answer":
            return web.Response(
                status=fault.status,
                headers=fault.headers,
                body=fault.body,
                content_type="application/json",
            )
        if fault.kind == "lost":
            await self._answer(request, handler)
        elif fault.kind == "hang":
            await self._closing.wait()
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async def _answer(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            installation = self._who(request)
            answer = await handler(request)
        except _Refused as refused:
            return _json(shapes.refusal(refused.message), refused.status)
        assert isinstance(answer, web.Response)
        answer.headers["x-github-request-id"] = "F:1"
        account = self.app if installation is None else self.accounts[installation]
        if account is not None:
            self._charge(account, request, answer)
        return answer

    def _charge(self, account: Account, request: web.Request, answer: web.Response) -> None:
        """Count the request, unless nothing has changed since the caller's last one."""
        etag = f'"{hashlib.sha256(bytes(answer.body or b"")).hexdigest()[:32]}"'  # type: ignore[arg-type]
        if request.method == "GET" and answer.status == 200:
            answer.headers["etag"] = etag
            if request.headers.get("if-none-match") == etag:
                answer.set_status(304)
                answer.body = None
        if answer.status != 304:
            account.used += 1
        answer.headers["x-ratelimit-limit"] = str(account.limit)
        answer.headers["x-ratelimit-remaining"] = str(max(0, account.limit - account.used))
        answer.headers["x-ratelimit-reset"] = str(self._resets_at)

    # --- Who asks -----------------------------------------------------------------------------------------------------

    def _who(self, request: web.Request) -> int | None:
        """Return the installation that asks; None for the App itself."""
        if request.headers.get("x-github-api-version") != "2022-11-28":
            raise _Refused(400, "The API version is missing")
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if request.path.removeprefix(self.prefix).startswith("/app-manifests/"):
            return None  # whoever has the code
        if request.path.removeprefix(self.prefix).startswith("/app/"):
            self._check_app(kind, token)
            return None
        known = self.tokens.get(token)
        if known is None or known[1] <= self.clock.now() or kind.lower() not in {"token", "bearer"}:
            raise _Refused(
                401, f"Bad credentials: {token}"
            )  # GitHub's does not quote it; a worse one might
        if self.accounts[known[0]].suspended:
            raise _Refused(403, "This installation has been suspended")
        return known[0]

    def _check_app(self, kind: str, token: str) -> None:
        now = self.clock.now().timestamp()
        try:
            claims = jwt.decode(
                token,
                app_key()[1],
                algorithms=["RS256"],
                options={
                    "require": ["iat", "exp", "iss"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            raise _Refused(401, f"A JSON web token could not be decoded: {token}") from error
        in_time = claims["iat"] <= now + 1 and now < claims["exp"] <= now + 600
        if kind.lower() != "bearer" or str(claims["iss"]) != APP_ID or not in_time:
            raise _Refused(401, "'Issuer' or 'Expiration time' claim is wrong")

    def _account(self, request: web.Request) -> Account:
        token = request.headers["authorization"].partition(" ")[2]
        return self.accounts[self.tokens[token][0]]

    def _repository(self, request: web.Request) -> Repository:
        name = f"{request.match_info['owner']}/{request.match_info['repo']}"
        found = self.repositories.get(name.lower())
        if found is None or found.account is not self._account(request):
            raise _Refused(404, "Not Found")
        if found.answers:
            raise _Refused(found.answers, "Resource not accessible by integration")
        return found

    def _scope(self, request: web.Request) -> str:
        """Return the place of the request's runners, if there is such a place."""
        if "org" not in request.match_info:
            return f"repos/{self._repository(request).full_name}"
        account = self._account(request)
        if (
            request.match_info["org"].lower() != account.login.lower()
            or account.kind != "Organization"
        ):
            raise _Refused(404, "Not Found")
        return f"orgs/{account.login}"

    # --- Answers ------------------------------------------------------------------------------------------------------

    async def _installations(self, request: web.Request) -> web.Response:
        spelled = [
            shapes.installation(a.installation, shapes.user(a.login, a.kind), suspended=a.suspended)
            for a in self.accounts.values()
        ]
        return self._paged(request, spelled, lambda page: page)

    async def _conversion(self, request: web.Request) -> web.Response:
        """Give an App to whoever has its code, once."""
        app = self.codes.pop(request.match_info["code"], None)
        if app is None:
            raise _Refused(404, "Not Found")
        return _json(app, 201)

    async def _token(self, request: web.Request) -> web.Response:
        account = self.accounts.get(int(request.match_info["number"]))
        if account is None:
            raise _Refused(404, "Not Found")
        if account.suspended:
            raise _Refused(403, "This installation has been suspended")
        token = f"ghs_canary{next(self._numbers)}"
        ends = self.clock.now() + timedelta(hours=1)
        self.tokens[token] = (account.installation, ends)
        return _json({"token": token, "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}, 201)

    async def _mint(self, request: web.Request) -> web.Response:
        scope, wanted = self._scope(request), await request.json()
        account = self._account(request)
        if wanted["runner_group_id"] not in account.groups:
            raise _Refused(404, "Not Found")
        if len(wanted["name"]) > 64 or not wanted["labels"]:
            raise _Refused(422, "Validation Failed")
        if any(r.name == wanted["name"] and r.scope == scope for r in self.runners.values()):
            raise _Refused(409, "Already exists")
        number = next(self._numbers)
        self.runners[number] = Runner(number, wanted["name"], scope, wanted)
        spelled = shapes.runner(number, wanted["name"], wanted["labels"], busy=False)
        return _json({"runner": spelled, "encoded_jit_config": self.jit_config}, 201)

    def registered(self, name: str, organisation: str, **how: bool) -> Runner:
        """Have a runner that registered itself by a token."""
        number = next(self._numbers)
        body: Json = {"labels": ["image-builder"]}
        self.runners[number] = Runner(number, name, f"orgs/{organisation}", body, **how)
        return self.runners[number]

    async def _registration_token(self, request: web.Request) -> web.Response:
        self._scope(request)
        ends = self.clock.now() + timedelta(hours=1)
        token = f"{self.registration_token}{next(self._numbers)}"
        return _json({"token": token, "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}, 201)

    async def _runners(self, request: web.Request) -> web.Response:
        scope, name = self._scope(request), request.query.get("name", "")
        spelled = [
            shapes.runner(r.number, r.name, r.body["labels"], busy=r.busy, online=r.online)  # type: ignore[arg-type]
            for r in self.runners.values()
            if r.scope == scope and name in r.name
        ]
        return self._paged(request, spelled, lambda p: {"total_count": len(spelled), "runners": p})

    async def _remove(self, request: web.Request) -> web.Response:
        scope, number = self._scope(request), int(request.match_info["runner_id"])
        runner = self.runners.get(number)
        if runner is None or runner.scope != scope:
            raise _Refused(404, "Not Found")
        if runner.busy:
            raise _Refused(422, f"Runner {runner.name} is currently running a job")
        del self.runners[number]
        return web.Response(status=204)

    async def _groups(self, request: web.Request) -> web.Response:
        self._scope(request)
        spelled = [shapes.group(n, name) for n, name in self._account(request).groups.items()]
        return self._paged(
            request, spelled, lambda p: {"total_count": len(spelled), "runner_groups": p}
        )

    async def _job(self, request: web.Request) -> web.Response:
        name = f"{request.match_info['owner']}/{request.match_info['repo']}"
        if moved := self.moved.get(name.lower()):
            return web.Response(status=301, headers={"location": moved})
        self._repository(request)
        job = self.jobs.get(int(request.match_info["job_id"]))
        if job is None:
            raise _Refused(404, "Not Found")
        return _json(job)

    async def _job_moved(self, request: web.Request) -> web.Response:
        return _json(self.jobs[int(request.match_info["moved"].rpartition("/")[2])])

    async def _run(self, request: web.Request) -> web.Response:
        self._repository(request)
        run = self.runs.get(int(request.match_info["run_id"]))
        if run is None:
            raise _Refused(404, "Not Found")
        return _json(run)

    async def _runs(self, request: web.Request) -> web.Response:
        name, status = self._repository(request).full_name, request.query.get("status", "")
        spelled = [r for r in self.runs.values() if r["status"] == status and _full_name(r) == name]
        return self._paged(
            request, spelled, lambda p: {"total_count": len(spelled), "workflow_runs": p}
        )

    async def _jobs(self, request: web.Request) -> web.Response:
        self._repository(request)
        run_id = int(request.match_info["run_id"])
        spelled = [j for j in self.jobs.values() if j["run_id"] == run_id]
        return self._paged(request, spelled, lambda p: {"total_count": len(spelled), "jobs": p})

    async def _repositories(self, request: web.Request) -> web.Response:
        account = self._account(request)
        mine = [self._spelled(r) for r in self.repositories.values() if r.account is account]
        return self._paged(request, mine, lambda p: {"total_count": len(mine), "repositories": p})

    async def _deliveries(self, request: web.Request) -> web.Response:
        per_page, start = int(request.query["per_page"]), int(request.query.get("cursor", "0"))
        page = self.deliveries[start : start + per_page]
        answer = _json(page)
        if start + per_page < len(self.deliveries):
            link = f"{self.url}/app/hook/deliveries?per_page={per_page}&cursor={start + per_page}"
            answer.headers["link"] = f'<{link}>; rel="next"'
        return answer

    async def _attempt(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        if number in self.not_redeliverable:
            raise _Refused(422, "Validation Failed")
        self.redelivered.append(number)
        return _json({}, 202)

    def _paged(
        self,
        request: web.Request,
        items: Sequence[object],
        wrap: Callable[[Sequence[object]], object],
    ) -> web.Response:
        per_page, page = (
            int(request.query.get("per_page", "30")),
            int(request.query.get("page", "1")),
        )
        shown = items[(page - 1) * per_page : page * per_page]
        answer = _json(wrap(shown))
        if page * per_page < len(items):
            link = request.url.update_query(page=page + 1)
            answer.headers["link"] = f'<{link}>; rel="next", <{link}>; rel="last"'
        return answer


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def signed(body: bytes, *, guid: str, secret: str = SECRET) -> dict[str, str]:
    """Return the headers of a ``workflow_job`` message, with the names in lower case."""
    return {
        "content-type": "application/json",
        "x-github-event": "workflow_job",
        "x-github-delivery": guid,
        "x-hub-signature-256": "sha256="
        + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
    }


def _full_name(run: Json) -> object:
    repository = run["repository"]
    assert isinstance(repository, dict)
    return repository["full_name"]


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status, body=json.dumps(value).encode(), content_type="application/json"
    )
