"""The forge in memory does what GitHub does with single-use runners: what dispatch is tried against must be true."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.model.job import JobSpec, Kind, Os, Size
from remuda.ports.forge import (
    Action,
    Announcement,
    ForgeRefused,
    ForgeState,
    ForgeThrottled,
    ForgeUnavailable,
    NewRunner,
    Removal,
)
from remuda.ports.registrations import Registration
from remuda.sim.clock import SimClock
from remuda.sim.forge.github import LOST_S, FakeGithub
from remuda.sim.forge.things import HubJob, PostRates
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.ports.deliveries import Delivery
    from remuda.ports.forge import Minted


@dataclass
class AGuest:
    vm: str
    told: list[str] = field(default_factory=list)

    def assigned(self, job: HubJob) -> None:
        self.told.append(job.id)

    def finished(self) -> None:
        self.told.append("finished")

    def dismissed(self, why: str) -> None:
        self.told.append(f"dismissed: {why}")


def on_a_forge(story: Callable[[FakeGithub], Awaitable[None]]) -> None:
    async def main() -> None:
        forge = FakeGithub(SimClock(asyncio.get_running_loop()), SeededIds(1, "forge"))
        await story(forge)
        await asyncio.sleep(3600.0)  # what it has under way ends

    run(main, seed=1)


def a_spec(job: HubJob) -> JobSpec:
    return JobSpec(
        id=job.id,
        tenant=job.organisation,
        repository=job.repository,
        pool="mac",
        os=Os.DARWIN,
        size=Size(4, 8192),
        queued_at=job.queued_at,
    )


async def minted(forge: FakeGithub, job: HubJob, name: str, *labels: str) -> Minted:
    runner = NewRunner(name=name, labels=labels or ("macos",), os=Os.DARWIN, pool="mac")
    return await forge.mint(a_spec(job), runner)


def a_job(forge: FakeGithub, lasts_s: float = 60.0, org: str = "acme") -> HubJob:
    return forge.queue(org, "app", ("self-hosted", "macOS"), lasts_s=lasts_s)


def listening(forge: FakeGithub) -> list[Announcement]:
    heard: list[Announcement] = []

    async def receive(delivery: Delivery) -> None:
        announced = await forge.read(delivery)
        assert isinstance(announced, Announcement)
        heard.append(announced)

    forge.post.receivers["replica"] = receive
    return heard


def test_a_job_runs_on_a_runner_that_came_online_and_both_are_over_with_it() -> None:
    async def story(forge: FakeGithub) -> None:
        heard, job, guest = listening(forge), a_job(forge), AGuest("vm")
        config = (await minted(forge, job, "r1")).encoded_jit_config
        await asyncio.sleep(30.0)
        assert job.state is ForgeState.QUEUED, "a registration alone takes no job"
        forge.connect(config, guest)
        await asyncio.sleep(70.0)
        assert guest.told == [job.id, "finished"]
        assert (job.state, job.conclusion) == (ForgeState.COMPLETED, "success")
        assert forge.runners == {}
        assert [one.action for one in heard] == [
            Action.QUEUED,
            Action.IN_PROGRESS,
            Action.COMPLETED,
        ]
        assert {one.runner_name for one in heard} == {"", "r1"}

    on_a_forge(story)


def test_a_job_goes_to_any_idle_runner_with_its_labels_not_to_the_one_minted_for_it() -> None:
    async def story(forge: FakeGithub) -> None:
        first = a_job(forge)
        config = (await minted(forge, first, "r1")).encoded_jit_config
        second = a_job(forge)
        other = (await minted(forge, second, "r2")).encoded_jit_config
        forge.connect(other, AGuest("vm-2"))
        await asyncio.sleep(5.0)
        assert first.runner_name == "r2"
        forge.connect(config, AGuest("vm-1"))
        await asyncio.sleep(5.0)
        assert second.runner_name == "r1"

    on_a_forge(story)


@pytest.mark.parametrize(
    ("labels", "org"),
    [
        pytest.param(("linux",), "acme", id="without the label it gets nothing"),
        pytest.param(("macos",), "other", id="of another organisation it gets nothing"),
    ],
)
def test_a_runner_that_does_not_fit(labels: tuple[str, ...], org: str) -> None:
    async def story(forge: FakeGithub) -> None:
        job, elsewhere = a_job(forge), a_job(forge, org="other")
        forge.cancel(elsewhere)
        config = await minted(forge, job if org == "acme" else elsewhere, "r1", *labels)
        guest = AGuest("vm")
        forge.connect(config.encoded_jit_config, guest)
        await asyncio.sleep(60.0)
        assert guest.told == []

    on_a_forge(story)


def test_a_job_config_is_good_once() -> None:
    async def story(forge: FakeGithub) -> None:
        job, again = a_job(forge), AGuest("vm-2")
        config = (await minted(forge, job, "r1")).encoded_jit_config
        forge.connect(config, AGuest("vm-1"))
        forge.connect(config, again)
        assert again.told[0].startswith("dismissed")
        with pytest.raises(ForgeRefused):
            await minted(forge, job, "r1")

    on_a_forge(story)


def test_a_runner_that_vanishes_in_the_middle_of_its_job_fails_it_much_later() -> None:
    async def story(forge: FakeGithub) -> None:
        job, guest = a_job(forge, lasts_s=300.0), AGuest("vm")
        forge.connect((await minted(forge, job, "r1")).encoded_jit_config, guest)
        await asyncio.sleep(30.0)
        forge.disconnect(guest)
        await asyncio.sleep(LOST_S - 1.0)
        assert (await forge.look_up(a_spec(job))).state is ForgeState.IN_PROGRESS
        await asyncio.sleep(2.0)
        assert (await forge.look_up(a_spec(job))).conclusion == "failure"
        assert job.cut_short

    on_a_forge(story)


def test_a_job_cancelled_while_it_waits_names_no_runner() -> None:
    async def story(forge: FakeGithub) -> None:
        heard, job = listening(forge), a_job(forge)
        forge.cancel(job)
        await asyncio.sleep(60.0)
        over = next(one for one in heard if one.action is Action.COMPLETED)
        assert (over.conclusion, over.runner_name) == ("cancelled", "")

    on_a_forge(story)


def a_registration(name: str, number: int | None = None) -> Registration:
    return Registration(
        runner_name=name,
        kind=Kind.GITHUB,
        tenant="acme",
        repository="acme/app",
        job_id="",
        pod="",
        number=number,
    )


def test_a_registration_goes_when_it_is_removed_unless_it_executes_a_job() -> None:
    async def story(forge: FakeGithub) -> None:
        job = a_job(forge)
        unused, used = await minted(forge, job, "r1"), await minted(forge, job, "r2")
        forge.connect(used.encoded_jit_config, AGuest("vm"))
        await asyncio.sleep(5.0)
        assert unused.registration is not None
        assert await forge.remove(unused.registration) is Removal.REMOVED
        assert await forge.remove(a_registration("r1")) is Removal.GONE
        assert await forge.remove(a_registration("r2")) is Removal.BUSY

    on_a_forge(story)


def test_a_mint_whose_answer_is_lost_leaves_a_registration_that_its_name_finds() -> None:
    async def story(forge: FakeGithub) -> None:
        job = a_job(forge)
        forge.faults.mint_unanswered = 1.0
        with pytest.raises(ForgeUnavailable):
            await minted(forge, job, "r1")
        assert await forge.remove(a_registration("r1")) is Removal.REMOVED
        forge.faults.mint_unanswered, forge.faults.mint_fails = 0.0, 1.0
        with pytest.raises(ForgeUnavailable):
            await minted(forge, job, "r2")
        assert await forge.remove(a_registration("r2")) is Removal.GONE

    on_a_forge(story)


def test_a_sweep_finds_what_waits_in_the_first_repositories_and_then_in_others_in_turn() -> None:
    async def story(forge: FakeGithub) -> None:
        jobs = [forge.queue("acme", name, ("macos",), lasts_s=1.0) for name in "abcd"]
        swept = [await forge.sweep(["acme/c"], at_most=2) for _ in range(3)]
        found = [[one.repository for one in look.found] for look in swept]
        assert found == [["acme/c", "acme/a"], ["acme/c", "acme/b"], ["acme/c", "acme/d"]]
        assert swept[0].left_out == 2
        forge.cancel(jobs[2])
        assert [a.job_id for a in (await forge.sweep(["acme/c"], at_most=1)).found] == []

    on_a_forge(story)


def test_a_sweep_gives_way_before_what_minting_needs() -> None:
    async def story(forge: FakeGithub) -> None:
        job = a_job(forge)
        forge.limits.per_hour, forge.limits.reserve = 3, 2
        assert (await forge.sweep([], at_most=9)).repositories == 1
        assert (await forge.sweep([], at_most=9)).left_out == 1
        await minted(forge, job, "r1")
        await minted(forge, job, "r2")
        with pytest.raises(ForgeThrottled):
            await minted(forge, job, "r3")
        await asyncio.sleep(3600.0)
        await minted(forge, job, "r3")

    on_a_forge(story)


@pytest.mark.parametrize(
    ("rates", "fate", "again"),
    [
        pytest.param(PostRates(dropped=1.0), "dropped", 0, id="one never sent is not listed"),
        pytest.param(PostRates(failed=1.0), "failed", 1, id="one that failed is sent again"),
        pytest.param(PostRates(delayed=1.0), "delayed", 1, id="one under way is sent again"),
        pytest.param(PostRates(duplicated=1.0), "duplicated", 0, id="one that came twice is not"),
    ],
)
def test_what_becomes_of_a_message(rates: PostRates, fate: str, again: int) -> None:
    async def story(forge: FakeGithub) -> None:
        listening(forge)
        forge.post.rates = rates
        a_job(forge)
        await asyncio.sleep(120.0)
        assert forge.post.fates[fate] == 1
        assert await forge.redeliver(within=timedelta(hours=1)) == again
        await asyncio.sleep(5.0)
        assert await forge.redeliver(within=timedelta(hours=1)) == 0

    on_a_forge(story)


def test_nothing_is_answered_and_nothing_assigned_while_it_is_down() -> None:
    async def story(forge: FakeGithub) -> None:
        job = a_job(forge)
        config = (await minted(forge, job, "r1")).encoded_jit_config
        forge.faults.is_down = True
        with pytest.raises(ForgeUnavailable):
            await forge.look_up(a_spec(job))
        forge.connect(config, AGuest("vm"))
        await asyncio.sleep(60.0)
        assert job.state is ForgeState.QUEUED
        forge.faults.is_down = False
        await asyncio.sleep(20.0)
        assert job.runner_name == "r1"

    on_a_forge(story)
