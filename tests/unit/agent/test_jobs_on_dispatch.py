"""The agent's side of jobs against real dispatch over HTTP: poll, begin, output and exit, as its API shows them."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from remuda.adapters.http_server import serving_http
from remuda.adapters.poll_client import PollClient, PollSettings
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.decide.recorded import State
from remuda.agent.decide.verdict import GuestExit, settle
from remuda.agent.held_jobs import HeldJobs
from remuda.agent.jobs import DispatchJobs, JobTimes
from remuda.agent.ledger import OneThread
from remuda.agent.mailbox import HostMailbox
from remuda.agent.parts import Denied, RunnerRef
from remuda.agent.telling import TellingTimes
from remuda.kube.core import POD
from remuda.model.job_files import PIECE_MAX_BYTES
from remuda.model.mailbox import FILES_OUT, LOG
from remuda.ports.desk import GoHome, HandedJob, JobKind
from tests.support.api import SPACE, an_office
from tests.support.eventually import eventually, within
from tests.unit.agent.builders import a_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import Any

    from remuda.agent.decide.recorded import VmRecord
    from tests.support.api import Office

WAIT_S = 60.0
TIMES = JobTimes(refused_s=1.0, telling=TellingTimes(look_s=0.05, beat_s=0.2, finish_s=WAIT_S))


@dataclass
class Host:
    """An agent's jobs beside a whole dispatch."""

    office: Office
    client: PollClient
    folder: Path
    threads: OneThread

    def __post_init__(self) -> None:
        self.clock = SystemClock()
        self.restart()
        self.mailbox = HostMailbox(self.folder / "box")
        self.mailbox.make()

    def restart(self) -> None:
        self.jobs = DispatchJobs(
            self.client,
            self.office.kube,
            HeldJobs(self.folder / "held"),
            threads=self.threads,
            clock=self.clock,
            ids=SystemIds(),
            times=TIMES,
        )

    async def a_runner(self, name: str = "linux-a") -> RunnerRef:
        pod = await self.office.add_pod(name)
        return RunnerRef(namespace=SPACE, pod=name, pod_uid=pod.uid, service_account=name)

    async def send(self, name: str, content: bytes) -> None:
        """Send an upload, as remuda run does."""
        for at in range(0, len(content), PIECE_MAX_BYTES):
            piece, query = content[at : at + PIECE_MAX_BYTES], {"size": len(content), "offset": at}
            path = f"/api/v1/files/{name}"
            answer = await self.office.call("PUT", path, "operate", body=piece, query=query)
            assert answer.status == 200, answer.body
            assert answer.json() == {"next_offset": at + len(piece)}

    async def post(self, **more: object) -> str:
        body = {"pool": "linux", "script": "echo hello", **more}
        answer = await self.office.call("POST", "/api/v1/jobs", "operate", body=body)
        assert answer.status == 201, answer.body
        return str(answer.json()["id"])

    async def job(self, job_id: str) -> Any:  # noqa: ANN401 - JSON
        return await self.office.get(f"/api/v1/jobs/{job_id}")

    async def log(self, job_id: str) -> bytes:
        answer = await self.office.call("GET", f"/api/v1/jobs/{job_id}/logs")
        assert answer.status == 200, answer.body
        return answer.body

    def delivered(self, runner: RunnerRef, job: HandedJob) -> VmRecord:
        record = a_record(State.DELIVERED, runner.pod_uid, delivered_at=self.clock.now())
        return replace(record, job_id=job.job_id, job_kind=job.kind.value, pod=runner.pod)

    def held(self) -> int:
        return len(list((self.folder / "held").iterdir()))


@asynccontextmanager
async def a_host(folder: Path) -> AsyncIterator[Host]:
    threads = OneThread("held-jobs")
    async with (
        an_office(SystemClock()) as office,
        serving_http(office.app, Listen(port=0), shutdown_s=1.0) as server,
    ):
        running = office.group.create_task(office.dispatch.desk.run(), name="desk")
        client = PollClient(PollSettings(base_url=server.address, wait_s=1.0))
        try:
            await office.add_pool()
            yield Host(office, client, folder, threads)
        finally:
            await client.close()
            threads.close()
            running.cancel()


