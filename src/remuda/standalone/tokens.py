"""
ServiceAccount tokens: signed, for an audience, bound to a Pod, and void once that Pod is gone.

What a token says is checked twice: its signature, and that the objects it names still exist with the same UIDs. The
texts of refusals are the API server's. Nothing here stores or logs a token.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm
from jwt.api_jws import PyJWS
from jwt.utils import der_to_raw_signature

from remuda.kube.times import parse_time, whole_seconds
from remuda.standalone.errors import Cause, bad_request, conflict, invalid, not_found
from remuda.standalone.objects import Obj, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

    Lookup = Callable[[str, str, str], Obj | None]
    """Find an object by kind (``Pod``), namespace and name."""

ISSUER = "https://kubernetes.default.svc.cluster.local"
EXPIRATION_DEFAULT_S = 3600
EXPIRATION_MIN_S = 600
EXPIRATION_MAX_S = 1 << 32
LEEWAY = timedelta(minutes=1)
"""How far clocks may differ; also how long a deleted Pod's token outlives the Pod's own deadline."""

_ALGORITHM = "ES256"
_EXTRA = "authentication.kubernetes.io"


class TokenRejected(Exception):
    """A token that proves nothing. The text is safe to show: it holds no part of the token's signature."""


class Tokens:
    """Issue and review the tokens of one control plane."""

    def __init__(self, key_pem: bytes, issuer: str, clock: Clock, ids: Ids) -> None:
        key = serialization.load_pem_private_key(key_pem, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey), "tokens are signed with a P-256 key"
        self._key = key
        self._public_key = key.public_key()
        self._key_id = _key_id(self._public_key)
        # The only algorithm this verifier knows: a token cannot choose another one, or none.
        self._jws = PyJWS(algorithms=[])
        self._jws.register_algorithm(_ALGORITHM, _SteadyEs256(SHA256, ec.SECP256R1))
        self._issuer = issuer
        self._clock = clock
        self._ids = ids
        self.api_audiences: tuple[str, ...] = (issuer,)
        """What a token is for when its request names no audience: this API server itself."""

    def issue(
        self,
        service_account: Obj,
        pod: Obj | None,
        audiences: list[str],
        expiration_s: int,
        *,
        node: Obj | None = None,
    ) -> tuple[str, datetime]:
        """Sign a token, and say when it ends. The rules of TokenRequest are ``request``'s."""
        now = whole_seconds(self._clock.now())
        expires_at = now + timedelta(seconds=expiration_s)
        subject: dict[str, Any] = {
            "namespace": namespace_of(service_account),
            "serviceaccount": _reference(service_account),
        }
        if node is not None:
            subject["node"] = _reference(node)
        if pod is not None:
            subject["pod"] = _reference(pod)
        claims = {
            "aud": audiences,
            "exp": int(expires_at.timestamp()),
            "iat": int(now.timestamp()),
            "iss": self._issuer,
            "jti": self._ids.uid(),
            "kubernetes.io": subject,
            "nbf": int(now.timestamp()),
            "sub": f"system:serviceaccount:{subject['namespace']}:{name_of(service_account)}",
        }
        payload = json.dumps(claims, separators=(",", ":")).encode()
        return self._jws.encode(
            payload, self._key, algorithm=_ALGORITHM, headers={"kid": self._key_id, "typ": None}
        ), expires_at

    def request(self, namespace: str, name: str, body: Obj, lookup: Lookup) -> Obj:
        """Answer a TokenRequest for a ServiceAccount: the object with its status filled in, or a refusal."""
        _check_addressed_to(body, namespace, name)
        service_account = lookup("ServiceAccount", namespace, name)
        if service_account is None:
            raise not_found("", "serviceaccounts", name)
        uid = (body.get("metadata") or {}).get("uid")
        if uid and uid != uid_of(service_account):
            why = (
                f"the UID in the token request ({uid}) does not match the UID of the service "
                f"account ({uid_of(service_account)})"
            )
            raise conflict("authentication.k8s.io", "TokenRequest", name, why)
        spec = body.get("spec") or {}
        expiration_s = spec.get("expirationSeconds")
        expiration_s = EXPIRATION_DEFAULT_S if expiration_s is None else expiration_s
        _check_expiration(expiration_s)
        audiences = list(spec.get("audiences") or self.api_audiences)
        bound = spec.get("boundObjectRef")
        pod = None if bound is None else _bound_pod(bound, namespace, name, lookup)
        node = None if pod is None else _node_of(pod, lookup)
        token, expires_at = self.issue(service_account, pod, audiences, expiration_s, node=node)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid_of(service_account),
                "creationTimestamp": _time(whole_seconds(self._clock.now())),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": expiration_s,
                "boundObjectRef": bound,
            },
            "status": {"token": token, "expirationTimestamp": _time(expires_at)},
        }

    def review(self, token: str, audiences: list[str], lookup: Lookup) -> Obj:
        """Answer a TokenReview: its status. An invalid token is an answer (``authenticated`` unset), not an error."""
        try:
            return self._review(token, tuple(audiences) or self.api_audiences, lookup)
        except TokenRejected as rejected:
            return {"user": {}, "error": str(rejected)}

    def _review(self, token: str, wanted: tuple[str, ...], lookup: Lookup) -> Obj:
        claims = self._verified(token)
        audiences = claims["aud"]
        shared = [audience for audience in audiences if audience in wanted]
        if not shared:
            why = f"token audiences {_go_list(audiences)} is invalid for the target audiences {_go_list(wanted)}"
            raise TokenRejected(f"[invalid bearer token, {why}]")
        try:
            user = self._user(claims, lookup)
        except TokenRejected as rejected:
            raise TokenRejected(f"[invalid bearer token, {rejected}]") from None
        return {"authenticated": True, "user": user, "audiences": shared}

    def _verified(self, token: str) -> dict[str, Any]:
        try:
            payload = self._jws.decode(token, self._public_key, algorithms=[_ALGORITHM])
            claims = json.loads(payload)
        except (PyJWTError, ValueError, RecursionError):
            raise TokenRejected("invalid bearer token") from None
        # Only we hold the key, so what it signed has our own shape; another issuer is another cluster's token.
        if not isinstance(claims, dict) or claims.get("iss") != self._issuer:
            raise TokenRejected("invalid bearer token")
        return claims

    def _user(self, claims: dict[str, Any], lookup: Lookup) -> Obj:
        now = self._clock.now()
        _check_times(claims, now)
        subject = claims["kubernetes.io"]
        namespace, account = subject["namespace"], subject["serviceaccount"]
        deleted_before = now - LEEWAY
        _check_service_account(
            lookup("ServiceAccount", namespace, account["name"]), namespace, account, deleted_before
        )
        extra = {f"{_EXTRA}/credential-id": [f"JTI={claims['jti']}"]}
        if node := subject.get("node"):
            extra[f"{_EXTRA}/node-name"] = [node["name"]]
            if "uid" in node:
                extra[f"{_EXTRA}/node-uid"] = [node["uid"]]
        if pod := subject.get("pod"):
            _check_pod(lookup("Pod", namespace, pod["name"]), pod, deleted_before)
            extra[f"{_EXTRA}/pod-name"] = [pod["name"]]
            extra[f"{_EXTRA}/pod-uid"] = [pod["uid"]]
        groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ]
        return {
            "username": claims["sub"],
            "uid": account["uid"],
            "groups": groups,
            "extra": dict(sorted(extra.items())),
        }


