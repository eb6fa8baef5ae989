"""Each check on a fleet that is well, on one that is not, and where nothing can be read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.cli.doctor.decide.facts import CrdFacts, Facts, Kvm, Right, Unread, Waiting
from remuda.cli.doctor.decide.findings import Level
from remuda.cli.doctor.decide.report import CHECKS, findings
from remuda.cli.tree.decide.driver import Machine
from remuda.cli.tree.decide.health import Condition as PartCondition
from remuda.dispatch.stamps import claim_text
from remuda.kube.meta import Condition
from remuda.kube.names import CLAIM, MARK, MARKED_AT, OWNER, STARTS_FAILING, TEMPLATE
from remuda.kube.runner_pool import Autoscaling
from remuda.model.job import Claim, JobState
from remuda.ports.api import Explanation, JobRow, LimitRow
from tests.unit.cli.doctor.clinic import (
    AWAY,
    NOON,
    a_claim,
    a_driver,
    a_fleet,
    a_folder,
    a_lease,
    a_node,
    a_part,
    a_pod,
    a_pool,
    a_runner,
    a_session,
    a_tree,
    ago,
    an_account,
    api,
    find,
    kube,
    machine,
)

if TYPE_CHECKING:
    from remuda.kube.core import Pod

OK, WARN, FAIL, SKIP = Level.OK, Level.WARN, Level.FAIL, Level.SKIP


def test_a_fleet_that_is_well_has_nothing_to_say() -> None:
    found = findings(a_fleet())
    assert set(found) == {check.name for check in CHECKS}
    wrong = {name: f for name, f in found.items() if f.level is not OK}
    assert set(wrong) == {"kvm"}, wrong
    assert wrong["kvm"].level is SKIP


def test_names_are_one_of_a_kind_and_each_check_says_what_it_is_about() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert check.name == check.name.lower().replace("_", "-").strip("-")
        assert check.about.endswith(".") or check.about.endswith(")."), check.name


NOTHING = Unread(why="Nobody said where it is.", asked=False)


@pytest.mark.parametrize("check", [check.name for check in CHECKS])
@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(
            a_fleet(machine=NOTHING, kube=NOTHING, api=NOTHING, github=NOTHING), id="not asked for"
        ),
        pytest.param(
            a_fleet(
                machine=machine(tree=AWAY, driver=AWAY),
                kube=kube(
                    **dict.fromkeys(
                        (
                            *("ahead_s", "crds", "rights", "pools", "pods"),
                            *("nodes", "node_leases", "accounts", "election"),
                        ),
                        AWAY,
                    )
                ),
                api=api(
                    **dict.fromkeys(
                        ("ahead_s", "claims", "runners", "limits", "waiting", "violations"), AWAY
                    )
                ),
                github=NOTHING,
            ),
            id="connected, and nothing can be read",
        ),
    ],
)
def test_what_cannot_be_read_is_skipped_with_the_reason(check: str, facts: Facts) -> None:
    found = find(check, facts)
    connected = {"kubernetes-api", "dispatch-api", "dispatch-ready", "data-folder", "data-room"}
    if found.level is not SKIP:
        assert check in {*connected, "data-leftovers"}
        assert found.level is OK
    assert found.sentence


@pytest.mark.parametrize(
    ("facts", "failing"),
    [
        pytest.param(
            a_fleet(kube=Unread(why="There is no such file.", fix="Check the path")),
            "kubernetes-api",
            id="a kubeconfig that cannot be used",
        ),
        pytest.param(
            a_fleet(kube=kube(version=Unread(why="Connection refused.", fix="Start it"))),
            "kubernetes-api",
            id="a Kubernetes API that is away",
        ),
        pytest.param(
            a_fleet(kube=kube(version=Unread(why="401.", fix="Log in", refused=True))),
            "kubernetes-api",
            id="a Kubernetes API that does not know us",
        ),
        pytest.param(
            a_fleet(api=Unread(why="No such file.", fix="Check the path")),
            "dispatch-api",
            id="an API whose settings cannot be used",
        ),
        pytest.param(
            a_fleet(api=api(not_ready=Unread(why="Connection refused.", fix="Start it"))),
            "dispatch-api",
            id="a dispatch that is away",
        ),
        pytest.param(
            a_fleet(github=Unread(why="The key is another App's.", fix="Check the key")),
            "github",
            id="a GitHub that does not know the App",
        ),
    ],
)
def test_what_is_away_is_itself_the_fault(facts: Facts, failing: str) -> None:
    found = find(failing, facts)
    assert found.level is FAIL
    assert found.evidence
    assert found.fix
    others = {n: f for n, f in findings(facts).items() if n != failing and f.level is FAIL}
    assert others == {}, "one cause is one fault"


def row(check: str, facts: Facts, level: Level, *words: str, id: str) -> object:  # noqa: A002 - pytest's own name
    return pytest.param(check, facts, level, words, id=f"{check}: {id}")


def conditioned(kind: str, status: str = "True", reason: str = "", message: str = "") -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=ago(3600)
    )


MACHINE = [
    row(
        "data-folder", a_fleet(machine=machine(folder=a_folder(exists=False))), SKIP, id="none yet"
    ),
    row(
        "data-folder",
        a_fleet(machine=machine(folder=a_folder(fault="/data: Permission denied"))),
        FAIL,
        "Permission denied",
        "--data",
        id="closed to us",
    ),
    row(
        "data-folder",
        a_fleet(machine=machine(folder=a_folder(foreign=("photos",)))),
        FAIL,
        "photos",
        id="somebody else's",
    ),
    row(
        "data-folder",
        a_fleet(machine=machine(folder=a_folder(broken=("kept.json cannot be read",)))),
        FAIL,
        "kept.json",
        id="a file that is half there",
    ),
    row(
        "data-folder",
        a_fleet(machine=machine(folder=a_folder(exposed=("api-token",)))),
        WARN,
        "chmod go-rwx api-token",
        id="a token that others can read",
    ),
    row(
        "data-room",
        a_fleet(machine=machine(folder=a_folder(free_bytes=100 * 1024**2))),
        FAIL,
        "100 MiB",
        id="a disk that is as good as full",
    ),
    row(
        "data-room",
        a_fleet(machine=machine(folder=a_folder(free_bytes=600 * 1024**2))),
        WARN,
        "600 MiB",
        id="a disk that soon is",
    ),
    row(
        "data-leftovers",
        a_fleet(
            machine=machine(
                folder=a_folder(leftovers=("/data/.up.json.new",)), tree=a_tree(supervisor=None)
            )
        ),
        WARN,
        ".up.json.new",
        "--fix",
        id="a write that was cut short",
    ),
    row(
        "data-leftovers",
        a_fleet(machine=machine(folder=a_folder(leftovers=("/data/.up.json.new",)))),
        OK,
        id="a write of somebody who is there is no leftover",
    ),
    row(
        "up-running",
        a_fleet(machine=machine(tree=a_tree(supervisor=None), chosen=" --data /data")),
        FAIL,
        "Nobody tends",
        "remuda up --detach --data /data",
        id="a keeper that was killed",
    ),
    row(
        "up-running",
        a_fleet(
            machine=machine(tree=a_tree(a_part("agent", PartCondition.STOPPED), supervisor=None))
        ),
        FAIL,
        "does not run",
        id="one that is down",
    ),
    row(
        "up-parts",
        a_fleet(
            machine=machine(
                tree=a_tree(a_part("server"), a_part("agent", PartCondition.STOPPED, why="boom"))
            )
        ),
        FAIL,
        "agent is stopped: boom",
        id="a part that ended",
    ),
    row(
        "up-parts",
        a_fleet(
            machine=machine(
                tree=a_tree(a_part("agent", restarts=4, last_error="boom", last_error_at=ago(60)))
            )
        ),
        WARN,
        "4 restarts",
        "boom",
        id="a part that ends again and again",
    ),
    row(
        "up-parts",
        a_fleet(
            machine=machine(
                tree=a_tree(a_part("agent", restarts=4, last_error="boom", last_error_at=ago(7200)))
            )
        ),
        OK,
        id="an end of long ago",
    ),
    row("driver", a_fleet(machine=machine(driver=a_driver("qemu"))), FAIL, "QEMU", id="no QEMU"),
    row("driver", a_fleet(machine=machine(driver=a_driver("tart"))), FAIL, "Tart", id="no Tart"),
    row(
        "driver",
        a_fleet(
            machine=machine(
                driver=a_driver(
                    "qemu",
                    image_there=False,
                    image="debian",
                    machine=Machine(platform="linux", cpus=2, memory_mib=4096, has_qemu=True),
                )
            )
        ),
        FAIL,
        "debian",
        id="no image",
    ),
    row("kvm", a_fleet(machine=machine(driver=a_driver("qemu", kvm=Kvm.WORKS))), OK, id="works"),
    row(
        "kvm", a_fleet(machine=machine(driver=a_driver("qemu", kvm=Kvm.ABSENT))), WARN, id="absent"
    ),
    row(
        "kvm", a_fleet(machine=machine(driver=a_driver("qemu", kvm=Kvm.CLOSED))), WARN, id="closed"
    ),
    row(
        "kvm",
        a_fleet(machine=machine(driver=a_driver("qemu", kvm=Kvm.HANGS))),
        WARN,
        "nested",
        id="there, and runs nothing",
    ),
    row(
        "kvm",
        a_fleet(machine=machine(driver=a_driver("qemu", kvm=Kvm.UNTRIED))),
        SKIP,
        id="untried",
    ),
]

CONNECTION = [
    row("kubernetes-clock", a_fleet(kube=kube(ahead_s=12.0)), OK, id="a few seconds"),
    row("kubernetes-clock", a_fleet(kube=kube(ahead_s=90.0)), WARN, "90 s behind", id="a minute"),
    row("dispatch-clock", a_fleet(api=api(ahead_s=-400.0)), FAIL, "400 s ahead of", id="minutes"),
    row(
        "crds",
        a_fleet(kube=kube(crds=(CrdFacts("hosts.remuda.dev", installed=False),))),
        FAIL,
        "hosts.remuda.dev",
        "kubectl apply",
        id="not installed",
    ),
    row(
        "crds",
        a_fleet(kube=kube(crds=(CrdFacts("hosts.remuda.dev", installed=True, same=False),))),
        WARN,
        "differs",
        id="of another version",
    ),
    row(
        "rights",
        a_fleet(kube=kube(rights=(Right("patch nodes", "remuda hosts drain", allowed=False),))),
        WARN,
        "patch nodes: for remuda hosts drain",
        id="one who may look only",
    ),
    row(
        "dispatch-ready",
        a_fleet(api=api(not_ready="its database does not answer")),
        FAIL,
        "database",
        id="a database that is away",
    ),
    row(
        "dispatch-token",
        a_fleet(api=api(claims=Unread(why="No such token.", fix="Make one", refused=True))),
        FAIL,
        "No such token",
        "Make one",
        id="a token that nobody knows",
    ),
]

UNREADY = Condition(type="Ready", status="Unknown")
HOSTS = [
    row("hosts-ready", a_fleet(kube=kube(nodes=())), WARN, "no hosts", id="none at all"),
    row(
        "hosts-ready",
        a_fleet(kube=kube(nodes=(a_node("mini", UNREADY),))),
        FAIL,
        "not ready",
        id="all ill",
    ),
    row(
        "hosts-ready",
        a_fleet(kube=kube(nodes=(a_node(), a_node("second", UNREADY)))),
        WARN,
        "1 of 2",
        "second is not ready",
        id="one of two ill",
    ),
    row(
        "hosts-ready",
        a_fleet(kube=kube(nodes=(a_node(), a_node("second", cordoned=True)))),
        OK,
        id="one that a person drained",
    ),
    row(
        "hosts-alive",
        a_fleet(kube=kube(node_leases=(a_lease(age_s=600),))),
        FAIL,
        "10 min old",
        id="an agent that fell silent",
    ),
    row("hosts-alive", a_fleet(kube=kube(node_leases=())), FAIL, "no Lease", id="never heard of"),
    row(
        "hosts-alive",
        a_fleet(kube=kube(ahead_s=-600.0, node_leases=(a_lease(age_s=605),))),
        OK,
        id="times are compared by the server's own clock",
    ),
    row(
        "hosts-starts",
        a_fleet(
            kube=kube(
                nodes=(a_node("mini", conditioned(STARTS_FAILING, message="3 of 3 failed.")),)
            )
        ),
        WARN,
        "3 of 3 failed",
        id="a poison host",
    ),
    row(
        "hosts-attention",
        a_fleet(
            kube=kube(
                nodes=(
                    a_node(
                        "mini",
                        conditioned("remuda.dev/NeedsAttention", message="a record is broken"),
                    ),
                )
            )
        ),
        WARN,
        "a record is broken",
        id="a record that cannot be read",
    ),
    row(
        "hosts-known",
        a_fleet(kube=kube(pods=(a_pod(node="ghost"),))),
        FAIL,
        "mac-a is on ghost",
        id="a runner on a host that is gone",
    ),
    row("operator-leads", a_fleet(kube=kube(election=None)), FAIL, id="never"),
    row(
        "operator-leads",
        a_fleet(kube=kube(election=a_lease("op", holder=""))),
        FAIL,
        "gave its Lease back",
        id="stopped in order",
    ),
    row(
        "operator-leads",
        a_fleet(kube=kube(election=a_lease("op", age_s=3600))),
        FAIL,
        "60 min ago",
        id="gone without a word",
    ),
]

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


def waits(why: str = "runners_starting", for_s: float = 300.0) -> Waiting:
    job = JobRow(id="local/1", state=JobState.QUEUED, queued_at=NOON - timedelta(seconds=for_s))
    told = Explanation(subject="local/1", why=why, sentence="It waits so.", next_step="Do that.")
    return Waiting(job, told)


def limit(used: int) -> LimitRow:
    return LimitRow(tenant="us", os="linux", vcpus=8, memory_mib=8192, used_vcpus=used)


JOBS = [
    row(
        "jobs-invariants",
        a_fleet(api=api(violations={"S1": 0, "V3": 2})),
        FAIL,
        "V3: 2 findings",
        id="dispatch counts some",
    ),
    row("jobs-queue", a_fleet(api=api(waiting=(waits(for_s=20),))), OK, id="a moment"),
    row(
        "jobs-queue", a_fleet(api=api(waiting=(waits(),))), WARN, "5 min: It waits so", id="minutes"
    ),
    row(
        "jobs-queue",
        a_fleet(api=api(waiting=(waits(), waits("pool_gone")))),
        FAIL,
        "nobody can take",
        "Do that",
        id="a job whose pool is gone",
    ),
    row(
        "jobs-queue",
        a_fleet(api=api(waiting=(Waiting(waits().job, None),))),
        WARN,
        "nobody could say why",
        id="without an explanation",
    ),
    row("jobs-limits", a_fleet(api=api(limits=(limit(4),))), OK, id="half of it"),
    row("jobs-limits", a_fleet(api=api(limits=(limit(8),))), WARN, "8 of 8 vCPUs", id="all of it"),
    row(
        "jobs-limits",
        a_fleet(api=api(limits=(limit(12),))),
        WARN,
        "more than",
        id="a lowered limit",
    ),
]


@pytest.mark.parametrize(
    ("check", "facts", "level", "words"), [*MACHINE, *CONNECTION, *HOSTS, *POOLS, *RUNNERS, *JOBS]
)
def test_a_check(check: str, facts: Facts, level: Level, words: tuple[str, ...]) -> None:
    found = find(check, facts)
    said = "\n".join((found.sentence, *found.evidence, found.fix))
    assert found.level is level, said
    for word in words:
        assert word in said
    if level in {WARN, FAIL}:
        assert found.fix or found.evidence, "what to do about it is said"


def test_every_check_has_a_case_in_which_it_finds_something() -> None:
    rows = [*MACHINE, *CONNECTION, *HOSTS, *POOLS, *RUNNERS, *JOBS]
    tried = {p.values[0] for p in rows if p.values[2] in {WARN, FAIL}}  # type: ignore[attr-defined] # pytest's own
    apart = {"kubernetes-api", "dispatch-api", "github"}  # above
    apart |= {"kubernetes-clock", "dispatch-clock"} & tried
    assert tried | apart == {check.name for check in CHECKS}
