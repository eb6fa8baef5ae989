"""
Who asks, as dependencies of routes. A token stands in ``Authorization: Bearer`` and nowhere else, and is never logged.

401: nobody could tell who it is. 403: it is known, and may not do this.
"""

from typing import Annotated, Protocol, TypeVar

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from remuda.dispatch.api.problems import Problem
from remuda.dispatch.tokens import PREFIX
from remuda.dispatch.who import PersonIdentity, ServiceIdentity, Unknown
from remuda.ports.api_tokens import Role

_Who = TypeVar("_Who", PersonIdentity, ServiceIdentity)
_TOKEN_MAX_CHARS = 8192
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
    if who.status == 401:  # noqa: PLR2004 - the status that says so
        raise unauthorized(who.why, who.fix)
    raise Problem(who.status, "You may not do this", who.why, who.fix)


def _doorman(request: Request) -> Doorman:
    doorman: Doorman = request.app.state.doorman
    return doorman
