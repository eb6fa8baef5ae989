"""The shapes of runners, pools and hosts in answers, made of Kubernetes objects as the view holds them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Self

from msgspec import UNSET, UnsetType
from pydantic import Field

from remuda.dispatch.api.bodies import Body, ClaimBody, SessionBody
from remuda.kube.core import Node, Pod
from remuda.kube.names import FLEET, OWNER, POOL, RUNTIME
from remuda.kube.node_view import unhealthy_reason
from remuda.kube.runner_pool import RunnerPool
from remuda.kube.runner_view import runner_of
from remuda.model.job import Os
from remuda.model.runner import Phase


class PodBody(Body):
    """A runner's Pod as Kubernetes shows it."""

    uid: str
    phase: Phase
    node: str
    owner: str | None = Field(description="The tenant whose job it holds, as its label says")
    template: str
    stale: bool = Field(description="Made from an older template than its pool's")
    created_at: datetime
    warm_at: datetime | None
    drain: bool = Field(description="A person wants it to take no job")
    marked: bool = Field(description="A roll asked it to make room")
    deleting_since: datetime | None
    unschedulable_why: str

    @classmethod
    def of(cls, pod: Pod, pool: RunnerPool | None) -> Self:
        runner = runner_of(pod)
        current = "" if pool is None else pool.status.template_hash
        return cls(
            uid=runner.uid,
            phase=runner.phase,
            node=runner.node,
            owner=pod.labels.get(OWNER),
            template=runner.template,
            stale=bool(current) and runner.template != current,
            created_at=runner.created_at,
            warm_at=runner.warm_at,
            drain=runner.drain,
            marked=runner.mark is not None,
            deleting_since=runner.deleting_since,
            unschedulable_why=runner.unschedulable_why,
        )


class RunnerBody(Body):
    """A runner: its Pod, and what it does with its one job."""

    name: str
    pool: str
    pod: PodBody | None = Field(description="Null: the Pod is gone")
    claim: ClaimBody | None = Field(description="The job that it holds")
    session: SessionBody | None = Field(description="The job that it got, also after its end")


class RunnerPage(Body):
    """Runners by name."""

    runners: tuple[RunnerBody, ...]
    next: str | None = Field(description="The `after` of the next page; null: this was the last")


class ConditionBody(Body):
    """What the operator says about a pool."""

    type: str
    status: str
    reason: str
    message: str


class RunnerCounts(Body):
    """How many runners a pool has, by how far they are."""

    starting: int
    warm: int
    busy: int
    ended: int
    terminating: int


class SignalsBody(Body):
    """How much work there is for a pool."""

    queued: int = Field(description="Jobs that could start now if there were a runner")
    claimed: int = Field(description="Jobs that a runner has claimed")
    occupied: int = Field(description="Runners that hold a job or still clean up after one")
    withheld: int = Field(description="Jobs that wait for their tenant's own limit")
    p95_concurrent_last_hour: int
    oldest_queued_s: float


class PoolBody(Body):
    """A pool and its runners."""

    name: str
    os: Os
    fleet: str
    image: str
    labels: tuple[str, ...]
    forks: str
    replicas: int = Field(description="Runners wanted, busy ones included")
    autoscaled: bool
    max_replicas: int | None
    paused: bool = Field(description="Its rollout marks nobody new")
    stale: int = Field(description="Runners of an older template, as the operator counted last")
    rolling: int = Field(description="Runners that count against the roll's cap, likewise")
    roll_cap: int = Field(description="How many runners the roll may take away at once, likewise")
    template: str
    runners: RunnerCounts
    conditions: tuple[ConditionBody, ...]
    created_at: datetime | None
    deleting: bool

    @classmethod
    def of(cls, pool: RunnerPool, pods: Iterable[Pod]) -> Self:
        spec = pool.spec
        most = spec.autoscaling.max_replicas
        return cls(
            name=pool.name,
            os=Os(spec.os.value),
            fleet=spec.fleet,
            image=spec.image,
            labels=spec.labels,
            forks=spec.forks.value,
            replicas=spec.replicas,
            autoscaled=spec.autoscaling.enabled,
            max_replicas=None if most is UNSET else most,
            paused=spec.rollout.paused,
            stale=_counted(pool.status.stale),
            rolling=_counted(pool.status.rolling),
            roll_cap=_counted(pool.status.roll_cap),
            template=pool.status.template_hash,
            runners=_counts(pods),
            conditions=tuple(
                ConditionBody(type=c.type, status=c.status, reason=c.reason, message=c.message)
                for c in pool.status.conditions
            ),
            created_at=pool.metadata.creation_timestamp,
            deleting=pool.metadata.deletion_timestamp is not None,
        )


def _counted(number: int | UnsetType) -> int:
    """Return what the operator counted; nothing as long as it has not looked."""
    return 0 if isinstance(number, UnsetType) else number


class PoolList(Body):
    """All pools, by name."""

    pools: tuple[PoolBody, ...]


class PoolDetail(Body):
    """A pool and the work that waits for it."""

    pool: PoolBody
    signals: SignalsBody


class HostBody(Body):
    """A machine that runners are placed on."""

    name: str
    fleet: str
    runtime: str
    healthy: bool
    why_not: str = Field(description="Why no runner should start there now; empty if one may")
    os: str
    architecture: str
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    runners: int = Field(description="Live runners there")
    created_at: datetime | None

    @classmethod
    def of(cls, node: Node, runners: int) -> Self:
        reason, info = unhealthy_reason(node), node.status.node_info
        return cls(
            name=node.name,
            fleet=node.labels.get(FLEET, ""),
            runtime=node.labels.get(RUNTIME, ""),
            healthy=not reason,
            why_not=reason,
            os="" if info is None else info.operating_system,
            architecture="" if info is None else info.architecture,
            capacity=dict(node.status.capacity),
            allocatable=dict(node.status.allocatable),
            runners=runners,
            created_at=node.metadata.creation_timestamp,
        )


class HostList(Body):
    """All hosts, by name."""

    hosts: tuple[HostBody, ...]


def pool_name_of(pod: Pod) -> str:
    return pod.labels.get(POOL, "")


def _counts(pods: Iterable[Pod]) -> RunnerCounts:
    runners = [runner_of(pod) for pod in pods]
    leaving = sum(r.deleting_since is not None for r in runners)
    phases = Counter(r.phase for r in runners if r.deleting_since is None)
    return RunnerCounts(
        starting=phases[Phase.STARTING],
        warm=phases[Phase.WARM],
        busy=phases[Phase.BUSY],
        ended=phases[Phase.ENDED],
        terminating=leaving,
    )
