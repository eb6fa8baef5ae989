"""Starts and ends the server before the scripted Mac, and says what was seen there."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh
import pytest

from remuda.model.secret import Secret
from remuda.ports.host_shell import Target
from tests.support.processes import free_port
from tests.support.scripted_mac import states
from tests.support.scripted_mac.root_folder import MAIN, PASSWORD_WORKS, USER, lay_out, python

if TYPE_CHECKING:
    from collections.abc import Iterator

UP_S = 60.0
CONFIG = """\
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM no
UseDNS no
PasswordAuthentication yes
KbdInteractiveAuthentication no
PermitRootLogin no
StrictModes no
MaxStartups 100
MaxSessions 10
LogLevel ERROR
PidFile none
SetEnv PATH=/usr/bin:/bin:/usr/sbin:/sbin
"""


def root_or_skip() -> None:
    """Skip where there is no root, or no right to make namespaces; in CI that is a failure."""
    why = ""
    if sys.platform != "linux" or os.geteuid() != 0:
        why = "the scripted Mac needs root on Linux"
    elif (
        not (unshare := shutil.which("unshare"))
        or subprocess.run(  # noqa: S603 - fixed words
            [unshare, "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
        ).returncode
    ):
        why = "the scripted Mac needs namespaces of its own"
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


@dataclass
class Place:
    """Where a scripted Mac is, and what logs in there."""

    root: Path
    password: str = PASSWORD_WORKS
    port: int = 0
    server: subprocess.Popen[bytes] | None = None
    key: asyncssh.SSHKey = field(
        default_factory=lambda: asyncssh.generate_private_key("ssh-ed25519")
    )
    host_key: asyncssh.SSHKey = field(
        default_factory=lambda: asyncssh.generate_private_key("ssh-ed25519")
    )

    @property
    def fingerprint(self) -> str:
        return self.host_key.get_fingerprint("sha256")

    def target(self, **changed: object) -> Target:
        """Return how one logs in, by the key and with the host's key pinned, unless told otherwise."""
        usual: dict[str, object] = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": USER,
            "key": Secret(self.key.export_private_key()),
            "fingerprint": self.fingerprint,
        }
        return Target(**{**usual, **changed})  # type: ignore[arg-type]

    def stop(self) -> None:
        """End the server and all its sessions at once, as a power cut does."""
        assert self.server is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()

    def path(self, inside: str) -> Path:
        """Return where a path of the Mac is, seen from here. Links there are relative, so they lead right."""
        return self.root / inside.lstrip("/")

    def seen(self) -> bytes:
        """Return the words of every program that ran there."""
        return (self.root / ".seen/argv").read_bytes()

    def forget_seen(self) -> None:
        (self.root / ".seen/argv").write_bytes(b"")


@contextlib.contextmanager
def a_place(root: Path, *, password: str = PASSWORD_WORKS) -> Iterator[Place]:
    """Serve a new Mac in a folder, and end everything of it."""
    root_or_skip()
    root.mkdir(parents=True)
    root.chmod(0o755)
    place = Place(root, password=password)
    lay_out(root, key=place.key.export_public_key().decode().strip(), password=password)
    private = root / "private/etc/ssh/ssh_host_ed25519_key"
    private.write_bytes(place.host_key.export_private_key())
    private.chmod(0o600)
    (root / "private/etc/ssh/sshd_config").write_text(CONFIG)
    states.write(place, states.fresh(password))
    with serving(place):
        yield place


@contextlib.contextmanager
def serving(place: Place) -> Iterator[None]:
    """Run the server for as long as the block takes."""
    place.port = free_port()
    (place.root / ".mac/port").unlink(missing_ok=True)
    log = place.root / ".seen/sshd"
    with log.open("wb") as said:
        place.server = subprocess.Popen(  # noqa: S603 - our own words
            [  # noqa: S607 - root_or_skip found it
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "/bin/sh",
                "-ec",
                _script(place),
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        _wait(place.server, place, log)
        yield
    finally:
        place.stop()


def _script(place: Place) -> str:
    root = str(place.root)
    shared = ["/usr/lib", "/usr/lib64", "/dev", sys.base_prefix]
    lines = ["mount --make-rprivate /"]
    for folder in shared:
        if Path(folder).is_dir():
            inside = shlex.quote(root + folder)
            lines += [f"mkdir -p {inside}", f"mount --bind {shlex.quote(folder)} {inside}"]
    lines += [
        f"mount -t proc proc {shlex.quote(root)}/proc",
        "export LD_LIBRARY_PATH=/usr/libexec/lib PATH=/usr/bin:/bin:/usr/sbin:/sbin",
        "unset PYTHONPATH",
        f"{shutil.which('chroot')} {shlex.quote(root)} {python()} -ISB {MAIN} &",
        f"while [ ! -e {shlex.quote(root)}/.mac/port ]; do sleep 0.02; done",
        f"exec {shutil.which('chroot')} {shlex.quote(root)} /usr/sbin/sshd -D -e -p {place.port}",
    ]
    lines[-1] += " -f /etc/ssh/sshd_config"
    return "\n".join(lines)


def _wait(server: subprocess.Popen[bytes], place: Place, log: Path) -> None:
    deadline = time.monotonic() + UP_S  # noqa: TID251 - a real server takes real time
    while time.monotonic() < deadline:  # noqa: TID251 - likewise
        assert server.poll() is None, f"sshd ended: {log.read_text()}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", place.port), 1):
            return
        time.sleep(0.02)  # noqa: TID251 - likewise
    raise AssertionError(f"sshd did not come up: {log.read_text()}")
