"""
Who may read logs from this host: who shows a certificate of the cluster's authority and may proxy to the Node.

An authority signs for many: other hosts, people, machines. So, as a kubelet does, the API server is asked what the
bearer may do, and its answer holds for a minute. ``system:masters`` may do everything wherever there is RBAC.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from remuda.model.errors import RemudaError
from remuda.ports.kube import KubeError
from remuda.ports.wire import Request

if TYPE_CHECKING:
    from remuda.ports.clock import Clock
    from remuda.ports.wire import Wire

_MASTERS: Final = "system:masters"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ASK_S: Final = 10.0
_HOLDS_S: Final = 60.0
_REMEMBERED_MAX: Final = 256


class CannotAsk(RemudaError):
    """Nobody could say whether the bearer may read logs, so they may not, for now."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whom a certificate names, as Kubernetes reads it: the user is its CN, the groups are its Os."""

    user: str
    groups: tuple[str, ...] = ()


def bearer_of(certificate: Any) -> Bearer | None:  # noqa: ANN401 - as the ssl module has it: dicts of tuples
    """Read whom a verified certificate names; None: nobody."""
    subject = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    user = next((value for key, value in subject if key == "commonName"), "")
    groups = tuple(value for key, value in subject if key == "organizationName")
    return Bearer(user, groups) if user else None


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class Gate:
    """Says who may read logs from one Node."""

    def __init__(self, node: str, wire: Wire | None, clock: Clock) -> None:
        self._node, self._wire, self._clock = node, wire, clock
        self._known: dict[Bearer, tuple[bool, float]] = {}

    async def lets(self, bearer: Bearer) -> bool:
        """Say whether they may. Raises CannotAsk."""
        if _MASTERS in bearer.groups:
            return True
        known = self._known.get(bearer)
        if known is not None and self._clock.monotonic() < known[1]:
            return known[0]
        allowed = await self._ask(bearer)
        if len(self._known) >= _REMEMBERED_MAX:
            self._known.clear()
        self._known[bearer] = (allowed, self._clock.monotonic() + _HOLDS_S)
        return allowed

    async def _ask(self, bearer: Bearer) -> bool:
        if self._wire is None:
            raise _cannot("there is no API server to ask")
        request = Request("POST", _REVIEWS, body=_review(bearer, self._node))
        try:
            answer = await self._wire.send(request, timeout_s=_ASK_S)
            if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
                raise _cannot(f"the API server answered {answer.status} to the question")
            return msgspec.json.decode(answer.body, type=_Review).status.allowed
        except (KubeError, msgspec.MsgspecError, UnicodeError) as error:
            raise _cannot(str(error)) from None


def _review(bearer: Bearer, node: str) -> bytes:
    attributes = {
        "verb": "get",
        "version": "v1",
        "resource": "nodes",
        "subresource": "proxy",
        "name": node,
    }
    spec = {
        "user": bearer.user,
        "groups": [*bearer.groups, "system:authenticated"],
        "resourceAttributes": attributes,
    }
    return msgspec.json.encode(
        {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    )


def _cannot(why: str) -> CannotAsk:
    return CannotAsk(
        "Nobody could say whether you may read this log", why=why, fix="Try again in a moment"
    )
