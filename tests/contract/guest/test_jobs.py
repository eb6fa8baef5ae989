from __future__ import annotations

import os
import signal
from datetime import timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock
from remuda.model.mailbox import Holds

if TYPE_CHECKING:
    from tests.support.guest_script import Guest

JIT = "amlj" * 500


def test_it_says_ready_takes_its_job_and_reports_its_end(guest: Guest) -> None:
    guest.start()
    assert guest.until("ready").started is False
    guest.put('echo "one"; echo "two" >&2; pwd; exit 7')
    ended = guest.ended()
    assert (ended.code, ended.reason) == (7, "The job ended by itself")
    assert guest.mailbox.look().holds is Holds.SPENT
    assert not (guest.place / "job.json").exists()
    *lines, place = guest.log().splitlines()
    assert lines == ["one", "two"]
    assert place.startswith(str(guest.folder / "work"))
    assert ended.finished_at is not None
    assert abs(ended.finished_at - SystemClock().now()) < timedelta(minutes=5)


def test_the_job_is_read_before_it_is_said_to_be_started(guest: Guest) -> None:
    go = guest.folder / "go"
    guest.put(f"until [ -e '{go}' ]; do sleep 0.05; done")
    guest.start()
    guest.until("started")
    go.touch()
    assert guest.ended().code == 0


def test_a_script_has_its_variables_its_folder_and_nothing_of_the_mailbox(guest: Guest) -> None:
    env = {"PLAIN": "a b", "HARD": 'it\'s "so"\n$HOME `id` \\ é', "UID": "7", "PATH": "/bin"}
    script = 'printf "%s|" "$PLAIN" "$HARD" "$PATH" "${REMUDA_MAILBOX-none}" "$REMUDA_JOB_ID"; ls'
    assert guest.ran(script, env=env).code == 0
    said = guest.log()[
        guest.log().index("a b|") :
    ]  # a shell may say that it keeps a variable as it is
    assert said == f"a b|{env['HARD']}|/bin|none|local-1|"


def test_a_script_is_run_by_whom_its_first_line_names(guest: Guest) -> None:
    assert guest.ran('#!/bin/cat\necho "not run"\n').code == 0
    assert guest.log() == '#!/bin/cat\necho "not run"\n'


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("exit 999", 231, id="a code that is none is what the shell makes of it"),
        pytest.param("kill -9 $$", 137, id="a signal"),
        pytest.param("#!/no/such/program\n", 127, id="no interpreter"),
        pytest.param("exec >&- 2>&- <&-; exit 4", 4, id="all its files closed"),
    ],
)
def test_whatever_ends_it_an_exit_code_comes_of_it(guest: Guest, script: str, code: int) -> None:
    # Which of the two says that there is no such program depends on the shell.
    assert guest.ran(script).code in {code, 126 if code == 127 else code}


def test_a_job_can_be_interrupted(guest: Guest) -> None:
    if not guest.shell.gives_interrupts_back:
        return  # busybox cannot give back what a shell takes from what runs beside it
    assert guest.ran("trap 'exit 9' INT; kill -INT $$; exit 1").code == 9


def test_output_is_there_while_the_job_runs(guest: Guest) -> None:
    go = guest.folder / "go"
    guest.put(f"echo early; until [ -e '{go}' ]; do sleep 0.05; done; echo late")
    guest.start()
    guest.until_logged("early\n")
    go.touch()
    guest.ended()
    assert guest.log() == "early\nlate\n"


def test_a_guest_that_is_told_to_stop_without_a_job_ends_well(guest: Guest) -> None:
    guest.start()
    guest.until("ready")
    guest.mailbox.put_stop()
    assert guest.ended().code == 0
    assert guest.mailbox.look().started is False


def test_a_job_that_came_with_a_stop_is_not_run_and_has_not_succeeded(guest: Guest) -> None:
    guest.put("echo run")
    guest.mailbox.put_stop()
    guest.start()
    assert guest.ended().code == 143
    assert guest.log() == ""


def test_a_signal_before_a_job_is_no_success_for_a_job_may_come_yet(guest: Guest) -> None:
    guest.start()
    guest.until("ready")
    os.kill(guest.processes[-1].pid, signal.SIGTERM)
    assert guest.ended().code == 143


