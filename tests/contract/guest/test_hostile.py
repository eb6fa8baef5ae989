"""Jobs that mean harm, or do not know better: whatever they do, the guest ends, and says how if it still can."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.process.guest import guest_script
from tests.support.guest_script import WAIT_S
from tests.support.processes import pause, seconds

if TYPE_CHECKING:
    from tests.support.guest_script import Guest

UNWRITABLE = "/proc/sys"
"""A folder that nobody can write into, not even root."""


def _gone(pid: int) -> bool:
    """Say whether a process has ended; one that nobody has taken note of has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _pid(guest: Guest, name: str) -> int:
    return int((guest.folder / name).read_text())


def test_children_in_the_background_end_with_their_job(guest: Guest) -> None:
    note = guest.folder / "child"
    assert guest.ran(f"sleep 1000 & echo $! >'{note}'; echo done; exit 3").code == 3
    assert guest.log() == "done\n"
    deadline = seconds() + WAIT_S
    while not _gone(_pid(guest, "child")):
        assert seconds() < deadline
        pause(0.02)


def test_a_child_that_keeps_the_log_open_from_elsewhere_delays_nothing_for_long(
    guest: Guest,
) -> None:
    setsid = shutil.which("setsid")
    note = guest.folder / "child"
    script = f"{setsid} sh -c 'echo $$ >\"{note}\"; exec sleep 1000' & until [ -s '{note}' ]; do sleep 0.05; done"
    try:
        assert guest.ran(f"{script}; echo done").code == 0
        assert guest.log() == "done\n"
    finally:
        subprocess.run(["/bin/kill", "-9", str(_pid(guest, "child"))], check=True)  # noqa: S603 - what this test started


@pytest.mark.parametrize(
    "storm",
    [
        pytest.param("yes | head -n 400000", id="of lines"),
        pytest.param("head -c 900000 /dev/zero | tr '\\0' x; echo", id="of one line"),
    ],
)
def test_an_output_storm_is_cut_with_a_mark_and_its_end_is_kept(guest: Guest, storm: str) -> None:
    guest.env["REMUDA_LOG_MAX_BYTES"] = "300000"
    assert guest.ran(f"echo the beginning; {storm}; echo the end; exit 9").code == 9
    log = guest.log()
    assert len(log) <= 300_000
    assert log.startswith("the beginning\n")
    assert log.endswith("\nthe end\n")
    assert "[remuda-guest: the log is too long; " in log


def test_a_log_that_just_fits_is_whole(guest: Guest) -> None:
    guest.env["REMUDA_LOG_MAX_BYTES"] = "300000"
    guest.ran("head -c 200000 /dev/zero | tr '\\0' x")
    assert guest.log() == "x" * 200_000


def test_a_guest_that_its_job_killed_ends_when_it_is_started_again(guest: Guest) -> None:
    guest.put("read -r _ _ _ _ group _ </proc/$PPID/stat; kill -9 -$group")
    guest.start()
    assert guest.processes[-1].wait(WAIT_S) == -9
    guest.start()
    ended = guest.ended()
    assert (ended.code, ended.reason) == (137, "The guest runner was killed while its job ran")


def test_a_guest_that_is_started_again_after_its_end_changes_nothing(guest: Guest) -> None:
    guest.ran("exit 5")
    (guest.folder / "power").unlink()
    guest.start()
    assert guest.ended().code == 5


def test_a_mailbox_that_cannot_be_written_into_holds_nobody_up(guest: Guest) -> None:
    guest.start(REMUDA_MAILBOX=UNWRITABLE, REMUDA_PATIENCE_SECONDS="1")
    guest.until_off()


def test_a_mailbox_that_never_comes_holds_nobody_up(guest: Guest) -> None:
    guest.start(REMUDA_MAILBOX=str(guest.folder / "none"), REMUDA_PATIENCE_SECONDS="1")
    guest.until_off()


def test_a_mailbox_that_comes_late_is_waited_for(guest: Guest) -> None:
    guest.place.rename(guest.folder / "later")
    guest.start()
    pause(0.2)
    (guest.folder / "later").rename(guest.place)
    guest.put("exit 2")
    assert guest.ended().code == 2


def test_a_job_that_takes_the_mailbox_away_holds_nobody_up(guest: Guest) -> None:
    guest.put(f"rm -rf '{guest.place}'; ln -s {UNWRITABLE} '{guest.place}'; echo lost")
    guest.start()
    guest.until_off()


def test_a_job_that_puts_folders_where_files_belong_is_reported_all_the_same(guest: Guest) -> None:
    box = guest.place
    script = f"mkdir -p '{box}/exit.json/x' '{box}/.exit.json.new/x'; chmod 500 '{box}'; exit 8"
    assert guest.ran(script).code == 8


def test_a_job_that_removes_all_it_finds_is_reported_all_the_same(guest: Guest) -> None:
    assert guest.ran(f"rm -rf '{guest.folder}/work'; exit 6").code == 6


def test_the_script_is_free_of_what_its_linter_knows() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    if not shellcheck.exists():
        pytest.skip("there is no shellcheck for this machine")
    found = subprocess.run(  # noqa: S603 - the project's own linter
        [shellcheck, "--shell=sh", guest_script()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "")
