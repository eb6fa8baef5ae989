"""``remuda run`` as a person meets it, against the real application on a real socket; the test plays the runner."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import os
import shlex
import signal
import sys
import tarfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from remuda.adapters.http_server import serving_http
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock
from remuda.cli.main import remuda
from remuda.model.job_files import PIECE_MAX_BYTES
from tests.support.api import an_office
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.ports.local_jobs import LocalJob
    from tests.support.api import Office

WAIT_S = 60.0
POD = "linux-a"
NASTY = (
    "",
    "a b",
    "it's",
    '"',
    "$HOME `id` $(id)",
    "*",
    "new\nline",
    "\\",
    "ü→\x1b[2J",
    "-n",
    "--",
)


# --- Usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param([], "Say what to run", id="nothing"),
        pytest.param(["--script", "s", "--", "true"], "not both", id="a script and a command"),
        pytest.param(["--script", "missing"], "No such file", id="a script that is not there"),
        pytest.param(["--script", "empty"], "is empty", id="an empty script"),
        pytest.param(["--script", "latin"], "not UTF-8", id="a script that is not text"),
        pytest.param(["--script", "nul"], "NUL", id="a script with a NUL"),
        pytest.param(["--script", "large"], "256 KiB", id="a script that is too large"),
        pytest.param(["--timeout", "soon", "true"], "not a time", id="a time that is none"),
        pytest.param(["--timeout", "", "true"], "not a time", id="no time"),
        pytest.param(["--timeout", "25h", "true"], "24h", id="a time that is too long"),
        pytest.param(["--timeout", "0s", "true"], "1s", id="a time that is too short"),
        pytest.param(["--env", "A-B=1", "true"], "letters", id="a name that is none"),
        pytest.param(["--env", "NOT_SET_4711", "true"], "no such", id="a variable that is not set"),
        pytest.param(["--upload", "missing", "true"], "does not exist", id="no folder to send"),
        pytest.param(["--download", "", "true"], "it is empty", id="nothing to bring back"),
        pytest.param(["--download", "/etc", "true"], "begin in", id="a path from the root on"),
        pytest.param(["--download", "a/../..:x", "true"], "leads out", id="a path that leads out"),
        pytest.param(["--download", "a\nb", "true"], "shown", id="a path on two lines"),
        pytest.param(["--download", "a:/dev/null", "true"], "no folder", id="a place that is none"),
        pytest.param(["--download", "a"] * 33 + ["true"], "32 times", id="too much to bring back"),
        pytest.param(["--", "-c", "true"], "is no program", id="an option as the program"),
        pytest.param(["--", ""], "empty", id="an empty program"),
        pytest.param(["--", "echo", "\udcff"], "not UTF-8", id="bytes that are no text"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    contents = {"empty": b" \n", "latin": b"\xff", "nul": b"a\0", "large": b"x" * 262_145}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    if "--script" in arguments:
        at = arguments.index("--script") + 1
        arguments = [*arguments[:at], str(tmp_path / arguments[at]), *arguments[at + 1 :]]
    result = CliRunner().invoke(remuda, ["run", *arguments])
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_who_names_no_server_and_has_no_fleet_is_told_how(tmp_path: Path) -> None:
    result = CliRunner().invoke(remuda, ["run", "--data", str(tmp_path), "--", "true"])
    assert result.exit_code == 125
    assert "remuda up" in result.output


# --- A run -----------------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """A server, a pool with one runner, and the command line."""

    office: Office
    url: str

    async def start(self, *arguments: str, role: str = "operate", **more: Any) -> Process:  # noqa: ANN401 - subprocess
        env = {**os.environ, "REMUDA_SERVER": self.url, "REMUDA_API_TOKEN": self.office.keys[role]}
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE, **more}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "remuda", "run", "--pool=linux", *arguments, env=env, **pipes
        )

    async def taken(self) -> LocalJob:
        """Wait until the command has posted its job."""
        rows = await eventually(self._jobs, bool, within_s=WAIT_S)
        kept = await self.office.dispatch.ports.local_jobs.get(rows[0]["id"])
        assert kept is not None
        return kept

    async def _jobs(self) -> list[Any]:
        found: list[Any] = (await self.office.get("/api/v1/jobs"))["jobs"]
        return found

    async def begun(self) -> LocalJob:
        """Let the runner begin the job."""
        job = await self.taken()
        await self.office.run_on(POD, runner="r-a")
        await self.says(started_at="2026-01-01T00:00:01Z")
        return job

    async def says(self, *, log: tuple[int, bytes] | None = None, **body: Any) -> str:  # noqa: ANN401 - JSON
        """Speak as the runner; return why it must stop."""
        if log is not None:
            body["log"] = {"offset": log[0], "data": base64.b64encode(log[1]).decode()}
        path = f"/api/v1/runners/{POD}/telemetry"
        answer = await self.office.call("POST", path, POD, body=body)
        return str(answer.json().get("stop", "")) if answer.status == 200 else ""

    async def fetched(self, size: int) -> bytes:
        """Fetch the job's files as its runner's agent does."""
        came, path = b"", f"/api/v1/runners/{POD}/files"
        while len(came) < size:
            answer = await self.office.call("GET", path, POD, query={"offset": len(came)})
            assert answer.status == 200, answer.body
            came += answer.body
        return came

    async def sends(self, archive: bytes) -> None:
        """Send files back as its runner's agent does."""
        for at in range(0, len(archive), PIECE_MAX_BYTES):
            query = {"size": len(archive), "offset": at}
            piece = archive[at : at + PIECE_MAX_BYTES]
            path = f"/api/v1/runners/{POD}/files"
            answer = await self.office.call("PUT", path, POD, body=piece, query=query)
            assert answer.status == 200, answer.body

    async def until_stopped(self) -> str:
        return await eventually(lambda: self.says(log=(0, b"")), bool, within_s=WAIT_S)


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    async with (
        asyncio.timeout(4 * WAIT_S),
        an_office(SystemClock()) as office,
        serving_http(office.app, Listen(port=0), shutdown_s=1.0) as server,
    ):
        await office.add_pool()
        await office.account(POD, pod=await office.add_pod(POD))
        yield Stage(office, server.address)


