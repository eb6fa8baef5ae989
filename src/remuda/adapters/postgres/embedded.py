"""
An embedded PostgreSQL for one machine: a directory, and a server that lives as long as the block that uses it.

    async with EmbeddedPostgres(Path("./data/postgres")) as postgres:
        … postgres.dsn …

It runs as an ordinary account (as root: as ``nobody``, or whoever owns the data), listens on a unix socket in a private
directory and on no network. A crash of anything loses nothing that was committed: the next start recovers. It was tried
on Linux; it is written for macOS too, but was not tried there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, urlencode

import asyncpg

from remuda.adapters.postgres import postmaster
from remuda.adapters.postgres.binaries import Binaries, find_binaries
from remuda.adapters.postgres.failures import EmbeddedFailed, EmbeddedRefused, failure
from remuda.adapters.postgres.home import (
    SOCKET_PORT,
    Account,
    Home,
    account_for,
    check_data,
    clear_what_the_dead_left,
    holder_is_alive,
    in_use,
    make_home,
    socket_folder,
    socket_path,
    try_lock,
)
from remuda.adapters.system import SystemIds

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import NoReturn

    from remuda.ports.ids import Ids

USER = "remuda"
DATABASE = "remuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """How the server is run. The defaults are for production."""

    fast: bool = False
    """For tests only: what was committed may be lost when the machine (not the process) crashes."""
    tcp_port: int | None = None
    """Listen on this port of the loopback address too, with a password."""
    user: str = ""
    """As root: the account to run as. Empty means the owner of the data, for new data ``nobody``."""
    connections_max: int = 100
    shared_buffers_mb: int = 128
    make_deadline_s: float = 120.0
    """How long making the data directory may take."""
    start_deadline_s: float = 120.0
    """How long a start may take. After a crash it replays what was not yet in the data files."""
    dying_deadline_s: float = 20.0
    """How long to wait for a server whose own parent was killed; it shuts down by itself."""
    stop_fast_s: float = 30.0
    stop_immediate_s: float = 10.0


class EmbeddedPostgres:
    """One server on one directory. Enter it once."""

    def __init__(
        self, directory: Path, settings: EmbeddedSettings | None = None, *, ids: Ids | None = None
    ) -> None:
        self._home = Home(directory.absolute())
        self._settings = settings or EmbeddedSettings()
        self._ids = ids or SystemIds()
        self._stack = contextlib.AsyncExitStack()
        self._server: postmaster.Postmaster | None = None
        self._socket_folder: Path | None = None
        self._password = ""

    @property
    def dsn(self) -> str:
        """The URL of our database. With TCP it holds the password: never log it."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """Return the URL of one database of this server."""
        port = self._settings.tcp_port
        if port is not None:
            return f"postgresql://{USER}:{quote(self._password)}@127.0.0.1:{port}/{quote(database)}"
        assert self._socket_folder is not None, "the server was not started"
        return _socket_dsn(self._socket_folder, database)

    @property
    def pid(self) -> int:
        assert self._server is not None, "the server was not started"
        return self._server.pid

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except OSError as error:
            await self._stack.aclose()
            raise EmbeddedFailed(
                "The embedded PostgreSQL cannot start",
                why=f"{error.filename or self._home.root}: {error.strerror or error}",
                fix="See to it that the disk is neither full nor read-only and that the directory is yours",
            ) from None
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def watch(self) -> NoReturn:
        """Wait until the server ends by itself, and raise. A process that needs it runs this among its tasks."""
        assert self._server is not None, "the server was not started"
        code = await self._server.ended()
        raise EmbeddedFailed(
            "The embedded PostgreSQL ended by itself",
            why=f"its process {self._server.pid} ended with {code}",
            fix=f"Start again: nothing that was committed is lost; its log is {self._home.log}",
        )

    async def _start(self) -> None:
        home, settings = self._home, self._settings
        account = await asyncio.to_thread(account_for, home, settings.user)
        await asyncio.to_thread(make_home, home, account)
        await self._check_reach(account)
        lock = await self._lock()
        binaries = await self._programs(account)
        port = settings.tcp_port or SOCKET_PORT
        self._socket_folder = await asyncio.to_thread(socket_folder, home, port, account)
        await asyncio.to_thread(clear_what_the_dead_left, home, self._socket_folder)
        if not await asyncio.to_thread(check_data, home):
            await self._make_data(binaries, account)
        self._password = await asyncio.to_thread(home.password.read_text)
        command = [str(binaries.postgres), "-D", str(home.data), *self._options()]
        self._server = await postmaster.start(
            home, command, lock, account, deadline_s=settings.start_deadline_s
        )
        self._stack.push_async_callback(
            self._server.stop, fast_s=settings.stop_fast_s, immediate_s=settings.stop_immediate_s
        )
        await self._make_database()

    async def _lock(self) -> int:
        """Take the directory. A server whose parent was killed is waited for, one that is in use is not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.dying_deadline_s):
                while (lock := await asyncio.to_thread(try_lock, self._home)) is None:
                    if await asyncio.to_thread(holder_is_alive, self._home):
                        raise in_use(self._home)
                    await asyncio.sleep(0.05)
                self._stack.callback(os.close, lock)
                return lock
        raise in_use(self._home)

    async def _check_reach(self, account: Account | None) -> None:
        """See as the account itself, not by reading modes, that it can get into the directory and write there."""
        script = 'cd -- "$0" && test -w .'
        code, said = await postmaster.run(
            ["/bin/sh", "-c", script, str(self._home.root)], account, deadline_s=10.0
        )
        if code != 0:
            who = f"user {account.name}" if account else "you"
            raise EmbeddedRefused(
                "The embedded PostgreSQL cannot start",
                why=f"{who} cannot get into {self._home.root} or write there ({said.strip()})",
                fix="Give a directory whose parents others may pass, such as one below /var/lib",
            )

    async def _programs(self, account: Account | None) -> Binaries:
        """Find programs that run here. Root's own environment may be closed to the account: then it gets a copy."""
        binaries = await asyncio.to_thread(find_binaries)
        code, said = await _version(binaries, account)
        if code != 0 and account is not None:
            binaries = await asyncio.to_thread(binaries.copy_to, self._home.programs)
            await asyncio.to_thread(_give, self._home.programs, account)
            code, said = await _version(binaries, account)
        if code != 0:
            raise postmaster.not_runnable(str(binaries.postgres), said, account)
        return binaries

    async def _make_data(self, binaries: Binaries, account: Account | None) -> None:
        home = self._home
        await asyncio.to_thread(_write_private, home.password, self._ids.secret().hex(), account)
        command = [str(binaries.initdb), "-D", str(home.making), "-U", USER, *_INITDB]
        command.append(f"--pwfile={home.password}")
        if self._settings.fast:
            command.append("--no-sync")
        code, said = await postmaster.run(
            command, account, deadline_s=self._settings.make_deadline_s
        )
        if code != 0:
            raise failure("The data directory was not made", said, log_path=str(home.log))
        await asyncio.to_thread(_keep, home)

    async def _make_database(self) -> None:
        """Make our database if it is missing; a crash may have come between making the data and this."""
        try:
            connection = await asyncpg.connect(
                self.dsn_of("postgres"), timeout=10, command_timeout=60
            )
            try:
                known = "SELECT 1 FROM pg_database WHERE datname = $1"
                if await connection.fetchval(known, DATABASE) is None:
                    await connection.execute(f"CREATE DATABASE {DATABASE}")
            finally:
                await connection.close(timeout=5)
        except (OSError, TimeoutError, asyncpg.PostgresError) as error:
            raise EmbeddedFailed(
                "The embedded PostgreSQL did not start",
                why=f"its database could not be made ({type(error).__name__}: {error})",
                fix=f"Start it again; its log is {self._home.log}",
            ) from None

    def _options(self) -> list[str]:
        settings = self._settings
        folder = str(self._socket_folder).replace('"', '""')
        options = {
            "listen_addresses": "127.0.0.1" if settings.tcp_port is not None else "",
            "port": str(settings.tcp_port or SOCKET_PORT),
            "unix_socket_directories": f'"{folder}"',
            "unix_socket_permissions": "0700",
            "max_connections": str(settings.connections_max),
            "shared_buffers": f"{settings.shared_buffers_mb}MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "jit": "off",  # small statements: compiling one costs more than running it
            # Every error also reaches the client that caused it. Without them the log does not grow with the work.
            "log_min_messages": "log",
            "log_checkpoints": "off",
            "log_autovacuum_min_duration": "-1",
        }
        durable = "off" if settings.fast else "on"
        options |= dict.fromkeys(("fsync", "full_page_writes"), durable)
        # On even when fast: off, a commit is answered before it has left the server's own memory.
        options["synchronous_commit"] = "on"
        return [word for name, value in options.items() for word in ("-c", f"{name}={value}")]


