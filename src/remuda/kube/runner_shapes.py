"""
What a runner's Pod looks like before its pool's template is merged in: a VM Pod, or a Pod of a runtime class. Pure.

In both the credential stays outside the job: nothing that runs a job's code mounts the token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from remuda.kube.names import (
    AUDIENCE,
    FLEET,
    POLLER,
    RUNNER_CONTAINER,
    VM,
    VM_HOST_TAINT,
    image_label,
)
from remuda.kube.runner_pool import PodSecurity

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool

Json = dict[str, Any]

DIND: Final = "dind"
TOKEN_VOLUME: Final = "remuda-token"  # noqa: S105 - a volume's name
MAILBOX_VOLUME: Final = "mailbox"
WORK_VOLUME: Final = "work"
DOCKER_SOCKET_VOLUME: Final = "docker-socket"
DOCKER_STORAGE_VOLUME: Final = "docker-storage"

TOKEN_FOLDER: Final = "/var/run/secrets/remuda.dev"  # noqa: S105 - a path
MAILBOX: Final = "/run/remuda/mailbox"
WORK: Final = "/work"
DOCKER_FOLDER: Final = "/run/remuda/docker"
DOCKER_HOST: Final = f"unix://{DOCKER_FOLDER}/docker.sock"

RUNNER_ID: Final = 1001
"""User and group that runners run as: those of GitHub's own runner image. A name in an image would not do: the kubelet
cannot tell whether it is root."""
TOKEN_S: Final = 3600
GRACE_S: Final = 30

_OF_CONTAINERS: Final[Json] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
_OF_PODS: Final[Json] = {
    # Said once, for the Pod: so a template changes the user of all its containers in one place.
    "runAsNonRoot": True,
    "runAsUser": RUNNER_ID,
    "runAsGroup": RUNNER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_TO_STAY_ALIVE: Final[Json] = {
    # A runner is one of a kind while it holds a job: nothing that tidies up nodes may move it.
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
_WHILE_ITS_HOST_IS_SILENT: Final[list[Json]] = [
    # Without these a cluster gives a Pod 300 s after its host fell silent, then deletes it, job and all.
    {"key": key, "operator": "Exists", "effect": "NoExecute"}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
_TOLERATES_VM_HOSTS: Final[Json] = {
    "key": VM_HOST_TAINT,
    "operator": "Exists",
    "effect": "NoSchedule",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the operator, not the pool, says about runner Pods."""

    dispatch_url: str
    """Where pollers ask for jobs."""
    poller_image: str = ""
    """The image of the poller; empty: the pool's own, which must then have ``remuda`` in it."""
    vm_runtime_classes: tuple[str, ...] = ("kata*",)
    """Patterns of the runtime classes that give each Pod a kernel of its own: only there may Docker run."""


def vm_pod(pool: RunnerPool) -> Json:
    """Return the Pod of a VM that an agent starts: one container, which is the VM."""
    runner = {
        **_runner(pool, [{"name": "REMUDA_POOL", "value": pool.name}]),
        "resources": _same({**_size(pool), VM: "1"}),
    }
    return {
        **_common(pool),
        "containers": [runner],
        "volumes": [_token_volume()],  # not mounted: it lets the agent ask for the token
        "tolerations": [_TOLERATES_VM_HOSTS, *_WHILE_ITS_HOST_IS_SILENT],
        "affinity": _where_the_image_is(pool.spec.image),
    }


def kata_pod(pool: RunnerPool, settings: PodSettings) -> Json:
    """Return the Pod of a runner on an ordinary kubelet: the poller waits for a job, then the runner runs it."""
    docker = pool.spec.docker.enabled
    volumes = [_token_volume(), *_empty(MAILBOX_VOLUME, WORK_VOLUME)]
    if docker:
        volumes += _empty(DOCKER_SOCKET_VOLUME, DOCKER_STORAGE_VOLUME)
    return {
        **_common(pool),
        "runtimeClassName": pool.spec.runtime_class_name,
        "initContainers": [*([_dind(pool)] if docker else []), _poller(pool, settings)],
        "containers": [_kata_runner(pool)],
        "volumes": volumes,
        "tolerations": [*_WHILE_ITS_HOST_IS_SILENT],
    }


def notes_for_others() -> Json:
    """Return the annotations that every runner's Pod has."""
    return dict(_TO_STAY_ALIVE)


def is_kata(pool: RunnerPool) -> bool:
    return pool.spec.runtime_class_name is not UNSET


def _is_restricted(pool: RunnerPool) -> bool:
    return pool.spec.pod_security is PodSecurity.RESTRICTED


