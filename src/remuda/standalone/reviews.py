"""Questions about identities: tokens issued and reviewed, and whether one may do something (here: always)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.standalone.bodies import check_body
from remuda.standalone.errors import bad_request, unauthorized
from remuda.standalone.metadata import time_text
from remuda.standalone.users import User

if TYPE_CHECKING:
    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj
    from remuda.standalone.rest import Rest
    from remuda.standalone.tokens import Tokens

_PLURALS = {
    "Pod": "pods",
    "ServiceAccount": "serviceaccounts",
    "Node": "nodes",
    "Secret": "secrets",
}


@dataclass(frozen=True, slots=True)
class Reviews:
    """Answers that are computed and never stored."""

    rest: Rest
    tokens: Tokens

    def find(self, kind: str, namespace: str, name: str) -> Obj | None:
        """Look up what a token is bound to."""
        found = self.rest.kinds.find("", "v1", _PLURALS[kind])
        return None if found is None else self.rest.store.get(found, namespace, name)

    def user(self, bearer: str) -> User:
        """Return who a ServiceAccount token stands for; 401 if it is not valid for this API server."""
        status = self.tokens.review(bearer, [], self.find)
        if not status.get("authenticated"):
            raise unauthorized()
        user = status["user"]
        return User(user["username"], user["uid"], tuple(user["groups"]), user.get("extra", {}))

    def issue(self, namespace: str, name: str, body: Obj) -> Obj:
        """Answer a TokenRequest."""
        check_body("TokenRequest", body)
        return self.tokens.request(namespace, name, body, self.find)

    def answer(self, kind: ResourceKind, body: Obj, user: User) -> Obj | None:
        """Answer a review; None for kinds that are stored."""
        spec = body.get("spec") or {}
        if kind.kind == "SelfSubjectReview":
            return {
                "kind": kind.kind,
                "apiVersion": kind.api_version,
                "metadata": {"creationTimestamp": time_text(self.rest.clock.now())},
                "status": {"userInfo": _user_info(user)},
            }
        if kind.kind == "TokenReview":
            check_body(kind.kind, body)
            token = spec.get("token") or ""
            if not token:
                raise bad_request("token is required for TokenReview in authentication")
            status = self.tokens.review(token, list(spec.get("audiences") or ()), self.find)
        elif kind.kind == "SelfSubjectAccessReview":
            check_body(kind.kind, body)
            status = {
                "allowed": True,
                "reason": f"{user.name} is authenticated; there is no RBAC here",
            }
        else:
            return None
        return {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": {},
            "spec": spec,
            "status": status,
        }


def _user_info(user: User) -> Obj:
    info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": user.extra,
    }
    return {key: value for key, value in info.items() if value}
