"""
What the Pod Security Standard "restricted" says about Pod specs: one table, two judges.

The unit tests hold our own check to it, and the contract tests hold the table to a real API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

GOOD: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
POD: Json = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
IN = "spec.containers[runner]"
CONTEXT = f"{IN}.securityContext"
ARMOR = "container.apparmor.security.beta.kubernetes.io/runner"


@dataclass(frozen=True, slots=True)
class Row:
    says: str
    spec: Json
    fields: tuple[str, ...] = ()
    """The fields that are wrong; none: the Pod is fine."""
    annotations: Json = field(default_factory=dict)


def a_spec(own: Json | None = None, *, pod: Json | None = None, **more: Any) -> Json:  # noqa: ANN401 - JSON
    """Return a good Pod, with what is given added: to its container's context, to the Pod's, to the spec."""
    runner = {"name": "runner", "image": "i", "securityContext": {**GOOD, **(own or {})}}
    return {
        "containers": [{**runner, **more.pop("container", {})}],
        "securityContext": {**POD, **(pod or {})},
        **more,
    }


def without(context: Json, key: str) -> Json:
    return {k: v for k, v in context.items() if k != key}


def _bare(key: str) -> Json:
    """Return a Pod that says nothing about one of the things that must be said."""
    return a_spec(container={"securityContext": without(GOOD, key)})


def _probed(**handler: Json) -> Json:
    return {"container": {"livenessProbe": handler}}


def _volume(**source: Json) -> Json:
    return {"volumes": [{"name": "v", **source}]}


def _beside(context: Json, key: str = "initContainers") -> Json:
    """Return a good Pod with a second container beside the runner."""
    spec = a_spec()
    beside = {"name": "beside", "image": "i", "securityContext": context}
    return {**spec, key: [*spec.get(key, []), beside]}


ALLOWED = (
    Row("the good Pod", a_spec()),
    Row("the Pod says nothing, its container says all", {**a_spec(POD), "securityContext": {}}),
    Row(
        "a seccomp profile of the host's",
        a_spec(pod={"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}),
    ),
    Row(
        "the one capability that may be added",
        a_spec({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
    ),
    Row("a user of its own", a_spec({"runAsUser": 1000})),
    Row(
        "a safe sysctl",
        a_spec(pod={"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}),
    ),
    Row("a port of its own", a_spec(container={"ports": [{"containerPort": 80}]})),
    Row("a probe of itself", a_spec(**_probed(httpGet={"port": 80}))),
    Row(
        "an SELinux type of containers",
        a_spec({"seLinuxOptions": {"type": "container_t", "level": "s0"}}),
    ),
    Row(
        "an AppArmor profile of the runtime's",
        a_spec({"appArmorProfile": {"type": "RuntimeDefault"}}),
    ),
    Row("an AppArmor profile as an annotation", a_spec(), (), {ARMOR: "runtime/default"}),
    Row("an empty folder", a_spec(**_volume(emptyDir={}))),
    Row("a config map", a_spec(**_volume(configMap={"name": "c"}))),
    Row("a secret", a_spec(**_volume(secret={"secretName": "s"}))),
    Row("a claim", a_spec(**_volume(persistentVolumeClaim={"claimName": "c"}))),
    Row("a projection", a_spec(**_volume(projected={"sources": []}))),
    Row("fields of its own", a_spec(**_volume(downwardAPI={"items": []}))),
    Row("a driver's volume", a_spec(**_volume(csi={"driver": "d.test"}))),
    Row("an image as a volume", a_spec(**_volume(image={"reference": "i"}))),
    Row("a good sidecar", _beside({**GOOD}, "containers")),
)

FORBIDDEN = (
    Row("the host's network", a_spec(hostNetwork=True), ("spec.hostNetwork",)),
    Row("the host's processes", a_spec(hostPID=True), ("spec.hostPID",)),
    Row("the host's shared memory", a_spec(hostIPC=True), ("spec.hostIPC",)),
    Row(
        "a privileged container",
        a_spec(
            container={
                "securityContext": {**without(GOOD, "allowPrivilegeEscalation"), "privileged": True}
            }
        ),
        (f"{CONTEXT}.privileged", f"{CONTEXT}.allowPrivilegeEscalation"),
    ),
    Row(
        "nothing about escalation",
        _bare("allowPrivilegeEscalation"),
        (f"{CONTEXT}.allowPrivilegeEscalation",),
    ),
    Row(
        "escalation allowed",
        a_spec({"allowPrivilegeEscalation": True}),
        (f"{CONTEXT}.allowPrivilegeEscalation",),
    ),
    Row("nothing about capabilities", _bare("capabilities"), (f"{CONTEXT}.capabilities.drop",)),
    Row(
        "some capabilities dropped",
        a_spec({"capabilities": {"drop": ["NET_RAW"]}}),
        (f"{CONTEXT}.capabilities.drop",),
    ),
    Row(
        "a capability added",
        a_spec({"capabilities": {"drop": ["ALL"], "add": ["SYS_TIME"]}}),
        (f"{CONTEXT}.capabilities.add",),
    ),
    Row(
        "no context at all",
        a_spec(container={"securityContext": {}}),
        (f"{CONTEXT}.allowPrivilegeEscalation", f"{CONTEXT}.capabilities.drop"),
    ),
    Row(
        "nobody says non-root",
        {**a_spec(), "securityContext": without(POD, "runAsNonRoot")},
        (f"{CONTEXT}.runAsNonRoot",),
    ),
    Row(
        "the Pod says root",
        a_spec({"runAsNonRoot": True}, pod={"runAsNonRoot": False}),
        ("spec.securityContext.runAsNonRoot",),
    ),
    Row("the container says root", a_spec({"runAsNonRoot": False}), (f"{CONTEXT}.runAsNonRoot",)),
    Row(
        "the Pod's user is root", a_spec(pod={"runAsUser": 0}), ("spec.securityContext.runAsUser",)
    ),
    Row("the container's user is root", a_spec({"runAsUser": 0}), (f"{CONTEXT}.runAsUser",)),
    Row(
        "nobody names a seccomp profile",
        {**a_spec(), "securityContext": without(POD, "seccompProfile")},
        (f"{CONTEXT}.seccompProfile.type",),
    ),
    Row(
        "the Pod is unconfined",
        a_spec(pod={"seccompProfile": {"type": "Unconfined"}}),
        ("spec.securityContext.seccompProfile.type",),
    ),
    Row(
        "the container is unconfined",
        a_spec({"seccompProfile": {"type": "Unconfined"}}),
        (f"{CONTEXT}.seccompProfile.type",),
    ),
    Row(
        "no AppArmor",
        a_spec({"appArmorProfile": {"type": "Unconfined"}}),
        (f"{CONTEXT}.appArmorProfile.type",),
    ),
    Row(
        "no AppArmor in the Pod",
        a_spec(pod={"appArmorProfile": {"type": "Unconfined"}}),
        ("spec.securityContext.appArmorProfile.type",),
    ),
    Row(
        "no AppArmor as an annotation",
        a_spec(),
        (f"metadata.annotations[{ARMOR}]",),
        {ARMOR: "unconfined"},
    ),
    Row(
        "an SELinux type of the host's",
        a_spec({"seLinuxOptions": {"type": "spc_t"}}),
        (f"{CONTEXT}.seLinuxOptions.type",),
    ),
    Row(
        "an SELinux user",
        a_spec(pod={"seLinuxOptions": {"user": "u"}}),
        ("spec.securityContext.seLinuxOptions.user",),
    ),
    Row(
        "an SELinux role",
        a_spec({"seLinuxOptions": {"role": "r"}}),
        (f"{CONTEXT}.seLinuxOptions.role",),
    ),
    Row(
        "the whole of /proc",
        a_spec({"procMount": "Unmasked"}, hostUsers=False),
        (f"{CONTEXT}.procMount",),
    ),
    Row(
        "an unsafe sysctl",
        a_spec(pod={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
        ("spec.securityContext.sysctls",),
    ),
    Row(
        "a port of the host",
        a_spec(container={"ports": [{"containerPort": 80, "hostPort": 80}]}),
        (f"{IN}.ports.hostPort",),
    ),
    Row(
        "a folder of the host",
        a_spec(**_volume(hostPath={"path": "/"})),
        ("spec.volumes[v].hostPath",),
    ),
    Row(
        "a disk over NFS",
        a_spec(**_volume(nfs={"server": "s", "path": "/"})),
        ("spec.volumes[v].nfs",),
    ),
    Row(
        "a disk over iSCSI",
        a_spec(**_volume(iscsi={"targetPortal": "p", "iqn": "iqn.2001-04.test.x:y", "lun": 0})),
        ("spec.volumes[v].iscsi",),
    ),
    Row(
        "a probe of another host",
        a_spec(**_probed(httpGet={"port": 80, "host": "192.0.2.1"})),
        (f"{IN}.livenessProbe.httpGet.host",),
    ),
    Row(
        "a hook that calls another host",
        a_spec(
            container={"lifecycle": {"preStop": {"tcpSocket": {"port": 80, "host": "192.0.2.1"}}}}
        ),
        (f"{IN}.lifecycle.preStop.tcpSocket.host",),
    ),
    Row(
        "a bad init container",
        _beside({**GOOD, "allowPrivilegeEscalation": True}),
        ("spec.initContainers[beside].securityContext.allowPrivilegeEscalation",),
    ),
    Row(
        "a bad sidecar",
        _beside({**GOOD, "runAsUser": 0}, "containers"),
        ("spec.containers[beside].securityContext.runAsUser",),
    ),
    Row(
        "a process of a Windows host",
        a_spec(pod={"windowsOptions": {"hostProcess": True}}, hostNetwork=True),
        ("spec.hostNetwork", "spec.securityContext.windowsOptions.hostProcess"),
    ),
)
