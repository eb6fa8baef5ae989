"""Two changes of one host never run beside each other, and one that was killed is in nobody's way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from remuda.hosts.scripts import script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG_S = 120.0
BUSY = 75
HANGS = "echo begun; read -r line; echo ended"


class Host:
    """A folder in which changes are made. Time passes at once."""

    def __init__(self, folder: Path) -> None:
        self.lock, self.programs = folder / "lock", folder / "programs"
        self.programs.mkdir()
        (self.programs / "sleep").write_text("#!/bin/sh\n")
        (self.programs / "sleep").chmod(0o755)

    def begin(self, text: str, *words: str) -> subprocess.Popen[bytes]:
        command = ("/bin/sh", "-c", script("one-at-a-time"), "remuda-one-at-a-time", str(self.lock))
        return subprocess.Popen(  # noqa: S603 - our own script
            [*command, "/bin/sh", "-c", text, "remuda-change", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"},
        )

    def make(self, text: str, *words: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        change = self.begin(text, *words)
        out, err = change.communicate(stdin, timeout=LONG_S)
        return change.returncode, out, err

    @contextlib.contextmanager
    def hanging(self) -> Iterator[subprocess.Popen[bytes]]:
        change = self.begin(HANGS)
        assert change.stdout is not None
        assert change.stdout.readline() == b"begun\n"
        try:
            yield change
        finally:
            change.kill()
            change.communicate()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_change_gets_its_words_its_stdin_and_gives_its_code(host: Host) -> None:
    words = ("a b", "'", "$HOME", "")
    code, out, err = host.make('printf "%s|" "$0" "$@"; cat; exit 3', *words, stdin=b"secret\0\n")
    assert (code, err) == (3, b"")
    assert out == b"remuda-change|a b|'|$HOME||secret\0\n"
    assert host.make("exit 0")[0] == 0, "one that ended has let go"


def test_a_change_is_not_begun_beside_another_that_lives(host: Host) -> None:
    with host.hanging() as first:
        code, out, err = host.make("echo begun too")
        assert (code, out) == (BUSY, b"")
        assert f"by process {first.pid}".encode() in err
        assert first.communicate(b"\n", timeout=LONG_S)[0] == b"ended\n", "it was not disturbed"
    assert host.make("echo begun")[:2] == (0, b"begun\n")


def test_a_change_that_was_killed_is_in_nobodys_way(host: Host) -> None:
    with host.hanging() as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert host.make("echo begun")[:2] == (0, b"begun\n")


LEFT: dict[str, Callable[[Path], object]] = {
    "a number that nobody has": lambda lock: lock.write_text("4194303999\n"),
    "no number": lambda lock: lock.write_text("half"),
    "nothing": lambda lock: lock.write_text(""),
    "killed in the moment of taking": lambda lock: lock.with_name("lock.taken").symlink_to(
        "4194303999"
    ),
}


@pytest.mark.parametrize("left", LEFT)
def test_what_is_left_of_others_is_in_nobodys_way(host: Host, left: str) -> None:
    LEFT[left](host.lock)
    assert host.make("echo begun")[:2] == (0, b"begun\n")


def test_whoever_is_slow_in_the_moment_of_taking_is_waited_for(host: Host) -> None:
    slow = ["/bin/sh", "-c", "read -r line", "remuda-slow"]
    with subprocess.Popen(slow, stdin=subprocess.PIPE) as taker:  # noqa: S603 - our own words
        taken = host.lock.with_name("lock.taken")
        taken.symlink_to(str(taker.pid))
        assert host.make("echo begun")[:2] == (BUSY, b"")
        assert taken.is_symlink(), "it was not taken away from one that lives"
        taker.communicate(b"\n", timeout=LONG_S)
    assert host.make("echo begun")[:2] == (0, b"begun\n")


def test_a_number_that_was_given_to_somebody_else_is_in_nobodys_way(host: Host) -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        host.lock.write_text(f"{stranger.pid}\n")
        assert host.make("echo begun")[:2] == (0, b"begun\n")
        stranger.kill()


def test_of_many_at_once_none_is_beside_another(host: Host) -> None:
    (host.programs / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.05\n")
    alone = 'mkdir "$1" || exit 9; /bin/sleep 0.02; rmdir "$1"'
    inside = str(host.lock.with_name("inside"))
    changes = [host.begin(alone, inside) for _ in range(6)]
    for change in changes:
        change.communicate(timeout=LONG_S)
    codes = {change.returncode for change in changes}
    assert codes <= {0, BUSY}
    assert 0 in codes
