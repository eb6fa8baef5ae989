"""Checks of runners: Pods, claims and ServiceAccounts that should belong together. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

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
from remuda.cli.doctor.decide.mending import ACCOUNT_AGE_S, STAMPED_S, orphans, overdue_s, stuck
from remuda.cli.doctor.decide.pools import all_pools
from remuda.dispatch.stamps import claimed_at
from remuda.kube.names import CLAIM, OWNER, POOL
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.facts import Facts
    from remuda.cli.doctor.decide.findings import Finding
    from remuda.kube.core import Pod

POD_GONE_S: Final = 120.0
"""And a claim without a Pod within a minute."""
_START_S: Final = 300.0
_TURN_S: Final = 60.0
_RECOVERY: Final = "Dispatch mends this by itself. If it stays, look at its log"


def _pods(facts: Facts) -> tuple[Pod, ...]:
    return tuple(sorted(got(got(facts.kube).pods), key=lambda pod: pod.name))


def single_use(facts: Facts) -> Finding:
    claims = got(got(facts.api).claims)
    pods = Counter(claim.pod for claim in claims)
    jobs = Counter(claim.job_id for claim in claims)
    twice = [f"the runner {pod} has {number} jobs" for pod, number in pods.items() if number > 1]
    twice += [f"the job {job} has {number} runners" for job, number in jobs.items() if number > 1]
    if twice:
        return fail(
            "A runner has two jobs, or a job two runners.", twice, "Report this: it is a bug"
        )
    return ok("No runner has two jobs, and no job two runners.")


def claims_pods(facts: Facts) -> Finding:
    claims = got(got(facts.api).claims)
    there = {pod.uid for pod in _pods(facts)}
    if claims and not there:
        return skip("No runner is seen in this namespace, so nothing can be said of claims.")
    lost = [
        f"the job {claim.job_id} is claimed for {claim.pod}, which is gone"
        for claim in claims
        if claim.pod_uid not in there
        and (facts.api_now - (claim.missing_since or claim.claimed_at)).total_seconds()
        >= POD_GONE_S
    ]
    if lost:
        return fail("Jobs are held for runners that are gone.", lost, _RECOVERY)
    return ok(
        f"All {counted(len(claims), 'claim')} have their Pods." if claims else "No job is claimed."
    )


def stamps(facts: Facts) -> Finding:
    held = _held(facts)
    alone, unsure = [], []
    for pod in _pods(facts):
        if not _looks_busy(pod) or pod.name in held:
            continue
        since = claimed_at(pod.metadata.annotations.get(CLAIM, ""))
        line = f"{pod.name} is stamped for {pod.labels[OWNER] or 'nobody'}, and has no job"
        if since is None:
            unsure.append(line)
        elif (facts.api_now - since).total_seconds() >= STAMPED_S:
            alone.append(line)
    if alone:
        return fail("Runners look busy and have no job.", (*alone, *unsure), _RECOVERY)
    if unsure:
        return warn(
            "Runners look busy and have no job, since when is not known.", unsure, _RECOVERY
        )
    return ok("Every runner that looks busy has a job, or had one until just now.")


def _held(facts: Facts) -> set[str]:
    """Return the runners that dispatch holds a job for, or whose job's end it awaits."""
    api = got(facts.api)
    occupied = {
        row.name
        for row in got(api.runners)
        if row.claim is not None or (row.session is not None and row.session.ended_at is None)
    }
    return occupied | {claim.pod for claim in got(api.claims)}


def _looks_busy(pod: Pod) -> bool:
    stays = pod.metadata.deletion_timestamp is None and runner_of(pod).phase is not Phase.ENDED
    return OWNER in pod.labels and stays


def cut_short(facts: Facts) -> Finding:
    running = {c.pod_uid: c.job_id for c in got(got(facts.api).claims) if c.executed_at is not None}
    ended = [
        f"{pod.name} is being deleted while it runs {running[pod.uid]}"
        for pod in _pods(facts)
        if pod.uid in running
        and pod.metadata.deletion_timestamp is not None
        and runner_of(pod).phase is not Phase.ENDED
    ]
    if ended:
        return warn(
            "Runners are being deleted while they run jobs.",
            ended,
            "Somebody deleted them by hand: Remuda itself never does. Run those jobs again",
        )
    return ok("No runner is deleted while it runs a job.")


