"""Nothing ends what runs on a rented Mac: before its provider reboots or wipes it, the Mac itself is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.hosts.decide.facts import FactUnreadable
from remuda.kube.host import HOST
from remuda.ports.host_shell import CommandTimedOut
from tests.unit.hosts.ranch import SPACE, Ranch
from tests.unit.hosts.stories import a_pool, condition, events, play, unreachable

if TYPE_CHECKING:
    from remuda.model.errors import RemudaError


def rebooted(ranch: Ranch) -> bool:
    return ("id-0", "reboot") in ranch.rented.writes


def is_in_pool(ranch: Ranch) -> bool:
    return str(ranch.account.servers["id-0"].name).startswith("pool-")


async def failing(ranch: Ranch, *, attempts: int) -> None:
    """Have a Host with a Mac on which so many attempts fail, one after the other."""
    a_pool(ranch, 1)
    ranch.macs.errors = [unreachable() for _ in range(attempts)]
    await ranch.host("mini", adopt_prefix="pool-")


def test_a_mac_that_runs_something_is_not_rebooted_by_its_provider() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.running = ("the VM packer-1",)
        await failing(ranch, attempts=4)
        host = await ranch.until(
            "mini", lambda h: any(c.reason == "HostInUse" for c in h.status.conditions)
        )
        assert "the VM packer-1" in condition(host, "Converged")[2]
        await ranch.clock.sleep(600)
        assert not rebooted(ranch)

        ranch.macs.running = ()
        await ranch.until("mini", lambda h: bool(h.status.rebooted))
        assert rebooted(ranch)
        await ranch.phase("mini", "Ready")

    play(story)


def test_a_mac_that_never_worked_is_rebooted_although_it_does_not_answer() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.dead = unreachable
        await failing(ranch, attempts=0)
        await ranch.until("mini", lambda h: bool(h.status.rebooted))
        assert rebooted(ranch)

    play(story)


def test_a_mac_that_worked_and_does_not_answer_is_not_rebooted() -> None:
    """Its Node is gone and so are its Pods, but a job may still run on it: nobody can tell."""

    async def story(ranch: Ranch) -> None:
        await failing(ranch, attempts=0)
        await ranch.phase("mini", "Ready")
        ranch.macs.dead = unreachable
        await ranch.lose_node("mini")
        host = await ranch.phase("mini", "Failed", within_s=7200)
        assert not rebooted(ranch)
        assert "Turn it on" in condition(host, "Ready")[2]
        assert (await ranch.get("mini")).status.machine_id == "id-0"

    play(story)


def test_a_mac_that_runs_something_is_not_wiped_before_that_has_ended() -> None:
    async def story(ranch: Ranch) -> None:
        await failing(ranch, attempts=0)
        await ranch.phase("mini", "Ready")
        ranch.macs.running = ("a job of GitHub's runner",)
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        host = await ranch.until(
            "mini", lambda h: any(c.reason == "HostInUse" for c in h.status.conditions)
        )
        assert "a job of GitHub's runner" in condition(host, "Converged")[2]
        await ranch.clock.sleep(600)
        assert not is_in_pool(ranch)

        ranch.macs.running = ()
        await ranch.gone("mini")
        assert is_in_pool(ranch)

    play(story)


def test_a_deleted_host_whose_mac_does_not_answer_is_not_held_and_that_is_said() -> None:
    async def story(ranch: Ranch) -> None:
        await failing(ranch, attempts=0)
        await ranch.phase("mini", "Ready")
        ranch.macs.dead = unreachable
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert is_in_pool(ranch)
        [said] = await events(ranch, "WipedUnasked")
        assert "Turn it on" in said

    play(story)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(FactUnreadable("Tart's list", why="it hung", fix="Look"), id="Tart hangs"),
        pytest.param(CommandTimedOut("Not in time", why="it hung", fix="Look"), id="no answer"),
        pytest.param(unreachable(), id="its network is away"),
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_mac_that_cannot_tell_for_a_moment_what_runs_is_not_wiped(
    error: RemudaError, times: int
) -> None:
    async def story(ranch: Ranch) -> None:
        await failing(ranch, attempts=0)
        await ranch.phase("mini", "Ready")
        ranch.macs.running = ("a job of GitHub's runner",)
        ranch.macs.mute = [error] * times
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.clock.sleep(1200)
        assert ranch.macs.questions > times
        assert not is_in_pool(ranch)
        assert await events(ranch, "WipedUnasked") == []

        ranch.macs.running = ()
        await ranch.gone("mini")
        assert is_in_pool(ranch)

    play(story)


def test_a_mac_that_answers_and_can_never_tell_what_runs_is_kept_and_that_is_said() -> None:
    async def story(ranch: Ranch) -> None:
        await failing(ranch, attempts=0)
        await ranch.phase("mini", "Ready")
        hung = FactUnreadable("Tart's list of VMs", why="it hung", fix="Look at it")
        ranch.macs.mute = [hung] * 10_000
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.clock.sleep(4 * 3600)
        assert not is_in_pool(ranch)
        assert "Tart's list of VMs" in condition(await ranch.get("mini"), "Converged")[2]

    play(story)


def test_a_mac_that_answered_since_is_not_wiped_for_a_second_moment_of_silence() -> None:
    async def story(ranch: Ranch) -> None:
        await failing(ranch, attempts=0)
        await ranch.phase("mini", "Ready")
        ranch.macs.running = ("a job of GitHub's runner",)
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        for _ in range(3):
            ranch.macs.mute = [unreachable()]
            await ranch.clock.sleep(1200)
            assert not ranch.macs.mute
        assert not is_in_pool(ranch)
        assert await events(ranch, "WipedUnasked") == []

    play(story)


def test_a_mac_that_never_worked_goes_back_although_it_cannot_tell_what_runs() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.dead = unreachable
        await failing(ranch, attempts=0)
        await ranch.until("mini", lambda h: bool(h.status.attempts))
        hung = FactUnreadable("Tart's list of VMs", why="it hung", fix="Look at it")
        ranch.macs.mute = [hung] * 10_000
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert is_in_pool(ranch)

    play(story)


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_provider_that_does_not_answer_for_a_moment_has_no_mac_wiped_unasked(fails: int) -> None:
    async def story(ranch: Ranch) -> None:
        await failing(ranch, attempts=0)
        await ranch.phase("mini", "Ready")
        ranch.macs.running = ("a job of GitHub's runner",)
        ranch.rented.gets_fail = fails
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.clock.sleep(1200)
        assert not is_in_pool(ranch)
        assert await events(ranch, "WipedUnasked") == []

    play(story)
