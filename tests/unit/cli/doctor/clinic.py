"""A healthy fleet as the checks see it, and ways to make it ill."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.cli.doctor.decide.facts import (
    ApiFacts,
    CrdFacts,
    DriverFacts,
    Facts,
    FolderFacts,
    GithubFacts,
    KubeFacts,
    MachineFacts,
    Right,
    Unread,
)
from remuda.cli.doctor.decide.report import findings
from remuda.cli.tree.decide.driver import Machine
from remuda.cli.tree.decide.health import Condition as PartCondition
from remuda.cli.tree.looking import PartView, TreeView
from remuda.cli.tree.parts import STARTED
from remuda.kube.core import (
    Lease,
    LeaseSpec,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ServiceAccount,
)
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import (
    FLEET,
    POOL,
    RUNNER,
    RUNTIME,
    TEMPLATE,
    VM_CLEANUP,
    image_label,
)
from remuda.kube.runner_pool import RunnerPool, RunnerPoolSpec, RunnerPoolStatus
from remuda.kube.times import micro_time
from remuda.ports.api import ClaimRow, PodRow, RunnerRow, SessionRow

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.findings import Finding

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
AWAY = Unread(why="It could not be asked.")
IMAGE = "registry.test/mac:1"


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def a_pod(  # noqa: PLR0913 - a builder, each with a default
    name: str = "mac-a",
    *,
    node: str = "mini",
    phase: str = "Running",
    warm: bool = True,
    late_s: float | None = None,
    age_s: float = 3600.0,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (VM_CLEANUP,),
    conditions: tuple[Condition, ...] = (),
) -> Pod:
    """Make a runner's Pod. ``late_s``: it is being deleted, and its grace ended so long ago."""
    ready = Condition(type="Ready", status="True", last_transition_time=ago(age_s))
    bound = Condition(type="PodScheduled", status="True", last_transition_time=ago(age_s))
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ci",
            uid=f"uid-{name}",
            resource_version="7",
            creation_timestamp=ago(age_s),
            deletion_timestamp=None if late_s is None else ago(late_s),
            deletion_grace_period_seconds=None if late_s is None else 30,
            labels={RUNNER: "true", POOL: "mac", TEMPLATE: "t1", **(labels or {})},
            annotations=annotations or {},
            finalizers=finalizers,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase,
            conditions=(*((ready,) if warm else ()), *((bound,) if node else ()), *conditions),
        ),
    )


def a_node(
    name: str = "mini",
    *conditions: Condition,
    cordoned: bool = False,
    images: tuple[str, ...] = (IMAGE,),
) -> Node:
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            labels={
                FLEET: "barn",
                RUNTIME: "tart",
                **{image_label(image): "ready" for image in images},
            },
        ),
        spec=NodeSpec(unschedulable=cordoned),
        status=NodeStatus(conditions=conditions or (Condition(type="Ready", status="True"),)),
    )


def a_lease(name: str = "mini", *, age_s: float = 5.0, holder: str | None = None) -> Lease:
    return Lease(
        metadata=ObjectMeta(name=name),
        spec=LeaseSpec(
            holder_identity=name if holder is None else holder,
            lease_duration_seconds=40,
            renew_time=micro_time(ago(age_s)),
        ),
    )


def a_pool(name: str = "mac", *conditions: Condition, **more: Any) -> RunnerPool:  # noqa: ANN401 - of the spec
    """Make a pool. Keys of the status are given as ``status``, those of its metadata as ``meta``."""
    status = {
        "observed_generation": 3,
        "template_hash": "t1",
        "replicas": 1,
        "busy": 0,
        "warm": 1,
        **more.pop("status", {}),
    }
    meta = {"name": name, "generation": 3, **more.pop("meta", {})}
    spec = {"image": IMAGE, "fleet": "barn", "labels": (name,), "replicas": 1, **more}
    ready = Condition(type="Ready", status="True", reason="Warm", message="1 of 1.")
    return RunnerPool(
        metadata=ObjectMeta(**meta),
        spec=RunnerPoolSpec(**spec),
        status=RunnerPoolStatus(conditions=conditions or (ready,), **status),
    )


