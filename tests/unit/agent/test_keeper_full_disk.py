"""The disk is full at every write that the agent makes durable: it waits, boots once, and loses no job."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import pytest

from remuda.ports.vms import vm_name
from tests.unit.agent.barn import Barn, played


@dataclass
class Disk:
    """Counts what is made durable; from one of these on it is full, for a few more."""

    full_at: int | None = None
    full_for: int = 3
    count: int = 0

    def __call__(self, _: int) -> None:
        at, self.count = self.count, self.count + 1
        if self.full_at is not None and self.full_at <= at < self.full_at + self.full_for:
            raise OSError(errno.ENOSPC, "No space left on device")


async def _one_job(barn: Barn) -> None:
    barn.host.guests.boot_s, barn.host.guests.job_s = 1.0, 4.0
    barn.start()
    uid = await barn.add_pod()
    barn.host.dispatch.add("job-1")
    await barn.until_phase("Succeeded")
    assert barn.host.vms.boots[vm_name(uid)] == 1
    assert len(barn.guest(uid).jobs) == 1
    assert barn.host.dispatch.ended["job-1"].exit_code == 0
    assert barn.metric("unexpected_errors_total") == 0
    await barn.delete_pod()
    await barn.until_gone()
    await barn.until_clean()


def _on(disk: Disk) -> None:
    async def play(barn: Barn) -> None:
        barn.sync = disk
        await _one_job(barn)

    played(play)


@pytest.mark.parametrize("full_for", [1, 5])
def test_a_disk_that_is_full_at_any_write_costs_time_and_nothing_else(full_for: int) -> None:
    whole = Disk()
    _on(whole)
    assert whole.count > 10, "the story must have writes to fail"
    for full_at in range(1, whole.count):  # the first is the start itself, which says so and ends
        disk = Disk(full_at, full_for)
        try:
            _on(disk)
        except BaseException as error:
            error.add_note(f"full at {full_at} of {whole.count}")
            raise
        assert disk.count > full_at, "the story came to another end than the one on a good disk"
