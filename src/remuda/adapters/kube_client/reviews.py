"""Questions that are asked by creating an object: tokens, whose token this is, and what we may do. Pure."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from remuda.adapters.kube_client.refusals import nonsense
from remuda.kube.core import SERVICE_ACCOUNT
from remuda.kube.meta import Resource
from remuda.ports.kube import Token, TokenSubject

if TYPE_CHECKING:
    from remuda.kube.kinds import Kind
    from remuda.ports.kube import BoundPod

__all__ = [
    "ACCESS_REVIEWS",
    "SERVICE_ACCOUNT",
    "TOKEN_REVIEWS",
    "access_review",
    "allowed",
    "subject",
    "token",
    "token_request",
    "token_review",
]

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"

T = TypeVar("T", bound=Resource)
A = TypeVar("A")


class _TokenStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str
    expiration_timestamp: datetime


class _TokenRequest(msgspec.Struct, frozen=True):
    status: _TokenStatus


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _ReviewStatus


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus


def token_request(audience: str, expiration_s: int, pod: BoundPod | None) -> bytes:
    spec: dict[str, object] = {"audiences": [audience], "expirationSeconds": expiration_s}
    if pod is not None:
        spec["boundObjectRef"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "uid": pod.uid,
        }
    return _body("authentication.k8s.io/v1", "TokenRequest", spec)


def token(what: str, body: bytes) -> Token:
    status = _decode(what, body, _TokenRequest).status
    return Token(status.token, status.expiration_timestamp)


def token_review(token_text: str, audience: str) -> bytes:
    spec: dict[str, object] = {"token": token_text, "audiences": [audience]}
    return _body("authentication.k8s.io/v1", "TokenReview", spec)


def subject(what: str, body: bytes, audience: str) -> TokenSubject | None:
    """
    Read whose token it is; None unless the answer says that it is valid for the audience that we asked about.

    An authenticator that does not know about audiences leaves them out; its yes is about another audience.
    """
    status = _decode(what, body, _TokenReview).status
    if not status.authenticated or audience not in status.audiences:
        return None
    extra = status.user.extra
    return TokenSubject(
        username=status.user.username,
        uid=status.user.uid,
        groups=status.user.groups,
        audiences=status.audiences,
        pod_name=next(iter(extra.get(_POD_NAME, ())), ""),
        pod_uid=next(iter(extra.get(_POD_UID, ())), ""),
    )


def access_review(verb: str, kind: Kind[T], namespace: str, subresource: str) -> bytes:
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": kind.group,
        "version": kind.version,
        "resource": kind.plural,
        "subresource": subresource,
    }
    return _body(
        "authorization.k8s.io/v1", "SelfSubjectAccessReview", {"resourceAttributes": attributes}
    )


def allowed(what: str, body: bytes) -> bool:
    return _decode(what, body, _AccessReview).status.allowed


def _body(api_version: str, kind: str, spec: dict[str, object]) -> bytes:
    return msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})


def _decode(what: str, body: bytes, type_: type[A]) -> A:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, ValueError) as error:
        raise nonsense(what, error) from None
