"""
The keeper of one guest: a process that starts QEMU, stands between the guest and its mailbox, and writes down the end.

It is started detached from the agent and shares its process group with QEMU, so both outlive the agent and end
together. The guest reaches no file of the host: it says bytes, and this process puts those that make sense into the
mailbox (``channel``). All that guest or QEMU print goes through here as well, and no more of it is kept than fits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from remuda.adapters.qemu import channel, machine, plan, qmp
from remuda.adapters.qemu.endings import ending
from remuda.adapters.qemu.line_files import PIECE_BYTES, FilesBack, FilesThere
from remuda.adapters.qemu.snapshotting import Snapshotting, Step
from remuda.control.durable import write_whole
from remuda.control.untrusted import NotAFile, exists, read_file
from remuda.model.mailbox import EXIT, FILES_NOTE, JOB, LOG, STOP

TICK_S: Final = 0.05
"""How often to look whether the host has put something into the mailbox."""
BREATH_S: Final = 0.005
"""How long to rest after each piece that was read: a guest that talks without end gets little of the host's CPU."""
ROOM_S: Final = 1.0
"""How long to wait before a guest whose disk found no room on the host tries again."""
OUTPUT_MAX_BYTES: Final = 1024 * 1024
"""How much of the guest's console and QEMU's errors is kept from the beginning on."""
LOG_MAX_BYTES: Final = 16 * 1024 * 1024
"""The same, of runner.log."""
TAIL_BYTES: Final = 64 * 1024
"""How much of what comes after that is kept, of the very end."""
TO_GUEST_BYTES: Final = 1024 * 1024
"""How much may wait to be read by the guest before more of a large file is added to it."""


class Bounded:
    """A file that takes the beginning and the end of something endless."""

    def __init__(self, file: int, size_max: int) -> None:
        self._file, self._left = file, size_max
        self._tail = bytearray()
        self._dropped = 0
        self.last = bytearray()

    def write(self, content: bytes) -> None:
        self.last = (self.last + content)[-1024:]
        now, later = content[: self._left], content[self._left :]
        self._left -= len(now)
        _write_all(self._file, now)
        self._tail += later
        over = max(0, len(self._tail) - TAIL_BYTES)
        del self._tail[:over]
        self._dropped += over

    def finish(self) -> None:
        """Write the end, and how much is missing before it."""
        if self._dropped:
            _write_all(self._file, f"\n[... {self._dropped} bytes left out ...]\n".encode())
        _write_all(self._file, bytes(self._tail))
        self._tail.clear()
        self._dropped = 0


