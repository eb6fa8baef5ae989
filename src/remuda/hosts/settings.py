"""What the host operator is told when it starts. Read once; every wait and every bound is here, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from remuda.control.election import ElectionSettings
from remuda.control.reflector import ReflectorSettings
from remuda.hosts.decide.lifecycle import Limits
from remuda.hosts.guards import Guards


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    namespace: str
    """The one namespace whose Hosts are served."""

    identity: str
    """Who we are among the replicas of the operator. Never used twice: put something random into it."""

    limits: Limits = field(default_factory=Limits)

    roll_percent: int = 5
    """How many hosts of a fleet, in a hundred, may have a new configuration that is not proven yet; at least one."""

    trust_first: bool = False
    """Whether the first host key that a host shows is taken for its own, and pinned."""

    github_url: str = "https://github.com"
    """Where the organisations of builders are: github.com, or an Enterprise Server of one's own."""

    unregister_s: float = 600.0
    """How long a deleted builder waits for GitHub to forget its runner: a Mac is online there a while longer."""

    silence_s: float = 600.0
    """How long a Mac that goes back to its provider is asked again what runs on it, while it does not answer."""

    credential_life: timedelta = timedelta(days=30)
    """
    How long the credential of a host's agent is good. It is replaced when a third of that is left.

    A lost Mac can use it to the end; and an operator that is away for a third of it leaves agents without one.
    """

    claim_prefix: str = "remuda-"
    """Names of Macs that are somebody's Host begin with this. Two clusters that share an account need two of them."""

    claim_settles_s: float = 20.0
    """Between the two renames of a claim: whoever else saw the Mac free has by then said so by a rename of its own."""

    claim_within_s: float = 8.0
    """
    How long a rename may take, with the look before it. Much less than ``claim_settles_s``: one that is given up here
    may still arrive at the provider.
    """

    orphans_s: float = 900.0
    """How often to look for Macs that are claimed and have no Host."""

    lease_name: str = "remuda-hosts"
    lease_duration_s: int = 15
    renew_deadline_s: float = 10.0
    election_retry_s: float = 2.0

    reflector: ReflectorSettings = field(default_factory=ReflectorSettings)
    """How the view of the hosts is kept current."""

    workers_max: int = 16
    """How many hosts are looked at at once: a bootstrap can take most of an hour."""

    bootstrap_timeout_s: float = 3 * 3600.0
    """How long one attempt may take before it counts as failed."""

    coalesce_s: float = 0.5
    """How long news of a host are collected before it is looked at."""

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
