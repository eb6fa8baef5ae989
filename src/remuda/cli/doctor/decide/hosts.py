"""Checks of the hosts, by their Nodes and Leases, and of the one that leads them all: the operator. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from remuda.cli.doctor.decide.facts import got
from remuda.cli.doctor.decide.findings import (
    Check,
    Group,
    counted,
    fail,
    lasting,
    ok,
    skip,
    warn,
)
from remuda.kube.names import FLEET
from remuda.kube.node_view import (
    UNSCHEDULABLE,
    starts_failing,
    unhealthy_reason,
)
from remuda.kube.times import parse_time

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.cli.doctor.decide.facts import Facts
    from remuda.cli.doctor.decide.findings import Finding
    from remuda.kube.core import Lease, Node

ATTENTION: Final = "remuda.dev/NeedsAttention"
LEASE_GRACE_S: Final = 30.0
"""Beyond a Lease's own duration: clocks differ, and requests take time."""
_LEASE_S: Final = 40.0
_ASK: Final = "remuda explain host HOST says more"


def our_nodes(facts: Facts) -> tuple[Node, ...]:
    """Return the hosts of runners, by name."""
    nodes = got(got(facts.kube).nodes)
    return tuple(sorted((n for n in nodes if FLEET in n.labels), key=lambda node: node.name))


def lease_age_s(lease: Lease | None, now: datetime) -> float | None:
    """Return how long ago a Lease was renewed; None if there is none, or it does not say."""
    if lease is None or lease.spec.renew_time in (UNSET, None):
        return None
    try:
        return (now - parse_time(str(lease.spec.renew_time))).total_seconds()
    except (ValueError, OverflowError):
        return None


def is_held(lease: Lease | None, now: datetime) -> bool:
    """Say whether whoever took a Lease has shown a sign of life of late."""
    age_s = lease_age_s(lease, now)
    if lease is None or age_s is None or lease.spec.holder_identity in (UNSET, None, ""):
        return False
    said = lease.spec.lease_duration_seconds
    return age_s <= (_LEASE_S if said is UNSET else float(said)) + LEASE_GRACE_S


def hosts_ready(facts: Facts) -> Finding:
    nodes = our_nodes(facts)
    if not nodes:
        return warn(
            "There are no hosts.",
            [f"No Node has the label {FLEET}"],
            "Run an agent on a host: docs/howto/run-an-agent.md",
        )
    why = {node.name: unhealthy_reason(node) for node in nodes}
    ill = [f"{name} is {reason.replace('_', ' ')}" for name, reason in why.items() if reason]
    well = len(nodes) - len(ill)
    if not ill:
        return ok(f"{counted(len(nodes), 'host takes', 'hosts take')} runners.")
    if not well:
        return fail("No host takes runners.", ill, _ASK)
    if all(reason in {"", UNSCHEDULABLE} for reason in why.values()):
        return ok(f"{well} of {len(nodes)} hosts take runners, the others are drained.", ill)
    return warn(f"{well} of {len(nodes)} hosts take runners.", ill, _ASK)


def hosts_alive(facts: Facts) -> Finding:
    nodes = our_nodes(facts)
    if not nodes:
        return skip("There are no hosts.")
    leases = {lease.name: lease for lease in got(got(facts.kube).node_leases)}
    silent = [
        f"{node.name}: {_silence(leases.get(node.name), facts)}"
        for node in nodes
        if not is_held(leases.get(node.name), facts.kube_now)
    ]
    if not silent:
        return ok("All hosts have shown a sign of life of late.")
    return fail(
        f"{len(silent)} of {counted(len(nodes), 'host')} {'is' if len(silent) == 1 else 'are'} silent.",
        silent,
        "See that its agent runs and reaches the Kubernetes API. Jobs that run there go on meanwhile",
    )


def _silence(lease: Lease | None, facts: Facts) -> str:
    age_s = lease_age_s(lease, facts.kube_now)
    return "it has no Lease" if age_s is None else f"its Lease is {lasting(age_s)} old"