class Mailbox:
    """The folder that stands for the guest's mailbox. Only the host writes into it: the agent, and this process."""

    def __init__(self, path: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folder = os.open(path, flags)
        self._log: Bounded | None = None
        self._gave = self._took_back = self._stopped = False
        self._undelivered: dict[str, bytes] = {}
        self._files, self._job_files = FilesBack(self._folder), FilesThere(self._folder)

    def heard(self, message: channel.Message) -> None:
        match message:
            case channel.Put(name, content):
                if name == EXIT and (why := self._files.finish()):
                    self._undelivered[FILES_NOTE] = why.encode()
                if name == EXIT and self._log is not None:
                    self._log.finish()
                self._undelivered[name] = content
                self.deliver()
            case channel.MoreLog(content):
                with contextlib.suppress(OSError):  # no room for its file: that costs words
                    self._open_log().write(content)
            case channel.FilesBegin():
                self._files.begin(message)
            case channel.MoreFiles(content):
                self._files.add(content)
            case channel.Asked() | channel.DiskUsed():
                pass

    def deliver(self) -> None:
        """Put there what the guest has said. What the disk does not take now is kept, and tried the next time."""
        for name, content in list(self._undelivered.items()):
            with contextlib.suppress(OSError):
                write_whole(self._folder, name, content, sync=_not_durable)
                del self._undelivered[name]

    def to_say(self) -> bytes:
        """Return what the guest is to be told of what has changed. Its one job is read once."""
        if not self._stopped and exists(self._folder, STOP):
            self._stopped = True
            return channel.put(STOP, b"")
        if self._gave and not self._took_back and not exists(self._folder, JOB):
            self._took_back = True
            return channel.remove(JOB)
        if not self._gave and exists(self._folder, JOB):
            return self._more_of_job()
        return b""

    def _more_of_job(self) -> bytes:
        """Return the next of the files that the job needs, and then the job: they are there before it."""
        if not self._job_files.is_over:
            said = self._job_files.next()
            if said or not self._job_files.is_over:
                return said
        self._gave = True
        with contextlib.suppress(NotAFile):
            job = read_file(self._folder, JOB, channel.JOB_MAX_BYTES) or b""
            return channel.KNOWS_FILES + channel.put(JOB, job)
        return b""

    def finish(self) -> None:
        if self._log is not None:
            self._log.finish()
        self._files.abandon()
        self.deliver()

    def _open_log(self) -> Bounded:
        if self._log is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._log = Bounded(os.open(LOG, flags, 0o600, dir_fd=self._folder), LOG_MAX_BYTES)
        return self._log


class Keeper:
    """One run of one guest, from QEMU's start to its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan = plan.read_plan(folder)
        self._mailbox = Mailbox(self._plan.mailbox) if self._plan.mailbox else None
        self._output = Bounded(1, OUTPUT_MAX_BYTES)
        self._hearing: channel.Hearing | None = channel.Hearing()
        self._to_guest = bytearray()
        self._qmp = qmp.Qmp()
        self._asked = False
        self._began_s = time.monotonic()  # noqa: TID251 - a process of its own, without a loop
        self._snapshotting = Snapshotting()
        self._up = False
        self._told_off = self._told_quit = False
        self._no_room_s: float | None = None
        self._sockets: dict[str, socket.socket] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        process = self._started()
        try:
            while process.poll() is None:
                self._pass()
            while self._read_all():
                pass  # the last words
        except (qmp.QmpBroken, OSError) as error:
            self._output.write(f"\nThe guest's keeper gave up: {error!r}\n".encode())
        finally:
            process.kill()
            code = process.wait()
            self._output.finish()
            if self._mailbox is not None:
                self._mailbox.finish()
            stopped = (self._folder / plan.STOP).exists() or (self._folder / plan.QUIT).exists()
            said = bytes(self._output.last)
            end = ending(self._qmp, code, stopped=stopped, said=said)
            plan.write_end(self._folder, end)

    # --- QEMU ---

    def _started(self) -> subprocess.Popen[bytes]:
        theirs: dict[str, int] = {}
        for mark in (machine.QMP, machine.CHANNEL, machine.CONSOLE):
            ours, other = socket.socketpair()
            ours.settimeout(0)
            self._sockets[mark] = ours
            self._selector.register(ours, selectors.EVENT_READ, mark)
            theirs[mark] = other.detach()
        if self._plan.incoming:
            theirs[machine.INCOMING] = os.open(self._plan.incoming, os.O_RDONLY | os.O_CLOEXEC)
        argv = [_filled(word, theirs) for word in self._plan.argv]
        # Its standard output is ours, and so is the lock on it: whoever looks for a survivor finds QEMU as well.
        process = subprocess.Popen(  # noqa: S603 - a list of arguments that the driver made
            argv,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=tuple(theirs.values()),
        )
        for number in theirs.values():
            os.close(number)
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        self._selector.register(process.stderr, selectors.EVENT_READ, "errors")
        return process

    def _pass(self) -> None:
        self._read_all(BREATH_S if self._to_guest else TICK_S)
        self._look()
        self._say(machine.QMP, self._qmp.to_say)
        self._say(machine.CHANNEL, self._to_guest)

    def _read_all(self, wait_s: float = 0.0) -> bool:
        """Read one piece of each line that has any; False: none had."""
        read = False
        for key, _ in self._selector.select(wait_s):
            try:
                piece = os.read(key.fd, PIECE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                piece = b""
            if not piece:
                self._selector.unregister(key.fileobj)
                continue
            read = True
            self._take(key.data, piece)
        if read:
            time.sleep(BREATH_S)  # noqa: TID251 - a process of its own, without a loop
        return read

    def _take(self, source: str, piece: bytes) -> None:
        if source == machine.QMP:
            self._qmp.feed(piece)
        elif source == machine.CHANNEL:
            self._listen(piece)
        else:
            self._output.write(piece)

    def _say(self, mark: str, words: bytearray) -> None:
        with contextlib.suppress(OSError):  # full, or nobody is there any more
            while words:
                del words[: self._sockets[mark].send(words)]

    # --- the guest ---

    def _listen(self, piece: bytes) -> None:
        if self._hearing is None:
            return
        try:
            for message in self._hearing.feed(piece):
                self._heard(message)
        except channel.Garbled as error:
            self._hearing = None
            self._output.write(f"\nThe guest is not heard any more: {error}.\n".encode())

    def _heard(self, message: channel.Message) -> None:
        match message:
            case channel.Asked():
                self._asked = True
            case channel.DiskUsed(percent):
                with contextlib.suppress(OSError):
                    (self._folder / plan.DISK).write_text(str(percent))
            case _:
                pass
        if self._mailbox is not None:
            self._mailbox.heard(message)

    # --- the host ---

    def _look(self) -> None:
        """See what the host wants, and what has come of it."""
        if self._qmp.running:
            self._is_up()
        elif "query-status" in self._qmp.answers:
            if self._plan.incoming and self._qmp.paused:
                self._qmp.ask("cont")  # it was halted when its state was saved
            self._qmp.ask("query-status")
        if self._mailbox is not None:
            self._mailbox.deliver()
            while len(self._to_guest) < TO_GUEST_BYTES and (said := self._mailbox.to_say()):
                self._to_guest += said
        if self._qmp.no_room:
            self._look_for_room()
        if self._plan.snapshot and self._asked:
            self._make_snapshot()
        self._look_for_end()

    def _look_for_room(self) -> None:
        """Have a guest go on that QEMU halted because the host's disk was full: there may be room by now."""
        now_s = time.monotonic()  # noqa: TID251 - a process of its own, without a loop
        if self._no_room_s is None:
            self._no_room_s = now_s
            self._output.write(b"\nThe guest waits: there is no room for its disk on the host.\n")
        elif now_s - self._no_room_s > ROOM_S:
            self._no_room_s, self._qmp.no_room = now_s, False
            self._qmp.ask("cont")

    def _look_for_end(self) -> None:
        if "qmp_capabilities" not in self._qmp.answers:
            return  # it would refuse what is asked now
        if not self._told_off and (self._folder / plan.STOP).exists():
            self._told_off = True
            self._to_guest += channel.OFF
            self._qmp.ask("system_powerdown")
        now_s = time.monotonic()  # noqa: TID251 - as above
        late = self._plan.limit_s and now_s - self._began_s > self._plan.limit_s
        if not self._told_quit and (late or (self._folder / plan.QUIT).exists()):
            self._told_quit = True
            self._qmp.ask("quit")

    def _is_up(self) -> None:
        if not self._up:
            with contextlib.suppress(OSError):  # without room for it: the next time
                (self._folder / plan.UP).touch()
                self._up = True
                self._asked = self._asked or bool(self._plan.incoming)  # before the snapshot
        if self._asked and self._plan.identity:
            self._asked = False
            identity = channel.Identity(**self._plan.identity)
            self._to_guest += channel.you_are(identity, int(time.time()))  # noqa: TID251 - as above

    def _make_snapshot(self) -> None:
        step = self._snapshotting.step(self._qmp.answers)
        if step is Step.SEND_FILE:
            self._say(machine.QMP, self._qmp.to_say)
            with open(self._plan.snapshot, "wb") as file:  # noqa: PTH123 - a path from the plan
                question = (
                    b'{"execute": "getfd", "id": "getfd", "arguments": {"fdname": "snapshot"}}\n'
                )
                socket.send_fds(self._sockets[machine.QMP], [question], [file.fileno()])
        elif step is Step.SAVE:
            self._qmp.ask("migrate", uri="fd:snapshot")
        elif step is Step.FAILED:
            self._output.write(f"\nThere is no snapshot: {self._snapshotting.why}.\n".encode())
            self._qmp.ask("quit")
        elif step is Step.DONE:
            (self._folder / plan.MADE).touch()
            self._qmp.ask("quit")
        elif step is not None:
            self._qmp.ask(step.value)


def _filled(word: str, descriptors: dict[str, int]) -> str:
    for mark, number in descriptors.items():
        word = word.replace(mark, str(number))
    return word


def _not_durable(_: int) -> None:
    """Leave it to the host's own time: what a guest said counts only while its host is up."""


def _write_all(file: int, content: bytes) -> None:
    """Write what the disk takes. One that is full costs words, not the guest."""
    view = memoryview(content)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(file, view) :]


def main() -> None:
    """Keep the guest whose folder is named on the command line."""
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignored)  # a handler, not SIG_IGN: QEMU is to heed them
    Keeper(Path(sys.argv[1])).run()


def _ignored(_number: int, _frame: object) -> None:
    """Outlive a signal to the group: QEMU ends by it, and its end is still to be written down."""


if __name__ == "__main__":
    main()
