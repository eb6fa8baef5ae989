"""Checks of pools: what the operator says of them, and what a roll and a cap must never do. Pure."""

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
from remuda.kube.names import FLEET, POOL, RUNTIME, image_label
from remuda.kube.node_view import unhealthy_reason
from remuda.kube.pool_view import pool_of
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase
from remuda.pools.decide.counts import count

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.facts import Facts
    from remuda.cli.doctor.decide.findings import Finding
    from remuda.kube.meta import Condition
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.runner import Runner

_COLD_S: Final = 300.0
"""How long a pool without a start deadline may have nobody warm."""
_DRAIN_S: Final = 300.0
_ASK: Final = "remuda explain pool POOL says more"


def all_pools(facts: Facts) -> tuple[RunnerPool, ...]:
    return tuple(sorted(got(got(facts.kube).pools), key=lambda pool: pool.name))


def condition_of(pool: RunnerPool, kind: str) -> Condition | None:
    return next((c for c in pool.status.conditions if c.type == kind), None)


def runners_of(facts: Facts, pool: str) -> tuple[Runner, ...]:
    pods = got(got(facts.kube).pods)
    return tuple(runner_of(pod) for pod in pods if pod.labels.get(POOL) == pool)


def pools_there(facts: Facts) -> Finding:
    pools = all_pools(facts)
    namespace = got(facts.kube).namespace
    if not pools:
        return warn(
            f"There are no pools in the namespace {namespace}.",
            (),
            "Make a RunnerPool, or name their namespace with --namespace: docs/howto/run-the-operator.md",
        )
    return ok(f"{counted(len(pools), 'pool')}: {', '.join(pool.name for pool in pools)}.")


def pools_observed(facts: Facts) -> Finding:
    pools = all_pools(facts)
    if not pools:
        return skip("There are no pools.")
    behind = [
        f"{pool.name} was changed, and its status is of before"
        for pool in pools
        if pool.status.observed_generation is UNSET
        or pool.status.observed_generation < pool.metadata.generation
    ]
    if behind:
        return fail(
            "The operator has not seen the last change of some pools.",
            behind,
            "See that remuda controller runs and leads, and look at its log",
        )
    return ok("The operator has seen every pool's last change.")


def pools_degraded(facts: Facts) -> Finding:
    pools = all_pools(facts)
    if not pools:
        return skip("There are no pools.")
    bad = [
        f"{pool.name}: {condition.type}, {condition.reason}: {condition.message.rstrip('. ')}"
        for pool in pools
        for condition in pool.status.conditions
        if condition.type in {"Degraded", "LabelsConflict"} and condition.status == "True"
    ]
    if bad:
        return fail("Some pools need attention.", bad, _ASK)
    return ok("No pool is degraded, and none takes another's labels.")


def pools_warm(facts: Facts) -> Finding:
    pools = all_pools(facts)
    if not pools:
        return skip("There are no pools.")
    cold = [f"{pool.name}: {said}" for pool in pools if (said := _cold(pool, facts))]
    if cold:
        return warn("A job would have to wait in some pools.", cold, _ASK)
    return ok("Every pool has a warm runner, is busy, or wants none.")


def _cold(pool: RunnerPool, facts: Facts) -> str:
    ready = condition_of(pool, "Ready")
    if ready is None or ready.status == "True" or pool.metadata.deletion_timestamp is not None:
        return ""
    wanted, busy = pool.spec.replicas, pool.status.busy
    if busy is not UNSET and busy >= wanted:
        return ""  # all of them work
    since = ready.last_transition_time
    for_s = (facts.kube_now - since).total_seconds() if since else 0.0
    if for_s <= (pool.spec.provisioning.start_timeout_seconds or _COLD_S):
        return ""  # a start takes as long
    return f"for {lasting(for_s)}: {ready.message.rstrip('. ')}"


def rolls(facts: Facts) -> Finding:
    pools = all_pools(facts)
    if not pools:
        return skip("There are no pools.")
    rolling = [
        (p.name, c) for p in pools if (c := condition_of(p, "Rolling")) and c.status == "True"
    ]
    lines: dict[str, list[str]] = {reason: [] for reason in ("Stuck", "Paused", "")}
    for name, condition in rolling:
        reason = condition.reason if condition.reason in lines else ""
        lines[reason].append(f"{name}: {condition.message.rstrip('. ')}")
    if lines["Stuck"]:
        return fail(
            "A roll does not get on: its new runners do not become warm.",
            lines["Stuck"],
            "Correct the pool's image or template; runners that work are kept meanwhile",
        )
    if lines["Paused"]:
        return warn("A roll is paused.", lines["Paused"], "Go on with: remuda pools resume POOL")
    if rolling:
        return ok(f"{counted(len(rolling), 'roll')} on the way.", lines[""])
    return ok("No roll is on the way.")


