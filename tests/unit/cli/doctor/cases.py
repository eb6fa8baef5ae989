"""Cases of the checks: this machine, what is talked to, hosts and jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from remuda.cli.doctor.decide.facts import CrdFacts, Facts, Kvm, Right, Unread, Waiting
from remuda.cli.doctor.decide.findings import Level
from remuda.cli.tree.decide.driver import Machine
from remuda.cli.tree.decide.health import Condition as PartCondition
from remuda.kube.meta import Condition
from remuda.kube.names import STARTS_FAILING
from remuda.model.job import JobState
from remuda.ports.api import Explanation, JobRow, LimitRow
from tests.unit.cli.doctor.clinic import (
    NOON,
    a_driver,
    a_fleet,
    a_folder,
    a_lease,
    a_node,
    a_part,
    a_pod,
    a_tree,
    ago,
    api,
    kube,
    machine,
)

OK, WARN, FAIL, SKIP = Level.OK, Level.WARN, Level.FAIL, Level.SKIP


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
