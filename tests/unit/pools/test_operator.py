"""The operator makes, keeps, rolls and removes runners, end to end on the control plane in memory."""

from __future__ import annotations

from dataclasses import replace

from remuda.kube.core import POD, SERVICE_ACCOUNT
from remuda.kube.names import MARK, OWNER, POOL_DRAIN
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.runner import Phase
from remuda.ports.kube import NotFound
from tests.unit.pools.ranch import SETTINGS, SPACE, Hurt, Ranch, scenario


@scenario()
async def test_a_new_pool_is_filled_with_warm_runners(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=3)
    ranch.operator()
    await ranch.warm(3)
    await ranch.later(5)

    pool = await ranch.pool()
    assert {pod.name for pod in await ranch.pods()} == {a.name for a in await ranch.accounts()}
    assert (pool.status.replicas, pool.status.warm, pool.status.starting) == (3, 3, 0)
    assert pool.status.observed_generation == pool.metadata.generation
    assert pool.metadata.finalizers == (POOL_DRAIN,)
    assert ranch.condition(pool, "Ready") == ("True", "Warm")
    assert ranch.metric("remuda_pool_runners", pool="mac", state="warm") == 3
    assert ranch.metric("remuda_pool_runners", pool="mac", state="stale") == 0
    assert ranch.metric("remuda_pool_reaped_total", pool="mac", cause="roll") == 0
    assert ranch.metric("remuda_fleet_avoided_hosts", fleet="barn") == 0


