"""
The API server without HTTP: requests in, answers out. Who asks, what for, in which shape, and which verb that is.

``handle`` answers requests that end, ``stream`` those that go on (watches). What the verbs do is in ``rest``; nothing
here touches the store. Logs are not the store's: the HTTP front fetches them from the agents.
"""

from __future__ import annotations

import hmac
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.ports.wire import Request, Response
from remuda.standalone import discovery, openapi, subresources
from remuda.standalone.bodies import check_body
from remuda.standalone.errors import (
    Cause,
    StatusError,
    bad_request,
    invalid,
    unauthorized,
    unsupported_media_type,
)
from remuda.standalone.lists import options_refused
from remuda.standalone.requests import (
    MediaType,
    Target,
    Targets,
    accepted,
    flag,
    method_not_allowed,
    no_such_path,
    number,
)
from remuda.standalone.rest import DEFAULT_WRITE, WriteOptions
from remuda.standalone.reviews import Reviews
from remuda.standalone.shapes import Shaper
from remuda.standalone.store import encode
from remuda.standalone.streams import Stream, opened_watch, refused
from remuda.standalone.users import ADMIN, ANONYMOUS, User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping

    from remuda.ports.wire import WireStream
    from remuda.standalone.objects import Obj
    from remuda.standalone.rest import Rest
    from remuda.standalone.tokens import Tokens

BODY_SIZE_MAX = 3 * 1024 * 1024
_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_PUBLIC = _HEALTH | {"/version"}
_LOG_PARTS, _LOG_ROOT = 8, ["api", "v1", "namespaces"]
_JSON_BODIES = frozenset({"", "application/json", "*/*"})
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"

_decode = msgspec.json.Decoder().decode


