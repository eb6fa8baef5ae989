"""``remuda run`` on everything that there is: control plane, operator, dispatch, and an agent with its VMs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from itertools import count
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.system import SystemClock
from remuda.kube.core import POD
from tests.support.eventually import eventually
from tests.support.ranch import SERVER, Ranch, a_ranch
from tests.support.servers import a_token

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.control_plane import RealControlPlane

WAIT_S = 120.0
_numbers = count(1)
NASTY = ("", "a b", "it's", '"$HOME"', "`id`", "*", "new\nline", "back\\slash", "ü")


@pytest.fixture
async def ranch(
    real_control_plane: RealControlPlane, database_url: str, tmp_path: Path
) -> AsyncIterator[Ranch]:
    async with (
        asyncio.timeout(8 * WAIT_S),
        a_ranch(real_control_plane, database_url, tmp_path) as it,
    ):
        host = it.add_host("--driver=process", "--vms=3")
        await it.agents.ready(host)
        await it.create_pool("linux", 2, image="process")
        await it.warm("linux")
        yield it


async def start(ranch: Ranch, *arguments: str, server: str = SERVER) -> Process:
    env = {**os.environ, "REMUDA_SERVER": ranch.servers.url(server), "REMUDA_POOL": "linux"}
    env["REMUDA_API_TOKEN"] = await _token(ranch)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "remuda",
        "run",
        *arguments,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _token(ranch: Ranch) -> str:
    return await a_token(PostgresApiTokens(ranch.database, SystemClock()), f"run-{next(_numbers)}")


async def ended(process: Process) -> tuple[int, bytes, str]:
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def test_a_command_runs_as_it_is_on_a_runner_that_nobody_had_before(
    ranch: Ranch, tmp_path: Path
) -> None:
    await _nothing_is_shared(ranch)
    await _files_go_along_and_come_back(ranch, tmp_path)
    await _files_that_must_not_come_back_do_not(ranch, tmp_path)


async def _nothing_is_shared(ranch: Ranch) -> None:
    # Two runs share nothing: what the first leaves behind, the second does not find.
    look = 'ls -A . "$HOME" "${TMPDIR:-/nowhere}" 2>/dev/null | grep -c canary; '
    leave = 'for d in . "$HOME" "$TMPDIR"; do [ -w "$d" ] && touch "$d/canary"; done; '
    first = await start(ranch, "--", "sh", "-c", f"{look}{leave}echo left; exit 7")
    assert (await ended(first))[:2] == (7, b"0\nleft\n")
    second = await start(ranch, "--", "sh", "-c", look)
    assert (await ended(second))[1] == b"0\n"

    code, out, err = await ended(await start(ranch, "--", "printf", "%s|", *NASTY))
    assert (code, out.decode(), err) == (0, "".join(f"{each}|" for each in NASTY), "")

    numbers = 'i=0; while [ $i -lt 40000 ]; do echo "line $i"; i=$((i + 1)); done'
    binary = "printf '\\000\\377'"
    process = await start(ranch, "--env", "LC_ALL=C", "--", "sh", "-c", f"{numbers}; {binary}")
    code, out, err = await ended(process)
    wanted = b"".join(b"line %d\n" % number for number in range(40_000)) + b"\x00\xff"
    assert (code, len(out), err) == (0, len(wanted), "")
    assert hashlib.sha256(out).digest() == hashlib.sha256(wanted).digest()


async def _files_go_along_and_come_back(ranch: Ranch, folder: Path) -> None:
    """Transform a tree there, and keep the command's exit code; refuse what the server says is too large."""
    tree = folder / "tree"
    (tree / "sub").mkdir(parents=True)
    text = os.urandom(2_500_000).hex().encode()  # in more than one piece, also packed
    (tree / "sub" / "a b").write_bytes(text)
    (tree / "run").write_text("#!/bin/sh\nmkdir -p out/deep && tr 0-9 g-p <'sub/a b' >out/deep/ü\n")
    (tree / "run").chmod(0o755)
    (tree / "outside").symlink_to("/etc/passwd")
    into = folder / "back"
    upload = f"--upload={tree}"
    process = await start(
        ranch, upload, f"--download=out:{into}", "--", "sh", "-c", "ls; ./run; exit 7"
    )
    code, out, err = await ended(process)
    assert (code, out.split()) == (7, [b"run", b"sub"]), err
    assert "left out: outside" in err
    assert "wrote 1 file" in err
    wanted = text.translate(bytes.maketrans(b"0123456789", b"ghijklmnop"))
    assert (into / "out" / "deep" / "ü").read_bytes() == wanted

    ranch.servers.start("small", "--files-max=1Ki")
    await ranch.servers.ready("small")
    process = await start(ranch, upload, "--", "true", server="small")
    code, _, err = await ended(process)
    assert code == 125
    assert "may have 1024" in err
    assert "--files-max" in err
    ranch.servers.kill("small")


async def _files_that_must_not_come_back_do_not(ranch: Ranch, folder: Path) -> None:
    """Say what is missing, and write nothing that leads elsewhere."""
    into = folder / "hostile"
    (into / "out").mkdir(parents=True)
    victim = folder / "victim"
    victim.mkdir()
    (into / "out" / "trap").symlink_to(victim)
    script = (
        "mkdir -p out/trap; cd out; echo x >trap/a; ln -s /etc away; mkfifo pipe; echo good >good"
    )
    asked = [f"--download={path}:{into}" for path in ("out", "none")]
    code, _, err = await ended(await start(ranch, *asked, "--", "sh", "-c", script))
    assert code == 1, err
    assert "none: the job left no such file" in err
    for name in ("out/trap/a", "out/away", "out/pipe"):
        assert f"not written: {name}" in err
    assert (into / "out" / "good").read_bytes() == b"good\n"
    assert "away" not in [each.name for each in (into / "out").iterdir()]
    assert list(victim.iterdir()) == []


async def test_whoever_dies_or_leaves_in_the_middle_the_run_ends_well(ranch: Ranch) -> None:
    await _server_killed(ranch)
    await _runner_taken_away(ranch)
    await _interrupted(ranch)


async def _server_killed(ranch: Ranch) -> None:
    """Lose no output and no exit code."""
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 1; done; exit 3"
    process = await start(ranch, "--", "sh", "-c", script)
    assert process.stdout is not None
    first = await process.stdout.readline()
    ranch.servers.kill(SERVER)
    ranch.servers.start(SERVER)
    code, rest, _ = await ended(process)
    assert (first + rest).split() == [b"%d" % number for number in range(1, 13)]
    assert code == 3


async def _runner_taken_away(ranch: Ranch) -> None:
    """Say which job it was, and return no success."""
    process = await start(ranch, "--", "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    claims = (await ranch.api.get("/api/v1/claims"))["claims"]
    (claim,) = [each for each in claims if each["executed_at"] is not None]
    await ranch.kube.delete(POD, claim["pod"], namespace=ranch.namespace)
    code, _, err = await ended(process)
    assert code in {125, 137, 143}
    assert claim["job_id"] in err


async def _interrupted(ranch: Ranch) -> None:
    """End the job where it runs."""
    process = await start(ranch, "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    process.terminate()
    code, _, err = await ended(process)
    assert code == 143
    assert "was cancelled" in err

    async def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    assert await eventually(gone, bool, within_s=WAIT_S)