async def test_a_local_job_goes_all_the_way(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        runner = await host.a_runner()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(host.jobs.next(runner))
            job_id = await host.post()
            job = await within(asking, WAIT_S)
            assert isinstance(job, HandedJob)
            assert (job.job_id, job.kind) == (job_id, JobKind.LOCAL)
            assert b"echo hello" in job.document
            assert host.held() == 1
            host.mailbox.put_job(job.document)
            await host.jobs.delivered(runner)
            assert host.held() == 0

            record = host.delivered(runner, job)
            following = group.create_task(host.jobs.follow(record, runner, host.mailbox))
            log = tmp_path / "box" / LOG
            log.write_bytes(b"one\n")
            await eventually(
                lambda: host.log(job_id), lambda text: text == b"one\n", within_s=WAIT_S
            )
            assert not following.done()
            following.cancel()
        log.write_bytes(b"one\ntwo\n")
        exit_ = GuestExit(code=3, reason="it did not work", finished_at=host.clock.now())
        verdict = settle(record, exit_, None, host.clock.now(), deleting=False)
        over = replace(record, state=State.EXITED, verdict=verdict)
        for _ in range(2):
            assert await host.jobs.finish(over, runner, host.mailbox)

        told = await host.job(job_id)
        assert (told["state"], told["conclusion"]) == ("completed", "failure")
        assert await host.log(job_id) == b"one\ntwo\n"


async def test_files_go_all_the_way_and_back_to_nobody_but_their_own(tmp_path: Path) -> None:
    there, back = os.urandom(2_500_000), os.urandom(1_200_000)
    files = {"upload": {"file": "my-files-1", "sha256": sha256(there).hexdigest()}}
    async with a_host(tmp_path) as host:
        runner, other = await host.a_runner(), await host.a_runner("linux-b")
        await host.send("my-files-1", there)
        job_id = await host.post(**files, download=["dist", "a b"])
        job = await within(host.jobs.next(runner), WAIT_S)
        assert isinstance(job, HandedJob)
        assert job.files is not None
        assert job.files.read_bytes() == there
        assert b'"upload_bytes":2500000' in job.document
        assert b'"download":"dist\\na b"' in job.document
        await host.office.account(
            "linux-b", pod=await host.office.kube.get(POD, "linux-b", namespace=SPACE)
        )
        for pod, status in (("linux-a", 403), ("linux-b", 404)):
            path = f"/api/v1/runners/{pod}/files"
            answer = await host.office.call("GET", path, "linux-b")
            assert answer.status == status, "a Pod reads the files of its own job only"

        record = replace(host.delivered(runner, job), job_files=True)
        (tmp_path / "box" / FILES_OUT).write_bytes(back)
        for _ in range(2):
            assert await host.jobs.collect(record, runner, host.mailbox) == ""
        refused = await host.jobs.collect(record, other, host.mailbox)
        assert "runs no job" in refused

        verdict = settle(record, GuestExit(code=7), None, host.clock.now(), deleting=False)
        verdict = replace(verdict, files_note="one is missing")
        over = replace(record, state=State.EXITED, verdict=verdict)
        assert await host.jobs.finish(over, runner, host.mailbox)
        outcome = await host.office.get(f"/api/v1/jobs/{job_id}/outcome")
        assert (outcome["exit_code"], outcome["files_bytes"]) == (7, len(back))
        assert outcome["files_note"] == "one is missing"
        path = f"/api/v1/jobs/{job_id}/files"
        answer = await host.office.call("GET", path, query={"offset": 1000})
        assert (answer.status, answer.body) == (200, back[1000:])


async def test_a_begun_job_is_begun_again_by_a_restarted_agent_and_by_nobody_else(
    tmp_path: Path,
) -> None:
    async with a_host(tmp_path) as host:
        runner = await host.a_runner()
        job_id = await host.post()
        first = await within(host.jobs.next(runner), WAIT_S)
        host.restart()
        again = await within(host.jobs.next(runner), WAIT_S)
        assert again == first

        (tmp_path / "held" / f"{runner.pod_uid}.json").unlink()
        host.restart()
        lost = await within(host.jobs.next(runner), WAIT_S)
        assert isinstance(lost, Denied)
        assert lost.reason == "JobLost"
        assert job_id in lost.why


async def test_a_job_that_was_kept_and_cancelled_before_it_began_is_not_run(
    tmp_path: Path,
) -> None:
    async with a_host(tmp_path) as host:
        runner = await host.a_runner()
        job_id = await host.post()
        handed = await within(host.jobs.next(runner), WAIT_S)
        assert isinstance(handed, HandedJob)
        await host.office.call("POST", f"/api/v1/jobs/{job_id}/cancel", "operate")
        host.restart()
        answer = await within(host.jobs.next(runner), WAIT_S)
        assert isinstance(answer, Denied | GoHome)
        assert host.held() == 0


async def test_a_job_that_is_cancelled_while_it_runs_is_told_to_stop(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        runner = await host.a_runner()
        job_id = await host.post()
        job = await within(host.jobs.next(runner), WAIT_S)
        assert isinstance(job, HandedJob)
        record = host.delivered(runner, job)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(host.jobs.follow(record, runner, host.mailbox))
            await host.office.call("POST", f"/api/v1/jobs/{job_id}/cancel", "operate")
            told = await within(following, WAIT_S)
            assert ("cancelled" in told.why, told.overdue) == (True, False)


async def test_a_pod_that_is_gone_waits_for_no_job(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        runner = await host.a_runner()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(host.jobs.next(runner))
            await host.office.kube.delete(POD, runner.pod, namespace=SPACE, grace_s=0)
            answer = await within(asking, WAIT_S)
        assert isinstance(answer, Denied | GoHome)


async def test_many_runners_share_connections_and_get_a_job_each(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        runners = [await host.a_runner(f"linux-{n}") for n in range(8)]
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(host.jobs.next(runner)) for runner in runners]
            posted = {await host.post() for _ in runners}
            answers = [await within(each, WAIT_S) for each in asking]
        assert {job.job_id for job in answers if isinstance(job, HandedJob)} == posted
        assert host.held() == len(runners)