class ApiServer:
    """Answers requests. RBAC-free: whoever is authenticated may do everything."""

    def __init__(
        self,
        rest: Rest,
        tokens: Tokens,
        *,
        admin_token: str,
        bookmark_every_s: float = 60.0,
    ) -> None:
        self.rest = rest
        self._reviews = Reviews(rest, tokens)
        self._admin_token = admin_token.encode()
        self._shaper = Shaper(rest.clock)
        self._targets = Targets(rest.kinds)
        self._bookmark_every_s = bookmark_every_s

    # --- Who --------------------------------------------------------------------------------------------------------

    def authenticate(self, bearer: str | None) -> User:
        """Return who holds a token; nobody in particular without one. StatusError 401 for a bad one."""
        if bearer is None:
            return ANONYMOUS
        return ADMIN if self.is_admin(bearer) else self._reviews.user(bearer)

    def is_admin(self, bearer: str) -> bool:
        """Tell whether a token is the administrator's, which is the one that holds for good."""
        # Whatever bytes a header held: surrogates stand for those that are no text.
        return hmac.compare_digest(bearer.encode(errors="surrogateescape"), self._admin_token)

    # --- Answers that end -------------------------------------------------------------------------------------------

    async def handle(self, request: Request, user: User) -> Response:
        """Answer a request. Refusals are answers too: nothing is raised."""
        try:
            if is_stream(request):
                return await self._read_stream(request, user)
            self._check(request, user)
            answer = self._answer(request, user)
            return answer if isinstance(answer, Response) else await answer
        except StatusError as refusal:
            return refused(refusal)
        except RecursionError:
            return refused(bad_request("the request body is nested too deeply"))
        except UnicodeDecodeError:
            return refused(bad_request("the request body is not UTF-8"))

    def _check(self, request: Request, user: User) -> None:
        if user.is_anonymous and request.path not in _PUBLIC:
            raise unauthorized()
        if len(request.body) > BODY_SIZE_MAX:
            message = f"Request entity too large: limit is {BODY_SIZE_MAX}"
            raise StatusError(413, "RequestEntityTooLarge", message)

    def _answer(self, request: Request, user: User) -> Response | Awaitable[Response]:
        """Answer at once if nothing has to be waited for: most of what a simulated fleet writes never waits."""
        if request.path in _HEALTH:
            return Response(200, b"ok")
        try:
            target = self._targets.find(request.path)
        except StatusError:
            return Response(200, encode(self._describe(request)))
        query = dict(request.query)
        shown_as = accepted(request.accept)
        match request.method:
            case "GET":
                return self._read(target, query, shown_as)
            case "POST":
                return self._post(target, request, query, user)
            case "PUT" | "PATCH":
                return self._change(target, request, query, shown_as)
            case "DELETE":
                return self._delete(target, request, query, shown_as)
            case _:
                raise method_not_allowed()

    def _describe(self, request: Request) -> Obj:
        """Say what is served: discovery, OpenAPI, version."""
        if request.method != "GET":
            raise no_such_path()
        found = discovery.answer(self.rest.kinds, request.path, request.accept)
        if found is None:
            found = openapi.answer(self.rest.kinds, request.path)
        if found is None:
            raise no_such_path()
        return found

    def _read(self, target: Target, query: Mapping[str, str], shown_as: MediaType) -> Response:
        kind = target.kind
        if not target.name:
            _check_verb(target, "list")
            return self._list(target, query, shown_as)
        _check_verb(target, "get")
        obj = self.rest.get(kind, target.namespace, target.name)
        if target.subresource == "scale":
            return Response(200, encode(subresources.scale_of(kind, obj)))
        if target.subresource not in {"", "status"}:
            raise method_not_allowed()
        return Response(200, encode(self._shaper.one(kind, obj, shown_as, query)))

    def _list(self, target: Target, query: Mapping[str, str], shown_as: MediaType) -> Response:
        if "sendInitialEvents" in query:
            raise _list_option_refused()
        listed = self.rest.list(
            target.kind,
            target.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
            limit=number(query, "limit", 0) or 0,
            continue_=query.get("continue", ""),
            resource_version=query.get("resourceVersion", ""),
            match=query.get("resourceVersionMatch", ""),
        )
        return Response(200, encode(self._shaper.many(target.kind, listed, shown_as, query)))

    async def _post(
        self, target: Target, request: Request, query: Mapping[str, str], user: User
    ) -> Response:
        kind, rest = target.kind, self.rest
        if target.name:
            return await self._post_to(target, request)
        _check_verb(target, "create")
        body = _body(request, kind.kind)
        review = self._reviews.answer(kind, body, user)
        if review is not None:
            return Response(201, encode(review))
        options = _write_options(query)
        namespace = target.namespace
        created = await rest.create(kind, namespace, body, options=options)
        return Response(
            201, encode(self._shaper.one(kind, created, accepted(request.accept), query))
        )

    async def _post_to(self, target: Target, request: Request) -> Response:
        """Answer the subresources that are created: binding, eviction, token."""
        kind, namespace, name = target.kind, target.namespace, target.name
        match target.subresource:
            case "binding":
                await subresources.bind(self.rest, namespace, name, _body(request, "Binding"))
            case "eviction":
                body = _body(request, "Eviction")
                await subresources.evict(self.rest, kind, namespace, name, body)
            case "token":
                body = _body(request, "TokenRequest")
                return Response(201, encode(self._reviews.issue(namespace, name, body)))
            case _:
                raise method_not_allowed()
        return Response(201, encode(_SUCCESS | {"code": 201}))

    def _change(
        self, target: Target, request: Request, query: Mapping[str, str], shown_as: MediaType
    ) -> Response | Awaitable[Response]:
        kind, sub = target.kind, target.subresource
        if not target.name or sub not in {"", "status", "scale", "finalize"}:
            raise method_not_allowed()
        _check_verb(target, "update")
        options = _write_options(query)
        if sub == "scale":
            return self._scale(target, request, options)
        if request.method == "PUT":
            return self._put(target, request, query, shown_as, options)
        changed = self.rest.accept_patch(
            kind,
            target.namespace,
            target.name,
            request.body,
            request.content_type,
            subresource=sub,
            options=options,
        )
        answer = Response(200, encode(self._shaper.one(kind, changed.obj, shown_as, query)))
        return self._once_settled(answer) if changed.wait else answer

    async def _once_settled(self, answer: Response) -> Response:
        await self.rest.store.settled()
        return answer

    async def _put(
        self,
        target: Target,
        request: Request,
        query: Mapping[str, str],
        shown_as: MediaType,
        options: WriteOptions,
    ) -> Response:
        kind, place, sub = target.kind, (target.namespace, target.name), target.subresource
        existed = self.rest.store.get(kind, *place) is not None
        body = _body(request, kind.kind)
        changed = await self.rest.update(kind, *place, body, subresource=sub, options=options)
        code = 200 if existed else 201
        return Response(code, encode(self._shaper.one(kind, changed, shown_as, query)))

    async def _scale(self, target: Target, request: Request, options: WriteOptions) -> Response:
        kind, place = target.kind, (target.namespace, target.name)
        if request.method == "PATCH":
            scale = await subresources.patch_scale(
                self.rest, kind, place, request.body, request.content_type
            )
        else:
            body = _body(request, "Scale")
            scale = await subresources.put_scale(self.rest, kind, *place, body, options)
        return Response(200, encode(scale))

    async def _delete(
        self, target: Target, request: Request, query: Mapping[str, str], shown_as: MediaType
    ) -> Response:
        if target.subresource:
            raise method_not_allowed()
        asked = _delete_options(request, query)
        dry_run = bool(asked.get("dryRun"))
        cascade, grace_s = _cascade(asked), asked.get("gracePeriodSeconds")
        kind = target.kind
        if not target.name:
            _check_verb(target, "deletecollection")
            labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
            selection = self.rest.select(kind, target.namespace, labels, fields)
            gone = await self.rest.delete_collection(
                selection, cascade=cascade, grace_s=grace_s, dry_run=dry_run
            )
            meta = {"resourceVersion": str(self.rest.store.revision)}
            listed = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": meta}
            shown = self._shaper.many(kind, listed | {"items": list(gone)}, shown_as, query)
            return Response(200, encode(shown))
        _check_verb(target, "delete")
        conditions = asked.get("preconditions") or {}
        last = await self.rest.delete(
            kind,
            target.namespace,
            target.name,
            uid=conditions.get("uid") or "",
            resource_version=conditions.get("resourceVersion") or "",
            cascade=cascade,
            grace_s=grace_s,
            dry_run=dry_run,
        )
        return Response(200, encode(self._deleted(target, last)))

    def _deleted(self, target: Target, last: Obj) -> Obj:
        """Answer a delete: with the object while it is still there, or if its kind has it so; else with a Status."""
        kind = target.kind
        if self.rest.rules(kind).returns_deleted or self._still_there(target, last):
            return last
        details = {
            "name": target.name,
            "group": kind.group,
            "kind": kind.plural,
            "uid": last["metadata"]["uid"],
        }
        return _SUCCESS | {"details": {key: value for key, value in details.items() if value}}

    def _still_there(self, target: Target, last: Obj) -> bool:
        found = self.rest.store.get(target.kind, target.namespace, target.name)
        return found is not None and found["metadata"]["uid"] == last["metadata"]["uid"]

    # --- Answers that go on -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def stream(self, request: Request, user: User) -> AsyncIterator[WireStream]:
        """Open a watch. A refusal is a stream of its own: its status, and a Status as its only chunk."""
        try:
            stream = self._open(request, user)
        except StatusError as refusal:
            answer = refused(refusal)
            stream = Stream.of(answer.status, answer.body)
        try:
            yield stream
        finally:
            stream.close()

    def _open(self, request: Request, user: User) -> Stream:
        self._check(request, user)
        target = self._targets.find(request.path)
        query = dict(request.query)
        _check_verb(target, "watch")
        if target.name:
            raise method_not_allowed()
        shape = self._shaper.of_events(target.kind, accepted(request.accept), query)
        return opened_watch(self.rest, target, query, shape, self._bookmark_every_s)

    async def _read_stream(self, request: Request, user: User) -> Response:
        async with self.stream(request, user) as stream:
            return Response(stream.status, b"".join([chunk async for chunk in stream.chunks()]))


_SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def is_stream(request: Request) -> bool:
    """Tell whether the answer may go on for long: a watch, or a log."""
    if request.method != "GET":
        return False
    if is_log(request.path):
        return True
    return any(name == "watch" and flag({name: value}, name) for name, value in request.query)


def is_log(path: str) -> bool:
    """Tell whether a path is a Pod's log: ``/api/v1/namespaces/NAMESPACE/pods/POD/log``."""
    if not path.endswith("/log"):
        return False
    parts = path.split("/")
    return len(parts) == _LOG_PARTS and parts[1:4] == _LOG_ROOT and parts[5] == "pods"


def content_type_of(request: Request, response: Response) -> str:
    """Return the Content-Type of an answer, for the HTTP front."""
    if response.status == 200 and request.path in _HEALTH:  # noqa: PLR2004 - OK
        return "text/plain"
    if request.path in {"/api", "/apis"} and b'"APIGroupDiscoveryList"' in response.body[:200]:
        version = "v2" if b'apidiscovery.k8s.io/v2"' in response.body[:200] else "v2beta1"
        return _AGGREGATED.format(version=version)
    return "application/json"


_ACROSS_NAMESPACES = frozenset({"list", "watch"})


def _check_verb(target: Target, verb: str) -> None:
    if verb not in target.kind.verbs:
        raise method_not_allowed()
    if target.kind.namespaced and not target.namespace and verb not in _ACROSS_NAMESPACES:
        raise method_not_allowed()


