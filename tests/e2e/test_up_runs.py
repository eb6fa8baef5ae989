"""
Many runs in a row on one machine: each has a filesystem, processes and an environment of its own, and leaves nothing.

``make kills`` does a hundred of them; ``make test`` does RUNS. REMUDA_RUNS chooses another number.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import pytest

from remuda.adapters.postgres.embedded import running_dsn
from remuda.cli.tree.furnish import administrator
from remuda.kube.core import POD, SERVICE_ACCOUNT
from remuda.ports.kube import Query
from tests.support.agents import processes_below
from tests.support.eventually import eventually
from tests.support.trees import WAIT_S, Tree, a_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RUNS: Final = int(os.environ.get("REMUDA_RUNS", "12"))
AT_ONCE: Final = 2
SECRET: Final = "of-the-one-who-started-it"  # noqa: S105 - to be found nowhere
OWN: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=default-)[a-z0-9]{8}|(?<=state\.)\w{6}"
)
"""What differs between two runners: a UID, the end of a name, a folder that mktemp made."""
LOGS_MAX_BYTES: Final = 5 * 17 * 1024 * 1024
STRAY: Final = "9876"
"""Seconds that a process sleeps which a job left behind on purpose."""
LEAVE: Final = f"""\
for d in . "$HOME" "$TMPDIR"; do touch "$d/canary"; done
if command -v setsid >/dev/null; then setsid sleep {STRAY} & else sleep {STRAY} & fi
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    own = {"TMPDIR": str(tmp_path_factory.mktemp("tmp")), "CANARY": SECRET}
    with a_tree("--vms=2", env=own) as made:
        made.up()
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that a run could leave behind, without the names that differ from runner to runner."""

    processes: Mapping[str, int]
    files: Mapping[str, int]
    temporary: tuple[str, ...]
    rows: Mapping[str, int]
    accounts: int
    pods: tuple[str, ...]
    strays: int


async def found(tree: Tree) -> Found:
    async with administrator(tree.folder) as kube:
        accounts = await kube.list(SERVICE_ACCOUNT, Query(namespace="default"))
        pods = await kube.list(POD, Query(namespace="default"))
    return Found(
        processes=_processes(tree),
        files=_files(tree),
        temporary=_temporary(tree),
        rows=await _rows(tree),
        accounts=len(accounts.items),
        pods=tuple(pod.status.phase for pod in pods.items),
        strays=sum(f"sleep {STRAY}" in words for words in processes_below(tree.data).values()),
    )


def _processes(tree: Tree) -> Mapping[str, int]:
    """Count those that do the same. The database's own come and go with its connections, and guests take naps."""
    words = (OWN.sub("*", words) for words in tree.processes().values())
    return Counter(each for each in words if not each.startswith(("postgres:", "sleep 0.")))


def _files(tree: Tree) -> Mapping[str, int]:
    """Count the files, but for the database's: it keeps a job's history for a month."""
    counted: Counter[str] = Counter()
    for at, folders, files in os.walk(
        tree.data
    ):  # unlike others it does not mind what goes meanwhile
        here = Path(at).relative_to(tree.data)
        counted.update(OWN.sub("*", str(here / name)) for name in (*folders, *files))
        if at == str(tree.data):
            folders.remove("postgres")
    return counted


def _temporary(tree: Tree) -> tuple[str, ...]:
    return tuple(sorted(file.name for file in Path(tree.env["TMPDIR"]).iterdir()))


async def _rows(tree: Tree) -> Mapping[str, int]:
    connection = await asyncpg.connect(running_dsn(tree.folder.postgres), timeout=30)
    try:
        return {
            "claims": await connection.fetchval("SELECT count(*) FROM claims"),
            "live sessions": await connection.fetchval(
                "SELECT count(*) FROM sessions WHERE ended_at IS NULL"
            ),
        }
    finally:
        await connection.close(timeout=10)


async def run(tree: Tree, script: str) -> tuple[int, str]:
    answer = await asyncio.to_thread(
        tree.remuda, "run", "--quiet", "--", "sh", "-c", script, timeout_s=2 * WAIT_S
    )
    return answer.code, answer.said


async def at_rest(tree: Tree) -> Found:
    """Wait until all runners are there and wait for a job, and nothing else comes or goes."""
    last: list[Found] = []

    async def probe() -> bool:
        last.append(await found(tree))
        now = last[-1]
        ready = now.files.get("agent/process/mailboxes/remuda-*/ready") == 2
        return ready and now.pods == ("Running",) * 2 and last[-5:] == [now] * 5

    await eventually(probe, within_s=WAIT_S)
    return last[-1]


async def test_many_runs_in_a_row_return_their_codes_and_leave_nothing_behind(tree: Tree) -> None:
    before = await at_rest(tree)
    assert before.rows == {"claims": 0, "live sessions": 0}
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> tuple[int, str]:
        async with gate:
            return await run(tree, f"{LEAVE} echo run {number}; exit {number % 8}")

    answers = await asyncio.gather(*(one(number) for number in range(RUNS)))

    assert answers == [(number % 8, f"run {number}\n") for number in range(RUNS)]

    async def probe() -> Found:
        return await found(tree)

    await eventually(probe, lambda after: after == before, within_s=WAIT_S)
    logs = sum(file.stat().st_size for file in tree.folder.logs.iterdir())
    assert logs < LOGS_MAX_BYTES
    assert tree.status()["ok"]


ABOUT: Final = """\
canaries=$(ls -A . "$HOME" "$TMPDIR" | grep -c canary)
set -- $(cat /proc/$$/stat)
printf '{"work": "%s", "home": "%s", "tmp": "%s", "canaries": %s, ' "$PWD" "$HOME" "$TMPDIR" "$canaries"
printf '"pid": %s, "group": %s, "session": %s, ' "$1" "$5" "$6"
printf '"env": "%s"}' "$(env | cut -d= -f1 | sort | tr '\\n' ' ')"
"""
KNOWN: Final = frozenset(
    {"HOME", "LANG", "OLDPWD", "PATH", "PWD", "REMUDA_JOB_ID", "REMUDA_VM", "SHELL", "TMPDIR", "_"}
)


async def test_two_runs_share_neither_files_nor_processes_nor_an_environment(tree: Tree) -> None:
    (_, first), (_, second) = await asyncio.gather(
        run(tree, f"{ABOUT}{LEAVE} sleep 2"), run(tree, f"{ABOUT}{LEAVE} sleep 2")
    )
    (_, third), (_, fourth) = [await run(tree, ABOUT), await run(tree, ABOUT)]

    all_four = [json.loads(said) for said in (first, second, third, fourth)]
    for what in ("work", "home", "tmp", "pid", "group", "session"):
        values = {about[what] for about in all_four}
        assert len(values) == 4, f"two runs shared their {what}: {values}"
    assert [about["canaries"] for about in all_four] == [0, 0, 0, 0]
    for about in all_four:
        assert frozenset(about["env"].split()) <= KNOWN

    homes = [Path(about["home"]) for about in all_four]

    async def left() -> list[Path]:
        return await asyncio.to_thread(lambda: [home for home in homes if home.exists()])

    assert await eventually(left, lambda paths: paths == [], within_s=WAIT_S) == []
