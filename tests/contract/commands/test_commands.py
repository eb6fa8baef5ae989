"""Calls of real programs: deadlines, groups, floods, and pipes that somebody else keeps open."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from remuda.adapters.commands import DRAIN_S, Finished, command, last_words, streamed
from remuda.ports.vms import HostUnfit, TimedOut
from tests.support.eventually import eventually, within
from tests.support.processes import pause, seconds

LONG_S = 60.0
SOON_S = 0.5
CHILD = 'sh -c \'echo $$ >"$0/child"; exec sleep 600\' "$1"'


def sh(script: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", script, "sh", *arguments]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def texts_in(folder: Path) -> list[str]:
    return [file.read_text() for file in sorted(folder.iterdir())]


async def pids_in(folder: Path, count: int) -> list[int]:
    """Wait until so many processes wrote their pids into a folder."""

    async def written() -> list[int]:
        return [int(text) for text in texts_in(folder) if text.endswith("\n")]

    return await eventually(written, lambda found: len(found) == count, within_s=LONG_S)


async def gone(pid: int) -> None:
    async def is_gone() -> bool:
        return not alive(pid)

    await eventually(is_gone, within_s=LONG_S)


async def test_a_program_is_told_its_arguments_and_its_input_as_they_are(tmp_path: Path) -> None:
    script = 'cat; printf "%s|" "$@" "$NAME" "$(pwd)" >&2; exit 7'
    words = ["$(touch x)", "a b", "-n", "'"]
    done = await command(
        sh(script, *words),
        op="try",
        deadline_s=LONG_S,
        env={"NAME": "value", "PATH": os.defpath},
        stdin=b"through standard input",
        cwd=tmp_path,
    )
    assert done.out == b"through standard input"
    assert done.err.decode().split("|")[:-1] == [*words, "value", str(tmp_path)]
    assert done.code == 7
    assert texts_in(tmp_path) == []


async def test_a_signal_is_a_negative_code() -> None:
    assert (await command(sh("kill -TERM $$"), op="try", deadline_s=LONG_S)).code == -15


async def test_input_that_nobody_reads_harms_nobody() -> None:
    done = await command(sh("exit 3"), op="try", deadline_s=LONG_S, stdin=b"x" * 1_000_000)
    assert done.code == 3


async def test_a_program_that_is_missing_makes_the_host_unfit(tmp_path: Path) -> None:
    for program in (tmp_path / "none", tmp_path):
        with pytest.raises(HostUnfit, match="could not be started"):
            await command([str(program)], op="try", deadline_s=LONG_S)


async def test_at_the_deadline_the_whole_group_is_dead_before_anything_is_raised(
    tmp_path: Path,
) -> None:
    script = f"trap '' TERM INT HUP; echo working; {CHILD} & echo $$ >\"$1/self\"; wait"
    seen: list[tuple[str, bool]] = []
    with pytest.raises(TimedOut) as raised:
        await command(
            sh(script, str(tmp_path)),
            op="clone",
            deadline_s=8.0,  # ample for what it does first
            observed=lambda op, _, late: seen.append((op, late)),
        )
    own = int((tmp_path / "self").read_text())
    assert not alive(own), "it was reaped"
    await gone(int((tmp_path / "child").read_text()))
    assert raised.value.op == "clone"
    assert "it last said: working" in str(raised.value)
    assert seen == [("clone", True)]


async def test_what_a_secret_call_says_is_not_repeated() -> None:
    with pytest.raises(TimedOut) as raised:
        await command(sh("echo hunter2; exec sleep 600"), op="try", deadline_s=SOON_S, secret=True)
    assert "hunter2" not in str(raised.value)


async def test_a_call_that_is_cancelled_leaves_nothing_running(tmp_path: Path) -> None:
    script = f'{CHILD} & echo $$ >"$1/self"; wait'
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(
            command(sh(script, str(tmp_path)), op="try", deadline_s=LONG_S * 10)
        )
        child, own = await pids_in(tmp_path, 2)
        call.cancel()
        await asyncio.wait((call,))
        assert call.cancelled()
        assert not alive(own)
    await gone(child)


async def test_a_child_that_keeps_the_pipe_open_delays_nobody_and_dies(tmp_path: Path) -> None:
    script = f'{CHILD} & while [ ! -s "$1/child" ]; do sleep 0.05; done; echo done'
    done = await within(command(sh(script, str(tmp_path)), op="try", deadline_s=500.0), LONG_S)
    assert (done.code, done.out) == (0, b"done\n")
    (child,) = await pids_in(tmp_path, 1)
    await gone(child)


async def test_one_that_left_the_group_with_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    escape = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(f'{child.pid}\\n')\n"
        "print('left', flush=True)\n"
        "os._exit(0)\n"
    )
    script = [sys.executable, "-c", escape, str(tmp_path / "child")]
    done = await within(command(script, op="try", deadline_s=500.0), LONG_S + DRAIN_S)
    assert (done.code, done.out) == (0, b"left\n")
    os.kill(int((tmp_path / "child").read_text()), 9)


async def test_of_a_flood_the_beginning_and_the_end_are_kept() -> None:
    script = "echo first; yes | head -c 50000000; echo last"
    done = await command(sh(script), op="try", deadline_s=LONG_S, out_max_bytes=1000)
    assert done.out.startswith(b"first\ny\n")
    assert done.out.endswith(b"y\nlast\n")
    assert b"[...]" in done.out
    assert len(done.out) < 1100


async def test_what_just_fits_is_kept_whole() -> None:
    for size in (999, 1000, 1001):
        done = await command(
            sh(f"head -c {size} /dev/zero"), op="try", deadline_s=LONG_S, out_max_bytes=1000
        )
        assert (b"[...]" in done.out) == (size > 1000)
        assert done.out.count(b"\0") == min(size, 1000)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
async def test_a_program_keeps_its_number_until_its_group_was_killed() -> None:
    """Else the group that is killed might be another's, which has the number by then."""
    seen: list[str] = []

    def busy(line: bytes) -> bool:  # a loop that is kept from noticing that the program has ended
        stat = Path(f"/proc/{int(line)}/stat")
        deadline = seconds() + LONG_S
        while (state := _state(stat)) not in ("Z", "gone") and seconds() < deadline:
            pause(0.01)
        pause(0.2)  # for whoever would take note of the end
        seen.extend((state, _state(stat)))
        return True

    done = await streamed(sh("echo $$"), op="try", idle_s=2 * LONG_S, line=busy)
    assert done.code == 0
    assert seen == ["Z", "Z"]


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


