"""
Make the Pod and the ServiceAccount of one runner. Pure.

Neither has an owner reference (ADR 0007): only the operator deletes runners, never Kubernetes' garbage collector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from remuda.kube.core import Pod, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import POOL, RUNNER, TEMPLATE
from remuda.kube.pod_merge import TemplateRefused, checked, merged, merged_spec, refused
from remuda.kube.pod_placement import Placement, placed
from remuda.kube.pod_security import violations
from remuda.kube.runner_pool import PodSecurity
from remuda.kube.runner_shapes import PodSettings, is_kata, kata_pod, notes_for_others, vm_pod
from remuda.kube.template_rules import check_outline, check_still_a_runner, containers_of

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool

__all__ = [
    "Placement",
    "PodSettings",
    "RunnerTemplate",
    "TemplateRefused",
    "runner_pod",
    "runner_template",
    "service_account",
    "template_hash",
]

Json = dict[str, Any]

HASH_LENGTH: Final = 12
_ON_UNFIT_HOSTS: Final = frozenset(
    f"node.kubernetes.io/{trouble}" for trouble in ("unschedulable", "not-ready", "unreachable")
)
"""The taints of hosts that take no more work, or cannot."""
NOWHERE_IN_PARTICULAR: Final = Placement()


@dataclass(frozen=True, slots=True)
class RunnerTemplate:
    """
    What all runners of a pool have in common, with its hash.

    Depends on nothing but the pool's spec, its name and namespace, and the settings: a shell may keep it for as long as
    the pool's UID and generation stay the same.
    """

    hash: str
    _namespace: str
    _labels: Json = field(repr=False)
    _annotations: Json = field(repr=False)
    _spec: Json = field(repr=False)

    @property
    def ignores_cordons(self) -> bool:
        """Whether the scheduler puts its runners on hosts that take no more work: the template tolerates all taints."""
        found = self._spec.get("tolerations") or []
        return any(isinstance(t, dict) and _covers_cordons(t) for t in found)

    def pod(self, name: str, placement: Placement = NOWHERE_IN_PARTICULAR) -> bytes:
        """Return the manifest of one runner, as JSON."""
        metadata: Json = {
            "name": name,
            "labels": {**self._labels, TEMPLATE: self.hash},
            "annotations": self._annotations,
        }
        if self._namespace:
            metadata["namespace"] = self._namespace
        spec = {**placed(self._spec, placement), "serviceAccountName": name}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return msgspec.json.encode(body)


def runner_template(pool: RunnerPool, settings: PodSettings) -> RunnerTemplate:
    """
    Merge the pool's template into a runner's Pod and hash the result.

    The hash is over all of the Pod but its name and placement. So whatever changes the Pod rolls the pool (the image, a
    variable, the operator's own settings), and what does not (replicas, autoscaling, runs-on labels) never does.
    """
    _check_docker(pool, settings)
    base = kata_pod(pool, settings) if is_kata(pool) else vm_pod(pool)
    ours: Json = {RUNNER: "true", POOL: pool.name}
    found = pool.spec.template
    template = {} if found is UNSET else checked(found)
    check_outline(template)
    texts = template.get("metadata") or {}
    spec = _spec(base, template.get("spec") or {})
    labels = {**merged({}, texts.get("labels") or {}, "metadata.labels"), **ours}
    notes = merged(notes_for_others(), texts.get("annotations") or {}, "metadata.annotations")
    _check_readable({"metadata": {"labels": labels, "annotations": notes}, "spec": spec})
    if pool.spec.pod_security is PodSecurity.RESTRICTED:
        _check_restricted(spec, notes)
    return RunnerTemplate(_hash([labels, notes, spec]), pool.namespace, labels, notes, spec)


def template_hash(pool: RunnerPool, settings: PodSettings) -> str:
    """Return the hash of the Pods that this pool makes now. Staleness is: a runner carries another."""
    return runner_template(pool, settings).hash


def runner_pod(
    pool: RunnerPool,
    name: str,
    settings: PodSettings,
    placement: Placement = NOWHERE_IN_PARTICULAR,
) -> bytes:
    """Return the manifest of one runner, as JSON. For many of one pool, keep its ``runner_template``."""
    return runner_template(pool, settings).pod(name, placement)


def service_account(pool: RunnerPool, name: str) -> ServiceAccount:
    """Return the identity of one runner: named like its Pod, with no rights."""
    labels = {RUNNER: "true", POOL: pool.name}
    return ServiceAccount(
        metadata=ObjectMeta(name=name, namespace=pool.namespace, labels=labels),
        automount_service_account_token=False,
    )


def _covers_cordons(toleration: Json) -> bool:
    everything = toleration.get("operator") == "Exists" and not toleration.get("key")
    named = toleration.get("key") in _ON_UNFIT_HOSTS
    return (everything or named) and toleration.get("effect") in (None, "", "NoSchedule")


def _spec(base: Json, template: Json) -> Json:
    if not template:
        return base
    spec = merged_spec(base, template)
    check_still_a_runner(base, spec)
    for _, container in containers_of(spec):
        _spell_amounts(container)
    return spec


def _spell_amounts(container: Json) -> None:
    """Write numbers as Kubernetes stores them, as text: a Pod must read back as it was hashed."""
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return
    container["resources"] = {
        kind: {k: str(v) if type(v) is int else v for k, v in amounts.items()}
        if isinstance(amounts, dict)
        else amounts
        for kind, amounts in resources.items()
    }


def _hash(parts: list[Json]) -> str:
    """Sort the keys: the order in which a person wrote them must not roll a pool."""
    canonical = msgspec.json.encode(parts, order="deterministic")
    return sha256(canonical).hexdigest()[:HASH_LENGTH]


def _check_readable(pod: Json) -> None:
    """Refuse what we ourselves could not read back: the API server would not take it either, but say less well why."""
    try:
        msgspec.convert(pod, Pod)
    except msgspec.ValidationError as error:
        text = str(error)
        reason, _, path = text.partition(" - at `$.")
        raise refused(path.rstrip("`"), reason, "Write it as in a Pod") from None


def _check_restricted(spec: Json, notes: Json) -> None:
    found = violations(spec, notes)
    if found:
        raise TemplateRefused(
            "spec.template",
            why=f"podSecurity restricted forbids {'; '.join(found)}",
            fix="Remove it from the template, or set spec.podSecurity to unrestricted",
        )


def _check_docker(pool: RunnerPool, settings: PodSettings) -> None:
    if not pool.spec.docker.enabled:
        return
    runtime = pool.spec.runtime_class_name
    patterns = settings.vm_runtime_classes
    if runtime is UNSET or not any(fnmatchcase(runtime, pattern) for pattern in patterns):
        raise TemplateRefused(
            "spec.docker",
            why="its daemon is privileged, and this pool's Pods are no VMs of their own, so it would own the host",
            fix=f"Set spec.runtimeClassName to a VM runtime class ({', '.join(patterns)}), or switch docker off",
        )
    if pool.spec.pod_security is PodSecurity.RESTRICTED:
        raise TemplateRefused(
            "spec.docker",
            why="it runs a privileged container, which podSecurity restricted forbids",
            fix="Set spec.podSecurity to unrestricted, or switch docker off",
        )