@pytest.mark.parametrize("told_by", ["mailbox", "signal"])
def test_a_job_that_is_told_to_stop_may_tidy_up(guest: Guest, told_by: str) -> None:
    guest.put("trap 'echo tidy; exit 5' TERM; echo begun; while :; do sleep 0.05; done")
    guest.start(REMUDA_GRACE_SECONDS="50")
    guest.until_logged("begun\n")
    if told_by == "mailbox":
        guest.mailbox.put_stop()
    else:
        os.kill(guest.processes[-1].pid, signal.SIGTERM)
    ended = guest.ended()
    assert (ended.code, ended.reason) == (5, "The job was told to stop")
    assert "tidy\n" in guest.log()


def test_a_job_that_will_not_stop_is_killed_with_its_children(guest: Guest) -> None:
    guest.put("trap '' TERM; echo begun; (while :; do sleep 0.05; done) & wait; wait; sleep 1000")
    guest.start()
    guest.until_logged("begun\n")
    guest.mailbox.put_stop()
    assert guest.ended().code == 137


def test_the_deadline_of_a_job_is_kept(guest: Guest) -> None:
    guest.env["REMUDA_GRACE_SECONDS"] = "50"
    zone = timezone(-timedelta(hours=7, minutes=30))
    passed = (SystemClock().now() - timedelta(minutes=1)).astimezone(zone)
    ended = guest.ran("sleep 1000", deadline=passed.isoformat())
    assert (ended.code, ended.reason) == (143, "The deadline of the job passed")


@pytest.mark.parametrize("zone", ["Z", "+02:00"])
def test_a_deadline_that_is_far_ends_nothing(guest: Guest, zone: str) -> None:
    hours = 2 if zone == "+02:00" else 0
    far = SystemClock().now() + timedelta(hours=hours, minutes=30)
    ended = guest.ran("sleep 0.5; exit 3", deadline=f"{far:%Y-%m-%dT%H:%M:%S.%f}{zone}")
    assert ended.code == 3


def test_githubs_runner_gets_its_config_where_no_list_of_processes_shows_it(guest: Guest) -> None:
    guest.put_runner(
        'printf "%s %s\\n" "$#" "$ACTIONS_RUNNER_INPUT_JITCONFIG"; cat /proc/[0-9]*/cmdline; exit 0'
    )
    assert guest.ran(kind="github", encoded_jit_config=JIT).code == 0
    first, _, processes = guest.log().partition("\n")
    assert first == f"0 {JIT}"
    assert "run.sh" in processes
    assert JIT not in processes
    kept = [p for p in guest.folder.rglob("*") if p.is_file() and p.name != "runner.log"]
    assert not [p for p in kept if JIT.encode() in p.read_bytes()]


def test_a_runner_that_gets_no_job_ends_itself(guest: Guest) -> None:
    guest.put_runner("echo waiting; exec sleep 1000")
    (guest.runner / "_diag" / "Worker_of_the_image.log").touch()
    ended = guest.ran(kind="github", encoded_jit_config=JIT, idle_timeout_seconds=1)
    assert (ended.code, ended.reason) == (0, "No job came for the runner in its idle timeout")


def test_a_runner_that_got_a_job_is_never_idle(guest: Guest) -> None:
    guest.env["REMUDA_IDLE_TIMEOUT_SECONDS"] = "2"
    guest.put_runner("echo job >_diag/Worker_1.log; sleep 3; exit 6")
    assert guest.ran(kind="github", encoded_jit_config=JIT).code == 6


def test_where_there_is_no_runner_the_job_fails_and_the_machine_ends(guest: Guest) -> None:
    assert guest.ran(kind="github", encoded_jit_config=JIT).code == 127


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"kind":"local","script":"true"', id="half"),
        pytest.param(b'{"kind":"local","script":"tr\\u12"}', id="half an escape"),
        pytest.param(b'["local"]', id="a list"),
        pytest.param(b'{"kind":"local","script":"true\\u0000"}', id="a character of no text"),
    ],
)
def test_a_job_that_cannot_be_read_is_said_to_be_so(guest: Guest, document: bytes) -> None:
    guest.put_document(document)
    guest.start()
    ended = guest.ended()
    assert (ended.code, ended.reason) == (1, "The job could not be read")
