"""The process beside each guest, with a program in QEMU's place that says what a hostile guest might."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from remuda.adapters import detached
from remuda.adapters.qemu import plan
from remuda.adapters.qemu.relay import LOG_MAX_BYTES, OUTPUT_MAX_BYTES, TAIL_BYTES
from remuda.agent.mailbox import HostMailbox
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SLOW_S = 60.0
PLAYED = """
import json, os, socket, sys, time
said = {word.split("=")[0]: socket.socket(fileno=int(word.split("=")[1])) for word in sys.argv[1:]}
qmp, guest, console = said["qmp"], said["guest"], said["console"]
lines = qmp.makefile("r")
def say(**words):
    qmp.sendall(json.dumps(words).encode() + b"\\n")
say(QMP={})
def until(wanted):
    for line in lines:
        asked = json.loads(line)
        say(**{"return": {"running": True, "status": "running"}, "id": asked["id"]})
        if asked["execute"] == wanted:
            return
until("query-status")
def halted():
    say(event="SHUTDOWN", data={"guest": True, "reason": "guest-shutdown"})
"""


@dataclass
class Played:
    """A guest that does what a few lines of Python say."""

    folder: Path

    async def run(self, lines: str) -> None:
        script = self.folder / "qemu.py"
        script.write_text(PLAYED + lines)
        (self.folder / "mailbox").mkdir(exist_ok=True)
        argv = [sys.executable, str(script), "qmp=@qmp@", "guest=@channel@", "console=@console@"]
        identity = {"host_name": "a", "machine_id": "0" * 32, "seed": "0" * 128}
        told = plan.Plan(
            argv=argv,
            mailbox=str(self.folder / "mailbox"),
            identity={**identity, "mac": "02:00:00:00:00:01"},
        )
        plan.write_plan(self.folder, told)
        keeper = [sys.executable, "-I", "-m", "remuda.adapters.qemu.relay", str(self.folder)]
        await detached.start(keeper, folder=self.folder / "run", log=self.folder / "log")

    async def ended(self) -> plan.End:
        async def look() -> bool:
            return isinstance(detached.look(self.folder / "run"), detached.Over)

        await eventually(look, within_s=SLOW_S)
        end = plan.read_end(self.folder)
        assert end is not None, (self.folder / "log").read_text()
        return end

    @property
    def mailbox(self) -> HostMailbox:
        return HostMailbox(self.folder / "mailbox")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Played]:
    yield Played(tmp_path)
    await detached.kill(tmp_path / "run", within_s=SLOW_S)


async def test_a_job_goes_in_and_its_end_comes_out(guest: Played) -> None:
    await guest.run(
        """
guest.sendall(b"who\\n")
heard = guest.makefile("rb")
assert heard.readline().startswith(b"id a ")
guest.sendall(b"put ready 0\\n")
assert heard.readline() == b"knows files\\n"  # which a guest of an older image leaves out
assert heard.readline() == b"put job.json 7\\n"
assert heard.read(7) == b'{"a":1}'
guest.sendall(b"put started 0\\nlog 3\\nhi\\n")
assert heard.readline() == b"rm job.json\\n"
guest.sendall(b'put exit.json 10\\n{"code":3}')
halted()
"""
    )

    async def ready() -> bool:
        return guest.mailbox.look().ready

    await eventually(ready, within_s=SLOW_S)
    guest.mailbox.put_job(b'{"a":1}')

    async def started() -> bool:
        return guest.mailbox.look().started

    await eventually(started, within_s=SLOW_S)
    guest.mailbox.take_job_back()
    assert (await guest.ended()).how == "halted", guest.log()
    signs = guest.mailbox.look()
    assert signs.exit is not None
    assert signs.exit.code == 3
    assert guest.mailbox.log_tail() == "hi\n"


async def test_files_go_in_before_the_job_and_come_out_before_the_exit(guest: Played) -> None:
    await guest.run(
        """
import hashlib
heard = guest.makefile("rb")
guest.sendall(b"put ready 8\\narchives")
came = b""
_, name, size, digest = heard.readline().split()
while (line := heard.readline()).startswith(b"more files-in.tgz "):
    came += heard.read(int(line.split()[2]))
assert line == b"done files-in.tgz\\n", line
assert (name, int(size)) == (b"files-in.tgz", len(came))
assert digest == hashlib.sha256(came).hexdigest().encode()
assert heard.readline() == b"knows files\\n"
assert heard.readline() == b"put job.json 2\\n"
assert heard.read(2) == b"{}"
guest.sendall(b"put started 0\\n")
back = hashlib.sha256(came).digest() * 8000
begin = f"begin {len(back)} {hashlib.sha256(back).hexdigest()}\\n".encode()
guest.sendall(begin + b"files 5\\nwrong" + begin)  # a first try broke off
for at in range(0, len(back), 65536):
    piece = back[at : at + 65536]
    guest.sendall(b"files %d\\n" % len(piece) + piece)
