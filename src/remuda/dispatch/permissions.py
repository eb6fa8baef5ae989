"""What dispatch must be allowed to do, as a table. The manifest in the docs is tested against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.control.permissions import READ, needed
from remuda.control.preflight import Rights
from remuda.kube.core import NODE, POD, SERVICE_ACCOUNT
from remuda.kube.kinds import Kind
from remuda.kube.meta import Resource
from remuda.kube.runner_pool import RUNNER_POOL

if TYPE_CHECKING:
    from remuda.dispatch.settings import DispatchSettings

_TOKEN_REVIEW = Kind(
    Resource, "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
)
"""Never read as an object: ``Kube.review_token`` asks for it."""


def rights(settings: DispatchSettings) -> Rights:
    """Return everything that dispatch does to the API server."""
    ours = settings.namespace
    return Rights(
        who="Dispatch",
        namespace=ours,
        manifest="docs/howto/server-rbac.yaml",
        needs=(
            *needed(RUNNER_POOL, READ, ours),
            *needed(POD, (*READ, "patch", "delete"), ours),
            *needed(SERVICE_ACCOUNT, ("get",), ours),
            *needed(NODE, ("get", "list")),
            *needed(_TOKEN_REVIEW, ("create",)),
        ),
    )
