"""
A host's shell: commands in, what they said out. Over SSH on a Mac, in memory in the simulator.

A command is a list of words, never a line: the adapter quotes each word so that no byte in it can mean anything to the
shell on the other side. Words are visible to every process of the host, so a secret is never one: it goes through
stdin. No text of an error holds stdin, nor a word that the caller did not give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from remuda.model.errors import RemudaError, Retry
from remuda.model.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Of stdout and of stderr each. What is beyond is dropped, and ``Ran.cut`` says so."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of this machine that goes through stdin, in pieces: an agent or an archive is too large to hold."""

    path: Path
    sha256: str
    """In hexadecimal. What arrives is checked against it on the host before it is used."""
    size: int


Stdin = bytes | Secret | Upload


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program to run on the host, and what it reads."""

    words: tuple[str, ...]
    stdin: Stdin = field(default=b"", repr=False)
    root: bool = False
    """Run it by ``sudo -n``, which never asks and so never counts as a wrong password."""
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        assert self.words
        assert not any("\0" in word for word in self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a command that ended. A code other than 0 is an answer, not an error."""

    code: int
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    cut: bool = False


class HostShellError(RemudaError):
    """The command did not end with an answer. Whether it ran is unknown: look, then try again."""


class Unreachable(HostShellError):
    """Nothing answers at the address, or the connection broke."""


class LoginRefused(HostShellError):
    """The host does not take the key or the password. Trying again locks accounts: a person must look."""

    retry = Retry.NEVER


class HostKeyUnknown(HostShellError):
    """No key of this host is pinned and trust on first use is not allowed."""

    retry = Retry.NEVER

    def __init__(self, what: str, *, why: str, fix: str, seen: str) -> None:
        super().__init__(what, why=why, fix=fix)
        self.seen = seen
        """The fingerprint that was shown. Nothing was sent to whoever showed it."""


class HostKeyChanged(HostShellError):
    """Another machine answers than the one that was pinned, or this one was installed anew."""

    retry = Retry.NEVER

    def __init__(self, what: str, *, why: str, fix: str, seen: str) -> None:
        super().__init__(what, why=why, fix=fix)
        self.seen = seen
        """The fingerprint that was shown, as ``SHA256:…``."""


class CommandTimedOut(HostShellError):
    """The command took longer than it may. It was killed, if the host still listened."""


class UploadUnreadable(HostShellError):
    """A file of this machine cannot be read, or is not what was announced. Its last piece was not sent."""

    retry = Retry.NEVER


class HostShell(Protocol):
    """An open way to one host."""

    @property
    def fingerprint(self) -> str:
        """The host key that was shown when it was opened, as ``SHA256:…``."""
        ...

    async def run(self, command: Command) -> Ran:
        """Run a command to its end. Raises ``HostShellError`` and nothing else."""
        ...


class HostShells(Protocol):
    """Opens ways to hosts."""

    async def open(self, target: Target) -> HostShell:
        """Log in. Raises ``HostShellError`` and nothing else."""
        ...

    async def close(self, shell: HostShell) -> None:
        """Hang up. Never raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a host is, and with what one logs in there."""

    address: str
    port: int = 22
    user: str
    key: Secret | None = None
    """A private key in OpenSSH's or PEM form."""
    password: Secret | None = None
    fingerprint: str = ""
    """The pinned host key. Empty: none is known yet."""
    trust_first: bool = False
    """Whether an unknown host key is taken, once, when none is pinned."""
