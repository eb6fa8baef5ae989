"""The agent is killed at every call that it makes and begun again: one boot per Pod, none left, the right verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remuda.kube.names import JOB_DELIVERED
from remuda.ports.desk import GoHome
from remuda.ports.vms import vm_name
from tests.unit.agent.barn import Barn, played
from tests.unit.agent.mortal import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Story = Callable[[Barn], Coroutine[Any, Any, None]]


async def _one_job(barn: Barn) -> None:
    """Give a Pod a job, and delete it once it has ended."""
    uid = await barn.add_pod()
    barn.host.dispatch.add("job-1")
    ended = ""
    while not ended:
        await barn.later(0.5)
        await _revive(barn)
        phase = await barn.phase()
        ended = phase if phase in {"Succeeded", "Failed"} else ""
        assert barn.clock.monotonic() < 900, "it never ends"
    _check_end(barn, uid, ended)
    delivered = await barn.condition(JOB_DELIVERED)
    assert delivered == ("True" if ended == "Succeeded" else ""), "whoever looks later can tell"
    await _delete(barn)
    assert barn.host.vms.boots[vm_name(uid)] <= 1


def _check_end(barn: Barn, uid: str, phase: str) -> None:
    """Only an agent that died between its word that it starts a VM and the start itself may have failed its Pod."""
    where = barn.host.dispatch.begun, barn.host.vms.boots
    booted = barn.host.vms.boots[vm_name(uid)]
    if phase == "Succeeded":
        assert booted == 1, where
        assert len(barn.guest(uid).jobs) == 1, where
        assert barn.host.dispatch.ended["job-1"].exit_code == 0
    else:
        assert booted == 0, where
        assert barn.host.dispatch.begun["job-1"] == 0, "a job was lost"


async def _deleted_at_work(barn: Barn) -> None:
    """Delete a Pod in the middle of its job."""
    uid = await barn.add_pod()
    barn.host.dispatch.add("job-1")
    while barn.clock.monotonic() < 8:
        await barn.later(0.5)
        await _revive(barn)
    await _delete(barn)
    assert barn.host.vms.boots[vm_name(uid)] <= 1


async def _sent_home(barn: Barn) -> None:
    """Have dispatch send a runner home, as often as it asks."""
    await barn.add_pod()
    for _ in range(5):
        barn.host.dispatch.queue.put_nowait(GoHome("the pool is rolled"))
    ended = ""
    while not ended:
        await barn.later(0.5)
        await _revive(barn)
        phase = await barn.phase()
        ended = phase if phase in {"Succeeded", "Failed"} else ""
        assert barn.clock.monotonic() < 900, "it never ends"
    assert (ended == "Succeeded") == bool(barn.host.vms.boots)
    await _delete(barn)


async def _deleted_early(barn: Barn) -> None:
    """Delete a Pod while its image is being pulled."""
    uid = await barn.add_pod()
    while barn.clock.monotonic() < 2:
        await barn.later(0.5)
        await _revive(barn)
    await _delete(barn)
    assert barn.host.vms.boots[vm_name(uid)] == 0


async def _delete(barn: Barn) -> None:
    await barn.delete_pod()
    while await barn.pod() is not None or barn.left():
        await barn.later(0.5)
        await _revive(barn)
        assert barn.clock.monotonic() < 1800, barn.left()


async def _revive(barn: Barn) -> None:
    """Begin again what has died."""
    if barn.agent is not None and barn.agent.done():
        await barn.later(1.0)
        barn.start()


def _lived(story: Story, ends_at: int | None, *, gently: bool = False) -> Life:
    life = Life(ends_at, gently=gently)

    async def play(barn: Barn) -> None:
        barn.host.guests.boot_s, barn.host.guests.job_s = 1.0, 4.0
        barn.start(life)
        await story(barn)

    played(play)
    return life


STORIES: dict[str, Story] = {
    "one job": _one_job,
    "deleted at work": _deleted_at_work,
    "sent home": _sent_home,
    "deleted early": _deleted_early,
}


@pytest.mark.parametrize("gently", [False, True], ids=["killed", "told to stop"])
@pytest.mark.parametrize("story", STORIES)
def test_ended_anywhere_it_finishes_what_it_began(story: str, *, gently: bool) -> None:
    whole = _lived(STORIES[story], None)
    assert len(whole.points) > 20, "the story must have points to die at"
    for ends_at in range(len(whole.points)):
        try:
            life = _lived(STORIES[story], ends_at, gently=gently)
        except BaseException as error:
            error.add_note(f"ended at point {ends_at}: {whole.points[ends_at]}")
            raise
        assert life.is_over, "the story came to another end than the one without a death"
