"""The program that carries a mailbox over a serial line, on a line of ours: what it says to whom, and what it takes."""

from __future__ import annotations

import os
import signal
import subprocess
import tty
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.process.guest import guest_script
from remuda.adapters.qemu import channel
from remuda.adapters.qemu.channel import FilesBegin, Hearing, Message, MoreFiles, Put
from remuda.model.mailbox import ENDED, EXIT, FILES_IN, FILES_OUT, JOB, READY
from tests.support.guest_script import WAIT_S, a_shell
from tests.support.processes import pause, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.guest_script import Shell

ARCHIVE = os.urandom(200_000)
END = b'{"code":3}'


@pytest.fixture(scope="module", params=["dash", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return a_shell(request.param, tmp_path_factory.mktemp("shell"))


@dataclass
class Line:
    """The program and the host's end of its line."""

    place: Path
    host: int
    hearing: Hearing = field(default_factory=Hearing)
    heard: list[Message] = field(default_factory=list)

    @property
    def mailbox(self) -> Path:
        return self.place / "mailbox"

    def say(self, words: bytes) -> None:
        view = memoryview(words)
        while view:
            view = view[os.write(self.host, view[:1024]) :]

    def until(self, message: Message) -> None:
        """Listen until that was said."""
        deadline = seconds() + WAIT_S
        while message not in self.heard:
            assert seconds() < deadline, self.heard
            try:
                self.heard += self.hearing.feed(os.read(self.host, 65536))
            except BlockingIOError:
                pause(0.02)

    def until_there(self, name: str) -> bytes:
        """Wait for a file of the mailbox."""
        deadline = seconds() + WAIT_S
        while not (self.mailbox / name).exists():
            assert seconds() < deadline
            pause(0.02)
        return (self.mailbox / name).read_bytes()

    def said(self) -> list[type]:
        return [type(message) for message in self.heard]


@pytest.fixture
def line(shell: Shell, tmp_path: Path) -> Iterator[Line]:
    with a_line(shell, shell.path, tmp_path) as made:
        yield made


@contextmanager
def a_line(shell: Shell, path: str, place: Path) -> Iterator[Line]:
    host, guest = os.openpty()
    tty.setraw(guest)
    os.set_blocking(host, False)
    process = subprocess.Popen(  # noqa: S603 - our own script
        [*shell.argv, str(guest_script().with_name("remuda-channel"))],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={
            "PATH": path,
            "REMUDA_PLACE": str(place),
            "REMUDA_CHANNEL_PORT": os.ttyname(guest),
        },
    )
    made = Line(place, host)
    made.until(channel.Asked())
    os.set_blocking(host, True)
    try:
        yield made
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(host)
    os.close(guest)


def leave(line: Line, name: str, content: bytes) -> None:
    """Leave a file as a guest does, and listen from here on."""
    os.set_blocking(line.host, False)
    (line.mailbox / f"{name}.new").write_bytes(content)
    (line.mailbox / f"{name}.new").rename(line.mailbox / name)


def test_a_host_that_knows_of_files_is_sent_them_with_their_size_and_digest(line: Line) -> None:
    line.say(channel.KNOWS_FILES + channel.put(JOB, b"{}"))
    line.until_there(JOB)
    leave(line, ENDED, END)
    line.until(Put(ENDED, END))  # while its files are packed
    leave(line, FILES_OUT, ARCHIVE)
    leave(line, EXIT, END)
    line.until(Put(EXIT, END))
    began = line.heard.index(FilesBegin(len(ARCHIVE), sha256(ARCHIVE).hexdigest()))
    pieces = [message.content for message in line.heard[began:] if isinstance(message, MoreFiles)]
    assert b"".join(pieces) == ARCHIVE
    assert line.heard[-1] == Put(EXIT, END)


def test_a_host_of_an_older_version_hears_no_word_that_it_does_not_know(line: Line) -> None:
    line.say(channel.put(JOB, b"{}"))
    line.until_there(JOB)
    for name, content in ((READY, b""), (ENDED, END), (FILES_OUT, ARCHIVE), (EXIT, END)):
        leave(line, name, content)
    line.until(Put(EXIT, END))
    assert set(line.said()) <= {channel.Asked, channel.DiskUsed, Put}
    assert Put(ENDED, END) not in line.heard


def test_what_a_guest_knows_of_files_is_passed_on(line: Line) -> None:
    leave(line, READY, b"archives")
    line.until(Put(READY, b"archives"))


def test_a_guest_that_can_measure_no_files_takes_none(tmp_path: Path) -> None:
    shell = a_shell("dash", tmp_path)  # the other one brings its own program
    (broken := tmp_path / "broken").mkdir()
    (broken / "sha256sum").write_text("#!/bin/sh\nexit 127\n")
    (broken / "sha256sum").chmod(0o755)
    (other := tmp_path / "other").mkdir()
    with a_line(shell, f"{broken}:{shell.path}", other) as without:
        leave(without, READY, b"archives")
        without.until(Put(READY, b""))


def test_files_that_broke_off_and_began_anew_are_there_once(line: Line) -> None:
    begin = channel.begin(FILES_IN, len(ARCHIVE), sha256(ARCHIVE).hexdigest())
    line.say(begin + channel.more(FILES_IN, ARCHIVE[:1000]) + begin)
    for at in range(0, len(ARCHIVE), 65536):
        line.say(channel.more(FILES_IN, ARCHIVE[at : at + 65536]))
    line.say(channel.done(FILES_IN))
    assert line.until_there(FILES_IN) == ARCHIVE


@pytest.mark.parametrize("came", [b"hell", b"hullo", b"hello!"])
def test_files_that_are_not_as_announced_are_not_there(line: Line, came: bytes) -> None:
    line.say(channel.begin(FILES_IN, 5, sha256(b"hello").hexdigest()))
    line.say(channel.more(FILES_IN, came) + channel.done(FILES_IN) + channel.put(JOB, b"{}"))
    assert line.until_there(JOB) == b"{}"
    assert not (line.mailbox / FILES_IN).exists()


def test_what_a_newer_host_says_is_left_out(line: Line) -> None:
    line.say(b"knows everything\nnonsense of another kind\n" + channel.put(JOB, b"{}"))
    assert line.until_there(JOB) == b"{}"