def an_account(name: str = "mac-a", *, age_s: float = 3600.0, ours: bool = True) -> ServiceAccount:
    return ServiceAccount(
        metadata=ObjectMeta(
            name=name,
            namespace="ci",
            uid=f"uid-sa-{name}",
            creation_timestamp=ago(age_s),
            labels={RUNNER: "true"} if ours else {},
        )
    )


def kube(**more: Any) -> KubeFacts:  # noqa: ANN401 - of the facts
    facts = KubeFacts(
        server="https://kube.test",
        namespace="ci",
        version="v1.37.1",
        ahead_s=0.0,
        crds=(CrdFacts("runnerpools.remuda.dev", installed=True),),
        rights=(Right("list pods in namespace ci", "remuda doctor", allowed=True),),
        pools=(a_pool(),),
        pods=(a_pod(),),
        nodes=(a_node(),),
        node_leases=(a_lease(),),
        accounts=(an_account(),),
        election=a_lease("operator-1"),
    )
    return replace(facts, **more)


# --- dispatch ---------------------------------------------------------------------------------------------------------


def a_claim(
    pod: str = "mac-a",
    job: str = "local/1",
    *,
    age_s: float = 600.0,
    **more: Any,  # noqa: ANN401 - of the row
) -> ClaimRow:
    return msgspec.structs.replace(
        ClaimRow(job_id=job, pod=pod, pod_uid=f"uid-{pod}", claimed_at=ago(age_s)), **more
    )


def a_session(job: str = "local/1", *, ended: bool = False) -> SessionRow:
    return SessionRow(job_id=job, started_at=ago(600), ended_at=ago(60) if ended else None)


def a_runner(
    name: str = "mac-a",
    *,
    claim: ClaimRow | None = None,
    session: SessionRow | None = None,
    uid: str = "",
) -> RunnerRow:
    pod = PodRow(uid=uid or f"uid-{name}", phase="warm", created_at=ago(3600))
    return RunnerRow(name=name, pool="mac", pod=pod, claim=claim, session=session)


def api(**more: Any) -> ApiFacts:  # noqa: ANN401 - of the facts
    facts = ApiFacts(
        server="https://dispatch.test",
        not_ready="",
        ahead_s=0.0,
        claims=(),
        runners=(a_runner(),),
        limits=(),
        waiting=(),
        violations={"S1": 0, "V3": 0},
    )
    return replace(facts, **more)


# --- this machine -----------------------------------------------------------------------------------------------------


def a_part(name: str, condition: PartCondition = PartCondition.HEALTHY, **more: Any) -> PartView:  # noqa: ANN401 - of the view
    part = PartView(
        name=name,
        condition=condition,
        pid=100 if condition is not PartCondition.STOPPED else None,
        since=ago(60),
        address="http://127.0.0.1:1",
        why="",
        restarts=0,
        last_error="",
        last_error_at=None,
    )
    return replace(part, **more)


def a_tree(*parts: PartView, supervisor: int | None = 42) -> TreeView:
    return TreeView(
        ok=True,
        says="All is well",
        supervisor=supervisor,
        state=None,
        parts=parts or tuple(a_part(name) for name in STARTED),
    )


def a_driver(name: str = "process", **more: Any) -> DriverFacts:  # noqa: ANN401 - of the facts
    machine = Machine(platform="linux", cpus=2, memory_mib=4096)
    return replace(DriverFacts(name=name, image="process", machine=machine), **more)


def machine(**more: Any) -> MachineFacts:  # noqa: ANN401 - of the facts
    folder = FolderFacts(path="/data", free_bytes=50 * 1024**3)
    return replace(MachineFacts(folder=folder, tree=a_tree(), driver=a_driver()), **more)


def a_folder(**more: Any) -> FolderFacts:  # noqa: ANN401 - of the facts
    return replace(FolderFacts(path="/data", free_bytes=50 * 1024**3), **more)


# --- all of it --------------------------------------------------------------------------------------------------------


def a_fleet(**more: Any) -> Facts:  # noqa: ANN401 - of the facts
    facts = Facts(
        now=NOON,
        machine=machine(),
        kube=kube(),
        api=api(),
        github=GithubFacts("github.com", "our-app"),
    )
    return replace(facts, **more)


def find(name: str, facts: Facts) -> Finding:
    """Return what one check finds."""
    return findings(facts, {name})[name]
