"""How pools, runners and hosts do, in one word each. Pure: listings and screens say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.cli.tables import GONE
from remuda.kube.node_view import NOT_READY, UNSCHEDULABLE

if TYPE_CHECKING:
    from remuda.ports.api import HostRow, PoolRow, RunnerRow


def pool_state(pool: PoolRow) -> str:
    """Say the worst first: a pool may be several of these at once."""
    holds = {c.type for c in pool.conditions if c.status == "True"}
    states = (
        ("deleting", pool.deleting),
        ("degraded", "Degraded" in holds),
        ("paused", pool.paused),
        ("rolling", "Rolling" in holds),
        ("ready", "Ready" in holds),
        # Nothing is wrong with it, and nobody is free.
        ("busy", 0 < pool.replicas <= pool.runners.busy),
    )
    return next((state for state, is_so in states if is_so), "not ready")


def runner_state(runner: RunnerRow) -> str:
    if runner.pod is None:
        return GONE
    if runner.pod.deleting_since is not None:
        return "leaving"
    return runner.pod.phase


def runner_job(runner: RunnerRow) -> str:
    """Return the job that a runner has, or had."""
    if runner.claim is not None:
        return runner.claim.job_id
    if runner.session is not None:
        return runner.session.executed_job_id or runner.session.job_id
    return ""


def runner_note(runner: RunnerRow) -> str:
    """Say what is special about a runner."""
    pod = runner.pod
    if pod is None:
        return ""
    notes = (
        ("told to take no job", pod.drain),
        ("makes room for a roll", pod.marked),
        ("stale", pod.stale),
        (pod.unschedulable_why, bool(pod.unschedulable_why)),
    )
    return ", ".join(text for text, holds in notes if holds)


def host_state(host: HostRow) -> str:
    if host.healthy:
        return "ready"
    if host.why_not == UNSCHEDULABLE:
        return "draining" if host.runners else "drained"
    return "not ready" if host.why_not == NOT_READY else host.why_not.replace("_", " ")