async def test_many_calls_at_once_do_not_wait_for_the_one_that_hangs() -> None:
    async with asyncio.TaskGroup() as tasks:
        hung = tasks.create_task(command(["sleep", "600"], op="try", deadline_s=1000.0))
        calls = [
            tasks.create_task(command(["echo", str(n)], op="try", deadline_s=LONG_S))
            for n in range(40)
        ]
        done = await asyncio.gather(*calls)
        assert not hung.done()
        hung.cancel()
    assert [int(answer.out) for answer in done] == list(range(40))


# --- with progress ----------------------------------------------------------------------------------------------------


async def test_lines_are_heard_as_they_come_whatever_ends_them() -> None:
    heard: list[bytes] = []

    def line(text: bytes) -> bool:
        heard.append(text)
        return True

    done = await streamed(
        sh("printf 'one\\ntwo\\rthree\\r\\n\\n'; printf 'err\\n' >&2; printf four"),
        op="pull",
        idle_s=LONG_S,
        line=line,
    )
    assert sorted(heard) == [b"err", b"four", b"one", b"three", b"two"]
    assert done.code == 0


async def test_a_line_without_an_end_is_heard_in_parts() -> None:
    heard: list[int] = []

    def line(text: bytes) -> bool:
        heard.append(len(text))
        return True

    await streamed(sh("head -c 100000 /dev/zero"), op="pull", idle_s=LONG_S, line=line)
    assert sum(heard) == 100_000
    assert max(heard) <= 8192


async def test_progress_keeps_a_long_call_alive_and_words_do_not() -> None:
    # It takes longer than the patience with it, in steps of a third of that.
    waits = "for n in 1 2 3 4; do echo $n; sleep 2; done"
    done = await streamed(sh(waits), op="pull", idle_s=6.0, line=lambda _: True)
    assert (done.code, done.out) == (0, b"1\n2\n3\n4\n")
    with pytest.raises(TimedOut, match="showed no progress for 1 s"):
        await streamed(
            sh("while :; do echo waiting for lock...; sleep 0.1; done"),
            op="pull",
            idle_s=1.0,
            line=lambda _: False,
        )


async def test_what_a_listener_raises_ends_the_call(tmp_path: Path) -> None:
    def line(_: bytes) -> bool:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await streamed(
            sh('echo $$ >"$1/self"; echo x; exec sleep 600', str(tmp_path)),
            op="pull",
            idle_s=LONG_S,
            line=line,
        )
    assert not alive(int((tmp_path / "self").read_text()))


def test_last_words_are_one_line_that_can_be_shown() -> None:
    assert last_words(b"a\n  b\x1b[31m\xff" + b"\n") == "a b?[31m\N{REPLACEMENT CHARACTER}"
    assert Finished(1, b"out\n", b" \n").last_words() == "out"
    assert Finished(1, b"out\n", b"err\n").last_words() == "err"
    assert len(last_words(b"x" * 10_000)) == 300
