"""What only SSH has: quoting for a real shell, other servers' manners, the user's own set-up, and logs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING

import asyncssh
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.adapters.ssh import SshSettings, SshShells
from remuda.adapters.ssh.quoting import PID_MARK, line_of, without_pid
from remuda.model.secret import Secret
from remuda.ports.host_shell import (
    Command,
    CommandTimedOut,
    HostKeyChanged,
    LoginRefused,
    Target,
    Unreachable,
)
from tests.contract.host_shell.ways import OverSsh
from tests.support.eventually import eventually
from tests.support.scripted_mac.place import a_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from remuda.ports.host_shell import HostShell

LONG_S = 120.0
SHELLS = sorted({found for name in ("sh", "dash", "bash", "zsh") if (found := shutil.which(name))})
WORD = st.text(
    st.one_of(
        st.sampled_from("'\"\\ \n\t!~=$`*?[]{}()<>|&;#%^-é\udcff"),
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def over_ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverSsh]:
    with a_place(tmp_path_factory.mktemp("mac") / "root") as place:
        yield OverSsh(place)


@settings(max_examples=40, deadline=None)
@given(words=st.lists(WORD, max_size=8))
@pytest.mark.parametrize("shell", SHELLS)
def test_any_words_come_back_from_a_real_shell(shell: str, words: list[str]) -> None:
    said = ("/bin/sh", "-c", 'for word in "$@"; do printf "%s\\0" "$word"; done', "sh", *words)
    ran = subprocess.run(  # noqa: S603 - this is what is tried
        [shell, "-c", line_of(Command(words=said))],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        check=True,
    )
    assert ran.stdout.decode(errors="surrogateescape").split("\0")[:-1] == words
    stderr, number = without_pid(ran.stderr)
    assert stderr == b""
    assert number is not None


@pytest.mark.parametrize(
    ("said", "left", "number"),
    [
        (b"", b"", None),
        (PID_MARK + b"12\nrest\n", b"rest\n", 12),
        (b"a warning of .zshenv\n" + PID_MARK + b"12\n", b"a warning of .zshenv\n", 12),
        (PID_MARK + b"12", PID_MARK + b"12", None),
        (PID_MARK + b"x\n", PID_MARK + b"x\n", None),
    ],
)
def test_the_process_number_is_taken_out_of_what_was_said(
    said: bytes, left: bytes, number: int | None
) -> None:
    assert without_pid(said) == (left, number)


@pytest.mark.parametrize("root", [False, True])
async def test_a_command_that_takes_too_long_is_dead_on_the_host(
    over_ssh: OverSsh, *, root: bool
) -> None:
    over_ssh.prepare()
    note = over_ssh.place.path(f"/private/tmp/hangs-{root}")
    shells = over_ssh.shells()
    shell = await shells.open(over_ssh.target())
    for seconds in (2.0, 10.0, 60.0):  # until it was given the time to begin
        with pytest.raises(CommandTimedOut):
            await shell.run(
                Command(words=("/contract/hangs", str(root)), root=root, timeout_s=seconds)
            )
        if note.exists():
            break
    assert note.read_text().strip().isdigit(), "it had begun"
    await eventually(living(over_ssh, shell, note), lambda alive: not alive, within_s=LONG_S)
    await shells.close(shell)


def living(over_ssh: OverSsh, shell: HostShell, note: Path) -> Callable[[], Awaitable[bool]]:
    """Return what asks the host whether the program that wrote this note still runs."""
    asks = over_ssh.place.root / "contract/living"
    asks.write_text(
        '#!/usr/libexec/bash\nread -r pid <"/tmp/$1"; [ -n "$pid" ] && [ -d "/proc/$pid" ]\n'
    )
    asks.chmod(0o755)

    async def asked() -> bool:
        command = Command(words=("/contract/living", note.name), timeout_s=LONG_S)
        return (await shell.run(command)).code == 0

    return asked


@pytest.mark.parametrize("root", [False, True])
async def test_a_command_that_is_cancelled_is_dead_on_the_host(
    over_ssh: OverSsh, *, root: bool
) -> None:
    over_ssh.prepare()
    note = over_ssh.place.path(f"/private/tmp/hangs-cancelled-{root}")
    hanging = Command(words=("/contract/hangs", f"cancelled-{root}"), root=root, timeout_s=LONG_S)
    shells = over_ssh.shells()
    shell = await shells.open(over_ssh.target())

    async def begun() -> bool:
        return note.exists() and note.read_text().strip().isdigit()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(shell.run(hanging), name="running")
        await eventually(begun, within_s=LONG_S)
        running.cancel()
    assert running.cancelled()
    await eventually(living(over_ssh, shell, note), lambda alive: not alive, within_s=LONG_S)
    await shells.close(shell)


async def test_a_cancelled_command_leaves_the_way_usable(over_ssh: OverSsh) -> None:
    over_ssh.prepare()
    shells = over_ssh.shells()
    shell = await shells.open(over_ssh.target())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await shell.run(Command(words=("/contract/hangs", "cancelled"), timeout_s=LONG_S))
    assert (await shell.run(Command(words=("/contract/who",), timeout_s=LONG_S))).code == 0
    await shells.close(shell)


def own_set_up(home: Path, over_ssh: OverSsh) -> dict[str, str]:
    """Make a user's ~/.ssh that would let us in, or astray, if it were read."""
    folder = home / ".ssh"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "id_ed25519").write_bytes(over_ssh.place.key.export_private_key())
    (folder / "id_ed25519").chmod(0o600)
    (folder / "config").write_text("Host *\n  ProxyCommand false\n  User nobody\n  Port 1\n")
    (folder / "known_hosts").write_text("")
    return {**os.environ, "HOME": str(home), "SSH_AUTH_SOCK": str(home / "agent")}


