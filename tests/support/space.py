"""A fresh namespace for one test, and the URLs inside it."""

from __future__ import annotations

from dataclasses import dataclass

_ROOTS = {
    "leases": "/apis/coordination.k8s.io/v1",
    "runnerpools": "/apis/remuda.dev/v1alpha1",
    "hosts": "/apis/remuda.dev/v1alpha1",
}


@dataclass(frozen=True, slots=True)
class Space:
    """One test's namespace; tests share the control plane, so they share nothing else."""

    name: str

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        return namespaced(self.name, plural, name, subresource)


def namespaced(namespace: str, plural: str, name: str = "", subresource: str = "") -> str:
    root = _ROOTS.get(plural, "/api/v1")
    parts = [f"{root}/namespaces/{namespace}/{plural}", name, subresource]
    return "/".join(part for part in parts if part)
