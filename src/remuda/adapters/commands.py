"""
Other programs, called and waited for: argument lists, never a shell, and no call that outlives its deadline.

Each call is a session of its own. At its deadline, when it is cancelled, and when its program ends by itself, whatever
is left of its process group is killed. A program that keeps its pipes open from elsewhere delays nobody. Of what is
printed only the beginning and the end are kept, so that a flood costs no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from remuda.ports.vms import HostUnfit, TimedOut, VmsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import IO

OUT_MAX_BYTES: Final = 4 * 1024 * 1024
"""How much of each stream is kept: one half of its beginning, one half of its end."""
LINE_MAX_BYTES: Final = 8 * 1024
"""A longer line is read in parts."""
DRAIN_S: Final = 1.0
"""How long to wait for the rest of the output once the program has ended and its group is dead."""
REAP_S: Final = 10.0
"""How long to wait for a killed process to be gone. One that hangs in the kernel must not hang us as well."""
SAID_MAX_CHARS: Final = 300
_SECRET: Final = re.compile(
    r"(?i)(://)[^/@\s]*@"
    r"|\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"
    r"|\b(token|password|passwd|secret|authorization)(\"?\s*[=:]\s*\"?)"
    r"(?:(?:bearer|basic)\s+)?[^\s\",;&)]+"
)
"""What looks like a credential, wherever it stands."""
_SECRET_MAX_BYTES: Final = 4096
_LEFT_OUT: Final = b"\n[...]\n"

Observed: TypeAlias = "Callable[[str, float, bool], None]"
"""Told of each call that was made: which, how many seconds it took, whether its deadline ended it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that has ended by itself."""

    code: int
    """Its exit code; negative: the signal that ended it."""
    out: bytes
    err: bytes

    def last_words(self, max_chars: int = SAID_MAX_CHARS) -> str:
        """Return the end of what it said, on one line: of its errors, or else of its output."""
        return last_words(self.err if self.err.strip() else self.out, max_chars)


async def command(  # noqa: PLR0913 - keywords, of which a caller names the few that it needs
    argv: Sequence[str],
    *,
    op: str,
    deadline_s: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes | int = b"",
    cwd: Path | None = None,
    out_max_bytes: int = OUT_MAX_BYTES,
    secret: bool = False,
    observed: Observed | None = None,
) -> Finished:
    """
    Call a program and wait for its end; whatever its exit code is, that is an answer.

    ``env`` is its whole environment; None: ours. ``stdin`` is what it reads, or an open file. ``secret``: nothing it
    prints goes into an error. Raises TimedOut at the deadline and HostUnfit where there is no such program.
    """
    call = _Call(op, out_max_bytes, secret=secret)
    with call.timed(observed):
        call.start(argv, env, cwd, _opened_as(stdin))
        return await call.end(deadline_s, stdin if isinstance(stdin, bytes) else b"")


async def streamed(  # noqa: PLR0913 - as above
    argv: Sequence[str],
    *,
    op: str,
    idle_s: float,
    line: Callable[[bytes], bool],
    env: Mapping[str, str] | None = None,
    stdin: bytes | int = b"",
    cwd: Path | None = None,
    out_max_bytes: int = OUT_MAX_BYTES,
    secret: bool = False,
    observed: Observed | None = None,
) -> Finished:
    """
    Call a program that tells how far it is. Its deadline is time without progress.

    ``line`` is called with each line of either stream, without its end, and says whether it is progress. A line ends
    with a newline or a carriage return. What ``line`` raises ends the call and is raised.
    """
    call = _Call(op, out_max_bytes, secret=secret, line=line)
    with call.timed(observed):
        call.start(argv, env, cwd, _opened_as(stdin))
        return await call.end(idle_s, stdin if isinstance(stdin, bytes) else b"")


def _opened_as(stdin: bytes | int) -> int:
    if isinstance(stdin, int):
        return stdin
    return subprocess.PIPE if stdin else subprocess.DEVNULL


def last_words(said: bytes, max_chars: int = SAID_MAX_CHARS) -> str:
    """Return the end of an output as one line that is fit to be shown: short, printable, without credentials."""
    # A credential of which the beginning was cut off could not be told: so more is read than is shown.
    text = " ".join(said[-4 * max_chars - _SECRET_MAX_BYTES :].decode(errors="replace").split())
    shown = "".join(char if char.isprintable() else "?" for char in _SECRET.sub(_removed, text))
    return shown[-max_chars:]


def _removed(found: re.Match[str]) -> str:
    if found[1]:
        return "://[removed]@"
    return f"{found[2] or found[3]}{found[4] or ' '}[removed]"


class _Call:
    """One call of one program."""

    def __init__(
        self,
        op: str,
        out_max_bytes: int,
        *,
        secret: bool,
        line: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._op, self._secret, self._line = op, secret, line
        self._loop = asyncio.get_running_loop()
        self._out = _Stream(self._loop, out_max_bytes, self._heard if line else None)
        self._err = _Stream(self._loop, out_max_bytes, self._heard if line else None)
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._turn = asyncio.Event()
        """The program ended, or what it said is wrong: time to look."""
        self._moved = self._loop.time()
        self._wrong: Exception | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = threading.Event()

    @contextlib.contextmanager
    def timed(self, observed: Observed | None) -> Iterator[None]:
        began, timed_out = self._loop.time(), False
        try:
            yield
        except TimedOut:
            timed_out = True
            raise
        finally:
            if observed is not None:
                observed(self._op, self._loop.time() - began, timed_out)

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: Path | None,
        stdin: int,
    ) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
                list(argv),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            kind = HostUnfit if isinstance(error, FileNotFoundError | PermissionError) else VmsError
            raise kind(
                f"{argv[0]} could not be started",
                why=error.strerror or type(error).__name__,
                fix="Check that it is installed on this host and that this user may execute it",
            ) from None
        try:
            threading.Thread(target=self._reap, name=f"wait-{self._op}", daemon=True).start()
        except RuntimeError as error:  # the host has no thread left
            _kill_group(self._process.pid)
            self._process.communicate()
            raise HostUnfit(
                f"{argv[0]} could not be awaited", why=str(error), fix="See what fills the host"
            ) from None

    async def end(self, quiet_s: float, stdin: bytes) -> Finished:
        """Wait for the program's end, or see to it. Nothing of it runs when this returns or raises."""
        process = self._process
        assert process is not None
        transports: list[asyncio.BaseTransport] = []
        try:
            for stream, pipe in ((self._out, process.stdout), (self._err, process.stderr)):
                transport, _ = await self._loop.connect_read_pipe(lambda s=stream: s, pipe)  # type: ignore[misc] # mypy cannot infer a lambda's default
                transports.append(transport)
            if process.stdin is not None:
                written, _ = await self._loop.connect_write_pipe(
                    asyncio.BaseProtocol, process.stdin
                )
                transports.append(written)
                written.write(stdin)
                written.write_eof()
            await self._until_over(quiet_s)
            self._kill(process)  # its children have nobody to answer to
            process.wait()
            await asyncio.wait((self._out.closed, self._err.closed), timeout=DRAIN_S)
        except BaseException:
            self._kill(process)
            await asyncio.wait((self._ended,), timeout=REAP_S)
            if self._ended.done():
                process.wait()  # it has ended: no number of it is left when this raises
            raise
        finally:
            self._line = None  # what comes now is heard by nobody
            for each in transports:
                each.close()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    _close(pipe)
        return Finished(process.returncode, self._out.kept(), self._err.kept())

    async def _until_over(self, quiet_s: float) -> None:
        self._moved = self._loop.time()
        while not self._turn.is_set():
            left = self._moved + quiet_s - self._loop.time()
            if left <= 0:
                raise self._late(quiet_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._turn.wait()
        if self._wrong is not None:
            raise self._wrong

    def _late(self, quiet_s: float) -> TimedOut:
        said = "" if self._secret else last_words(self._err.kept() or self._out.kept())
        quiet = "showed no progress for" if self._line else "did not end in"
        return TimedOut(
            f"The call to {self._op} was killed",
            why=f"it {quiet} {quiet_s:g} s" + (f"; it last said: {said}" if said else ""),
            fix="It is tried again; if that does not help, see what holds it up on the host",
            op=self._op,
        )

    def _heard(self, line: bytes) -> None:
        if self._line is None or self._wrong is not None:
            return
        try:
            if self._line(line):
                self._moved = self._loop.time()
        except Exception as error:  # noqa: BLE001 - raised again, by the call
            self._wrong = error
            self._turn.set()

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the whole group, once: afterwards its number may be another's."""
        if not self._killed.is_set():
            _kill_group(process.pid)
            self._killed.set()

    def _reap(self) -> None:
        """
        Wait for the process, in a thread of its own: as asyncio does it where there is nothing better.

        Its end is taken note of only when its group has been killed: until then its number is nobody else's. Python
        cannot wait like that on macOS before 3.13.
        """
        assert self._process is not None
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # somebody has taken note of it
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(self._over)
        self._killed.wait()
        self._process.wait()

    def _over(self) -> None:
        self._turn.set()
        if not self._ended.done():
            self._ended.set_result(None)


class _Stream(asyncio.Protocol):
    """What a program prints on one of its streams."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_bytes: int,
        line: Callable[[bytes], None] | None,
    ) -> None:
        assert max_bytes > 1
        self.closed: asyncio.Future[None] = loop.create_future()
        self._half = max_bytes // 2
        self._head, self._tail, self._left_out = bytearray(), bytearray(), False
        self._line, self._begun = line, bytearray()

    def data_received(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:  # not each time: a flood would be copied over and over
            self._shorten()
        if self._line is not None:
            self._lines(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._line is not None and self._begun:
            self._line(bytes(self._begun))
        if not self.closed.done():
            self.closed.set_result(None)

    def kept(self) -> bytes:
        """Return it, whole or without its middle."""
        if len(self._tail) > self._half:
            self._shorten()
        return bytes(self._head) + (_LEFT_OUT if self._left_out else b"") + bytes(self._tail)

    def _shorten(self) -> None:
        del self._tail[: -self._half]
        self._left_out = True

    def _lines(self, data: bytes) -> None:
        assert self._line is not None
        self._begun += data.replace(b"\r", b"\n")
        *whole, rest = self._begun.split(b"\n")
        self._begun = rest
        for line in whole:
            if line:
                self._line(bytes(line))
        while len(self._begun) > LINE_MAX_BYTES:
            self._line(bytes(self._begun[:LINE_MAX_BYTES]))
            del self._begun[:LINE_MAX_BYTES]


def _kill_group(leader: int) -> None:
    # PermissionError: macOS says so of a group in which only the dead are left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        pipe.close()
