"""
Jobs as people post and cancel them.

A job is written down before it is enqueued: a crash in between leaves a row that the same request finishes, if it came
with a key, or that is closed after a while.

Cancelling is a compare-and-set against the beginning: a job that nobody began is over at once and for good; one that
began is over when its runner says so, or is gone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET

from remuda.dispatch.decide.labels import Chosen, NoPool, choose
from remuda.dispatch.decide.local_jobs import CANCELLED, Runs, Waits
from remuda.dispatch.local import ID_PREFIX, TENANT, is_local
from remuda.dispatch.who import in_audit
from remuda.model.errors import BadInput, RemudaError
from remuda.model.job import JobSpec, JobState, Kind, state_after
from remuda.model.needs import Need
from remuda.ports.jobs import Enqueued, Over
from remuda.ports.kube import KubeError
from remuda.ports.local_files import Way
from remuda.ports.local_jobs import LocalJob, Upload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.dispatch.local import LocalForge
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.job import Job, Os, Size
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.local_files import LocalFiles
    from remuda.ports.local_jobs import LocalJobs

_ID_CHARS = 20
_NAMES_MAX = 50


class NoSuchPool(BadInput):
    """No pool takes such a job."""


class FilesMissing(BadInput):
    """The upload that a job needs is not there, or not whole."""


class KeyTaken(BadInput):
    """Another request came with the same key before."""


class NotReady(RemudaError):
    """The pools have not been read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job that somebody wants to have run. It is valid: the API has seen to that."""

    script: str = field(repr=False)
    pool: str = ""
    """Either this or ``labels``."""
    labels: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: int = 3600
    name: str = ""
    upload_id: str = ""
    """The archive that goes along; empty: none."""
    upload_sha256: str = ""
    download: tuple[str, ...] = ()

    @property
    def has_files(self) -> bool:
        return bool(self.upload_id or self.download)

    @property
    def needs(self) -> frozenset[str]:
        """What a server must know of to hand it out: one of a version before leaves it to others."""
        return frozenset({Need.FILES.value} if self.has_files else ())

    @property
    def digest(self) -> str:
        """What tells this request from another one."""
        asked = (self.pool, self.labels, self.script, sorted(self.env.items()), self.timeout_s)
        # Only where there are any: what came before a server knew of files is still the same request.
        files = (self.upload_id, self.upload_sha256, self.download) if self.has_files else ()
        return hashlib.sha256(msgspec.json.encode((*asked, self.name, *files))).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job that is kept."""

    job_id: str
    pool: str
    state: JobState
    conclusion: str = ""
    submitted_at: datetime
    is_new: bool


class Cancellation(StrEnum):
    """What a cancellation did."""

    CANCELLED = "cancelled"
    """The job is over: nobody had begun it."""
    STOPPING = "stopping"
    """Its runner is told to stop. The job is over when that has done so."""
    OVER = "over"
    """It was over before."""
    UNKNOWN = "unknown"
    """There is no such job, or it belongs to another forge."""


