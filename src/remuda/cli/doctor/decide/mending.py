"""
What ``--fix`` may do, and what proves that it is safe. Pure: decided from a first look, and again from a fresh one.

A Pod that is stuck in Terminating is let go only if nobody is left who could clean up behind it, and nothing is left
that could be lost: its host's Node is gone, no agent of that name shows a sign of life, and dispatch, which sees this
very Pod, holds no job for it and awaits no end of one. A host that is merely not ready may still run a job.

A Pod that bears an owner's stamp was promised a job. That dispatch knows of no job for it is then no proof that there
is none, as its database may be an older copy: either dispatch knows that job and its end, or the Pod's own signs say
that no job reached it, and the stamp is old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from msgspec.structs import replace

from remuda.cli.doctor.decide.facts import Unread, got
from remuda.cli.doctor.decide.findings import lasting
from remuda.cli.doctor.decide.hosts import is_held
from remuda.dispatch.stamps import claimed_at
from remuda.kube.names import CLAIM, OWNER, RUNNER, VM_CLEANUP
from remuda.kube.node_view import NOT_READY, unhealthy_reason
from remuda.kube.runner_view import is_busy, runner_of
from remuda.model.runner import Phase
from remuda.ports.api import RunnerRow

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.cli.doctor.decide.facts import Facts
    from remuda.kube.core import Lease, Node, Pod, ServiceAccount
    from remuda.kube.meta import Resource

T = TypeVar("T", bound="Resource")

STAMPED_S: Final = 360.0
"""Dispatch takes a stamp without a claim away after five minutes, while it can."""
ACCOUNT_AGE_S: Final = 900.0
"""The operator removes a ServiceAccount without a Pod after a minute or two. One this old, nobody removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What is known about what stands behind a Pod. None: it was asked for, and is not there."""

    node: Node | Unread | None
    lease: Lease | Unread | None
    runner: RunnerRow | Unread | None
    now: datetime
    stuck_after_s: float


@dataclass(frozen=True, slots=True)
class LetGo:
    """Take our finalizer off a Pod that is being deleted, and confirm its deletion."""

    pod: Pod
    check: ClassVar[str] = "runners-terminating"

    @property
    def says(self) -> str:
        host = self.pod.spec.node_name
        return f"let the Pod {self.pod.name} go: its host {host} is gone, and dispatch holds no job for it"


@dataclass(frozen=True, slots=True)
class RemoveAccount:
    """Delete the ServiceAccount of a runner that is gone."""

    account: ServiceAccount
    check: ClassVar[str] = "runners-accounts"

    @property
    def says(self) -> str:
        return f"delete the ServiceAccount {self.account.name}: its Pod is gone"


@dataclass(frozen=True, slots=True)
class RemoveLeftover:
    """Remove a file whose writing was cut short."""

    path: str
    check: ClassVar[str] = "data-leftovers"

    @property
    def says(self) -> str:
        return f"remove the file {self.path}: its writing was cut short"


Mend = LetGo | RemoveAccount | RemoveLeftover


def overdue_s(pod: Pod, now: datetime) -> float | None:
    """Return how long a Pod has outstayed its deletion, grace included; None: nobody deletes it."""
    ends_at = pod.metadata.deletion_timestamp
    return None if ends_at is None else (now - ends_at).total_seconds()


def why_kept(pod: Pod, behind: Behind) -> str:
    """Say why a Pod must not be let go; empty if it may be. In doubt it is kept."""
    late_s = overdue_s(pod, behind.now)
    if pod.labels.get(RUNNER) != "true":
        return "it is no runner of ours"
    if late_s is None:
        return "nobody deletes it"
    if late_s < behind.stuck_after_s:
        return f"its grace ended only {lasting(late_s)} ago"
    return _host_left(pod, behind) or _job_left(pod, behind.runner) or _stamp_left(pod, behind)


def _host_left(pod: Pod, behind: Behind) -> str:
    host = pod.spec.node_name
    if not host:
        return (
            "it has no host"  # nobody but the API server deletes such a Pod, and it needs no help
        )
    if isinstance(behind.node, Unread) or isinstance(behind.lease, Unread):
        return f"it cannot be seen whether its host {host} is there"
    if behind.node is not None:
        if unhealthy_reason(behind.node) == NOT_READY:
            return f"its host {host} is not ready, and may still run it"
        return f"its host {host} is there, and its agent cleans up"
    if is_held(behind.lease, behind.now):
        return f"the agent of {host} shows signs of life"
    return ""


def _job_left(pod: Pod, runner: RunnerRow | Unread | None) -> str:
    if isinstance(runner, Unread):
        return "dispatch cannot be asked whether it has a job"
    if runner is None or runner.pod is None or runner.pod.uid != pod.uid:
        return "dispatch does not see it, so what it says of jobs proves nothing"
    if runner.claim is not None:
        return f"dispatch holds the job {runner.claim.job_id} for it"
    if runner.session is not None and runner.session.ended_at is None:
        return f"dispatch awaits the end of the job {runner.session.job_id} there"
    return ""


def _stamp_left(pod: Pod, behind: Behind) -> str:
    """Say why the stamp of a Pod holds it, of which dispatch says that it has no job."""
    if OWNER not in pod.labels and CLAIM not in pod.metadata.annotations:
        return ""
    assert isinstance(behind.runner, RunnerRow), "dispatch was asked about its job first"
    if behind.runner.session is not None or runner_of(pod).phase is Phase.ENDED:
        return ""  # its job was known, and is over; or the agent saw its end
    owner = pod.labels.get(OWNER) or "somebody"
    if is_busy(_without_owner(pod)):
        return f"it is stamped for {owner}, a job reached it, and dispatch knows of none"
    since = claimed_at(pod.metadata.annotations.get(CLAIM, ""))
    if since is None or (behind.now - since).total_seconds() < STAMPED_S:
        return (
            f"it is stamped for {owner}, lately or nobody knows when, and dispatch knows of no job"
        )
    return ""


def _without_owner(pod: Pod) -> Pod:
    labels = {key: value for key, value in pod.labels.items() if key != OWNER}
    return replace(pod, metadata=replace(pod.metadata, labels=labels))


def other_finalizers(pod: Pod) -> tuple[str, ...]:
    return tuple(one for one in pod.metadata.finalizers if one != VM_CLEANUP)


def behind_of(pod: Pod, facts: Facts) -> Behind:
    """Return what the first look knows about what stands behind a Pod."""
    kube = got(facts.kube)
    return Behind(
        node=_named(kube.nodes, pod.spec.node_name),
        lease=_named(kube.node_leases, pod.spec.node_name),
        runner=_runner(pod, facts),
        now=facts.kube_now,
        stuck_after_s=facts.stuck_after_s,
    )


def _named(read: tuple[T, ...] | Unread, name: str) -> T | Unread | None:
    if isinstance(read, Unread):
        return read
    return next((one for one in read if one.name == name), None)


def _runner(pod: Pod, facts: Facts) -> RunnerRow | Unread | None:
    if isinstance(facts.api, Unread):
        return facts.api
    if isinstance(facts.api.runners, Unread):
        return facts.api.runners
    return next((row for row in facts.api.runners if row.name == pod.name), None)


def stuck(facts: Facts) -> tuple[tuple[Pod, str], ...]:
    """Return the runners that are stuck in Terminating, by name, each with why it must be kept, if it must."""
    pods = sorted(got(got(facts.kube).pods), key=lambda pod: pod.name)
    late = [p for p in pods if (overdue_s(p, facts.kube_now) or 0.0) >= facts.stuck_after_s]
    return tuple((pod, why_kept(pod, behind_of(pod, facts))) for pod in late)


def is_orphan(account: ServiceAccount, *, has_pod: bool, now: datetime) -> bool:
    """Say whether a ServiceAccount belongs to a runner that is long gone."""
    created_at = account.metadata.creation_timestamp
    old = created_at is not None and (now - created_at).total_seconds() >= ACCOUNT_AGE_S
    leaving = account.metadata.deletion_timestamp is not None
    return account.labels.get(RUNNER) == "true" and not has_pod and old and not leaving


def orphans(facts: Facts) -> tuple[ServiceAccount, ...]:
    """Return the ServiceAccounts of runners that are long gone, by name."""
    kube = got(facts.kube)
    pods = {pod.name for pod in got(kube.pods)}
    accounts = sorted(got(kube.accounts), key=lambda account: account.name)
    return tuple(a for a in accounts if is_orphan(a, has_pod=a.name in pods, now=facts.kube_now))


def mends(facts: Facts) -> tuple[Mend, ...]:
    """Return all that may be mended, as far as it is known."""
    found: list[Mend] = []
    kube = facts.kube
    if not isinstance(kube, Unread) and not isinstance(kube.pods, Unread):
        found += [LetGo(pod) for pod, kept in stuck(facts) if not kept]
        if not isinstance(kube.accounts, Unread):
            found += [RemoveAccount(account) for account in orphans(facts)]
    machine = facts.machine
    if isinstance(machine, Unread) or isinstance(machine.tree, Unread) or machine.folder.fault:
        return tuple(found)
    if machine.tree.supervisor is None:
        found += [RemoveLeftover(path) for path in machine.folder.leftovers]
    return tuple(found)