async def ended(process: Process) -> tuple[int, bytes, str]:
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def test_output_is_passed_on_byte_by_byte_and_the_code_returned() -> None:
    every = bytes(range(256)) * 300
    async with a_stage() as stage:
        process = await stage.start("--timeout", "1m30s", "--env", "A=1=2", "--", "make", *NASTY)
        job = await stage.begun()
        await stage.says(log=(0, every))
        assert process.stdout is not None
        first = await process.stdout.readexactly(
            len(every)
        )  # while it runs: nothing waits for its end
        await stage.says(log=(len(every), b"the end"), exit={"code": 7})
        code, rest, err = await ended(process)
    assert (code, first + rest, err) == (7, every + b"the end", "")
    assert shlex.split(job.script) == ["exec", "make", *NASTY]
    assert (job.env, job.timeout_s) == ({"A": "1=2"}, 90)


async def test_a_script_is_sent_as_it_is_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    text = "#!/bin/sh\nprintf 'ü\\n'\r\n"
    file = tmp_path / "build.sh"
    file.write_bytes(text.encode())
    with file.open("rb") as stdin:
        for given in (str(file), "-"):
            async with a_stage() as stage:
                process = await stage.start("--script", given, stdin=stdin)
                job = await stage.begun()
                await stage.says(exit={"code": 0})
                assert (await ended(process))[0] == 0
                assert job.script == text
                shown = (await stage.office.get(f"/api/v1/jobs/{job.job_id}"))["name"]
                assert shown == ("script" if given == "-" else "build.sh")


async def test_a_folder_is_sent_before_its_job_and_what_came_back_is_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(os.urandom(1_500_000))
    options = (f"--upload={tmp_path / 'tree'}", f"--download=./a/:{tmp_path / 'back'}")
    async with a_stage() as stage:
        process = await stage.start(*options, "--download=never", "--", "true")
        job = await stage.taken()
        assert job.upload is not None
        assert job.download == ("a", "never")
        await stage.office.run_on(POD, runner="r-a")
        came = await stage.fetched(job.upload.size_bytes)
        assert hashlib.sha256(came).hexdigest() == job.upload.sha256
        await stage.says(started_at="2026-01-01T00:00:01Z")
        await stage.sends(came)  # what came is what goes back: an archive with one file
        await stage.says(exit={"code": 0})
        code, _, err = await ended(process)
    assert code == 1, "a success without a file that was asked for is none"
    assert "wrote 1 file, 1.4 MiB" in err
    assert "never: the job left no such file" in err
    back = (tmp_path / "back" / "a").read_bytes()
    assert back == (tmp_path / "tree" / "a").read_bytes()


def _takes_minutes() -> bytes:
    """Return an archive with a file that is written at once, and links to it, each of which is read from the top on."""

    def head(name: str, size: int, link: str = "") -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.linkname = size, link
        info.type = tarfile.LNKTYPE if link else tarfile.REGTYPE
        return info.tobuf(tarfile.GNU_FORMAT)

    zeros, pieces = bytes(1024 * 1024), 256
    links = b"".join(head(f"dist/{number}", 0, "dist/a") for number in range(1000))
    parts = [head("unasked", pieces * len(zeros)), *[zeros] * pieces]
    parts += [head("dist/a", 1), b"1".ljust(512, b"\0"), links, bytes(1024)]
    packed = {part: gzip.compress(part) for part in set(parts)}
    return b"".join(packed[part] for part in parts)