def _common(pool: RunnerPool) -> Json:
    selector = {FLEET: pool.spec.fleet, "kubernetes.io/os": str(pool.spec.os)}
    context: Json = {"fsGroup": RUNNER_ID, **(_OF_PODS if _is_restricted(pool) else {})}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "nodeSelector": selector,
        "securityContext": context,
    }


def _runner(pool: RunnerPool, env: list[Json]) -> Json:
    idle_s = pool.spec.idle_timeout_seconds
    if idle_s > 0:
        env = [*env, {"name": "REMUDA_IDLE_TIMEOUT_SECONDS", "value": str(idle_s)}]
    container: Json = {
        "name": RUNNER_CONTAINER,
        "image": pool.spec.image,
        "env": env,
        "resources": _same(_size(pool)),
    }
    if _is_restricted(pool):
        container["securityContext"] = _OF_CONTAINERS
    return container


def _kata_runner(pool: RunnerPool) -> Json:
    """Its job is a stranger's: it sees the mailbox and its work folder, no token and no address of ours."""
    env = [{"name": "REMUDA_MAILBOX", "value": MAILBOX}, {"name": "REMUDA_WORK", "value": WORK}]
    mounts = [_mount(MAILBOX_VOLUME, MAILBOX), _mount(WORK_VOLUME, WORK)]
    if pool.spec.docker.enabled:
        env.append({"name": "DOCKER_HOST", "value": DOCKER_HOST})
        mounts.append(_mount(DOCKER_SOCKET_VOLUME, DOCKER_FOLDER))
    return {**_runner(pool, env), "volumeMounts": mounts}


def _poller(pool: RunnerPool, settings: PodSettings) -> Json:
    env = [
        {"name": "REMUDA_DISPATCH_URL", "value": settings.dispatch_url},
        {"name": "REMUDA_POOL", "value": pool.name},
        _from_field("REMUDA_POD_NAME", "metadata.name"),
        _from_field("REMUDA_POD_UID", "metadata.uid"),
        {"name": "REMUDA_TOKEN_FILE", "value": f"{TOKEN_FOLDER}/token"},
        {"name": "REMUDA_MAILBOX", "value": MAILBOX},
    ]
    context = {**_OF_CONTAINERS, "readOnlyRootFilesystem": True}
    if not _is_restricted(pool):
        context |= _OF_PODS  # whatever the pool's jobs may do, the poller needs none of it
    return {
        "name": POLLER,
        "image": settings.poller_image or pool.spec.image,
        "command": ["remuda", "poller"],
        "env": env,
        # As large as the runner: the larger of the two counts, so it costs nothing.
        "resources": _same(_size(pool)),
        "securityContext": context,
        "volumeMounts": [
            {**_mount(TOKEN_VOLUME, TOKEN_FOLDER), "readOnly": True},
            _mount(MAILBOX_VOLUME, MAILBOX),
        ],
    }


def _dind(pool: RunnerPool) -> Json:
    """Return the Docker daemon: a sidecar, so that it is up before the poller takes a job and ends with the runner."""
    return {
        "name": DIND,
        "image": pool.spec.docker.image,
        "args": ["dockerd", f"--host={DOCKER_HOST}", f"--group={RUNNER_ID}"],
        "env": [{"name": "DOCKER_TLS_CERTDIR"}],  # empty: the socket is no network
        "restartPolicy": "Always",
        "securityContext": {"privileged": True, "runAsUser": 0, "runAsNonRoot": False},
        "startupProbe": {
            "exec": {"command": ["docker", f"--host={DOCKER_HOST}", "info"]},
            "periodSeconds": 2,
            "failureThreshold": 60,
            "timeoutSeconds": 5,
        },
        "volumeMounts": [
            _mount(DOCKER_SOCKET_VOLUME, DOCKER_FOLDER),
            _mount(DOCKER_STORAGE_VOLUME, "/var/lib/docker"),
        ],
    }


def _size(pool: RunnerPool) -> dict[str, str]:
    return {"cpu": str(pool.spec.resources.cpu), "memory": pool.spec.resources.memory}


def _same(amounts: dict[str, str]) -> Json:
    return {"requests": amounts, "limits": amounts}


def _token_volume() -> Json:
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_S, "path": "token"}
    sources = [{"serviceAccountToken": token}]
    return {"name": TOKEN_VOLUME, "projected": {"defaultMode": 0o400, "sources": sources}}


def _empty(*names: str) -> list[Json]:
    return [{"name": name, "emptyDir": {}} for name in names]


def _mount(volume: str, path: str) -> Json:
    return {"name": volume, "mountPath": path}


def _from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _where_the_image_is(image: str) -> Json:
    """Prefer, never require: where no host has the image yet, any of them may fetch it."""
    ready = {"key": image_label(image), "operator": "In", "values": ["ready"]}
    preferred = {"weight": 100, "preference": {"matchExpressions": [ready]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
