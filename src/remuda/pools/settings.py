"""What the operator is told when it starts. Read once; every wait and every bound is here, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.control.election import ElectionSettings
from remuda.control.reflector import ReflectorSettings
from remuda.pools.guards import Guards

if TYPE_CHECKING:
    from remuda.kube.runner_pod import PodSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    namespace: str
    """The one namespace whose RunnerPools are served; their Pods and ServiceAccounts are made in it."""

    identity: str
    """Who we are among the replicas of the operator. Never used twice: put something random into it."""

    pod: PodSettings
    """What the Pods of runners are made of, beside what their pool says."""

    lease_name: str = "remuda-controller"
    lease_duration_s: int = 15
    renew_deadline_s: float = 10.0
    election_retry_s: float = 2.0

    reflector: ReflectorSettings = field(default_factory=ReflectorSettings)
    """How the view of the fleet is kept current."""

    workers_max: int = 8
    """How many pools are looked at at once."""

    writes_max: int = 32
    """How many actions of one pool are carried out at once."""

    coalesce_s: float = 0.2
    """How long news of a pool are collected before it is looked at: a burst of Pod events is one look."""

    look_again_s: float = 60.0
    """The longest time without a look at a pool."""

    confirm_after_s: float = 10.0
    """How long a runner that was made may stay unseen before the server is asked about it."""

    status_spacing_s: float = 2.0
    """The least time between two writes of a pool's status that change its counts only."""

    report_timeout_s: float = 2.0
    """How long dispatch may take to hear that a runner stopped; then the runner is deleted all the same."""

    report_pause_s: float = 10.0
    """How long dispatch is left alone after it failed to hear: a mass reap must not wait for each of its runners."""

    sweep_s: float = 45.0
    """How often to look for ServiceAccounts without Pods and runners without pools."""

    orphan_grace_s: float = 60.0
    """How old, and for how long without its other half, an orphan must be before it is removed."""

    sweep_max: int = 100
    """How many orphans are removed in one sweep, at most."""

    hosts_s: float = 10.0
    """How often the hosts' start records are judged."""

    autoscale_s: float = 5.0
    """How often the autoscaler asks dispatch what waits."""

    guards: Guards = field(default_factory=Guards)
    """For simulations and tests only: which guards are in."""

    def election(self) -> ElectionSettings:
        return ElectionSettings(
            namespace=self.namespace,
            name=self.lease_name,
            identity=self.identity,
            lease_duration_s=self.lease_duration_s,
            renew_deadline_s=self.renew_deadline_s,
            retry_s=self.election_retry_s,
        )