def roll_cap(facts: Facts) -> Finding:
    pools = all_pools(facts)
    if not pools:
        return skip("There are no pools.")
    above, under_way = [], []
    for pool in pools:
        seen = pool_of(pool, pool.status.template_hash)
        counts = count(seen, runners_of(facts, pool.name), facts.kube_now)
        if counts.marked > counts.roll_cap:
            above.append(f"{pool.name}: {counts.marked} asked to leave, {counts.roll_cap} allowed")
        elif counts.stale:
            under_way.append(
                f"{pool.name}: {counts.unavailable} unavailable, {counts.roll_cap} allowed"
            )
    if above:
        return fail(
            "A roll has asked more runners to leave than its cap allows.",
            above,
            "Pause it with remuda pools pause POOL, and report this",
        )
    return ok("No roll takes more runners than its cap allows.", under_way)


def pool_cap(facts: Facts) -> Finding:
    pools = all_pools(facts)
    if not pools:
        return skip("There are no pools.")
    above = []
    for pool in pools:
        scaling = pool.spec.autoscaling
        if not scaling.enabled or scaling.max_replicas is UNSET:
            continue
        alive = [r for r in runners_of(facts, pool.name) if r.is_alive]
        idle = [r for r in alive if r.phase is not Phase.BUSY]
        # A maximum that was lowered ends no job: only those that could go and do not are too many.
        if len(alive) > scaling.max_replicas and idle:
            above.append(f"{pool.name}: {len(alive)} runners, {scaling.max_replicas} allowed")
    if above:
        return fail(
            "A pool has more runners than its maxReplicas, and idle ones among them.",
            above,
            "See that remuda controller runs and leads, and look at its log",
        )
    return ok("No pool has more idle runners than its maxReplicas allows.")


def images(facts: Facts) -> Finding:
    nodes = [
        n for n in got(got(facts.kube).nodes) if n.labels.get(RUNTIME) and not unhealthy_reason(n)
    ]
    missing, there = [], []
    for pool in all_pools(facts):
        fleet = [n for n in nodes if n.labels.get(FLEET) == pool.spec.fleet]
        if not fleet or not pool.spec.replicas:
            continue
        have = [n for n in fleet if n.labels.get(image_label(pool.spec.image)) == "ready"]
        if have:
            there.append(f"{pool.name}: {len(have)} of {len(fleet)} hosts have {pool.spec.image}")
        else:
            missing.append(f"{pool.name}: no host of fleet {pool.spec.fleet} has {pool.spec.image}")
    if missing:
        return warn(
            "The images of some pools are on no host yet.",
            missing,
            "Wait while it is fetched. If that takes long, the agents' logs and their Nodes' Events say why",
        )
    if not there:
        return skip("No pool that wants runners has VM hosts that take any.")
    return ok("Every pool's image is on a host of its fleet.", there)


def pools_draining(facts: Facts) -> Finding:
    late = []
    for pool in all_pools(facts):
        deleted_at = pool.metadata.deletion_timestamp
        if deleted_at is None:
            continue
        for_s = (facts.kube_now - deleted_at).total_seconds()
        busy = [r for r in runners_of(facts, pool.name) if r.is_alive and r.phase is Phase.BUSY]
        if for_s >= _DRAIN_S and not busy:
            drain = condition_of(pool, "Draining")
            says = f": {drain.message.rstrip('. ')}" if drain and drain.message else ""
            late.append(f"{pool.name}, deleted {lasting(for_s)} ago{says}")
    if late:
        return fail(
            "Deleted pools do not go, and no job holds them.",
            late,
            "See that remuda controller leads; look at runners-terminating below",
        )
    return ok("No deleted pool stays without a job to wait for.")


CHECKS: Final = (
    Check(
        name="pools-there",
        group=Group.POOLS,
        about="There is a pool in the namespace.",
        look=pools_there,
    ),
    Check(
        name="pools-observed",
        group=Group.POOLS,
        about="The operator has seen each pool's last change.",
        look=pools_observed,
        fleeting=True,
    ),
    Check(
        name="pools-degraded",
        group=Group.POOLS,
        about="No pool is `Degraded` or has a `LabelsConflict`.",
        look=pools_degraded,
    ),
    Check(
        name="pools-warm",
        group=Group.POOLS,
        about="No pool that wants runners has been without a warm one for longer than a start takes, unless all work.",
        look=pools_warm,
        invariants=("V6",),
    ),
    Check(
        name="pools-draining",
        group=Group.POOLS,
        about="A deleted pool without busy runners goes.",
        look=pools_draining,
        invariants=("V4",),
    ),
    Check(
        name="pool-cap",
        group=Group.POOLS,
        about="No pool has idle runners above its `maxReplicas`.",
        look=pool_cap,
        invariants=("S3",),
        fleeting=True,
    ),
    Check(
        name="rolls",
        group=Group.POOLS,
        about="No roll is stuck (fail) or paused half-way (warn).",
        look=rolls,
        invariants=("S5",),
    ),
    Check(
        name="roll-cap",
        group=Group.POOLS,
        about="No roll has asked more runners to leave than its cap allows.",
        look=roll_cap,
        invariants=("S4",),
        fleeting=True,
    ),
    Check(
        name="images",
        group=Group.POOLS,
        about="Each pool's image is on a host of its fleet.",
        look=images,
    ),
)