def _list_option_refused() -> StatusError:
    return options_refused("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _body(request: Request, kind: str) -> Obj:
    if request.content_type.partition(";")[0].strip() not in _JSON_BODIES:
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json"
        )
    try:
        body: Any = _decode(request.body)
    except msgspec.DecodeError as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
            f"json parse error: {error}"
        ) from error
    if not isinstance(body, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): not an object"
        )
    return body


def _write_options(query: Mapping[str, str]) -> WriteOptions:
    if "dryRun" not in query and "fieldValidation" not in query:
        return DEFAULT_WRITE
    return WriteOptions(
        dry_run=_dry_run(query.get("dryRun", ""), "CreateOptions"),
        field_validation=query.get("fieldValidation") or "Warn",
    )


def _dry_run(value: str, kind: str) -> bool:
    if value not in {"", "All"}:
        message = f'Unsupported value: ["{value}"]: supported values: "All"'
        raise _option_refused(kind, "dryRun", message)
    return value == "All"


def _option_refused(kind: str, field: str, message: str) -> StatusError:
    return invalid("meta.k8s.io", kind, "", [Cause(field, "FieldValueNotSupported", message)])


def _delete_options(request: Request, query: Mapping[str, str]) -> Obj:
    """Return DeleteOptions from the body, or from the query if there is no body."""
    if request.body:
        body = _body(request, "DeleteOptions")
        check_body("DeleteOptions", body)
        return body
    options: Obj = {
        "propagationPolicy": query.get("propagationPolicy"),
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "dryRun": ["All"] if _dry_run(query.get("dryRun", ""), "DeleteOptions") else None,
    }
    if "orphanDependents" in query:
        options["orphanDependents"] = flag(query, "orphanDependents")
    return options


def _cascade(options: Obj) -> str:
    policy = options.get("propagationPolicy") or ""
    orphan = options.get("orphanDependents")
    if policy and orphan is not None:
        raise bad_request("orphanDependents and deletionPropagation cannot be both set")
    if policy not in {"", "Background", "Foreground", "Orphan"}:
        supported = 'supported values: "Foreground", "Background", "Orphan", "nil"'
        message = f'Unsupported value: "{policy}": {supported}'
        raise _option_refused("DeleteOptions", "propagationPolicy", message)
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    return str(policy)
