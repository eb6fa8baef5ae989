"""
The Pod Security Standard "restricted", as a check of one Pod spec. Pure.

The API server enforces it where a namespace is labelled for it. We check it ourselves as well: so that a pool is held
to it in every namespace, and so that a bad template is told once, to its author, and not once for each runner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]

_VOLUMES: Final = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
# Tuples, not sets: a template may hold anything, also what has no hash.
_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
_SELINUX_TYPES: Final = (
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
)
_PROFILES: Final = ("RuntimeDefault", "Localhost")
_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def violations(spec: Json, annotations: Mapping[str, str] = {}) -> tuple[str, ...]:
    """
    Name each field that the restricted standard forbids, with what is wrong about it; nothing if the Pod keeps to it.

    What is not even the right shape is passed over: the API server refuses that by itself.
    """
    return (
        *_of_annotations(annotations),
        *_of_pod(spec),
        *_of_volumes(spec),
        *_of_contexts(spec),
        *_of_containers(spec),
    )


def _of_annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    """Check the old spelling of AppArmor profiles, which the API server still reads."""
    for key, value in annotations.items():
        if (
            key.startswith(_ARMOR)
            and value != "runtime/default"
            and not value.startswith("localhost/")
        ):
            yield f"metadata.annotations[{key}]: it must be runtime/default or localhost/…"


def _of_pod(spec: Json) -> Iterator[str]:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"spec.{key}: it must not be true"
    for sysctl in _maps(_map(spec.get("securityContext")).get("sysctls")):
        if sysctl.get("name") not in _SYSCTLS:
            yield f"spec.securityContext.sysctls: {sysctl.get('name')} is not among the safe ones"


def _of_volumes(spec: Json) -> Iterator[str]:
    for volume in _maps(spec.get("volumes")):
        for kind in sorted(volume.keys() - _VOLUMES - {"name"}):
            yield f"spec.volumes[{volume.get('name')}].{kind}: this kind of volume is not allowed"


def _of_contexts(spec: Json) -> Iterator[str]:
    """Check what a container has or inherits from its Pod: every one must be covered."""
    pod = _map(spec.get("securityContext"))
    yield from _of_context(pod, "spec.securityContext")
    for path, container in _each(spec):
        own = _map(container.get("securityContext"))
        yield from _of_context(own, f"{path}.securityContext")
        if _inherited("runAsNonRoot", own, pod) is None:
            yield f"{path}.securityContext.runAsNonRoot: it must be true, here or for the Pod"
        if _inherited("seccompProfile", own, pod) is None:
            at = f"{path}.securityContext.seccompProfile.type"
            yield f"{at}: it must be RuntimeDefault or Localhost, here or for the Pod"


def _of_context(context: Json, path: str) -> Iterator[str]:
    """Check what may stand in the context of a Pod as well as in a container's."""
    if context.get("runAsNonRoot") is False:
        yield f"{path}.runAsNonRoot: it must be true"
    if context.get("runAsUser") == 0:
        yield f"{path}.runAsUser: it must not be 0"
    if _map(context.get("windowsOptions")).get("hostProcess"):
        yield f"{path}.windowsOptions.hostProcess: it must not be true"
    for key in ("seccompProfile", "appArmorProfile"):
        if context.get(key) is not None and _map(context[key]).get("type") not in _PROFILES:
            yield f"{path}.{key}.type: it must be RuntimeDefault or Localhost"
    yield from _of_selinux(_map(context.get("seLinuxOptions")), f"{path}.seLinuxOptions")


def _of_selinux(options: Json, path: str) -> Iterator[str]:
    if (options.get("type") or "") not in _SELINUX_TYPES:
        yield f"{path}.type: it must be one of the container types"
    for key in ("user", "role"):
        if options.get(key):
            yield f"{path}.{key}: it must not be set"


def _of_containers(spec: Json) -> Iterator[str]:
    for path, container in _each(spec):
        context, at = _map(container.get("securityContext")), f"{path}.securityContext"
        if context.get("privileged"):
            yield f"{at}.privileged: it must not be true"
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{at}.allowPrivilegeEscalation: it must be false"
        if (context.get("procMount") or "Default") != "Default":
            yield f"{at}.procMount: it must be Default"
        yield from _of_capabilities(_map(context.get("capabilities")), f"{at}.capabilities")
        for port in _maps(container.get("ports")):
            if port.get("hostPort"):
                yield f"{path}.ports.hostPort: it must not be set"
        yield from _of_handlers(container, path)


def _of_capabilities(capabilities: Json, path: str) -> Iterator[str]:
    if "ALL" not in _list(capabilities.get("drop")):
        yield f"{path}.drop: it must contain ALL"
    if any(added != "NET_BIND_SERVICE" for added in _list(capabilities.get("add"))):
        yield f"{path}.add: only NET_BIND_SERVICE may be added"


def _of_handlers(container: Json, path: str) -> Iterator[str]:
    """Refuse a probe or hook with a host of its own: the kubelet would call anywhere it can reach."""
    hooks = _map(container.get("lifecycle"))
    handlers = {name: _map(container.get(name)) for name in _PROBES}
    handlers |= {f"lifecycle.{name}": _map(hooks.get(name)) for name in _HOOKS}
    for name, handler in handlers.items():
        for kind in ("httpGet", "tcpSocket"):
            if _map(handler.get(kind)).get("host"):
                yield f"{path}.{name}.{kind}.host: it must not be set"


def _each(spec: Json) -> Iterator[tuple[str, Json]]:
    for key in _CONTAINERS:
        for container in _maps(spec.get(key)):
            yield f"spec.{key}[{container.get('name')}]", container


def _inherited(key: str, own: Json, pod: Json) -> object:
    return own[key] if own.get(key) is not None else pod.get(key)


def _map(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _maps(value: object) -> list[Json]:
    return [item for item in _list(value) if isinstance(item, dict)]