_INITDB = (
    "--encoding=UTF8",
    "--locale-provider=builtin",  # the same order of letters on every machine and after every upgrade of it
    "--builtin-locale=C.UTF-8",
    "--locale=C",
    "--auth-local=trust",  # who can enter the private directory of the socket is the owner, or root
    "--auth-host=scram-sha-256",
    "--no-instructions",
)


def running_dsn(directory: Path) -> str | None:
    """Return the URL of the server that another process runs in a directory; None if no socket of one is there."""
    path = socket_path(Home(directory.absolute()), SOCKET_PORT)
    return _socket_dsn(path.parent, DATABASE) if path.is_socket() else None


def _socket_dsn(folder: Path, database: str) -> str:
    at = urlencode({"host": str(folder), "port": SOCKET_PORT, "user": USER})
    return f"postgresql:///{quote(database)}?{at}"


async def _version(binaries: Binaries, account: Account | None) -> tuple[int, str]:
    return await postmaster.run([str(binaries.postgres), "--version"], account, deadline_s=30.0)


def _give(folder: Path, account: Account) -> None:
    for at, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            os.chown(os.path.join(at, name), account.uid, account.gid, follow_symlinks=False)  # noqa: PTH118 - of os.walk


def _write_private(file: Path, text: str, account: Account | None) -> None:
    file.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(file, flags, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
        if account is not None:
            os.fchown(out.fileno(), account.uid, account.gid)


def _keep(home: Home) -> None:
    """Give the made directory its name. Only now does it count."""
    home.making.rename(home.data)
    folder = os.open(home.root, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
