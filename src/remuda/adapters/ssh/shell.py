"""One open way to a host: runs commands, each in a session of its own, each with an end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import asyncssh

from remuda.adapters.ssh.quoting import line_of, without_pid
from remuda.control.tasks import ungrouped
from remuda.model.secret import Secret
from remuda.ports.host_shell import (
    OUTPUT_BYTES_MAX,
    Command,
    CommandTimedOut,
    Ran,
    Unreachable,
    Upload,
    UploadUnreadable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from remuda.ports.host_shell import Stdin

PIECE_BYTES: Final = 256 * 1024
KILL_S: Final = 10.0
"""How long the killing of a command may take. After that we go on: the host may be dead."""
_SIGNALLED: Final = 128


class SshShell:
    """A connection that is logged in."""

    def __init__(self, connection: asyncssh.SSHClientConnection, where: str, shown: str) -> None:
        self._connection: Final = connection
        self._where: Final = where
        self._shown: Final = shown

    @property
    def fingerprint(self) -> str:
        """The host key that was shown when it was opened, as ``SHA256:…``."""
        return self._shown

    async def run(self, command: Command) -> Ran:
        """Run a command to its end. Raises ``HostShellError`` and nothing else."""
        session = _Session()
        try:
            async with asyncio.timeout(command.timeout_s):
                return await self._run(command, session)
        except TimeoutError:
            await self._end(command, session)
            raise CommandTimedOut(
                f"{command.words[0]} on {self._where} did not end",
                why=f"it may take {command.timeout_s:g} s",
                fix="Look at what it waits for on the host; it was killed, and the next try begins anew",
            ) from None
        except (OSError, asyncssh.Error):
            raise self._broken(command) from None
        except UploadUnreadable:
            session.close()
            raise
        except asyncio.CancelledError:
            # Whoever leads next does the same work there: what is root's does not end with the session.
            await self._end(command, session)
            raise

    async def hang_up(self, within_s: float) -> None:
        """Close the connection, politely at first. Never raises."""
        self._connection.close()
        try:
            async with asyncio.timeout(within_s):
                await self._connection.wait_closed()
        except (TimeoutError, OSError, asyncssh.Error):
            self._connection.abort()

    async def _run(self, command: Command, session: _Session) -> Ran:
        # The library's types know text only; it sends bytes as they are, and a word may hold any.
        line: str = line_of(command)  # type: ignore[assignment]
        process = await self._connection.create_process(line, encoding=None)
        session.process = process

        async def talk() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(_feed(process, command.stdin), name="stdin")
                group.create_task(session.stdout.fill(process.stdout), name="stdout")
                group.create_task(session.stderr.fill(process.stderr), name="stderr")
                await process.wait_closed()

        await ungrouped(talk())
        code = _code(process)
        if code is None:
            raise self._broken(command)
        stderr, _ = without_pid(bytes(session.stderr.kept))
        return Ran(
            code=code,
            stdout=bytes(session.stdout.kept),
            stderr=stderr,
            cut=session.stdout.cut or session.stderr.cut,
        )

    async def _end(self, command: Command, session: _Session) -> None:
        """Kill what must not go on: by the session's own signal, and through sudo what is root's."""
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(KILL_S):
                if (number := await session.number()) is not None:
                    await self._kill(number, as_root=command.root)
        session.close()

    async def _kill(self, number: int, *, as_root: bool) -> None:
        # TERM first: sudo hands it on to a command that it put into a session of its own, and KILL it cannot.
        text = 'kill -TERM -- "-$1"; sleep 1; kill -KILL -- "-$1"'
        words = ("/bin/sh", "-c", text, "remuda-kill", str(number))
        line: str = line_of(Command(words=words, root=as_root))  # type: ignore[assignment]
        process = await self._connection.create_process(line, encoding=None)
        process.stdin.write_eof()
        await process.wait_closed()

    def _broken(self, command: Command) -> Unreachable:
        return Unreachable(
            f"the connection to {self._where} broke",
            why=f"it ended while {command.words[0]} ran, and whether that finished is not known",
            fix="Check that the host is up, and that its sshd allows ten sessions (MaxSessions); then try again, which"
            " looks first",
        )


@dataclass(slots=True)
class _Kept:
    """The beginning of a stream. What is beyond is read and dropped: a full pipe would stop the program."""

    kept: bytearray = field(default_factory=bytearray)
    cut: bool = False

    async def fill(self, reader: asyncssh.SSHReader[bytes]) -> None:
        while piece := await reader.read(PIECE_BYTES):
            room = OUTPUT_BYTES_MAX - len(self.kept)
            self.kept += piece[:room]
            self.cut = self.cut or len(piece) > room


@dataclass(slots=True)
class _Session:
    process: asyncssh.SSHClientProcess[bytes] | None = None
    stdout: _Kept = field(default_factory=_Kept)
    stderr: _Kept = field(default_factory=_Kept)

    async def number(self) -> int | None:
        """Return the number of the process, which is the first that it says. None: it ended without a word."""
        _, found = without_pid(bytes(self.stderr.kept))
        while found is None and self.process is not None:
            piece = await self.process.stderr.read(PIECE_BYTES)
            if not piece or self.stderr.cut:
                break
            self.stderr.kept += piece
            _, found = without_pid(bytes(self.stderr.kept))
        return found

    def close(self) -> None:
        """Send the signal and close the channel, whatever becomes of either."""
        if self.process is not None:
            with contextlib.suppress(OSError, asyncssh.Error):
                self.process.kill()
            with contextlib.suppress(OSError, asyncssh.Error):
                self.process.close()


async def _feed(process: asyncssh.SSHClientProcess[bytes], stdin: Stdin) -> None:
    """Write all of stdin, and its end. A program that does not read it has said so by its code."""
    async with contextlib.aclosing(_pieces(stdin)) as pieces:
        with contextlib.suppress(BrokenPipeError, ConnectionError, asyncssh.Error):
            async for piece in pieces:
                process.stdin.write(piece)
                await process.stdin.drain()
            process.stdin.write_eof()


async def _pieces(stdin: Stdin) -> AsyncGenerator[bytes, None]:
    if isinstance(stdin, Upload):
        async for piece in _file_pieces(stdin):
            yield piece
    else:
        yield stdin.reveal() if isinstance(stdin, Secret) else stdin


async def _file_pieces(upload: Upload) -> AsyncGenerator[bytes, None]:
    """Read a file in pieces. The last is held back until all of it was found to be what was announced."""
    judge, held, read = hashlib.sha256(), b"", 0
    try:
        with await asyncio.to_thread(upload.path.open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                judge.update(piece)
                read += len(piece)
                if held:
                    yield held
                held = piece
    except OSError as error:
        raise _unreadable(upload.path, error.strerror or "it cannot be read") from None
    if judge.hexdigest() != upload.sha256 or read != upload.size:
        raise _unreadable(upload.path, "its bytes are not those that were announced")
    yield held


def _unreadable(path: Path, why: str) -> UploadUnreadable:
    return UploadUnreadable(
        f"{path.name} was not sent to the host",
        why=why[0].lower() + why[1:],
        fix="Put the file back as it was, and try again",
    )


def _code(process: asyncssh.SSHClientProcess[bytes]) -> int | None:
    if process.exit_signal is not None:
        name = process.exit_signal[0]
        number = getattr(signal, f"SIG{name}", None)
        return _SIGNALLED + (number.value if isinstance(number, signal.Signals) else 0)
    return process.exit_status
