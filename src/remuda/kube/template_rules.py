"""
What a template may not change: the things that make a Pod a runner. Pure.

The merged Pod is compared with the Pod that it would have been without the template. So it does not matter how a
template changes a thing (sets it, removes it with null, names it twice): what differs at the end is refused.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

from remuda.kube.names import AUDIENCE, POLLER, RUNNER_CONTAINER, VM
from remuda.kube.pod_merge import refused
from remuda.kube.runner_shapes import (
    DIND,
    DOCKER_SOCKET_VOLUME,
    MAILBOX_VOLUME,
    TOKEN_VOLUME,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

DOMAIN: Final = "remuda.dev"

_LEAVE_OUT: Final = "Leave it out"
_OF_THE_POD: Final = {
    "serviceAccountName": "each runner has a ServiceAccount of its own, by whose token dispatch knows it",
    "serviceAccount": "each runner has a ServiceAccount of its own, by whose token dispatch knows it",
    "automountServiceAccountToken": "the job must not find a credential in its Pod",
    "restartPolicy": "a runner runs one job and is never started again",
    "runtimeClassName": "it is the pool's own field",
    "nodeName": "it would go around the scheduler, and with it around what fits on a host",
    "activeDeadlineSeconds": "it would count the time that a runner waits, and end jobs in the middle",
    "ephemeralContainers": "a Pod cannot be created with them",
    "overhead": "the runtime class sets it",
    "resourceClaims": "the autoscaler cannot count what they take",
    "resources": "the size of a runner is spec.resources",
}
_FIX: Final = {
    "runtimeClassName": "Set spec.runtimeClassName",
    "nodeName": "Use nodeSelector or affinity",
    "resources": "Set spec.resources",
}
_OF_THE_RUNNER: Final = {
    "image": "the runner's image is spec.image, which the roll and the hosts go by",
    "livenessProbe": "a failed probe would end a job in the middle",
    "startupProbe": "a failed probe would end a job in the middle",
    "readinessProbe": "a runner is ready when its guest says so",
    "restartPolicy": "a runner runs one job and is never started again",
    "restartPolicyRules": "a runner runs one job and is never started again",
}
_OF_THE_POLLER: Final = {
    **_OF_THE_RUNNER,
    "image": "the operator chooses the poller's image",
    "command": "it is what waits for the job",
    "args": "it is what waits for the job",
}
_OF_DIND: Final = {
    "image": "the daemon's image is spec.docker.image",
    "restartPolicy": "the daemon is a sidecar: otherwise the poller would never begin",
}
_BY_CONTAINER: Final = {
    RUNNER_CONTAINER: _OF_THE_RUNNER,
    POLLER: _OF_THE_POLLER,
    DIND: _OF_DIND,
}
_COUNTED: Final = ("cpu", "memory", VM)
_METADATA: Final = frozenset({"labels", "annotations"})


def check_outline(template: Json) -> None:
    """Refuse what is no part of a template at all: other keys than metadata and spec, other metadata than labels."""
    for key in template:
        if key not in {"metadata", "spec"}:
            raise refused(key, "a template has metadata and spec only", "Remove it")
    for part in ("metadata", "spec"):
        if template.get(part) is not None and not isinstance(template[part], dict):
            raise refused(part, "a map belongs here", "Write it as in a Pod")
    for key, value in (template.get("metadata") or {}).items():
        if key not in _METADATA:
            why = "the operator alone names runners, and holds and releases them"
            raise refused(f"metadata.{key}", why, "Keep to labels and annotations")
        _check_texts(value, f"metadata.{key}")


def _check_texts(found: object, path: str) -> None:
    if found is None:
        return
    if not isinstance(found, dict):
        raise refused(path, "a map belongs here", "Write it as in a Pod")
    for key, value in found.items():
        domain = key.partition("/")[0] if "/" in key else ""
        if domain == DOMAIN or domain.endswith(f".{DOMAIN}"):
            why = f"keys of {DOMAIN} are how the operator, dispatch and the agent know a runner"
            raise refused(f"{path}[{key}]", why, "Use a domain of your own")
        if value is not None and not isinstance(value, str):
            raise refused(f"{path}[{key}]", "its value is not text", "Quote the value")


def check_still_a_runner(base: Json, pod: Json) -> None:
    """Refuse a merged Pod spec that is no longer the runner that the base spec is."""
    for key, why in _OF_THE_POD.items():
        if base.get(key) != pod.get(key):
            raise refused(f"spec.{key}", why, _FIX.get(key, _LEAVE_OUT))
    _check_scheduling(base, pod)
    _check_volumes(base, pod)
    _check_containers(base, pod)
    for path, container in containers_of(pod):
        _check_no_credential(path, container)


def containers_of(pod: Json) -> Iterator[tuple[str, Json]]:
    """Yield each container with its path, such as ``spec.containers[runner]``."""
    for key in ("initContainers", "containers"):
        for container in pod.get(key) or []:
            yield f"spec.{key}[{container['name']}]", container


def _check_scheduling(base: Json, pod: Json) -> None:
    selector = pod.get("nodeSelector") or {}
    for key, value in base["nodeSelector"].items():
        if selector.get(key) != value:
            why = "the pool's fleet and os say where its runners run"
            raise refused(f"spec.nodeSelector[{key}]", why, "Set spec.fleet, or add other keys")
    missing = [t for t in base["tolerations"] if t not in (pod.get("tolerations") or [])]
    if missing:
        raise refused("spec.tolerations", "runners need those they have", "Add yours only")


def _check_volumes(base: Json, pod: Json) -> None:
    ours = {v["name"]: v for v in base["volumes"]}
    for volume in pod.get("volumes") or []:
        name = volume["name"]
        fixed = name in {TOKEN_VOLUME, MAILBOX_VOLUME, DOCKER_SOCKET_VOLUME}
        if fixed and volume != ours.get(name):
            raise refused(f"spec.volumes[{name}]", "this name is the runner's own", "Rename yours")
        if name != TOKEN_VOLUME and _has_our_token(volume):
            why = f"a token for {AUDIENCE} lets whoever reads it take other people's jobs"
            raise refused(f"spec.volumes[{name}]", why, "Ask for another audience")


def _has_our_token(volume: Json) -> bool:
    """Look for the audience anywhere below: however a volume asks for the token, it must name it."""
    left: list[object] = [volume]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif value == AUDIENCE:
            return True
    return False


def _check_containers(base: Json, pod: Json) -> None:
    ours, now = dict(containers_of(base)), dict(containers_of(pod))
    names = {path: container["name"] for path, container in now.items()}
    for path, name in names.items():
        if path in ours:
            _check_own(path, ours[path], now[path])
        elif name in _BY_CONTAINER:
            raise refused(path, "this name is a runner's own container", "Rename yours")
        elif "runtimeClassName" not in base:
            why = "the agent runs one container, which is the VM"
            raise refused(path, why, "Put what it does into the image")


def _check_own(path: str, ours: Json, now: Json) -> None:
    for key, why in _BY_CONTAINER[ours["name"]].items():
        if ours.get(key) != now.get(key):
            raise refused(f"{path}.{key}", why, _LEAVE_OUT)
    for kind, name in product(("requests", "limits"), _COUNTED):
        if _amount(ours, kind, name) != _amount(now, kind, name):
            why = "the size of a runner is spec.resources, by which hosts are filled"
            raise refused(f"{path}.resources.{kind}.{name}", why, "Set spec.resources")
    if _reserved_env(ours) != _reserved_env(now):
        raise refused(f"{path}.env", "names that begin with REMUDA_ are our own", "Rename yours")
    for mount in ours.get("volumeMounts", []):
        if mount not in now["volumeMounts"]:
            at = f"{path}.volumeMounts[{mount['mountPath']}]"
            raise refused(at, "the runner needs what is mounted there", "Choose another path")


def _amount(container: Json, kind: str, name: str) -> object:
    resources = container.get("resources") or {}
    amounts = resources.get(kind) or {}
    return amounts.get(name) if isinstance(amounts, dict) else amounts


def _reserved_env(container: Json) -> list[Json]:
    return [v for v in container.get("env") or [] if v["name"].startswith("REMUDA_")]


def _check_no_credential(path: str, container: Json) -> None:
    if container["name"] == POLLER:
        return
    for mount in container.get("volumeMounts") or []:
        if mount.get("name") == TOKEN_VOLUME:
            why = (
                "only the poller may hold the token: whoever reads it can take other people's jobs"
            )
            raise refused(f"{path}.volumeMounts[{mount['mountPath']}]", why, _LEAVE_OUT)
