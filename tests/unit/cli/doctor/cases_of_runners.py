"""Cases of the checks: pools and runners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.dispatch.stamps import claim_text
from remuda.kube.meta import Condition
from remuda.kube.names import CLAIM, MARK, MARKED_AT, OWNER, TEMPLATE
from remuda.kube.runner_pool import Autoscaling
from remuda.model.job import Claim
from tests.unit.cli.doctor.cases import FAIL, OK, SKIP, UNREADY, WARN, conditioned, row
from tests.unit.cli.doctor.clinic import (
    NOON,
    a_claim,
    a_fleet,
    a_node,
    a_pod,
    a_pool,
    a_runner,
    a_session,
    ago,
    an_account,
    api,
    kube,
)

if TYPE_CHECKING:
    from remuda.kube.core import Pod

STALE = {TEMPLATE: "t0", MARK: "t1"}
COLD = conditioned("Ready", "False", "NoWarmRunner", "No runner is warm: 1 missing.")


def marked(name: str) -> Pod:
    return a_pod(name, labels=STALE, annotations={MARKED_AT: NOON.isoformat()})


POOLS = [
    row("pools-there", a_fleet(kube=kube(pools=())), WARN, "namespace ci", id="none"),
    row(
        "pools-observed",
        a_fleet(kube=kube(pools=(a_pool(meta={"generation": 4}),))),
        FAIL,
        "mac was changed",
        id="a change that nobody saw",
    ),
    row(
        "pools-degraded",
        a_fleet(
            kube=kube(
                pools=(a_pool("mac", conditioned("Degraded", "True", "NoHealthyNode", "No node.")),)
            )
        ),
        FAIL,
        "NoHealthyNode: No node",
        id="degraded",
    ),
    row(
        "pools-degraded",
        a_fleet(
            kube=kube(pools=(a_pool("mac", conditioned("LabelsConflict", "True", "SameLabels")),))
        ),
        FAIL,
        "LabelsConflict",
        id="labels of another",
    ),
    row(
        "pools-warm",
        a_fleet(kube=kube(pools=(a_pool("mac", COLD),))),
        WARN,
        "1 missing",
        id="nobody warm for an hour",
    ),
    row(
        "pools-warm",
        a_fleet(kube=kube(pools=(a_pool("mac", COLD, status={"busy": 1}),))),
        OK,
        id="all of them work",
    ),
    row(
        "pools-warm",
        a_fleet(
            kube=kube(
                pools=(
                    a_pool(
                        "mac", Condition(type="Ready", status="False", last_transition_time=ago(20))
                    ),
                )
            )
        ),
        OK,
        id="a start takes its time",
    ),
    row(
        "pools-draining",
        a_fleet(kube=kube(pools=(a_pool(meta={"deletion_timestamp": ago(900)}),))),
        FAIL,
        "15 min ago",
        id="a deleted pool that nothing holds",
    ),
    row(
        "pools-draining",
        a_fleet(
            kube=kube(
                pools=(a_pool(meta={"deletion_timestamp": ago(900)}),),
                pods=(a_pod(labels={OWNER: "us"}),),
            )
        ),
        OK,
        id="a deleted pool waits for its jobs",
    ),
    row(
        "pool-cap",
        a_fleet(
            kube=kube(
                pools=(a_pool(autoscaling=Autoscaling(enabled=True, max_replicas=1)),),
                pods=(a_pod("mac-a"), a_pod("mac-b")),
            )
        ),
        FAIL,
        "2 runners, 1 allowed",
        id="more idle runners than allowed",
    ),
    row(
        "pool-cap",
        a_fleet(
            kube=kube(
                pools=(a_pool(autoscaling=Autoscaling(enabled=True, max_replicas=1)),),
                pods=(a_pod("mac-a", labels={OWNER: "us"}), a_pod("mac-b", labels={OWNER: "us"})),
            )
        ),
        OK,
        id="a maximum that was lowered ends no job",
    ),
    row(
        "rolls",
        a_fleet(
            kube=kube(pools=(a_pool("mac", conditioned("Rolling", "True", "Stuck", "no boot")),))
        ),
        FAIL,
        "no boot",
        id="stuck",
    ),
    row(
        "rolls",
        a_fleet(
            kube=kube(pools=(a_pool("mac", conditioned("Rolling", "True", "Paused", "1 left")),))
        ),
        WARN,
        "remuda pools resume",
        id="paused",
    ),
    row(
        "rolls",
        a_fleet(kube=kube(pools=(a_pool("mac", conditioned("Rolling", "True", "Replacing")),))),
        OK,
        "1 roll",
        id="on its way",
    ),
    row(
        "roll-cap",
        a_fleet(kube=kube(pools=(a_pool(replicas=2),), pods=(marked("mac-a"), marked("mac-b")))),
        FAIL,
        "2 asked to leave, 1 allowed",
        id="two where one is allowed",
    ),
    row(
        "roll-cap",
        a_fleet(kube=kube(pools=(a_pool(replicas=2),), pods=(marked("mac-a"), a_pod("mac-b")))),
        OK,
        id="one where one is allowed",
    ),
    row(
        "images",
        a_fleet(kube=kube(nodes=(a_node(images=()),))),
        WARN,
        "no host of fleet barn has",
        id="on no host",
    ),
    row(
        "images",
        a_fleet(kube=kube(nodes=(a_node("mini", UNREADY),))),
        SKIP,
        id="no host to look at",
    ),
    row(
        "images",
        a_fleet(kube=kube(nodes=(a_node(), a_node("second", images=())))),
        OK,
        id="on one of two",
    ),
]


def stamped(age_s: float | None) -> Pod:
    claim = Claim("local/9", "mac-a", "uid-mac-a", ago(age_s)) if age_s is not None else None
    notes = {CLAIM: claim_text(claim)} if claim is not None else {}
    return a_pod(labels={OWNER: "us"}, annotations=notes)


RUNNERS = [
    row(
        "runners-single-use",
        a_fleet(api=api(claims=(a_claim("mac-a", "local/1"), a_claim("mac-a", "local/2")))),
        FAIL,
        "mac-a has 2 jobs",
        id="two jobs for a runner",
    ),
    row(
        "runners-single-use",
        a_fleet(api=api(claims=(a_claim("mac-a", "local/1"), a_claim("mac-b", "local/1")))),
        FAIL,
        "local/1 has 2 runners",
        id="two runners for a job",
    ),
    row(
        "runners-cut-short",
        a_fleet(
            kube=kube(pods=(a_pod(late_s=-30.0),)), api=api(claims=(a_claim(executed_at=ago(60)),))
        ),
        WARN,
        "mac-a is being deleted while it runs local/1",
        id="deleted by hand in the middle",
    ),
    row(
        "runners-cut-short",
        a_fleet(
            kube=kube(pods=(a_pod(late_s=-30.0, phase="Succeeded"),)),
            api=api(claims=(a_claim(executed_at=ago(60)),)),
        ),
        OK,
        id="deleted after its end",
    ),
    row(
        "runners-claims",
        a_fleet(api=api(claims=(a_claim("mac-z"),))),
        FAIL,
        "local/1 is claimed for mac-z",
        id="a claim without a Pod",
    ),
    row(
        "runners-claims",
        a_fleet(api=api(claims=(a_claim(),))),
        OK,
        "1 claim",
        id="a claim with a Pod",
    ),
    row(
        "runners-claims",
        a_fleet(api=api(claims=(a_claim("mac-z", missing_since=ago(5)),))),
        OK,
        id="a Pod that went just now",
    ),
    row(
        "runners-claims",
        a_fleet(kube=kube(pods=()), api=api(claims=(a_claim(),))),
        SKIP,
        id="an empty list proves nothing",
    ),
    row(
        "runners-stamps",
        a_fleet(kube=kube(pods=(stamped(3600),))),
        FAIL,
        "mac-a is stamped for us",
        id="a stamp of an hour ago without a job",
    ),
    row(
        "runners-stamps",
        a_fleet(kube=kube(pods=(stamped(None),))),
        WARN,
        id="a stamp without a date",
    ),
    row("runners-stamps", a_fleet(kube=kube(pods=(stamped(20),))), OK, id="a stamp of just now"),
    row(
        "runners-stamps",
        a_fleet(kube=kube(pods=(stamped(3600),)), api=api(claims=(a_claim(),))),
        OK,
        id="a stamp with its claim",
    ),
    row(
        "runners-stamps",
        a_fleet(
            kube=kube(pods=(stamped(3600),)), api=api(runners=(a_runner(session=a_session()),))
        ),
        OK,
        id="a stamp whose job has not ended",
    ),
    row(
        "runners-terminating",
        a_fleet(kube=kube(pods=(a_pod(node="ghost", late_s=900),))),
        FAIL,
        "ghost is gone, and nothing is behind it",
        "--fix lets go of 1",
        id="a host that is gone",
    ),
    row(
        "runners-terminating",
        a_fleet(kube=kube(pods=(a_pod(late_s=900),), nodes=(a_node("mini", UNREADY),))),
        FAIL,
        "not ready, and may still run it",
        "kubectl patch",
        id="a host that is not ready",
    ),
    row(
        "runners-terminating", a_fleet(kube=kube(pods=(a_pod(late_s=60),))), OK, id="on its way out"
    ),
    row(
        "runners-starting",
        a_fleet(kube=kube(pods=(a_pod(warm=False, phase="Pending"),))),
        WARN,
        "does not get warm on mini",
        id="a boot that takes an hour",
    ),
    row(
        "runners-starting",
        a_fleet(
            kube=kube(
                pods=(
                    a_pod(
                        node="",
                        warm=False,
                        phase="Pending",
                        conditions=(
                            conditioned("PodScheduled", "False", "Unschedulable", "0/1 nodes."),
                        ),
                    ),
                )
            )
        ),
        WARN,
        "0/1 nodes",
        id="no host for it",
    ),
    row(
        "runners-starting",
        a_fleet(kube=kube(pods=(a_pod(warm=False, phase="Pending", age_s=100),))),
        OK,
        id="a boot that takes a minute",
    ),
    row(
        "runners-accounts",
        a_fleet(kube=kube(accounts=(an_account("mac-z"),))),
        WARN,
        "mac-z",
        "--fix",
        id="one of a runner that is gone",
    ),
    row(
        "runners-accounts",
        a_fleet(kube=kube(accounts=(an_account("mac-z", age_s=120),))),
        OK,
        id="one whose Pod may be about to come",
    ),
    row(
        "runners-accounts",
        a_fleet(kube=kube(accounts=(an_account("builder", ours=False),))),
        OK,
        id="one that is not ours",
    ),
]
