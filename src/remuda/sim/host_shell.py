"""
The twin of SSH: hosts in memory, with the same rules of keys, passwords, deadlines and bounds.

What a program does on such a host is a coroutine that the caller gives. One suite tests this and the real thing.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.model.secret import Secret
from remuda.ports.host_shell import (
    OUTPUT_BYTES_MAX,
    Command,
    CommandTimedOut,
    HostKeyChanged,
    HostKeyUnknown,
    LoginRefused,
    Ran,
    Unreachable,
    Upload,
    UploadUnreadable,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from remuda.ports.host_shell import HostShell, Stdin, Target

NO_SUCH_PROGRAM: Final = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A program that runs on a host in memory."""

    words: tuple[str, ...]
    stdin: bytes = field(repr=False)
    root: bool


@dataclass(kw_only=True)
class MemoryHost:
    """One host: who it lets in, and what its programs do."""

    user: str
    fingerprint: str
    keys: set[bytes] = field(default_factory=set, repr=False)
    password: bytes | None = field(default=None, repr=False)
    programs: Mapping[str, Callable[[Called], Awaitable[Ran]]] = field(default_factory=dict)
    rooted: bool = True
    """Whether sudo asks for no password."""
    up: bool = True
    wrong_passwords: int = 0
    ran: list[tuple[str, ...]] = field(default_factory=list)
    """The words of every command that was run."""

    def takes(self, target: Target) -> bool:
        """Whether it lets this one in. Each credential is judged once."""
        if target.user != self.user:
            return False
        if target.key is not None and target.key.reveal() in self.keys:
            return True
        if target.password is None:
            return False
        right = target.password.reveal() == self.password
        self.wrong_passwords += not right
        return right


class MemoryShells:
    """Opens ways to the hosts that were put into it."""

    def __init__(self) -> None:
        self.hosts: Final[dict[tuple[str, int], MemoryHost]] = {}
        self._shown: Final[dict[tuple[str, int], str]] = {}

    async def open(self, target: Target) -> HostShell:
        """Log in. Raises ``HostShellError`` and nothing else."""
        where = (target.address, target.port)
        host = self.hosts.get(where)
        if host is None or not host.up:
            raise _unreachable(target.address)
        _judge_key(target, target.fingerprint or self._shown.get(where, ""), host.fingerprint)
        self._shown[where] = host.fingerprint
        if not host.takes(target):
            raise LoginRefused(
                f"{target.user}@{target.address} does not let us in",
                why="it takes neither the key nor the password",
                fix="Give the right ones",
            )
        return MemoryShell(host, target.address)

    async def close(self, shell: HostShell) -> None:
        """Hang up. Never raises."""
        assert isinstance(shell, MemoryShell)
        shell.is_open = False


class MemoryShell:
    """A way to one host in memory."""

    def __init__(self, host: MemoryHost, address: str) -> None:
        self._host: Final = host
        self._address: Final = address
        self._shown: Final = host.fingerprint
        self.is_open = True

    @property
    def fingerprint(self) -> str:
        """The host key that was shown when it was opened."""
        return self._shown

    async def run(self, command: Command) -> Ran:
        """Run a command to its end. Raises ``HostShellError`` and nothing else."""
        host = self._host
        if not self.is_open or not host.up:
            raise _unreachable(self._address)
        stdin = _read(command.stdin)
        host.ran.append(command.words)
        if command.root and not host.rooted:
            return Ran(code=1, stderr=b"sudo: a password is required\n")
        program = host.programs.get(command.words[0])
        if program is None:
            return Ran(code=NO_SUCH_PROGRAM, stderr=b"no such file or directory\n")
        try:
            async with asyncio.timeout(command.timeout_s):
                ran = await program(Called(words=command.words, stdin=stdin, root=command.root))
        except TimeoutError:
            raise CommandTimedOut(
                f"{command.words[0]} on {self._address} did not end",
                why=f"it may take {command.timeout_s:g} s",
                fix="Look at what it waits for",
            ) from None
        if not host.up:
            raise _unreachable(self._address)
        return _bounded(ran)


def _bounded(ran: Ran) -> Ran:
    cut = max(len(ran.stdout), len(ran.stderr)) > OUTPUT_BYTES_MAX
    return Ran(
        code=ran.code,
        stdout=ran.stdout[:OUTPUT_BYTES_MAX],
        stderr=ran.stderr[:OUTPUT_BYTES_MAX],
        cut=cut or ran.cut,
    )


def _read(stdin: Stdin) -> bytes:
    if isinstance(stdin, Secret):
        return stdin.reveal()
    if isinstance(stdin, Upload):
        return _read_file(stdin)
    return stdin


def _read_file(upload: Upload) -> bytes:
    try:
        held = upload.path.read_bytes()
    except OSError as error:
        raise _unreadable(upload, str(error.strerror)) from None
    if len(held) != upload.size or hashlib.sha256(held).hexdigest() != upload.sha256:
        raise _unreadable(upload, "its bytes are not those that were announced")
    return held


def _unreadable(upload: Upload, why: str) -> UploadUnreadable:
    return UploadUnreadable(
        f"{upload.path.name} was not sent to the host", why=why, fix="Put the file back as it was"
    )


def _judge_key(target: Target, known: str, shown: str) -> None:
    if known and known != shown:
        raise HostKeyChanged(
            f"{target.address} is not the host that it was",
            why=f"it shows the key {shown}, and {known} is pinned",
            fix="If it was installed anew, forget the pinned key",
            seen=shown,
        )
    if not known and not target.trust_first:
        raise HostKeyUnknown(
            f"{target.address} is not known",
            why=f"it shows the key {shown}, none is pinned, and trust on first use is not allowed",
            fix="Pin its key, or allow trust on first use",
            seen=shown,
        )


def _unreachable(address: str) -> Unreachable:
    return Unreachable(f"{address} does not answer", why="it is down", fix="Start it")