async def test_a_signal_ends_the_unpacking_at_once_and_what_is_there_is_whole(
    tmp_path: Path,
) -> None:
    async with a_stage() as stage:
        process = await stage.start(f"--download=dist:{tmp_path}", "--", "true")
        await stage.begun()
        await stage.sends(_takes_minutes())
        await stage.says(exit={"code": 0})

        async def is_there() -> bool:
            return (tmp_path / "dist" / "a").exists()

        await eventually(is_there, within_s=WAIT_S)
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
    assert code == 130
    assert "stopped before all files were here" in err
    assert {path.read_bytes() for path in (tmp_path / "dist").iterdir()} == {b"1"}


@pytest.mark.parametrize(
    ("code", "note", "returned"),
    [
        pytest.param(0, "the job left none of them", 1, id="a success is none without its files"),
        pytest.param(7, "they have more than 5 bytes", 7, id="a failure stays what it was"),
    ],
)
async def test_files_that_did_not_come_back_are_said_to_be_missing(
    code: int, note: str, returned: int
) -> None:
    async with a_stage() as stage:
        process = await stage.start("--quiet", "--download=dist", "--", "true")
        await stage.begun()
        await stage.says(exit={"code": code, "files": note})
        assert await ended(process) == (returned, b"", f"remuda: no files came back: {note}\n")


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_cancels_the_job_and_waits_for_its_end(
    stop: signal.Signals, code: int
) -> None:
    async with a_stage() as stage:
        process = await stage.start("--", "sleep", "1000")
        await stage.begun()
        await stage.says(log=(0, b"before\n"))
        assert process.stdout is not None
        before = await process.stdout.readexactly(7)
        process.send_signal(stop)
        assert await stage.until_stopped() == "the job was cancelled"
        await stage.says(log=(7, b"cleaned up\n"), exit={"code": 143})
        found, rest, err = await ended(process)
    assert (found, before + rest) == (code, b"before\ncleaned up\n")
    assert "was cancelled" in err


async def test_a_job_that_waits_is_cancelled_at_once() -> None:
    async with a_stage() as stage:
        process = await stage.start("--", "true")
        job = await stage.taken()
        process.send_signal(signal.SIGINT)
        code, out, _ = await ended(process)
        assert (code, out) == (130, b"")
        shown = await stage.office.get(f"/api/v1/jobs/{job.job_id}")
        assert shown["state"] == "cancelled"


async def test_a_second_signal_leaves_at_once() -> None:
    async with a_stage() as stage:
        process = await stage.start("--", "sleep", "1000")
        await stage.begun()
        process.send_signal(signal.SIGINT)
        await stage.until_stopped()  # the first one was heard; this runner takes its time
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
    assert code == 130
    assert "once more leaves at once" in err


async def test_nobody_who_reads_ends_it_as_a_pipe_does() -> None:
    async with a_stage() as stage:
        reads, writes = os.pipe()
        process = await stage.start("--", "yes", stdout=writes)
        os.close(writes)
        await stage.begun()
        os.close(reads)
        await stage.says(log=(0, b"y\n" * 1000))
        code, _, err = await ended(process)
        assert (code, err) == (141, "")
        assert await stage.until_stopped() == "the job was cancelled"


async def test_what_cannot_be_written_is_said_and_the_job_cancelled() -> None:
    if not os.path.exists("/dev/full"):  # noqa: ASYNC240, PTH110 - one look, before anything runs
        pytest.skip("this system has no /dev/full")
    async with a_stage() as stage:
        with open("/dev/full", "wb") as full:  # noqa: ASYNC230, PTH123 - likewise
            process = await stage.start("--", "yes", stdout=full)
        await stage.begun()
        await stage.says(log=(0, b"y\n" * 1000))
        code, _, err = await ended(process)
        assert code == 125
        assert "No space left on device" in err
        assert "Exception ignored" not in err
        assert await stage.until_stopped() == "the job was cancelled"


async def test_a_job_that_others_cancel_or_that_takes_too_long_has_a_code_of_its_own() -> None:
    async with a_stage() as stage:
        process = await stage.start("--", "true")
        job = await stage.taken()
        await stage.office.call("POST", f"/api/v1/jobs/{job.job_id}/cancel", "operate")
        code, _, err = await ended(process)
        assert code == 125
        assert "was cancelled by" in err
    async with a_stage() as stage:
        process = await stage.start("--timeout", "1", "--", "sleep", "9")
        await stage.begun()
        await stage.until_stopped()
        await stage.says(exit={"code": 143})
        code, _, err = await ended(process)
        assert code == 124
        assert "--timeout" in err


@pytest.mark.parametrize(
    ("arguments", "role", "said"),
    [
        (["--pool=nowhere"], "operate", "there is no pool nowhere; there is linux"),
        ([], "read", "needs operate"),
        ([], "unknown", "token"),
    ],
)
async def test_what_the_server_refuses_is_said_in_its_words(
    arguments: list[str], role: str, said: str
) -> None:
    async with a_stage() as stage:
        code, out, err = await ended(await stage.start(*arguments, "--", "true", role=role))
    assert (code, out) == (125, b"")
    assert said in err
    assert "Traceback" not in err
