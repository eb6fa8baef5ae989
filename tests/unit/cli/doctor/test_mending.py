"""What ``remuda doctor --fix`` may do, and that it does no more: decided from facts, then done on a control plane."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from remuda.adapters.system import SystemClock
from remuda.agent.lease import NAMESPACE as NODE_LEASES
from remuda.cli.doctor.decide.facts import Facts, Unread
from remuda.cli.doctor.decide.mending import (
    LetGo,
    RemoveAccount,
    RemoveLeftover,
    is_orphan,
    mends,
    stuck,
)
from remuda.cli.doctor.decide.report import Outcome
from remuda.cli.doctor.mend import Hand, mend
from remuda.cli.tree.folder import Folder, held
from remuda.kube.core import (
    LEASE,
    NODE,
    POD,
    SERVICE_ACCOUNT,
    Lease,
    LeaseSpec,
    Node,
    ServiceAccount,
)
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import CLAIM, JOB_DELIVERED, OWNER, POOL, RUNNER, VM_CLEANUP
from remuda.kube.patches import MergePatch
from remuda.kube.times import micro_time
from remuda.ports.api import Api, ApiNotFound, ApiUnavailable, RunnerRow
from remuda.ports.kube import Manifest, NotFound
from tests.support.api import SPACE, an_office
from tests.unit.cli.doctor.clinic import (
    AWAY,
    a_claim,
    a_fleet,
    a_folder,
    a_lease,
    a_node,
    a_pod,
    a_runner,
    a_session,
    a_tree,
    an_account,
    api,
    kube,
    machine,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.cli.doctor.decide.report import Mended
    from remuda.kube.core import Pod
    from tests.support.api import Office

# --- what may be done -------------------------------------------------------------------------------------------------

LOST = a_pod(node="ghost", late_s=900)
BY_AGENT = Condition(type=JOB_DELIVERED, status="True")


def stamped(age_s: float | None, *conditions: Condition, phase: str = "Running") -> Pod:
    """Make a Pod like LOST that was promised a job so long ago; None: it does not say when."""
    claim = a_claim(age_s=age_s or 0.0)
    text = "" if age_s is None else f"{claim.job_id}@{claim.claimed_at.isoformat()}"
    return a_pod(
        node="ghost",
        late_s=900,
        phase=phase,
        labels={OWNER: "us"},
        annotations={CLAIM: text} if text else {},
        conditions=conditions,
    )


UNREADY = Condition(type="Ready", status="Unknown")


def test_a_pod_is_let_go_whose_host_is_gone_and_that_has_no_job() -> None:
    assert mends(a_fleet(kube=kube(pods=(LOST,)))) == (LetGo(LOST),)


def test_also_one_whose_job_is_over() -> None:
    over = a_runner(session=a_session(ended=True))
    assert mends(a_fleet(kube=kube(pods=(LOST,)), api=api(runners=(over,)))) == (LetGo(LOST),)


@pytest.mark.parametrize(
    ("pod", "runner"),
    [
        pytest.param(stamped(20, BY_AGENT), a_runner(session=a_session(ended=True)), id="it ended"),
        pytest.param(stamped(None, phase="Failed"), a_runner(), id="the agent saw its end"),
        pytest.param(stamped(3600), a_runner(), id="an old stamp, and no job reached it"),
    ],
)
def test_a_stamped_pod_is_let_go_if_its_job_is_over_or_never_came(
    pod: Pod, runner: RunnerRow
) -> None:
    assert mends(a_fleet(kube=kube(pods=(pod,)), api=api(runners=(runner,)))) == (LetGo(pod),)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param(stamped(20), "stamped for us", id="a stamp of just now"),
        pytest.param(stamped(None), "nobody knows when", id="a stamp without a date"),
        pytest.param(stamped(3600, BY_AGENT), "a job reached it", id="the agent gave it a job"),
    ],
)
def test_the_word_of_dispatch_alone_lets_no_stamped_pod_go(pod: Pod, words: str) -> None:
    facts = a_fleet(kube=kube(pods=(pod,)))

    assert mends(facts) == ()
    ((_, why),) = stuck(facts)
    assert words in why


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(a_fleet(), id="nothing is wrong"),
        pytest.param(
            a_fleet(kube=kube(pods=(a_pod(node="ghost"),))), id="nobody deletes it, busy or not"
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(a_pod(node="ghost", late_s=60),))), id="its grace is just over"
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,), ahead_s=-800.0)),
            id="by the server's clock it is not late",
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(a_pod(late_s=900),))), id="its host is there and cleans up"
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(a_pod(late_s=900),), nodes=(a_node("mini", UNREADY),))),
            id="its host is merely not ready",
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,), node_leases=(a_lease("ghost"),))),
            id="its host's agent shows signs of life",
        ),
        pytest.param(a_fleet(kube=kube(pods=(LOST,), nodes=AWAY)), id="hosts cannot be seen"),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,), node_leases=AWAY)), id="Leases cannot be seen"
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,)), api=api(runners=(a_runner(claim=a_claim()),))),
            id="dispatch holds a job for it",
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,)), api=api(runners=(a_runner(session=a_session()),))),
            id="dispatch awaits the end of its job",
        ),
        pytest.param(a_fleet(kube=kube(pods=(LOST,)), api=AWAY), id="dispatch is away"),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,)), api=api(runners=AWAY)), id="dispatch does not tell"
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,)), api=api(runners=())),
            id="dispatch does not see it: it may be another fleet's",
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(LOST,)), api=api(runners=(a_runner(uid="another"),))),
            id="dispatch sees another of that name",
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(a_pod(node="ghost", late_s=900, labels={RUNNER: "no"}),))),
            id="it is no runner of ours",
        ),
        pytest.param(
            a_fleet(kube=kube(pods=(a_pod(node="", late_s=900),))), id="it never had a host"
        ),
        pytest.param(a_fleet(kube=Unread(why="away")), id="nothing can be read"),
        pytest.param(a_fleet(kube=kube(pods=AWAY, accounts=())), id="Pods cannot be read"),
        pytest.param(
            a_fleet(kube=kube(pods=AWAY, accounts=(an_account("mac-z"),))),
            id="without Pods no ServiceAccount is alone",
        ),
        pytest.param(
            a_fleet(machine=machine(folder=a_folder(leftovers=("/data/.a.new",)))),
            id="somebody may be writing that file",
        ),
        pytest.param(
            a_fleet(machine=machine(folder=a_folder(leftovers=("/data/.a.new",)), tree=AWAY)),
            id="who runs is not known",
        ),
    ],
)
def test_nothing_is_mended_if(facts: Facts) -> None:
    assert mends(facts) == ()


def test_accounts_and_files_are_removed_that_nobody_can_need() -> None:
    left = an_account("mac-z")
    facts = a_fleet(
        kube=kube(accounts=(an_account(), left)),
        machine=machine(folder=a_folder(leftovers=("/data/.a.new",)), tree=a_tree(supervisor=None)),
    )
    assert mends(facts) == (RemoveAccount(left), RemoveLeftover("/data/.a.new"))


# --- doing it ---------------------------------------------------------------------------------------------------------

LATER = timedelta(hours=1)


@dataclass
class Desk:
    """Dispatch, as far as it is asked about one runner. It may do something in the moment it is asked."""

    row: RunnerRow | ApiUnavailable | None
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def runner(self, name: str) -> RunnerRow:
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.row is None:
            raise ApiNotFound(f"no {name}", why="it is not there", fix="Look elsewhere")
        if isinstance(self.row, ApiUnavailable):
            raise self.row
        return self.row


def a_hand(office: Office, desk: Desk, folder: Path | None = None) -> Hand:
    return Hand(
        clock=SystemClock(),
        shift=LATER,
        stuck_after_s=300.0,
        folder=Folder(folder or Path("/nonexistent")),
        kube=office.kube,
        api=cast("Api", desk),
    )


async def an_account_of(office: Office, name: str) -> None:
    meta = ObjectMeta(name=name, namespace=SPACE, labels={RUNNER: "true"})
    await office.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))


async def a_stuck_pod(office: Office, *finalizers: str) -> Pod:
    """Make a runner on a host that is not there, and have it deleted."""
    await an_account_of(office, "mac-a")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "mac-a",
            "namespace": SPACE,
            "labels": {RUNNER: "true", POOL: "mac", OWNER: "us"},
            "annotations": {CLAIM: f"local/1@{SystemClock().now().isoformat()}"},
            "finalizers": [VM_CLEANUP, *finalizers],
        },
        "spec": {
            "nodeName": "ghost",
            "serviceAccountName": "mac-a",
            "automountServiceAccountToken": False,
            "containers": [{"name": "runner", "image": "registry.test/runner:1"}],
        },
    }
    await office.kube.create(POD, Manifest(json.dumps(pod).encode(), namespace=SPACE))
    await office.kube.delete(POD, "mac-a", namespace=SPACE)
    return await office.kube.get(POD, "mac-a", namespace=SPACE)


def idle(pod: Pod) -> RunnerRow:
    return a_runner(pod.name, uid=pod.uid)


async def only(act: LetGo | RemoveAccount | RemoveLeftover, hand: Hand) -> Mended:
    (said,) = await mend((act,), hand)
    return said


async def test_a_stuck_pod_goes_and_a_second_time_does_no_harm() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        pod = await a_stuck_pod(office)
        hand = a_hand(office, Desk(idle(pod)))

        said = await only(LetGo(pod), hand)

        assert said.outcome is Outcome.DONE, said
        with pytest.raises(NotFound):
            await office.kube.get(POD, pod.name, namespace=SPACE)
        again = await only(LetGo(pod), hand)
        assert again.outcome is Outcome.LEFT
        assert again.why == "it is gone already"


async def test_finalizers_of_others_are_left_to_them() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        pod = await a_stuck_pod(office, "example.com/theirs")

        said = await only(LetGo(pod), a_hand(office, Desk(idle(pod))))

        assert said.outcome is Outcome.LEFT
        assert "example.com/theirs" in said.why
        left = await office.kube.get(POD, pod.name, namespace=SPACE)
        assert left.metadata.finalizers == ("example.com/theirs",)


async def _node(office: Office) -> None:
    await office.kube.create(NODE, Node(metadata=ObjectMeta(name="ghost")))


async def _lease(office: Office) -> None:
    spec = LeaseSpec(
        holder_identity="ghost",
        lease_duration_seconds=40,
        renew_time=micro_time(SystemClock().now() + LATER),
    )
    meta = ObjectMeta(name="ghost", namespace=NODE_LEASES)
    await office.kube.create(LEASE, Lease(metadata=meta, spec=spec))


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        pytest.param(_node, "may still run it", id="its host came back"),
        pytest.param(_lease, "signs of life", id="its agent came back"),
    ],
)
async def test_a_fresh_look_decides(
    happens: Callable[[Office], Awaitable[None]], words: str
) -> None:
    async with an_office(SystemClock(), sees=False) as office:
        pod = await a_stuck_pod(office)
        desk = Desk(idle(pod), meanwhile=lambda: happens(office))

        said = await only(LetGo(pod), a_hand(office, desk))

        assert said.outcome is Outcome.LEFT
        assert words in said.why
        left = await office.kube.get(POD, pod.name, namespace=SPACE)
        assert VM_CLEANUP in left.metadata.finalizers


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param(a_runner(claim=a_claim()), "holds the job", id="it was given a job"),
        pytest.param(a_runner(session=a_session()), "awaits the end", id="its job runs"),
        pytest.param(None, "does not see it", id="dispatch knows no such runner"),
        pytest.param(
            ApiUnavailable("No answer", why="it is away", fix="Wait"), "cannot be asked", id="away"
        ),
    ],
)
async def test_dispatch_is_asked_again(row: RunnerRow | ApiUnavailable | None, words: str) -> None:
    async with an_office(SystemClock(), sees=False) as office:
        pod = await a_stuck_pod(office)
        if isinstance(row, RunnerRow):
            assert row.pod is not None
            row = msgspec.structs.replace(row, pod=msgspec.structs.replace(row.pod, uid=pod.uid))

        said = await only(LetGo(pod), a_hand(office, Desk(row)))

        assert said.outcome is Outcome.LEFT
        assert words in said.why
        await office.kube.get(POD, pod.name, namespace=SPACE)


async def test_a_pod_whose_grace_is_not_over_for_long_is_left() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        pod = await a_stuck_pod(office)
        hand = replace(a_hand(office, Desk(idle(pod))), shift=timedelta())

        said = await only(LetGo(pod), hand)

        assert said.outcome is Outcome.LEFT
        assert "grace" in said.why
        await office.kube.get(POD, pod.name, namespace=SPACE)


async def test_a_pod_that_changes_after_the_last_look_is_left() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        pod = await a_stuck_pod(office)

        async def touched() -> None:
            patch = MergePatch({"metadata": {"annotations": {"example.com/news": "1"}}})
            await office.kube.patch(POD, pod.name, patch, namespace=SPACE)

        said = await only(LetGo(pod), a_hand(office, Desk(idle(pod), meanwhile=touched)))

        assert said.outcome is Outcome.LEFT
        assert "changed" in said.why
        left = await office.kube.get(POD, pod.name, namespace=SPACE)
        assert VM_CLEANUP in left.metadata.finalizers


async def test_an_account_goes_unless_its_pod_is_there_after_all() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        await a_stuck_pod(office)
        await an_account_of(office, "mac-z")
        hand = a_hand(office, Desk(None))
        with_pod, alone = [
            await office.kube.get(SERVICE_ACCOUNT, name, namespace=SPACE)
            for name in ("mac-a", "mac-z")
        ]

        kept, gone = await mend((RemoveAccount(with_pod), RemoveAccount(alone)), hand)

        assert (kept.outcome, gone.outcome) == (Outcome.LEFT, Outcome.DONE)
        await office.kube.get(SERVICE_ACCOUNT, "mac-a", namespace=SPACE)
        with pytest.raises(NotFound):
            await office.kube.get(SERVICE_ACCOUNT, "mac-z", namespace=SPACE)


def test_an_account_that_is_being_deleted_is_no_orphan() -> None:
    account = an_account("mac-z")
    now = a_fleet().now
    assert is_orphan(account, has_pod=False, now=now)
    meta = msgspec.structs.replace(account.metadata, deletion_timestamp=now)
    leaving = msgspec.structs.replace(account, metadata=meta)
    assert not is_orphan(leaving, has_pod=False, now=now)


async def test_a_leftover_goes_unless_somebody_uses_the_folder(tmp_path: Path) -> None:
    async with an_office(SystemClock(), sees=False) as office:
        file = tmp_path / ".up.json.new"
        file.touch()
        hand = a_hand(office, Desk(None), tmp_path)

        with held(Folder(tmp_path)):
            kept = await only(RemoveLeftover(str(file)), hand)
        assert kept.outcome is Outcome.LEFT
        assert file.exists()

        gone = await only(RemoveLeftover(str(file)), hand)
        assert gone.outcome is Outcome.DONE
        assert not file.exists()
