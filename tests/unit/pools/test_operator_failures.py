"""What the operator does when the server, the wire, its view or dispatch fail it."""

from __future__ import annotations

from dataclasses import replace

from remuda.kube.core import SERVICE_ACCOUNT, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import POOL, RUNNER
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.runner import Phase
from tests.unit.pools.ranch import SETTINGS, SPACE, Hurt, Ranch, scenario

CREATE_POD = r"POST .*/pods$"
CREATE_ACCOUNT = r"POST .*/serviceaccounts$"
DELETE_POD = r"DELETE .*/pods/"
MARK_POD = r"PATCH .*/pods/"


@scenario()
async def test_the_account_of_a_refused_pod_goes_again_and_the_pool_says_why(ranch: Ranch) -> None:
    ranch.host()
    ranch.tap.hurts.append(Hurt(CREATE_POD, "refused", times=3))
    await ranch.add_pool(replicas=2)
    ranch.operator()
    await ranch.later(1.5)
    assert await ranch.accounts() == ()
    assert await ranch.pods() == ()
    await ranch.later(1)
    assert ranch.condition(await ranch.pool(), "Degraded") == ("True", "CreateRefused")

    await ranch.warm(2)
    await ranch.later(5)
    assert len(await ranch.accounts()) == 2
    assert ranch.condition(await ranch.pool(), "Degraded") == ("False", "AsExpected")


@scenario()
async def test_a_server_that_refuses_for_long_is_not_asked_all_the_time(ranch: Ranch) -> None:
    ranch.tap.hurts.append(Hurt(CREATE_POD, "refused", times=1_000_000))
    ranch.host()
    await ranch.add_pool(replicas=100, provisioning={"maxConcurrent": 100})
    ranch.operator()
    await ranch.later(1)
    assert len(ranch.tap.of(CREATE_POD)) <= 32, "those on their way, and then no more"
    await ranch.later(300)
    ranch.tap.writes.clear()
    await ranch.later(600)

    assert 5 <= len(ranch.tap.of(CREATE_POD)) <= 20
    assert ranch.tap.of("runnerpools") == []
    assert await ranch.accounts() == ()


@scenario()
async def test_a_creation_without_an_answer_makes_no_second_runner(ranch: Ranch) -> None:
    ranch.host()
    ranch.tap.hurts += [Hurt(CREATE_POD, "lost", times=2), Hurt(CREATE_ACCOUNT, "lost", times=2)]
    await ranch.add_pool(replicas=3)
    ranch.operator()
    most = 0

    async def full() -> bool:
        nonlocal most
        runners = await ranch.runners()
        most = max(most, len(runners))
        return [r.phase for r in runners] == [Phase.WARM] * 3

    await ranch.until(full)
    await ranch.later(120)
    assert most == 3
    assert len(await ranch.accounts()) == 3


@scenario()
async def test_a_creation_that_never_arrived_is_tried_again_under_its_name(ranch: Ranch) -> None:
    ranch.host()
    ranch.tap.hurts.append(Hurt(CREATE_POD, "dropped", times=2))
    await ranch.add_pool(replicas=2)
    ranch.operator()
    await ranch.warm(2)

    assert len(ranch.tap.of(CREATE_ACCOUNT)) == 4
    assert {a.name for a in await ranch.accounts()} == {p.name for p in await ranch.pods()}


@scenario()
async def test_a_server_that_says_later_is_asked_later_under_the_same_names(ranch: Ranch) -> None:
    ranch.host()
    ranch.tap.hurts.append(Hurt(CREATE_POD, "throttled", times=4))
    await ranch.add_pool(replicas=4)
    ranch.operator()
    await ranch.warm(4)

    assert ranch.tap.of("DELETE") == []
    assert {a.name for a in await ranch.accounts()} == {p.name for p in await ranch.pods()}


@scenario()
async def test_a_refusal_of_a_second_try_is_not_believed_about_the_first(ranch: Ranch) -> None:
    ranch.host()
    ranch.tap.frozen = "/pods"
    ranch.tap.hurts += [Hurt(CREATE_POD, "lost"), Hurt(CREATE_POD, "refused")]
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.later(30)

    assert len(await ranch.pods()) == 1
    assert {a.name for a in await ranch.accounts()} == {p.name for p in await ranch.pods()}


@scenario()
async def test_a_view_that_stands_still_makes_no_doubles(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=2)
    ranch.tap.frozen = "/pods"
    ranch.operator()
    await ranch.later(90)
    assert len(await ranch.pods()) == 2
    await ranch.edit("mac", replicas=4)
    await ranch.later(90)
    assert len(await ranch.pods()) == 4

    ranch.tap.frozen = ""
    await ranch.warm(4)
    await ranch.later(60)
    assert len(await ranch.pods()) == 4


@scenario(replace(SETTINGS, guards=replace(SETTINGS.guards, expectations=False)))
async def test_without_expectations_a_view_that_stands_still_makes_doubles(ranch: Ranch) -> None:
    ranch.host(vms=64)
    await ranch.add_pool(replicas=2, provisioning={"maxConcurrent": 64})
    ranch.tap.frozen = "/pods"
    ranch.operator()
    await ranch.later(90)

    assert len(await ranch.pods()) > 2