def hosts_starts(facts: Facts) -> Finding:
    nodes = our_nodes(facts)
    if not nodes:
        return skip("There are no hosts.")
    failing = [(node, starts_failing(node)) for node in nodes]
    avoided = [
        f"{n.name}: {c.message.rstrip('. ')}" for n, c in failing if c and c.status == "True"
    ]
    if avoided:
        return warn(
            f"{counted(len(avoided), 'host is', 'hosts are')} avoided: runners do not start there, and do on others.",
            avoided,
            "Look at that agent's log and its Node's Events. It is tried again by itself now and then",
        )
    return ok("No host is avoided because runners do not start there.")


def hosts_attention(facts: Facts) -> Finding:
    nodes = our_nodes(facts)
    if not nodes:
        return skip("There are no hosts.")
    odd = [
        f"{node.name}: {condition.message.rstrip('. ') or condition.reason}"
        for node in nodes
        for condition in node.status.conditions
        if condition.type == ATTENTION and condition.status == "True"
    ]
    if odd:
        return warn(
            f"{counted(len(odd), 'host')} found what only a person can judge.",
            odd,
            "docs/reference/agent.md says what each of these means",
        )
    return ok("No host asks for a person.")


def operator_leads(facts: Facts) -> Finding:
    kube = got(facts.kube)
    lease = got(kube.election)
    fix = f"See that remuda controller runs for namespace {kube.namespace}, and look at its log"
    if lease is None:
        return fail("No operator has ever led here.", [f"namespace {kube.namespace}"], fix)
    holder = lease.spec.holder_identity
    if is_held(lease, facts.kube_now):
        return ok(f"{holder} leads.")
    age_s = lease_age_s(lease, facts.kube_now)
    if holder in (UNSET, None, ""):
        return fail("No operator leads: the last one gave its Lease back.", (), fix)
    since = "never" if age_s is None else f"{lasting(age_s)} ago"
    return fail("No operator leads.", [f"{holder} renewed its Lease {since}"], fix)


def hosts_known(facts: Facts) -> Finding:
    """Runners that are on a host whose Node is gone, and are not being deleted."""
    kube = got(facts.kube)
    known = {node.name for node in got(kube.nodes)}
    lost = [
        f"{pod.name} is on {pod.spec.node_name}"
        for pod in sorted(got(kube.pods), key=lambda pod: pod.name)
        if pod.spec.node_name
        and pod.spec.node_name not in known
        and pod.metadata.deletion_timestamp is None
    ]
    if lost:
        return fail(
            "Runners are on hosts whose Nodes are gone.",
            lost,
            "If the host is alive, its agent makes the Node anew. If it is gone for good: kubectl delete pod, then "
            "remuda doctor --fix",
        )
    return ok("Every runner's host has a Node.")


CHECKS: Final = (
    Check(
        name="hosts-ready",
        group=Group.HOSTS,
        about="Hosts take runners: they are Ready, without pressure, and not all drained.",
        look=hosts_ready,
    ),
    Check(
        name="hosts-alive",
        group=Group.HOSTS,
        about="Each host's agent has renewed its Lease of late.",
        look=hosts_alive,
    ),
    Check(
        name="hosts-starts",
        group=Group.HOSTS,
        about="No host is avoided because runners do not start there (`remuda.dev/StartsFailing`).",
        look=hosts_starts,
        invariants=("V5",),
    ),
    Check(
        name="hosts-attention",
        group=Group.HOSTS,
        about="No host found what only a person can judge (`remuda.dev/NeedsAttention`).",
        look=hosts_attention,
    ),
    Check(
        name="hosts-known",
        group=Group.HOSTS,
        about="Every runner's host has a Node.",
        look=hosts_known,
        fleeting=True,
    ),
    Check(
        name="operator-leads",
        group=Group.POOLS,
        about="An operator leads: it has renewed its Lease of late.",
        look=operator_leads,
    ),
)