guest.sendall(b'put exit.json 10\\n{"code":3}')
halted()
"""
    )

    async def ready() -> bool:
        return guest.mailbox.look().takes_files

    await eventually(ready, within_s=SLOW_S)
    given = guest.folder / "given"
    given.write_bytes(os.urandom(3_000_001))
    guest.mailbox.put_files(given)
    guest.mailbox.put_job(b"{}")
    assert (await guest.ended()).how == "halted", guest.log()
    assert guest.mailbox.look().exit is not None, guest.log()
    back = hashlib.sha256(given.read_bytes()).digest() * 8000
    assert guest.mailbox.files_part(0, 2 * len(back)) == back


async def test_a_guest_cannot_fill_the_disk_with_files_nor_leave_half_of_them(
    guest: Played,
) -> None:
    await guest.run(
        """
size = (64 * 16 + 1) * 65536
guest.sendall(b"begin %d %s\\n" % (size, b"0f" * 32))
piece = b"files 65536\\n" + bytes(65536)
for _ in range(64 * 16 + 1):
    guest.sendall(piece)
guest.sendall(b'put exit.json 10\\n{"code":3}')
halted()
"""
    )
    assert (await guest.ended()).how == "halted", guest.log()
    signs = guest.mailbox.look()
    assert signs.exit is not None
    assert "they have more than" in signs.exit.files_note
    assert signs.overfull == ""
    assert _files(guest) == ["files-out.note"]


def _files(guest: Played) -> list[str]:
    return [file.name for file in (guest.folder / "mailbox").iterdir() if "files" in file.name]


WHOLE = hashlib.sha256(b"hello").hexdigest()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(f"begin 5 {WHOLE}\nfiles 4\nhell", "whole", id="less than was announced"),
        pytest.param(f"begin 5 {WHOLE}\nfiles 6\nhello!", "whole", id="more than was announced"),
        pytest.param(f"begin 5 {WHOLE}\nfiles 5\nhullo", "whole", id="something else"),
        pytest.param(f"begin 5 {WHOLE}\n", "whole", id="nothing"),
        pytest.param(
            f"begin 5 {WHOLE}\nfiles 5\nhello" * 2 + f"begin 5 {WHOLE}\nfiles 1\nh",
            "whole",
            id="a last try that broke off",
        ),
        pytest.param("files 5\nhello", "without their size", id="nothing that was announced"),
    ],
)
async def test_files_that_do_not_come_whole_are_not_delivered_and_said_to_be_so(
    guest: Played, said: str, why: str
) -> None:
    end = 'put exit.json 10\n{"code":3}'
    await guest.run(f"guest.sendall({(said + end).encode()!r}); halted()")
    assert (await guest.ended()).how == "halted", guest.log()
    signs = guest.mailbox.look()
    assert signs.exit is not None
    assert signs.exit.code == 3
    assert why in signs.exit.files_note
    assert _files(guest) == ["files-out.note"]


async def test_files_that_come_twice_and_an_end_that_does_are_taken_once(guest: Played) -> None:
    once = f'begin 5 {WHOLE}\nfiles 5\nhelloput exit.json 10\n{{"code":3}}'.encode()
    await guest.run(f"guest.sendall({once * 3!r}); halted()")
    assert (await guest.ended()).how == "halted", guest.log()
    signs = guest.mailbox.look()
    assert signs.exit is not None
    assert signs.exit.files_note == ""
    assert guest.mailbox.files_part(0, 100) == b"hello"
    assert _files(guest) == ["files-out.tgz"]


async def test_a_host_that_cannot_keep_what_comes_back_says_so(guest: Played) -> None:
    (guest.folder / "mailbox/.remuda-unfinished-files-out.tgz/x").mkdir(parents=True)  # no room
    said = f'begin 5 {WHOLE}\nfiles 5\nhelloput exit.json 10\n{{"code":3}}'.encode()
    await guest.run(f"guest.sendall({said!r}); halted()")
    assert (await guest.ended()).how == "halted", guest.log()
    signs = guest.mailbox.look()
    assert signs.exit is not None
    assert signs.exit.files_note.startswith("the host could not keep them")


async def test_how_a_job_ended_is_known_though_its_guest_died_while_it_sent_files(
    guest: Played,
) -> None:
    said = f'put ended 10\n{{"code":3}}begin 5 {WHOLE}\nfiles 4\nhell'.encode()
    await guest.run(f"guest.sendall({said!r}); halted()")
    await guest.ended()
    signs = guest.mailbox.look()
    assert signs.ended is not None
    assert (signs.ended.code, signs.exit) == (3, None)
    assert _files(guest) == []


async def test_a_guest_that_writes_other_files_is_not_heard_any_more(guest: Played) -> None:
    await guest.run(
        """
