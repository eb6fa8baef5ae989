"""``remuda server migrate`` as a person runs it, with the embedded PostgreSQL and without."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.migrate import shipped
from remuda.adapters.postgres.source import open_source
from tests.support.postgres import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made, ignore_errors=True)


def migrate(*arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "remuda.cli.main", "server", "migrate", *arguments],
        env={**os.environ, "REMUDA_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_says_what_is_pending_does_it_and_has_then_nothing_to_do(folder: Path) -> None:
    names = [name.removesuffix(".sql") for name in sorted(shipped())]

    looked = migrate("--data", str(folder), "--check")
    assert (looked.returncode, looked.stdout.split("\n")[0]) == (1, f"{names[0]} is pending")
    ran = migrate("--data", str(folder))
    assert (ran.returncode, ran.stdout.splitlines()) == (0, [f"{n} was run" for n in names])
    again = migrate("--data", str(folder), "--check")
    assert (again.returncode, again.stdout) == (0, "The database is up to date.\n")


async def test_it_works_while_a_server_runs_on_the_directory(folder: Path) -> None:
    async with open_source({}, folder):
        ran = await asyncio.to_thread(migrate, "--data", str(folder))
        looked = await asyncio.to_thread(migrate, "--data", str(folder), "--check")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (looked.returncode, looked.stdout) == (0, "The database is up to date.\n")


def test_a_server_that_is_named_is_used_and_its_password_is_not_shown(folder: Path) -> None:
    answer = migrate("--data", str(folder), url="postgresql://remuda:hunter2@127.0.0.1:1/remuda")

    assert answer.returncode == 1
    assert "the database remuda at 127.0.0.1:1 is not available" in answer.stderr
    assert "hunter2" not in answer.stdout + answer.stderr
    assert list(folder.iterdir()) == []
