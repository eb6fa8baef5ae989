"""
The rules of Pods: the defaults that matter to us, what admission adds, what may change, and graceful deletion.

Fields that we do not know are kept as they are; the real server would refuse or drop them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from remuda.standalone.errors import Cause, StatusError
from remuda.standalone.metadata import forbidden, time_text
from remuda.standalone.pod_checks import spec_causes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.standalone.objects import Obj
    from remuda.standalone.rules import Context

_TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_TOKEN_VOLUME_PREFIX = "kube-api-access-"  # noqa: S105 - a name
_DEFAULT_TOLERATION_S = 300
_FILE_MODE = 0o644
_NATIVE_DOMAINS = ("kubernetes.io/",)
_MUTABLE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def prepare_create(pod: Obj, context: Context) -> None:
    """Default and admit a new Pod, in the real server's order."""
    spec = pod["spec"] = own(pod.get("spec") or {})
    default_spec(spec)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            _scheduled_condition(context, "False")
            | {
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    name = pod["metadata"].get("name", "")  # its absence is told with the other faults
    _tolerate_node_faults(spec)
    _admit_service_account(name, pod["metadata"]["namespace"], spec, context)
    _admit_runtime_class(name, spec, context)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def prepare_update(pod: Obj, old: Obj, _: Context) -> None:
    if pod.get("spec") != old["spec"]:
        pod["spec"] = own(pod.get("spec") or {})
        default_spec(pod["spec"])
        _tolerate_node_faults(pod["spec"])


def own(tree: Any) -> Any:  # noqa: ANN401 - JSON
    """Copy JSON, so that it may be changed."""
    return msgspec.json.decode(msgspec.json.encode(tree))


# --- Defaults ---------------------------------------------------------------------------------------------------------


def default_spec(spec: Obj) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:  # two spellings of one field
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: Obj) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(str(container.get("image", "")))
    _default_resources(container.setdefault("resources", {}))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            _default_probe(container[probe])
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field:
            field.setdefault("apiVersion", "v1")


def _default_resources(resources: Obj) -> None:
    """Request what is limited, where the request is not said."""
    if resources.get("limits"):
        resources["requests"] = resources["limits"] | (resources.get("requests") or {})


def _default_probe(probe: Obj) -> None:
    defaults = {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    for key, value in defaults.items():
        probe.setdefault(key, value)
    if probe.get("httpGet"):
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _pull_policy(image: str) -> str:
    """Pull what may have moved: no tag and ``latest`` do, other tags and digests do not."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "IfNotPresent" if colon and tag != "latest" else "Always"


def _default_volume(volume: Obj) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "projected", "downwardAPI"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", _FILE_MODE)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if isinstance(source.get("serviceAccountToken"), dict):
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            if item.get("fieldRef"):
                item["fieldRef"].setdefault("apiVersion", "v1")


def qos_class(spec: Obj) -> str:
    """Return how hard the Pod's promises are, from cpu and memory of every container."""
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    promised = [container.get("resources") or {} for container in containers]
    names = ("cpu", "memory")
    if not any(
        (r.get(side) or {}).get(n)
        for r in promised
        for side in ("requests", "limits")
        for n in names
    ):
        return "BestEffort"
    guaranteed = all(
        (r.get("limits") or {}).get(n) and (r.get("requests") or {}).get(n) == r["limits"][n]
        for r in promised
        for n in names
    )
    return "Guaranteed" if guaranteed else "Burstable"


# --- Admission --------------------------------------------------------------------------------------------------------


def _refuse(name: str, why: str) -> StatusError:
    return StatusError(
        403, "Forbidden", f'pods "{name}" is forbidden: {why}', name=name, kind="pods"
    )


def _admit_runtime_class(name: str, spec: Obj, context: Context) -> None:
    wanted = spec.get("runtimeClassName")
    overhead: dict[str, str] = {}
    if wanted:
        runtime = context.find("node.k8s.io", "runtimeclasses", "", wanted)
        if runtime is None:
            raise _refuse(name, f'pod rejected: RuntimeClass "{wanted}" not found')
        overhead = (runtime.get("overhead") or {}).get("podFixed") or {}
        _merge_scheduling(name, spec, runtime.get("scheduling") or {})
    given = spec.get("overhead")
    if given and not overhead:
        why = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise _refuse(name, f"pod rejected: {why}")
    if given and given != overhead:
        raise _refuse(
            name, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        )
    if overhead:
        spec["overhead"] = dict(overhead)


def _merge_scheduling(name: str, spec: Obj, scheduling: Obj) -> None:
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            raise _refuse(
                name,
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}",
            )
        selector[key] = value
    if selector:
        spec["nodeSelector"] = selector
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [t for t in scheduling.get("tolerations") or () if t not in tolerations]
    if tolerations:
        spec["tolerations"] = tolerations