class Pools(Protocol):
    """The pools that there are. Filled by ``remuda.dispatch.view``."""

    @property
    def synced(self) -> bool: ...

    def pools(self) -> tuple[RunnerPool, ...]: ...

    async def fresh_pool(self, name: str) -> RunnerPool | None:
        """Look for a pool that is not among them: it may have been made a moment ago. Raises KubeError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Submissions:
    """The desk where jobs are posted and cancelled."""

    forge: LocalForge
    local: LocalJobs
    files: LocalFiles
    store: JobStore
    views: JobViews
    pools: Pools
    limits: Mapping[Os, Size]
    """What all local jobs together may use at once, until a person says otherwise."""
    clock: Clock
    ids: Ids
    _limited: set[Os] = field(default_factory=set, init=False)

    async def submit(self, wanted: Submission, *, by: str, key: str = "") -> Submitted:
        """Take a job in. The same request of the same person with the same key is the same job."""
        job_id = self._id(by, key)
        kept = await self.local.get(job_id) if key else None
        if kept is not None and (known := await self._known(kept, wanted)) is not None:
            return known
        chosen = await self._choose(wanted)
        upload = await self._upload(wanted, by=by, job_id=job_id)
        kept = await self.local.add(
            LocalJob(
                job_id=job_id,
                request=wanted.digest,
                script=wanted.script,
                env=wanted.env,
                timeout_s=wanted.timeout_s,
                upload=upload,
                download=wanted.download,
                needs=wanted.needs,
                submitted_by=by,
                submitted_at=self.clock.now(),
            )
        )
        if (known := await self._known(kept, wanted)) is not None:
            return known  # another replica was given the same request at the same moment
        if upload is not None and not await self.files.take(
            upload.file_id, owner=by, job_id=job_id
        ):
            raise _no_upload("another job took it at this moment")
        return await self._enqueue(wanted, kept, chosen)

    async def _upload(self, wanted: Submission, *, by: str, job_id: str) -> Upload | None:
        """Return the archive that goes along. It must be there whole before the job is."""
        if not wanted.upload_id:
            return None
        file = await self.files.get(wanted.upload_id)
        if file is None or file.owner != by or file.way is not Way.IN:
            raise _no_upload("there is none of this name")
        if not file.is_whole:
            raise _no_upload(f"{file.kept_bytes} of its {file.size_bytes} bytes have come")
        if file.job_id not in {"", job_id}:
            raise _no_upload("another job has taken it")
        return Upload(file_id=file.file_id, size_bytes=file.size_bytes, sha256=wanted.upload_sha256)

    async def cancel(self, job_id: str, *, by: str) -> Cancellation:
        """Ask for the end of a job, however often."""
        if not is_local(job_id):
            return Cancellation.UNKNOWN
        await self.local.cancel(job_id, self.clock.now())
        job = await self.local.get(job_id)
        if job is None:
            return Cancellation.UNKNOWN
        if job.end is not None:
            return Cancellation.OVER
        far = await self.forge.settle(job, by=by)
        assert not isinstance(far, Waits), "what is cancelled waits no more"
        if isinstance(far, Runs):
            return Cancellation.STOPPING
        return Cancellation.CANCELLED if far.conclusion == CANCELLED else Cancellation.OVER

    async def _enqueue(self, wanted: Submission, kept: LocalJob, chosen: Chosen) -> Submitted:
        if chosen.os not in self._limited:
            await self.store.ensure_limits(TENANT, chosen.os, self.limits[chosen.os], by="dispatch")
            self._limited.add(chosen.os)
        answer = await self.store.enqueue(
            _spec(wanted, kept, chosen), by=in_audit(kept.submitted_by)
        )
        if isinstance(answer, Over):
            conclusion = answer.completion.conclusion
            return _submitted(kept, chosen.pool.name, state_after(conclusion), conclusion)
        return _of_job(kept, answer.job, is_new=isinstance(answer, Enqueued))

    async def _known(self, kept: LocalJob, wanted: Submission) -> Submitted | None:
        """Return what became of an earlier request. None: it was not enqueued yet."""
        if kept.request != wanted.digest:
            raise KeyTaken(
                "The job was not taken",
                why="another request came with the same Idempotency-Key before",
                fix="Use a new key for each job, and the same one only to repeat a request",
            )
        job = await self.views.job(kept.job_id)
        if job is not None:
            return _of_job(kept, job, is_new=False)
        if kept.end is None:
            return None
        conclusion = kept.end.conclusion
        return _submitted(kept, wanted.pool, state_after(conclusion), conclusion)

    async def _choose(self, wanted: Submission) -> Chosen:
        what = "The job was not taken"
        if not self.pools.synced:
            why = "the server has not read the pools yet"
            raise NotReady(what, why=why, fix="Try again in a moment")
        pools = self.pools.pools()
        if not wanted.pool:
            return _carrying(wanted, _chosen(what, choose(wanted.labels, pools)))
        named = next((pool for pool in pools if pool.name == wanted.pool), None)
        if named is None:
            named = await self._fresh(wanted.pool)
        if named is None:
            names = ", ".join(pool.name for pool in pools[:_NAMES_MAX]) or "none"
            why = f"there is no pool {wanted.pool}; there is {names}"
            raise NoSuchPool(what, why=why, fix="Name one of these pools, or create it")
        return _carrying(wanted, _chosen(what, choose(tuple(named.spec.labels), [named])))

    async def _fresh(self, name: str) -> RunnerPool | None:
        try:
            return await self.pools.fresh_pool(name)
        except KubeError as error:
            why = f"there is no pool {name} that the server knows of, and it cannot look for it now: {error.why}"
            raise NotReady("The job was not taken", why=why, fix="Try again in a moment") from None

    def _id(self, by: str, key: str) -> str:
        if not key:
            return ID_PREFIX + self.ids.suffix(_ID_CHARS)
        digest = hashlib.sha256(msgspec.json.encode((by, key))).hexdigest()
        return ID_PREFIX + digest[:_ID_CHARS]


def _chosen(what: str, answer: Chosen | NoPool) -> Chosen:
    if isinstance(answer, NoPool):
        why, fix = answer.sentence.rstrip("."), answer.fix.rstrip(".")
        raise NoSuchPool(what, why=why, fix=fix)
    return answer


def _carrying(wanted: Submission, chosen: Chosen) -> Chosen:
    """Refuse files for a pool where nothing beside the job could carry them."""
    if wanted.has_files and chosen.pool.spec.runtime_class_name is not UNSET:
        why = f"runners of the pool {chosen.pool.name} are Pods without an agent, which would carry its files"
        fix = "Name a pool whose runners are VMs, or fetch and push the files from the script"
        raise NoSuchPool("The job was not taken", why=why, fix=fix)
    return chosen


def _no_upload(why: str) -> FilesMissing:
    fix = "Send all of it to PUT /api/v1/files/{file_id} first, and name it in one job"
    return FilesMissing("The job was not taken", why=f"its upload: {why}", fix=fix)


def _spec(wanted: Submission, kept: LocalJob, chosen: Chosen) -> JobSpec:
    return JobSpec(
        id=kept.job_id,
        tenant=TENANT,
        repository=f"{TENANT}/{kept.submitted_by}",  # so that the turns are fair among people
        pool=chosen.pool.name,
        os=chosen.os,
        size=chosen.size,
        queued_at=kept.submitted_at,
        kind=Kind.LOCAL,
        label=chosen.label,
        labels=wanted.labels,
        name=wanted.name,
    )


def _of_job(kept: LocalJob, job: Job, *, is_new: bool) -> Submitted:
    made = _submitted(kept, job.spec.pool, job.state, job.conclusion)
    return replace(made, is_new=is_new)


def _submitted(kept: LocalJob, pool: str, state: JobState, conclusion: str) -> Submitted:
    return Submitted(
        job_id=kept.job_id,
        pool=pool,
        state=state,
        conclusion=conclusion,
        submitted_at=kept.submitted_at,
        is_new=False,
    )
