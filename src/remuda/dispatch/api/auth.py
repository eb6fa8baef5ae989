"""
Who asks, as dependencies of routes. A token stands in ``Authorization: Bearer`` and nowhere else, and is never logged.

401: nobody could tell who it is. 403: it is known, and may not do this.
"""

from collections.abc import Sequence
from typing import Annotated, Protocol, TypeVar

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from remuda.dispatch.api.problems import Problem, from_error, from_problem
from remuda.dispatch.tokens import PREFIX
from remuda.dispatch.who import PersonIdentity, ServiceIdentity, Unknown
from remuda.model.errors import RemudaError
from remuda.ports.api_tokens import Role

_Who = TypeVar("_Who", PersonIdentity, ServiceIdentity)
_TOKEN_MAX_CHARS = 8192
_NOBODY = 401
"""The status of who is not known at all."""
_SEND = "Send the header Authorization: Bearer <token>"


class Doorman(Protocol):
    """Who belongs to a token. Filled by ``remuda.dispatch.identity``."""

    async def person(self, token: str) -> PersonIdentity | Unknown: ...

    async def service(self, token: str) -> ServiceIdentity | Unknown: ...

    def is_controller(self, who: ServiceIdentity) -> bool: ...


_person_scheme = HTTPBearer(
    scheme_name="apiToken",
    bearerFormat="rmd_",
    description="A token of a person or a tool, made with `remuda server tokens create`. Its role is read or operate.",
    auto_error=False,
)
_service_scheme = HTTPBearer(
    scheme_name="serviceAccount",
    bearerFormat="JWT",
    description="A token of a Kubernetes ServiceAccount for the audience remuda-dispatch.",
    auto_error=False,
)
_Person = Annotated[HTTPAuthorizationCredentials | None, Security(_person_scheme)]
_Service = Annotated[HTTPAuthorizationCredentials | None, Security(_service_scheme)]


def bearer(request: Request) -> str:
    """Return the token of a request; 401 if there is none that can be one."""
    said = request.headers.getlist("authorization")
    if not said:
        raise unauthorized("the request carries no token", _SEND)
    scheme, _, token = said[0].strip().partition(" ")
    token = token.strip()
    usable = len(said) == 1 and scheme.lower() == "bearer" and 0 < len(token) <= _TOKEN_MAX_CHARS
    if not usable or not (token.isascii() and token.isprintable()) or " " in token:
        raise unauthorized("the request's Authorization header holds no bearer token", _SEND)
    return token


def unauthorized(why: str, fix: str) -> Problem:
    return Problem(401, "Who are you?", why, fix, {"WWW-Authenticate": "Bearer"})


async def reader(request: Request, _: _Person = None) -> PersonIdentity:
    """Let in who may read."""
    return await _person(request, Role.READ)


async def operator_role(request: Request, _: _Person = None) -> PersonIdentity:
    """Let in who may change things."""
    return await _person(request, Role.OPERATE)


async def controller_only(request: Request, _: _Service = None) -> ServiceIdentity:
    """Let in the operator's own ServiceAccount."""
    doorman = _doorman(request)
    who = _known(await doorman.service(bearer(request)))
    if not doorman.is_controller(who):
        why = f"{who.namespace}/{who.name} is not the operator's ServiceAccount"
        fix = "Only the operator calls this; its account is a setting of the server"
        raise Problem(403, "You may not do this", why, fix)
    return who


async def any_service_or_reader(
    request: Request, _: _Service = None, __: _Person = None
) -> ServiceIdentity | PersonIdentity:
    """Let in any ServiceAccount of the cluster that is no runner's, and who may read."""
    token = bearer(request)
    if token.startswith(PREFIX):
        return await _person(request, Role.READ)
    return _known(await _doorman(request).service(token))


class KnownFirst:
    """Middleware: a body is read for those only who are known. Reading JSON takes time that others wait."""

    def __init__(self, app: ASGIApp, doorman: Doorman, taking: Sequence[BaseRoute]) -> None:
        self._app = app
        self._doorman = doorman
        self._taking = taking
        """The routes that take a body. What they let in is theirs to decide."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._takes(scope):
            await self._app(scope, receive, send)
            return
        try:
            await self._look(bearer(Request(scope)))
        except Problem as problem:
            await _closing(problem)(scope, receive, send)
        except RemudaError as error:
            await _closing(from_error(error))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _takes(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self._taking)

    async def _look(self, token: str) -> None:
        ask = self._doorman.person if token.startswith(PREFIX) else self._doorman.service
        who = await ask(token)
        # A runner is known, though it is no service of the cluster.
        if isinstance(who, Unknown) and who.status == _NOBODY:
            raise unauthorized(who.why, who.fix)


def _closing(problem: Problem) -> Response:
    """Return the answer to somebody whose body stays unread, which only the connection's end can say."""
    problem.headers = {**(problem.headers or {}), "Connection": "close"}
    return from_problem(problem)


Reader = Annotated[PersonIdentity, Security(reader, scopes=["read"])]
Operator = Annotated[PersonIdentity, Security(operator_role, scopes=["operate"])]
Controller = Annotated[ServiceIdentity, Security(controller_only)]
RunnerToken = _Service
"""Says in the API's description that a runner's own token is needed; ``bearer`` reads it."""
Caller = Annotated[ServiceIdentity | PersonIdentity, Security(any_service_or_reader)]


async def _person(request: Request, needed: Role) -> PersonIdentity:
    who = _known(await _doorman(request).person(bearer(request)))
    if not who.role.includes(needed):
        why = f"the token {who.name} has the role {who.role}, and this needs {needed}"
        fix = f"Use a token with the role {needed}"
        raise Problem(403, "You may not do this", why, fix)
    return who


def _known(who: _Who | Unknown) -> _Who:
    if not isinstance(who, Unknown):
        return who
    if who.status == _NOBODY:
        raise unauthorized(who.why, who.fix)
    raise Problem(who.status, "You may not do this", who.why, who.fix)


def _doorman(request: Request) -> Doorman:
    doorman: Doorman = request.app.state.doorman
    return doorman
