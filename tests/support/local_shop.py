"""The whole local forge on one store: posting, handing out, reports of Pods, cancelling, tidying."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.dispatch.job_files import JobFiles
from remuda.dispatch.local import LocalForge
from remuda.dispatch.local_tidying import LocalTidying
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import FileSettings, RecoverySettings
from remuda.dispatch.submissions import Submission, Submissions, Submitted
from remuda.dispatch.telemetry import Exit, LogPiece, Report, Telemetry
from remuda.dispatch.who import RunnerIdentity
from remuda.kube.meta import ObjectMeta
from remuda.kube.runner_pool import RunnerPool, RunnerPoolSpec
from remuda.model.job import Os, Size
from remuda.ports.forge import NewRunner
from remuda.ports.jobs import Claimed, PodEnd, Running, WarmRunner
from remuda.sim.ids import SeededIds
from tests.support.jobs import START
from tests.support.local_jobs import memory_local

if TYPE_CHECKING:
    from remuda.dispatch.telemetry import Reply
    from remuda.model.job import Job
    from remuda.ports.forge import ForgeJob, Minted
    from remuda.ports.jobs import PodStopped
    from remuda.ports.kube import KubeError
    from remuda.ports.local_jobs import LocalJob
    from tests.support.local_jobs import LocalStore

LIMITS = {Os.LINUX: Size(16, 64 * 1024), Os.DARWIN: Size(8, 32 * 1024)}


def a_pool(name: str = "linux", *labels: str, **spec: Any) -> RunnerPool:  # noqa: ANN401 - a pool's spec
    made = RunnerPoolSpec(image="i", fleet="f", labels=labels or ("fast",), **spec)
    return RunnerPool(metadata=ObjectMeta(name=name), spec=made)


@dataclass(slots=True)
class Shelf:
    """The pools that there are. Fills ``remuda.dispatch.submissions.Pools``."""

    kept: tuple[RunnerPool, ...] = field(
        default_factory=lambda: (a_pool(), a_pool("mac", "mac-mini"))
    )
    synced: bool = True
    new: tuple[RunnerPool, ...] = ()
    """Pools that the view does not show yet."""
    trouble: KubeError | None = None

    async def fresh_pool(self, name: str) -> RunnerPool | None:
        if self.trouble is not None:
            raise self.trouble
        return next((pool for pool in self.new if pool.name == name), None)

    def pools(self) -> tuple[RunnerPool, ...]:
        return self.kept


class LocalShop:
    """Everything of the local forge on one store."""

    def __init__(self, both: LocalStore | None = None) -> None:
        self.both = both or memory_local(log_max_bytes=1000)
        self.clock, self.local, self.views = self.both.clock, self.both.local, self.both.views
        self.store, self.files = self.both.jobs, self.both.files
        self.shelf = Shelf()
        self.forge = LocalForge(self.local, self.store, self.views, self.clock, files=self.files)
        ids = SeededIds(1, "shop")
        self.submissions = Submissions(
            forge=self.forge,
            local=self.local,
            files=self.files,
            store=self.store,
            views=self.views,
            pools=self.shelf,
            limits=LIMITS,
            clock=self.clock,
            ids=ids,
        )
        self.telemetry = Telemetry(
            forge=self.forge,
            local=self.local,
            files=self.files,
            store=self.store,
            views=self.views,
            clock=self.clock,
        )
        self.job_files = JobFiles(
            files=self.files,
            local=self.local,
            telemetry=self.telemetry,
            settings=FileSettings(bytes_max=500),
            clock=self.clock,
        )
        self.metrics = DispatchMetrics(CollectorRegistry())
        self.tidying = LocalTidying(
            forge=self.forge,
            local=self.local,
            files=self.files,
            views=self.views,
            settings=RecoverySettings(),
            file_settings=FileSettings(),
            metrics=self.metrics,
            clock=self.clock,
            ids=ids,
        )

    async def post(self, *, key: str = "", by: str = "ann", **changes: Any) -> Submitted:  # noqa: ANN401 - fields
        wanted = Submission(script="echo hello", pool="linux", env={"A": "1"}, timeout_s=600)
        return await self.submissions.submit(replace(wanted, **changes), by=by, key=key)

    async def claim(self, pod: str = "linux-a") -> Claimed:
        answer = await self.store.claim(WarmRunner(pod, f"uid-{pod}", "linux"))
        assert isinstance(answer, Claimed), answer
        return answer

    async def mint(self, job: Job, name: str = "r") -> Minted:
        runner = NewRunner(name=name, labels=("fast",), os=Os.LINUX, pool="linux")
        return await self.forge.mint(job.spec, runner)

    async def hand_over(self, pod: str = "linux-a") -> Minted:
        """Do as dispatch does: claim, mint, mark running."""
        claimed = await self.claim(pod)
        minted = await self.mint(claimed.job)
        running = await self.store.mark_running(claimed.claim, f"r-{pod}")
        assert isinstance(running, Running), running
        return minted

    async def says(self, pod: str = "linux-a", **said: Any) -> Reply:  # noqa: ANN401 - fields of a report
        """Let a Pod report: started, log=(offset, data), exit_code, finished_at, files_note, tells_end."""
        exit_ = log = None
        if "exit_code" in said:
            exit_ = Exit(
                code=said["exit_code"],
                finished_at=said.get("finished_at"),
                files_note=said.get("files_note", ""),
            )
        if "log" in said:
            log = LogPiece(*said["log"])
        started_at = self.clock.now() if said.get("started") else None
        who = RunnerIdentity(pod, said.get("uid", f"uid-{pod}"))
        tells_end = said.get("tells_end", False)
        report = Report(started_at=started_at, tells_end=tells_end, log=log, exit=exit_)
        return await self.telemetry.take(who, report)

    async def stop_pod(self, pod: str = "linux-a", exit_code: int | None = None) -> PodStopped:
        return await self.store.stop_pod(
            PodEnd(pod=pod, ended_at=self.clock.now(), by="test", exit_code=exit_code)
        )

    async def job(self, job_id: str) -> Job:
        job = await self.views.job(job_id)
        assert job is not None
        return job

    async def kept(self, job_id: str) -> LocalJob:
        kept = await self.local.get(job_id)
        assert kept is not None
        return kept

    async def look_up(self, job_id: str) -> ForgeJob:
        return await self.forge.look_up((await self.job(job_id)).spec)

    async def log(self, job_id: str) -> bytes:
        part = await self.local.read_log(job_id, 0, limit=10_000)
        assert part is not None
        return part.data


__all__ = ["LIMITS", "START", "LocalShop", "Shelf", "a_pool"]
