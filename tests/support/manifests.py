"""Objects for the tests, as manifests: the least that a real API server takes."""

from __future__ import annotations

from typing import Any

from remuda.kube.kinds import Kind
from remuda.kube.meta import Resource

Manifest = dict[str, Any]


class ConfigMap(Resource, frozen=True):
    """The plainest of kinds: what is said of it holds for all."""

    data: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty mutable default


CONFIG_MAP = Kind(ConfigMap, "", "v1", "ConfigMap", "configmaps")


def metadata(name: str, **more: Any) -> Manifest:  # noqa: ANN401 - JSON
    return {"name": name, **more}


def a_config_map(name: str, data: dict[str, str] | None = None, **meta: Any) -> Manifest:  # noqa: ANN401 - JSON
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name, **meta),
        "data": data or {"colour": "bay"},
    }


def a_pod(name: str, *, meta: Manifest | None = None, **spec: Any) -> Manifest:  # noqa: ANN401 - JSON
    """Return a Pod that no scheduler touches, unless ``schedulerName`` says otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, **(meta or {})),
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "runner", "image": "registry.test/runner:1"}],
            **spec,
        },
    }


def a_vm_pod(name: str, fleet: str, **spec: Any) -> Manifest:  # noqa: ANN401 - JSON
    """Return a Pod that wants one VM on a Node of the fleet."""
    container = {
        "name": "runner",
        "image": "registry.test/runner:1",
        "resources": {"limits": {"remuda.dev/vm": "1"}},
    }
    wanted = {
        "schedulerName": "default-scheduler",
        "nodeSelector": {"remuda.dev/fleet": fleet},
        "containers": [container],
    }
    return a_pod(name, **{**wanted, **spec})


def a_pool(name: str, *, meta: Manifest | None = None, **spec: Any) -> Manifest:  # noqa: ANN401 - JSON
    return {
        "apiVersion": "remuda.dev/v1alpha1",
        "kind": "RunnerPool",
        "metadata": metadata(name, **(meta or {})),
        "spec": {
            "image": "registry.test/runner:1",
            "fleet": "barn",
            "labels": ["self-hosted", name],
            **spec,
        },
    }


def a_host(name: str, **spec: Any) -> Manifest:  # noqa: ANN401 - JSON
    return {
        "apiVersion": "remuda.dev/v1alpha1",
        "kind": "Host",
        "metadata": metadata(name),
        "spec": {
            "provider": {"static": {"address": "192.0.2.7"}},
            "ssh": {"user": "admin", "keySecretRef": {"name": "keys", "key": "id"}},
            "fleet": "barn",
            "role": "runner",
            **spec,
        },
    }


def owned_by(owner: Manifest, *, block: bool = False) -> list[Manifest]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return [{**reference, **({"blockOwnerDeletion": True} if block else {})}]
