"""What a cluster needs before there can be pools: our definitions, a namespace, and the pools themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.kube.core import NAMESPACE, Namespace
from remuda.kube.crd import manifests
from remuda.kube.meta import ObjectMeta
from remuda.kube.runner_pool import RUNNER_POOL, RunnerPool, RunnerPoolSpec
from remuda.ports.kube import NotFound
from remuda.ports.wire import Request

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from remuda.ports.wire import Wire

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CREATED = 201


async def furnish(wire: Wire, kube: Kube, namespace: str) -> None:
    """Add our definitions and a namespace, and wait until pools are served."""
    for manifest in manifests():
        request = Request("POST", _CRDS, body=msgspec.json.encode(manifest))
        answer = await wire.send(request, timeout_s=10.0)
        assert answer.status == _CREATED, answer.body
    await kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=namespace)))
    while True:
        try:
            await kube.list(RUNNER_POOL)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return


def a_pool(name: str, namespace: str, **spec: Any) -> RunnerPool:  # noqa: ANN401 - whatever a pool's spec has
    """Return a pool of VM runners; ``spec`` is in the words of the type."""
    given: dict[str, Any] = {
        "image": "registry.test/runner:1",
        "fleet": "barn",
        "labels": ("self-hosted", name),
        **spec,
    }
    return RunnerPool(
        metadata=ObjectMeta(name=name, namespace=namespace), spec=RunnerPoolSpec(**given)
    )