TRIED_ALONE = """
import asyncio, sys
from remuda.adapters.ssh import SshShells
from remuda.model.secret import Secret
from remuda.ports.host_shell import LoginRefused, Target

async def main():
    port, fingerprint, right = int(sys.argv[1]), sys.argv[2], sys.stdin.buffer.read()
    target = dict(address="127.0.0.1", port=port, user="m1", fingerprint=fingerprint)
    try:
        await SshShells().open(Target(**target))
    except LoginRefused:
        print("without a key: refused")
    shells = SshShells()
    await shells.close(await shells.open(Target(**target, key=Secret(right))))
    print("with the key: open")

asyncio.run(main())
"""


def test_nothing_of_the_users_own_set_up_is_used(over_ssh: OverSsh, tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603 - fixed words
        [sys.executable, "-c", TRIED_ALONE, str(over_ssh.place.port), over_ssh.place.fingerprint],
        input=over_ssh.place.key.export_private_key(),
        env=own_set_up(tmp_path / "home", over_ssh),
        capture_output=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.stdout.decode().splitlines() == ["without a key: refused", "with the key: open"], (
        done.stderr
    )


class Asked(asyncssh.SSHServer):
    """A server of another make: it asks by methods that OpenSSH here does not have, and counts."""

    tried = 0

    def __init__(self, methods: str, right: str) -> None:
        self._methods, self._right = methods, right

    def begin_auth(self, username: str) -> bool:
        del username
        return True

    def password_auth_supported(self) -> bool:
        return "password" in self._methods

    def validate_password(self, username: str, password: str) -> bool:
        del username
        Asked.tried += 1
        return password == self._right

    def kbdint_auth_supported(self) -> bool:
        return "interactive" in self._methods

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        del username, lang, submethods
        return ("", "", "", [("Password:", False)])

    def validate_kbdint_response(self, username: str, responses: object) -> bool:
        del username
        Asked.tried += 1
        return responses == [self._right]


@contextlib.asynccontextmanager
async def a_server(
    methods: str, right: str, key: asyncssh.SSHKey, port: int = 0
) -> AsyncIterator[int]:
    Asked.tried = 0
    listener = await asyncssh.listen(
        "127.0.0.1",
        port,
        server_host_keys=[key],
        server_factory=lambda: Asked(methods, right),
        process_factory=lambda process: process.exit(0),
        reuse_address=True,
    )
    try:
        yield listener.get_port()
    finally:
        listener.close()
        await listener.wait_closed()


def a_target(port: int, password: str) -> Target:
    return Target(
        address="127.0.0.1",
        port=port,
        user="m1",
        password=Secret(password.encode()),
        trust_first=True,
    )


@pytest.mark.parametrize("methods", ["password", "interactive", "password interactive"])
async def test_a_password_is_tried_once_by_whatever_method(methods: str) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with a_server(methods, "right", key) as port:
        shells = SshShells()
        await shells.close(await shells.open(a_target(port, "right")))
        assert Asked.tried == 1
        with pytest.raises(LoginRefused):
            await SshShells().open(a_target(port, "wrong"))
        assert Asked.tried == 2


async def test_a_key_that_changes_between_two_dials_of_one_run_stops_it() -> None:
    first, second = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    shells = SshShells()
    async with a_server("password", "right", first) as port:
        await shells.close(await shells.open(a_target(port, "right")))
    async with a_server("password", "right", second, port) as port:
        with pytest.raises(HostKeyChanged) as caught:
            await shells.open(a_target(port, "right"))
        assert Asked.tried == 0, "the password was sent to whoever answered"
    assert caught.value.seen == second.get_fingerprint("sha256")


async def test_a_port_that_is_open_and_silent_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match="does not answer"):
            await SshShells(SshSettings(connect_s=0.5, login_s=0.5)).open(a_target(port, "x"))