@scenario()
async def test_a_life_costs_four_writes_and_no_event(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.warm(1)
    await ranch.later(10)
    ranch.tap.writes.clear()
    [pod] = await ranch.pods()
    await ranch.label(pod.name, owner="acme")
    await ranch.later(30)
    await ranch.end(pod.name)
    await ranch.warm(1)
    await ranch.later(60)

    lives = [said for said in ranch.tap.writes if "/status" not in said]
    # One life ended and the next began: together they are one whole life.
    assert sorted(said.split(" ")[0] for said in lives) == ["DELETE", "DELETE", "POST", "POST"]
    assert await ranch.reasons() == []
    assert ranch.desk.reports[pod.name].reason == "ended"


@scenario()
async def test_a_pool_at_rest_costs_no_write(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool("mac", replicas=3)
    await ranch.add_pool("linux", replicas=0)
    ranch.operator()
    await ranch.warm(3)
    await ranch.later(30)
    ranch.tap.writes.clear()
    await ranch.later(1800)

    assert ranch.tap.writes == []


@scenario()
async def test_a_roll_replaces_all_runners_and_never_takes_more_than_its_cap(ranch: Ranch) -> None:
    ranch.host(vms=12)
    await ranch.add_pool(replicas=10, rollout={"maxConcurrentPercent": 20})
    ranch.operator()
    await ranch.warm(10)
    await ranch.later(5)
    old = {runner.name for runner in await ranch.runners()}
    await ranch.edit("mac", image="registry.test/runner:2")
    least = 10
    marks_before_hash = 0

    async def rolled() -> bool:
        nonlocal least, marks_before_hash
        pods = await ranch.pods()
        target = (await ranch.pool()).status.template_hash
        marks_before_hash += sum(p.labels.get(MARK, target) != target for p in pods)
        runners = await ranch.runners()
        serving = [r for r in runners if r.phase is Phase.WARM and r.mark is None]
        least = min(least, len([r for r in serving if r.deleting_since is None]))
        return not old & {runner.name for runner in runners} and len(serving) == 10

    await ranch.until(rolled, within_s=300)
    assert least >= 8
    assert marks_before_hash == 0
    assert (await ranch.reasons()).count("RollMarked") == 10
    await ranch.later(5)
    pool = await ranch.pool()
    assert (pool.status.stale, pool.status.rolling, pool.status.roll_cap) == (0, 0, 2)
    assert pool.status.roll_waiting_since is None
    assert ranch.condition(pool, "Rolling") == ("False", "UpToDate")


@scenario()
async def test_a_roll_that_is_taken_back_clears_its_marks(ranch: Ranch) -> None:
    await ranch.add_pool(replicas=4)
    ranch.host(boot_s=5.0)
    ranch.operator()
    await ranch.warm(4)
    await ranch.later(5)
    before = {runner.name for runner in await ranch.runners()}
    for runner in await ranch.runners():
        await ranch.label(runner.name, **{"drain-eligible": "0123456789ab"})
    await ranch.later(5)

    runners = await ranch.runners()
    assert {runner.name for runner in runners} == before
    assert [runner.mark for runner in runners] == [None] * 4


@scenario()
async def test_a_busy_runner_outlives_a_scale_down_and_a_roll(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=3)
    ranch.operator()
    await ranch.warm(3)
    busy = (await ranch.pods())[0].name
    await ranch.label(busy, owner="acme")
    await ranch.edit("mac", replicas=0, image="registry.test/runner:2")
    await ranch.later(60)

    assert [pod.name for pod in await ranch.pods()] == [busy]
    assert (await ranch.reasons()).count("RunnerReaped") == 2
    await ranch.end(busy)
    await ranch.later(10)
    assert await ranch.pods() == ()
    assert await ranch.accounts() == ()


@scenario()
async def test_a_stamp_that_lands_before_the_delete_saves_the_runner(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.warm(1)
    [pod] = await ranch.pods()

    async def dispatch_is_faster(said: str) -> None:
        if said.startswith("DELETE") and "/pods/" in said:
            ranch.tap.before = None
            await ranch.label(pod.name, owner="acme")

    ranch.tap.before = dispatch_is_faster
    await ranch.edit("mac", replicas=0)
    await ranch.later(60)

    [survivor] = await ranch.pods()
    assert survivor.metadata.deletion_timestamp is None
    assert survivor.labels[OWNER] == "acme"
    assert ranch.desk.reports == {}, "a report would have taken the job from under it"


@scenario()
async def test_a_deleted_pool_is_held_while_a_runner_is_busy_and_then_goes(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=3)
    ranch.operator()
    await ranch.warm(3)
    busy = (await ranch.pods())[1].name
    await ranch.label(busy, owner="acme")
    await ranch.kube.delete(RUNNER_POOL, "mac", namespace=SPACE)
    await ranch.later(120)

    pool = await ranch.pool()
    assert [pod.name for pod in await ranch.pods()] == [busy]
    assert ranch.condition(pool, "Draining") == ("True", "AwaitingJobs")
    assert busy in next(c for c in pool.status.conditions if c.type == "Draining").message
    assert "PoolDraining" in await ranch.reasons()
    await ranch.end(busy)
    await ranch.later(10)
    assert await ranch.pods() == ()
    assert await ranch.accounts() == ()
    assert (await ranch.kube.list(RUNNER_POOL)).items == ()
    assert ranch.metric("remuda_pool_desired_replicas", pool="mac") is None


@scenario()
async def test_a_cordoned_host_loses_its_idle_runners_and_keeps_the_busy_one(ranch: Ranch) -> None:
    ranch.host("mini-1", vms=2)
    await ranch.add_pool(replicas=2)
    ranch.operator()
    await ranch.warm(2)
    busy, idle = (pod.name for pod in await ranch.pods())
    await ranch.label(busy, owner="acme")
    ranch.host("mini-2", vms=2)
    await ranch.later(5)
    await ranch.cordon("mini-1")
    await ranch.later(30)

    where = {runner.name: runner.node for runner in await ranch.runners()}
    assert where.pop(busy) == "mini-1"
    assert idle not in where
    assert set(where.values()) == {"mini-2"}
    assert "RetiredForNodeDrain" in await ranch.reasons()


@scenario()
async def test_a_template_that_is_refused_makes_nobody(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=2, template={"spec": {"hostNetwork": True}})
    ranch.operator()
    await ranch.later(30)

    assert await ranch.pods() == ()
    assert ranch.condition(await ranch.pool(), "Degraded") == ("True", "TemplateRefused")
    assert "TemplateRefused" in await ranch.reasons()
    await ranch.edit("mac", template=None)
    await ranch.warm(2)
    await ranch.later(5)
    assert ranch.condition(await ranch.pool(), "Degraded") == ("False", "AsExpected")


@scenario()
async def test_a_template_that_becomes_bad_stops_the_roll(ranch: Ranch) -> None:
    ranch.host(boot_s=20.0)
    await ranch.add_pool(replicas=6)
    ranch.operator()
    await ranch.warm(6)
    await ranch.edit("mac", image="registry.test/runner:2")
    await ranch.later(5)
    assert (await ranch.reasons()).count("RollMarked") == 1
    await ranch.edit("mac", template={"spec": {"hostNetwork": True}})
    await ranch.later(300)

    assert (await ranch.reasons()).count("RollMarked") == 1
    assert len([r for r in await ranch.runners() if r.phase is Phase.WARM]) >= 5


@scenario()
async def test_changing_counts_are_written_now_and_then_only(ranch: Ranch) -> None:
    ranch.host(vms=64, boot_s=20.0, boot_spread=0.9)
    await ranch.add_pool(replicas=60, provisioning={"maxConcurrent": 60})
    ranch.operator()
    await ranch.later(10)
    ranch.tap.writes.clear()
    await ranch.later(20)

    assert 5 <= len(ranch.tap.of("runnerpools/mac/status")) <= 13


@scenario()
async def test_siblings_share_the_start_slots_of_their_fleet(ranch: Ranch) -> None:
    ranch.host(vms=12, boot_s=10.0)
    for name in ("a", "b", "c"):
        await ranch.add_pool(name, replicas=3, provisioning={"maxConcurrent": 2})
    ranch.operator()
    most = 0

    async def full() -> bool:
        nonlocal most
        phases = [runner.phase for runner in await ranch.runners()]
        most = max(most, phases.count(Phase.STARTING))
        return phases.count(Phase.WARM) == 9

    await ranch.until(full, within_s=300)
    assert most == 2
    blocked = [
        ranch.metric("remuda_pool_admission_blocked_total", pool=name, reason="fleet_cap")
        for name in ("a", "b", "c")
    ]
    assert max(number or 0 for number in blocked) > 0


@scenario()
async def test_a_start_that_hangs_is_given_up_and_counted(ranch: Ranch) -> None:
    ranch.host(boot_s=10_000.0)
    await ranch.add_pool(replicas=1, provisioning={"startTimeoutSeconds": 60})
    ranch.operator()
    await ranch.later(100)

    timeouts = {"pool": "mac", "reason": "not_warm"}
    assert ranch.metric("remuda_pool_start_timeouts_total", **timeouts) == 1
    assert "StartTimedOut" in await ranch.reasons()


@scenario(replace(SETTINGS, coalesce_s=0.5))
async def test_a_burst_of_pod_news_is_looked_at_a_few_times(ranch: Ranch) -> None:
    ranch.host(vms=40)
    await ranch.add_pool(replicas=30, provisioning={"maxConcurrent": 100})
    ranch.operator()
    await ranch.warm(30)
    await ranch.later(10)
    ranch.tap.writes.clear()
    for pod in await ranch.pods():
        await ranch.label(pod.name, owner="acme")
    await ranch.later(10)

    assert len(ranch.tap.of("runnerpools/mac/status")) == 1
    assert (await ranch.pool()).status.busy == 30


@scenario()
async def test_a_second_replica_takes_over_without_doubling(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=3)
    first = ranch.operator("op-1")
    await ranch.warm(3)
    ranch.operator("op-2")
    before = {pod.name for pod in await ranch.pods()}
    await ranch.later(5)
    first.cancel()
    await ranch.kube.delete(POD, min(before), namespace=SPACE)
    await ranch.later(60)

    after = {pod.name for pod in await ranch.pods()}
    assert len(after) == 3
    assert before - {min(before)} < after


@scenario()
async def test_a_standby_writes_nothing(ranch: Ranch) -> None:
    await ranch.add_pool(replicas=1)
    other = ranch.operator("op-0")
    await ranch.later(5)
    assert other.done() is False
    ranch.tap.writes.clear()
    ranch.operator("op-1")
    await ranch.later(20)

    assert [said for said in ranch.tap.writes if "/pods" in said] == []
    assert ranch.health.problems(ranch.clock.monotonic()) == ()


@scenario()
async def test_a_pool_that_goes_takes_its_runner_objects_with_it(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=2)
    ranch.operator()
    await ranch.warm(2)
    await ranch.kube.delete(RUNNER_POOL, "mac", namespace=SPACE)

    async def gone() -> bool:
        try:
            await ranch.pool()
        except NotFound:
            return True
        return False

    await ranch.until(gone, within_s=60)
    assert await ranch.pods() == ()
    assert await ranch.accounts() == ()


# --- ServiceAccounts -------------------------------------------------------------------------------------------------


@scenario()
async def test_an_account_stays_until_its_pod_is_let_go_and_then_goes_at_once(ranch: Ranch) -> None:
    """The agent tells how a job ended with a token of that account: it may have to wait for dispatch."""
    ranch.host()
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.warm(1)
    (pod,) = await ranch.pods()
    await ranch.hold(pod.name, "example.com/held")  # as an agent does that is not done with it
    await ranch.end(pod.name)

    async def is_deleting() -> bool:
        found = [p for p in await ranch.pods() if p.name == pod.name]
        return bool(found) and found[0].metadata.deletion_timestamp is not None

    await ranch.until(is_deleting)
    await ranch.later(300)
    assert pod.name in {account.name for account in await ranch.accounts()}
    await ranch.hold(pod.name)
    await ranch.later(2)
    assert pod.name not in {p.name for p in await ranch.pods()}
    assert pod.name not in {account.name for account in await ranch.accounts()}
    assert {a.name for a in await ranch.accounts()} == {p.name for p in await ranch.pods()}


@scenario()
async def test_an_account_that_somebody_changed_meanwhile_is_looked_at_again_soon(
    ranch: Ranch,
) -> None:
    """As others do that note something on each ServiceAccount: a sweep, which would find it too, is far away."""
    ranch.host()
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.warm(1)
    (pod,) = await ranch.pods()

    async def note(said: str) -> None:
        if said.startswith("DELETE") and said.endswith(f"/serviceaccounts/{pod.name}"):
            ranch.tap.before = None
            patch = MergePatch({"metadata": {"annotations": {"example.com/seen": "yes"}}})
            await ranch.kube.patch(SERVICE_ACCOUNT, pod.name, patch, namespace=SPACE)

    ranch.tap.before = note
    await ranch.end(pod.name)
    await ranch.later(20)
    assert ranch.tap.before is None
    assert pod.name not in {account.name for account in await ranch.accounts()}


@scenario()
async def test_an_account_that_could_not_be_removed_with_its_pod_is_tried_again(
    ranch: Ranch,
) -> None:
    ranch.host()
    await ranch.add_pool(replicas=1)
    ranch.operator()
    await ranch.warm(1)
    (pod,) = await ranch.pods()
    ranch.tap.hurts += [
        Hurt(rf"GET .*/pods/{pod.name}$", "dropped"),
        Hurt(rf"DELETE .*/serviceaccounts/{pod.name}$", "throttled"),
    ]
    await ranch.end(pod.name)
    await ranch.later(20)
    assert ranch.tap.hurts[0].times == ranch.tap.hurts[1].times == 0
    assert {a.name for a in await ranch.accounts()} == {p.name for p in await ranch.pods()}
    assert pod.name not in {account.name for account in await ranch.accounts()}