def terminating(facts: Facts) -> Finding:
    found = stuck(facts)
    if not found:
        return ok("No runner is stuck in Terminating.")
    lines, mendable = [], 0
    for pod, kept in found:
        late = lasting(overdue_s(pod, facts.kube_now) or 0.0)
        mendable += not kept
        why = kept or f"its host {pod.spec.node_name} is gone, and nothing is behind it"
        lines.append(f"{pod.name}, {late} past its grace: {why}")
    by_hand = (
        "If you know that a host is gone for good, delete its Node. A job that dispatch still holds there is given up "
        'with: kubectl patch pod POD --type merge -p \'{"metadata":{"finalizers":null}}\''
    )
    mends = f"remuda doctor --fix lets go of {mendable} of them. " if mendable else ""
    said = fail(
        f"{counted(len(found), 'runner')} stuck in Terminating.",
        lines,
        mends.rstrip(". ") if mendable == len(found) else mends + by_hand,
    )
    return replace(said, mendable=mendable > 0)


def accounts(facts: Facts) -> Finding:
    found = orphans(facts)
    if not found:
        return ok("No ServiceAccount is left of a runner that is gone.")
    left = warn(
        f"{counted(len(found), 'ServiceAccount')} left of runners that are gone.",
        [account.name for account in found],
        "remuda doctor --fix deletes them. The operator should have: see that it leads",
    )
    return replace(left, mendable=True)


def starts(facts: Facts) -> Finding:
    deadlines = {
        p.name: p.spec.provisioning.start_timeout_seconds or _START_S for p in all_pools(facts)
    }
    late = []
    for pod in _pods(facts):
        runner = runner_of(pod)
        if runner.phase is not Phase.STARTING or runner.deleting_since is not None:
            continue
        for_s = (facts.kube_now - (runner.bound_at or runner.created_at)).total_seconds()
        if for_s < deadlines.get(pod.labels.get(POOL, ""), _START_S) + _TURN_S:
            continue
        why = runner.unschedulable_why.rstrip(". ") or (
            f"it does not get warm on {runner.node}" if runner.node else "it has no host"
        )
        late.append(f"{pod.name}, for {lasting(for_s)}: {why}")
    if late:
        return warn(
            f"{counted(len(late), 'runner')} starting for longer than a start may take.",
            late,
            "remuda explain runner RUNNER says more, and so do the Pod's Events",
        )
    return ok("No runner starts for longer than it may.")


CHECKS: Final = (
    Check(
        name="runners-single-use",
        group=Group.RUNNERS,
        about="No runner has two jobs, and no job two runners.",
        look=single_use,
        invariants=("S1",),
        fleeting=True,
    ),
    Check(
        name="runners-cut-short",
        group=Group.RUNNERS,
        about="No runner is being deleted while it runs a job. Only a person could have asked for that.",
        look=cut_short,
        invariants=("S2",),
        fleeting=True,
    ),
    Check(
        name="runners-claims",
        group=Group.RUNNERS,
        about="No job is held for a runner whose Pod has been gone for two minutes.",
        look=claims_pods,
        invariants=("V2", "V3"),
        fleeting=True,
    ),
    Check(
        name="runners-stamps",
        group=Group.RUNNERS,
        about="No runner looks busy for more than six minutes without a job (`remuda.dev/owner` without a claim).",
        look=stamps,
        invariants=("V3",),
        fleeting=True,
    ),
    Check(
        name="runners-terminating",
        group=Group.RUNNERS,
        about="No runner stays in Terminating for longer than `--stuck-after` past its grace.",
        look=terminating,
        invariants=("V4",),
        mends="lets go of those whose host is gone and for which dispatch holds no job",
    ),
    Check(
        name="runners-starting",
        group=Group.RUNNERS,
        about="No runner starts, or waits for a host, for longer than its pool's `startTimeoutSeconds` and a minute.",
        look=starts,
    ),
    Check(
        name="runners-accounts",
        group=Group.RUNNERS,
        about=f"No ServiceAccount is older than {ACCOUNT_AGE_S / 60:.0f} minutes and without its runner's Pod.",
        look=accounts,
        invariants=("V3", "V7"),
        mends="deletes them",
    ),
)