async def test_a_host_that_goes_away_while_a_command_runs_is_unreachable(
    tmp_path: Path,
) -> None:
    shells = SshShells()
    with a_place(tmp_path / "root") as place:
        way = OverSsh(place)
        way.prepare()
        shell = await shells.open(way.target())
        note = place.path("/private/tmp/hangs-going")

        async def begun() -> bool:
            return note.exists()

        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                _caught(shell.run(Command(words=("/contract/hangs", "going"), timeout_s=LONG_S))),
                name="running",
            )
            await eventually(begun, within_s=LONG_S)
            place.stop()
        assert isinstance(running.result(), Unreachable)
    await shells.close(shell)


async def _caught(running: object) -> BaseException | None:
    try:
        await running  # type: ignore[misc]
    except Unreachable as error:
        return error
    return None


BAD_KEYS = {
    "no key at all": (b"hello", "no private key"),
    "a key with a passphrase": (
        asyncssh.generate_private_key("ssh-rsa").export_private_key("pkcs8-pem", "known to nobody"),
        "passphrase",
    ),
}


@pytest.mark.parametrize(("key", "why"), BAD_KEYS.values(), ids=BAD_KEYS.keys())
async def test_a_key_that_cannot_be_used_is_refused_before_anything_is_dialled(
    key: bytes, why: str
) -> None:
    with pytest.raises(LoginRefused, match="cannot be used") as caught:
        await SshShells().open(Target(address="127.0.0.1", port=1, user="m1", key=Secret(key)))
    assert why in caught.value.why


async def test_no_secret_is_in_a_log_or_an_error(
    over_ssh: OverSsh, caplog: pytest.LogCaptureFixture
) -> None:
    over_ssh.prepare()
    canary = "canary-" + os.urandom(8).hex()
    caplog.set_level(logging.DEBUG)
    shells = over_ssh.shells()
    with pytest.raises(LoginRefused) as caught:
        await shells.open(over_ssh.target(key=None, password=Secret(canary.encode())))
    shell = await shells.open(over_ssh.target())
    await shell.run(Command(words=("/contract/reads",), stdin=Secret(canary.encode())))
    hanging = Command(words=("/contract/hangs", "x"), stdin=Secret(canary.encode()), timeout_s=1.0)
    with pytest.raises(CommandTimedOut) as late:
        await shell.run(hanging)
    await shells.close(shell)
    shown = caplog.text + "".join(
        line for error in (caught, late) for line in traceback.format_exception(error.value)
    )
    assert canary not in shown
    assert canary not in repr(hanging)
    assert canary.encode() not in over_ssh.place.seen()
    assert "asyncssh" not in {record.name.split(".")[0] for record in caplog.records}