@scenario()
async def test_a_mark_without_an_answer_is_counted(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=4)
    ranch.operator()
    await ranch.warm(4)
    await ranch.later(5)
    ranch.tap.hurts.append(Hurt(MARK_POD, "lost", times=1))
    ranch.tap.frozen = "/pods"
    await ranch.edit("mac", image="registry.test/runner:2")
    await ranch.later(10)

    marked = [runner for runner in await ranch.runners() if runner.mark or not runner.is_alive]
    assert len(marked) == 1
    assert len(ranch.tap.of(MARK_POD)) == 1, "what became of it is asked, not tried again"
    ranch.tap.frozen = ""
    await ranch.later(120)
    pool = await ranch.pool()
    assert (pool.status.warm, pool.status.stale) == (4, 0)


@scenario()
async def test_a_deletion_without_an_answer_takes_nobody_else(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=4)
    ranch.operator()
    await ranch.warm(4)
    await ranch.later(5)
    ranch.tap.hurts.append(Hurt(DELETE_POD, "lost", times=1))
    ranch.tap.frozen = "/pods"
    await ranch.edit("mac", replicas=3)
    await ranch.later(20)
    ranch.tap.frozen = ""
    await ranch.warm(3)
    await ranch.later(120)

    assert len(await ranch.pods()) == 3
    assert len(await ranch.accounts()) == 3


@scenario()
async def test_dispatch_that_hangs_does_not_hold_a_mass_reap_up(ranch: Ranch) -> None:
    ranch.host(vms=200)
    await ranch.add_pool(replicas=150, provisioning={"maxConcurrent": 200})
    ranch.operator()
    await ranch.warm(150)
    ranch.desk.hangs = True
    await ranch.edit("mac", replicas=0)
    for pod in await ranch.pods():
        await ranch.end(pod.name)
    await ranch.later(4)

    assert [pod for pod in await ranch.pods() if pod.metadata.deletion_timestamp is None] == []
    assert ranch.desk.calls < 70
    assert ranch.metric("remuda_pool_report_failures_total") == 150


@scenario()
async def test_dispatch_that_fails_is_asked_again_later(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.warm(1)
    ranch.desk.fails = True
    await ranch.end((await ranch.pods())[0].name)
    await ranch.later(30)
    await ranch.warm(1)
    ranch.desk.fails = False
    name = (await ranch.pods())[0].name
    await ranch.end(name)
    await ranch.later(5)

    assert list(ranch.desk.reports) == [name]


# --- Sweeps ----------------------------------------------------------------------------------------------------------


def an_account(name: str) -> ServiceAccount:
    labels = {RUNNER: "true", POOL: "mac"}
    return ServiceAccount(metadata=ObjectMeta(name=name, namespace=SPACE, labels=labels))


@scenario()
async def test_an_account_without_a_pod_goes_after_its_grace(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.warm(1)
    await ranch.kube.create(SERVICE_ACCOUNT, an_account("mac-lost"))
    await ranch.later(55)
    assert "mac-lost" in {account.name for account in await ranch.accounts()}
    await ranch.later(60)

    assert {a.name for a in await ranch.accounts()} == {p.name for p in await ranch.pods()}


@scenario()
async def test_an_account_stays_while_the_server_does_not_confirm_that_its_pod_is_gone(
    ranch: Ranch,
) -> None:
    await ranch.add_pool(replicas=0)
    ranch.operator()
    await ranch.later(5)
    await ranch.kube.create(SERVICE_ACCOUNT, an_account("mac-lost"))
    ranch.tap.hurts.append(Hurt(r"GET .*/pods/mac-lost", "dropped", times=1_000))
    await ranch.later(600)
    assert [account.name for account in await ranch.accounts()] == ["mac-lost"]
    ranch.tap.hurts.clear()
    await ranch.later(60)

    assert await ranch.accounts() == ()


@scenario()
async def test_runners_of_a_pool_that_is_gone_go_unless_they_are_busy(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=3)
    first = ranch.operator()
    await ranch.warm(3)
    busy = (await ranch.pods())[0].name
    await ranch.label(busy, owner="acme")
    first.cancel()
    await ranch.kube.delete(RUNNER_POOL, "mac", namespace=SPACE)
    gone = MergePatch({"metadata": {"finalizers": []}})
    await ranch.kube.patch(RUNNER_POOL, "mac", gone, namespace=SPACE)
    ranch.operator("op-2")
    await ranch.later(55)
    assert len(await ranch.pods()) == 3, "the grace is not over"
    await ranch.later(60)

    assert [pod.name for pod in await ranch.pods()] == [busy]
    await ranch.end(busy)
    await ranch.later(60)
    assert await ranch.pods() == ()
    assert await ranch.accounts() == ()


@scenario()
async def test_runners_stay_while_the_server_does_not_confirm_that_their_pool_is_gone(
    ranch: Ranch,
) -> None:
    ranch.host()
    await ranch.add_pool(replicas=2)
    first = ranch.operator()
    await ranch.warm(2)
    first.cancel()
    await ranch.kube.delete(RUNNER_POOL, "mac", namespace=SPACE)
    gone = MergePatch({"metadata": {"finalizers": []}})
    await ranch.kube.patch(RUNNER_POOL, "mac", gone, namespace=SPACE)
    ranch.tap.hurts.append(Hurt(r"GET .*/runnerpools/mac", "dropped", times=1_000))
    ranch.operator("op-2")
    await ranch.later(600)
    assert len(await ranch.pods()) == 2
    ranch.tap.hurts.clear()
    await ranch.later(120)

    assert await ranch.pods() == ()