def _admit_service_account(name: str, namespace: str, spec: Obj, context: Context) -> None:
    wanted = spec.get("serviceAccountName") or "default"
    account = context.find("", "serviceaccounts", namespace, wanted)
    if account is None:
        raise _refuse(
            name,
            f'error looking up service account {namespace}/{wanted}: serviceaccount "{wanted}" not found',
        )
    spec["serviceAccountName"] = spec["serviceAccount"] = wanted
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = own(account["imagePullSecrets"])
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken")
    if automount is None or automount:
        _mount_token(spec, context)


def _mount_token(spec: Obj, context: Context) -> None:
    """Give every container that mounts nothing there a token for the API server."""
    volumes = spec.get("volumes") or []
    existing = next(
        (v["name"] for v in volumes if v.get("name", "").startswith(_TOKEN_VOLUME_PREFIX)), ""
    )
    volume = existing or _TOKEN_VOLUME_PREFIX + context.ids.suffix()
    mounted = False
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        mounts = container.get("volumeMounts") or []
        if any(mount.get("mountPath") == _TOKEN_MOUNT for mount in mounts):
            continue
        mounted = True
        container["volumeMounts"] = [
            *mounts,
            {"name": volume, "readOnly": True, "mountPath": _TOKEN_MOUNT},
        ]
    if mounted and not existing:
        spec["volumes"] = [*volumes, {"name": volume, "projected": _token_projection()}]


def _token_projection() -> Obj:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
        ],
        "defaultMode": _FILE_MODE,
    }


def _tolerate_node_faults(spec: Obj) -> None:
    tolerations = list(spec.get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _DEFAULT_TOLERATION_S,
                }
            )
    spec["tolerations"] = tolerations


def _tolerates(toleration: Obj, key: str) -> bool:
    return toleration.get("key", "") in {key, ""} and toleration.get("effect", "") in {
        "NoExecute",
        "",
    }


# --- Validation -------------------------------------------------------------------------------------------------------


def create_causes(pod: Obj) -> Iterator[Cause]:
    return spec_causes(pod["spec"])


def update_causes(pod: Obj, old: Obj) -> Iterator[Cause]:
    """Only a few fields of a Pod may change once it is there."""
    new_spec, old_spec = pod["spec"], old["spec"]
    if new_spec is old_spec or new_spec == old_spec:
        return
    added = new_spec.get("tolerations") or []
    if any(toleration not in added for toleration in old_spec.get("tolerations") or ()):
        yield forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )
        return
    yield from _gate_causes(new_spec, old_spec)
    if _without_mutable(new_spec, old_spec) != _without_mutable(old_spec, old_spec):
        yield forbidden("spec", _MUTABLE_TEXT)


def _gate_causes(spec: Obj, old: Obj) -> Iterator[Cause]:
    """Gates are only ever opened."""
    closed = [gate.get("name") for gate in old.get("schedulingGates") or ()]
    for at, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in closed:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{at}].name", why)


def _without_mutable(spec: Obj, old: Obj) -> Obj:
    mutable = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if old.get("schedulingGates"):
        mutable.add("nodeSelector")  # whoever holds the gate may still narrow where the Pod goes
    kept = {k: v for k, v in spec.items() if k not in mutable}
    grace_s = old.get("terminationGracePeriodSeconds")
    if grace_s is not None and grace_s < 0 and kept.get("terminationGracePeriodSeconds") == 1:
        kept["terminationGracePeriodSeconds"] = grace_s
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [{k: v for k, v in c.items() if k != "image"} for c in kept[field]]
    return kept


# --- Deletion and binding ---------------------------------------------------------------------------------------------


def grace_period_s(pod: Obj, asked_s: int | None) -> int:
    """Return how long the Pod's node has to end it: 0 where there is nothing left to end."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return 0
    period_s = pod["spec"].get("terminationGracePeriodSeconds", 0) if asked_s is None else asked_s
    return 1 if period_s < 0 else int(period_s)


def _scheduled_condition(context: Context, status: str) -> Obj:
    return {
        "type": "PodScheduled",
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": time_text(context.clock.now()),
    }


def bound(pod: Obj, node: str, context: Context) -> Obj:
    """Return the Pod assigned to a node, with the condition that says so."""
    condition = _scheduled_condition(context, "True")
    others = [c for c in pod["status"].get("conditions") or () if c.get("type") != "PodScheduled"]
    return pod | {
        "spec": pod["spec"] | {"nodeName": node},
        "status": pod["status"] | {"conditions": [*others, condition]},
        "metadata": dict(pod["metadata"]),
    }
