"""``remuda poller`` as a Pod runs it, against a dispatch server that answers well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.poll_server import (
    GITHUB_JOB,
    LOCAL_JOB,
    SECRET,
    PollServer,
    a_poll_server,
    cut,
    endless,
    half,
    says,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ENDS_S = 30.0
WHY = {"error": "No", "why": "the Pod is another one", "fix": "go"}


@dataclass(slots=True)
class Pod:
    """Where a poller runs, and what it leaves."""

    server: PollServer
    folder: Path
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def mailbox(self) -> Path:
        return self.folder / "mailbox"

    def holds(self) -> list[str]:
        return sorted(entry.name for entry in self.mailbox.iterdir())

    def job(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads((self.mailbox / "job.json").read_text())

    async def start(self) -> asyncio.subprocess.Process:
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "REMUDA_DISPATCH_URL": self.server.url,
            "REMUDA_POOL": "linux",
            "REMUDA_POD_NAME": "linux-a",
            "REMUDA_POD_UID": "uid-1",
            "REMUDA_TOKEN_FILE": str(self.folder / "token"),
            "REMUDA_MAILBOX": str(self.mailbox),
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "remuda.cli.main", "poller"),
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.started.append(process)
        return process

    async def ended(self, process: asyncio.subprocess.Process) -> tuple[int, str]:
        """Wait for its end; return its exit code and all that it printed, which must hold no secret."""
        async with asyncio.timeout(ENDS_S):
            out, err = await process.communicate()
        text = (out + err).decode()
        assert SECRET not in text
        assert "the-token" not in text
        assert process.returncode is not None
        return process.returncode, text

    async def run(self) -> tuple[int, str]:
        return await self.ended(await self.start())


@asynccontextmanager
async def a_pod(folder: Path) -> AsyncIterator[Pod]:
    async with a_poll_server() as server:
        pod = Pod(server, folder)
        pod.mailbox.mkdir()
        (folder / "token").write_text("the-token")
        try:
            yield pod
        finally:
            for process in pod.started:
                if process.returncode is None:
                    process.kill()
                    await process.communicate()


async def test_a_forges_job_goes_into_the_mailbox(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.polls.extend([says(204), says(200, GITHUB_JOB)])
        code, text = await pod.run()

        assert code == 0, text
        assert pod.job()["encoded_jit_config"] == SECRET
        assert pod.holds() == ["job.json"]
        assert (pod.mailbox / "job.json").stat().st_mode & 0o777 == 0o600
        assert pod.server.told == []


async def test_a_local_job_goes_into_the_mailbox_once_dispatch_let_it_begin(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:
        let_go = asyncio.Event()

        async def later(request: Any) -> Any:  # noqa: ANN401 - a request and its answer
            await let_go.wait()
            return await says(204)(request)

        pod.server.polls.append(says(200, LOCAL_JOB))
        pod.server.reports.extend([cut(), says(503), later])
        process = await pod.start()
        await pod.server.until(lambda: len(pod.server.told) == 3)
        assert pod.holds() == []
        let_go.set()
        code, text = await pod.ended(process)

        assert code == 0, text
        assert pod.job()["script"] == LOCAL_JOB["script"]
        assert pod.job()["env"] == LOCAL_JOB["env"]
        assert {told["path"] for told in pod.server.told} == {"/api/v1/runners/linux-a/telemetry"}
        assert len({told["started_at"] for told in pod.server.told}) == 1


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(says(200, {"stop": "the job was cancelled"}), id="it was cancelled"),
        pytest.param(says(403, WHY), id="it is not the Pod"),
    ],
)
async def test_a_job_that_may_not_begin_is_not_put_into_the_mailbox(
    tmp_path: Path,
    report: Any,  # noqa: ANN401 - a handler
) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.polls.append(says(200, LOCAL_JOB))
        pod.server.reports.append(report)
        code, text = await pod.run()

        assert code == 1
        assert "This Pod gets no job" in text
        assert pod.holds() == []


async def test_who_is_sent_home_leaves_a_stop(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.polls.append(says(410, {"reason": "drained"}))
        code, text = await pod.run()

        assert code == 0, text
        assert pod.holds() == ["stop"]


@pytest.mark.parametrize("status", [401, 403, 409])
async def test_who_gets_no_job_says_why_and_lets_no_runner_begin(
    tmp_path: Path, status: int
) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.polls.append(says(status, WHY))
        code, text = await pod.run()

        assert code == 1
        assert "why: " in text
        assert "the Pod is another one" in text
        assert "Traceback" not in text
        assert pod.holds() == []


async def test_bad_answers_are_survived(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:
        bad = [
            half(json.dumps(GITHUB_JOB).encode()),
            says(200, b"garbage " + SECRET.encode()),
            says(302, GITHUB_JOB, Location=f"{pod.server.url}/elsewhere"),
            endless(100_000_000),
            cut(),
            says(503, WHY, **{"Retry-After": "1"}),
        ]
        for answer in bad:
            pod.server.polls.extend(
                [answer, says(204)]
            )  # an answer in between: the waits begin anew
        pod.server.polls.append(says(200, GITHUB_JOB))
        code, text = await pod.run()

        assert code == 0, text
        assert len(pod.server.asked) == 13
        assert pod.job()["job_id"] == GITHUB_JOB["job_id"]
        assert pod.holds() == ["job.json"]


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
async def test_who_is_told_to_end_goes_at_once_and_takes_no_job(
    tmp_path: Path, told: signal.Signals
) -> None:
    async with a_pod(tmp_path) as pod:
        process = await pod.start()
        await pod.server.until(lambda: len(pod.server.asked) == 1)
        process.send_signal(told)
        code, text = await pod.ended(process)
        await pod.server.until(lambda: pod.server.gone == 1)

        assert code == 0, text
        assert pod.holds() == ["stop"]
        assert len(pod.server.asked) == 1


async def test_who_is_told_to_end_while_it_asks_to_begin_lets_no_runner_begin(
    tmp_path: Path,
) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.polls.append(says(200, LOCAL_JOB))
        pod.server.reports.append(lambda _: asyncio.sleep(3600))
        process = await pod.start()
        await pod.server.until(lambda: len(pod.server.told) == 1)
        process.send_signal(signal.SIGTERM)
        code, text = await pod.ended(process)

        assert code == 1, text
        assert pod.holds() == []


async def test_a_poller_that_is_killed_with_an_answer_in_hand_asks_again(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.polls.append(says(200, LOCAL_JOB))
        pod.server.reports.append(lambda _: asyncio.sleep(3600))
        process = await pod.start()
        await pod.server.until(lambda: len(pod.server.told) == 1)
        process.kill()
        assert (await pod.ended(process))[0] == -signal.SIGKILL
        assert pod.holds() == []

        pod.server.polls.append(says(200, GITHUB_JOB))
        code, text = await pod.run()

        assert code == 0, text
        assert pod.job()["job_id"] == GITHUB_JOB["job_id"]


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        pytest.param(["job.json"], 0, ["job.json"], id="a job"),
        pytest.param(["stop"], 0, ["stop"], id="a stop"),
        pytest.param(["started"], 1, ["started"], id="a job that was begun"),
        pytest.param(["exit.json"], 1, ["exit.json"], id="a job that is over"),
    ],
)
async def test_a_mailbox_that_was_used_gets_no_second_job(
    tmp_path: Path, before: list[str], code: int, after: list[str]
) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.polls.append(says(200, GITHUB_JOB))
        for name in before:
            (pod.mailbox / name).write_text("first")
        ended, text = await pod.run()

        assert ended == code, text
        assert pod.server.asked == []
        assert pod.holds() == after
        assert (pod.mailbox / before[0]).read_text() == "first"


async def test_what_a_killed_poller_left_is_cleared_away(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:
        (pod.mailbox / ".remuda-unfinished-job.json").write_text(SECRET)
        pod.server.polls.append(says(200, GITHUB_JOB))
        code, text = await pod.run()

        assert code == 0, text
        assert pod.holds() == ["job.json"]


async def test_a_token_that_is_replaced_is_used_from_the_next_poll_on(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:

        async def replaces(request: Any) -> Any:  # noqa: ANN401 - a request and its answer
            (pod.folder / "token").write_text("the-token-2")
            return await says(204)(request)

        pod.server.polls.extend([replaces, says(410, {"reason": "enough"})])
        code, text = await pod.run()

        assert code == 0, text
        sent = [headers["Authorization"] for headers in pod.server.asked]
        assert sent == ["Bearer the-token", "Bearer the-token-2"]


async def test_a_missing_setting_is_a_matter_of_usage(tmp_path: Path) -> None:
    async with a_pod(tmp_path) as pod:
        pod.server.url = ""
        code, text = await pod.run()

        assert code == 2, text
        assert "Traceback" not in text
