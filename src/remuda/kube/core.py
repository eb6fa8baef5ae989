"""
The built-in kinds that we use: Pod, Node, ServiceAccount, Event, Namespace, Secret, Lease, RuntimeClass.

Only the fields that we read or write. A write never sends a whole object back: it patches the touched keys
(``remuda.kube.patches``), so what we do not hold is never lost.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time

import msgspec
from msgspec import UNSET, UnsetType

from remuda.kube.kinds import Kind
from remuda.kube.meta import Condition, Part, Resource, Shared

# --- Pod -------------------------------------------------------------------------------------------------------------


class EnvVar(Part, frozen=True):
    name: str
    value: str = ""


class VolumeMount(Part, frozen=True):
    name: str
    mount_path: str
    read_only: bool = False


class ResourceRequirements(Part, frozen=True):
    requests: Mapping[str, str] = {}
    limits: Mapping[str, str] = {}


class Capabilities(Part, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SeccompProfile(Part, frozen=True):
    type: str


class SecurityContext(Part, frozen=True):
    """Of a container or of a whole Pod (the union of the fields that we write)."""

    privileged: bool | UnsetType = UNSET
    allow_privilege_escalation: bool | UnsetType = UNSET
    run_as_non_root: bool | UnsetType = UNSET
    run_as_user: int | UnsetType = UNSET
    fs_group: int | UnsetType = UNSET
    capabilities: Capabilities | UnsetType = UNSET
    seccomp_profile: SeccompProfile | UnsetType = UNSET


class Container(Part, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    security_context: SecurityContext | UnsetType = UNSET


class TokenProjection(Part, frozen=True):
    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class ProjectedSource(Part, frozen=True):
    service_account_token: TokenProjection | None = None


class Projected(Part, frozen=True):
    sources: tuple[ProjectedSource, ...] = ()


class EmptyDir(Part, frozen=True):
    medium: str = ""
    size_limit: str = ""


class Volume(Part, frozen=True):
    name: str
    projected: Projected | None = None
    empty_dir: EmptyDir | None = None


class Toleration(Part, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | UnsetType = UNSET


class SelectorRequirement(Part, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Part, frozen=True):
    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Part, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(Part, frozen=True):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Part, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] = ()


class Affinity(Part, frozen=True):
    node_affinity: NodeAffinity | None = None


class PodSpec(Part, frozen=True):
    node_name: Shared[str] = ""
    containers: Shared[tuple[Container, ...]] = ()
    init_containers: Shared[tuple[Container, ...]] = ()
    volumes: Shared[tuple[Volume, ...]] = ()
    service_account_name: str = ""
    automount_service_account_token: bool | UnsetType = UNSET
    runtime_class_name: Shared[str] = ""
    scheduler_name: Shared[str] = ""
    node_selector: Shared[Mapping[str, str]] = {}
    affinity: Shared[Affinity | None] = None
    tolerations: Shared[tuple[Toleration, ...]] = ()
    restart_policy: Shared[str] = ""
    termination_grace_period_seconds: int | UnsetType = UNSET
    active_deadline_seconds: int | UnsetType = UNSET
    security_context: Shared[SecurityContext | UnsetType] = UNSET
    overhead: Shared[Mapping[str, str]] = {}


class Terminated(Part, frozen=True):
    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Running(Part, frozen=True):
    started_at: datetime | None = None


class Waiting(Part, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerState(Part, frozen=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True):
    name: Shared[str]
    ready: bool = False
    restart_count: int = 0
    image: Shared[str] = ""
    image_id: Shared[str] = msgspec.field(name="imageID", default="")
    state: ContainerState = ContainerState()


class PodStatus(Part, frozen=True):
    phase: Shared[str] = ""
    reason: Shared[str] = ""
    message: Shared[str] = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: Shared[datetime | None] = None
    host_ip: Shared[str] = msgspec.field(name="hostIP", default="")
    pod_ip: str = msgspec.field(name="podIP", default="")


class Pod(Resource, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


POD = Kind(Pod, "", "v1", "Pod", "pods")

# --- Node ------------------------------------------------------------------------------------------------------------


class Taint(Part, frozen=True):
    key: str
    effect: str
    value: str = ""
    time_added: datetime | None = None


class NodeSpec(Part, frozen=True):
    provider_id: str = msgspec.field(name="providerID", default="")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(Part, frozen=True):
    type: str
    address: str


class DaemonEndpoint(Part, frozen=True):
    port: int = msgspec.field(name="Port", default=0)
    """Kubernetes spells this one field with a capital letter."""


class DaemonEndpoints(Part, frozen=True):
    kubelet_endpoint: DaemonEndpoint | None = None


class NodeSystemInfo(Part, frozen=True):
    operating_system: str = ""
    architecture: str = ""
    kubelet_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    machine_id: str = msgspec.field(name="machineID", default="")
    system_uuid: str = msgspec.field(name="systemUUID", default="")
    boot_id: str = msgspec.field(name="bootID", default="")


class NodeStatus(Part, frozen=True):
    capacity: Mapping[str, str] = {}
    allocatable: Mapping[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: DaemonEndpoints | None = None
    node_info: NodeSystemInfo | None = None


class Node(Resource, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


NODE = Kind(Node, "", "v1", "Node", "nodes", namespaced=False)

# --- The small ones ---------------------------------------------------------------------------------------------------


class ServiceAccount(Resource, frozen=True):
    automount_service_account_token: bool | UnsetType = UNSET


SERVICE_ACCOUNT = Kind(ServiceAccount, "", "v1", "ServiceAccount", "serviceaccounts")


class NamespaceStatus(Part, frozen=True):
    phase: str = ""


class Namespace(Resource, frozen=True):
    status: NamespaceStatus = NamespaceStatus()


NAMESPACE = Kind(Namespace, "", "v1", "Namespace", "namespaces", namespaced=False)


class Secret(Resource, frozen=True):
    type: str = ""
    data: Mapping[str, bytes] = {}
    """Base64 on the wire; bytes here."""

    def __repr__(self) -> str:
        """Name the keys only: a secret must not reach a log by way of a repr."""
        return f"Secret({self.namespace}/{self.name}, keys={sorted(self.data)})"


SECRET = Kind(Secret, "", "v1", "Secret", "secrets")


class ObjectReference(Part, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class EventSource(Part, frozen=True):
    component: str = ""
    host: str = ""


class Event(Resource, frozen=True):
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    """``Normal`` or ``Warning``. The API server fills in nothing, so neither may be a default that is not written."""
    count: int = 0
    source: EventSource = EventSource()
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


EVENT = Kind(Event, "", "v1", "Event", "events")


class LeaseSpec(Part, frozen=True):
    holder_identity: str | UnsetType | None = UNSET
    lease_duration_seconds: int | UnsetType = UNSET
    lease_transitions: int | UnsetType = UNSET
    acquire_time: str | UnsetType | None = UNSET
    """MicroTime: see ``remuda.kube.times``."""
    renew_time: str | UnsetType | None = UNSET


class Lease(Resource, frozen=True):
    spec: LeaseSpec = LeaseSpec()


LEASE = Kind(Lease, "coordination.k8s.io", "v1", "Lease", "leases")


class Overhead(Part, frozen=True):
    pod_fixed: Mapping[str, str] = {}


class Scheduling(Part, frozen=True):
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Resource, frozen=True):
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


RUNTIME_CLASS = Kind(
    RuntimeClass, "node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False
)