guest.sendall(b"put ready 0\\nput ../plan.json 2\\n{}put started 0\\n")
time.sleep(0.5)
halted()
"""
    )
    assert (await guest.ended()).how == "halted"
    assert [path.name for path in (guest.folder / "mailbox").iterdir()] == ["ready"]
    assert "is not heard any more" in guest.log()


async def test_a_guest_cannot_fill_the_disk_with_its_log_or_its_console(guest: Played) -> None:
    more = 4 * 1024 * 1024
    chunks = (LOG_MAX_BYTES + more) // 65536
    await guest.run(
        f"""
for number in range({chunks}):
    guest.sendall(b"log 65536\\n" + b"x" * 65535 + b"\\n")
guest.sendall(b"log 4\\nend\\n")
for number in range({more // 65536}):
    console.sendall(b"y" * 65536)
console.sendall(b"last words\\n")
guest.sendall(b'put exit.json 10\\n{{"code":0}}')
halted()
"""
    )
    assert (await guest.ended()).how == "halted", guest.log()[-500:]
    kept = (guest.folder / "mailbox/runner.log").stat().st_size
    assert kept <= LOG_MAX_BYTES + TAIL_BYTES + 100
    assert guest.mailbox.log_tail().endswith("end\n"), "the end is what a person wants to see"
    assert len(guest.log()) <= OUTPUT_MAX_BYTES + TAIL_BYTES + 100
    assert guest.log().endswith("last words\n")


async def test_what_the_disk_does_not_take_costs_no_guest_and_no_exit_code(guest: Played) -> None:
    (guest.folder / plan.DISK).mkdir()  # stands for a disk that is full: it cannot be written
    in_the_way = guest.folder / "mailbox/.remuda-unfinished-exit.json"
    in_the_way.mkdir(parents=True)
    await guest.run(
        """
guest.sendall(b'disk 7\\nput exit.json 10\\n{"code":3}put started 0\\n')
assert guest.recv(100) == b"put stop 0\\n"
halted()
"""
    )

    async def started() -> bool:
        return guest.mailbox.look().started

    async def reported() -> bool:
        return guest.mailbox.look().exit is not None

    await eventually(started, within_s=SLOW_S)
    assert not await reported()
    in_the_way.rmdir()
    await eventually(reported, within_s=SLOW_S)
    (guest.folder / "mailbox/stop").touch()
    assert (await guest.ended()).how == "halted", guest.log()


async def test_a_guest_whose_disk_found_no_room_goes_on_when_there_is_some(guest: Played) -> None:
    await guest.run(
        """
for _ in range(2):  # the first time there is no room yet
    say(event="BLOCK_IO_ERROR", data={"action": "stop", "operation": "write", "nospace": True})
    say(event="STOP")
    until("cont")
    say(event="RESUME")
halted()
"""
    )
    assert (await guest.ended()).how == "halted", guest.log()
    assert "no room" in guest.log()


async def test_a_qemu_that_breaks_is_a_crash_with_its_last_words(guest: Played) -> None:
    await guest.run('print("the disk is on fire", file=sys.stderr, flush=True); sys.exit(1)')
    end = await guest.ended()
    assert end.how == "crashed"
    assert "the disk is on fire" in end.why


async def test_a_qemu_that_talks_nonsense_is_ended(guest: Played) -> None:
    await guest.run('qmp.sendall(b"nonsense\\n"); time.sleep(600)')
    assert (await guest.ended()).how == "crashed"


async def test_a_stop_asks_the_guest_and_a_quit_asks_qemu(guest: Played) -> None:
    await guest.run(
        """
assert guest.recv(100) == b"off\\n"
until("system_powerdown")
until("quit")
"""
    )
    (guest.folder / plan.STOP).touch()
    await asyncio.sleep(0.2)
    (guest.folder / plan.QUIT).touch()
    assert (await guest.ended()).how == "stopped"


async def test_the_plan_is_for_this_user_alone(guest: Played) -> None:
    await guest.run("halted()")
    await guest.ended()
    assert (guest.folder / plan.PLAN).stat().st_mode & 0o077 == 0
    assert json.loads((guest.folder / plan.END).read_text())["how"] == "halted"