class _SteadyEs256(ECAlgorithm):
    """ES256 whose signature follows from key and message (RFC 6979), so that a seed replays a whole run."""

    def sign(self, msg: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
        return der_to_raw_signature(
            key.sign(msg, ec.ECDSA(SHA256(), deterministic_signing=True)), key.curve
        )


def new_key(secret: bytes) -> bytes:
    """Make the PEM of a signing key out of 32 or more random bytes."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
    number = int.from_bytes(hashlib.sha512(secret).digest()) % (order - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _key_id(key: ec.EllipticCurvePublicKey) -> str:
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()


def _reference(obj: Obj) -> dict[str, str]:
    uid = obj["metadata"].get("uid")
    return {"name": name_of(obj), **({"uid": uid} if uid else {})}


def _check_addressed_to(body: Obj, namespace: str, name: str) -> None:
    given = body.get("metadata") or {}
    for field, value in (("name", name), ("namespace", namespace)):
        said = given.get(field)
        if said and said != value:
            message = (
                f'Invalid value: "{said}": must match the service account {field} if specified'
            )
            cause = Cause(f"metadata.{field}", "FieldValueInvalid", message)
            raise invalid("authentication.k8s.io", "TokenRequest", name, [cause])


def _check_expiration(expiration_s: int) -> None:
    if expiration_s < EXPIRATION_MIN_S:
        why = "may not specify a duration less than 10 minutes"
    elif expiration_s > EXPIRATION_MAX_S:
        why = "may not specify a duration larger than 2^32 seconds"
    else:
        return
    message = f"Invalid value: {expiration_s}: {why}"
    cause = Cause("spec.expirationSeconds", "FieldValueInvalid", message)
    raise invalid("authentication.k8s.io", "TokenRequest", "", [cause])


def _bound_pod(bound: Obj, namespace: str, account: str, lookup: Lookup) -> Obj:
    group, _, version = str(bound.get("apiVersion", "")).rpartition("/")
    kind, name = str(bound.get("kind", "")), str(bound.get("name", ""))
    if (group, kind) != ("", "Pod"):
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    pod = lookup("Pod", namespace, name)
    if pod is None:
        raise not_found("", "pods", name)
    if pod["spec"].get("serviceAccountName", "default") != account:
        raise bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different '
            "serviceaccount name."
        )
    uid = bound.get("uid")
    if uid and uid != uid_of(pod):
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict("", "Pod", name, why)
    return pod


def _node_of(pod: Obj, lookup: Lookup) -> Obj | None:
    name = pod["spec"].get("nodeName")
    if not name:
        return None
    # A Node that is gone is still named: the token then says where the Pod was put, without a UID.
    return lookup("Node", "", name) or {"metadata": {"name": name}}


def _check_times(claims: dict[str, Any], now: datetime) -> None:
    if now - LEEWAY > datetime.fromtimestamp(claims["exp"], UTC):
        raise TokenRejected("service account token has expired")
    if now + LEEWAY < datetime.fromtimestamp(claims["nbf"], UTC):
        raise TokenRejected("service account token is not valid yet")


def _check_service_account(
    found: Obj | None, namespace: str, claimed: dict[str, str], deleted_before: datetime
) -> None:
    name = claimed["name"]
    if found is None:
        raise TokenRejected(f'serviceaccounts "{name}" not found')
    if uid_of(found) != claimed["uid"]:
        why = f"service account UID ({uid_of(found)}) does not match claim ({claimed['uid']})"
        raise TokenRejected(why)
    if _deleted(found, deleted_before):
        raise TokenRejected(f"service account {namespace}/{name} has been deleted")


def _check_pod(found: Obj | None, claimed: dict[str, str], deleted_before: datetime) -> None:
    if found is None:
        raise TokenRejected("service account token has been invalidated")
    if uid_of(found) != claimed["uid"]:
        raise TokenRejected(
            f"pod UID ({uid_of(found)}) does not match service account pod ref claim "
            f"({claimed['uid']})"
        )
    if _deleted(found, deleted_before):
        raise TokenRejected("service account token has been invalidated")


def _deleted(obj: Obj, before: datetime) -> bool:
    """Tell whether an object's deletion was due before that moment (a Pod's is due when its grace ends)."""
    deletion = obj["metadata"].get("deletionTimestamp")
    return deletion is not None and parse_time(deletion) < before


def _go_list(values: list[str] | tuple[str, ...]) -> str:
    """Spell a list as the API server's messages do: ``["a" "b"]``."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
