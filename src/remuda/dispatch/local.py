"""
The local forge: jobs that people post, with no forge behind them.

It serves ``remuda run``, and makes the whole way of a job testable. The end of a job is written down in its own table
first and in the store of jobs after that, so whoever repeats the step ends it in the same words. No error and no log
line holds a script or its environment.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from remuda.dispatch.decide.local_jobs import Runs, Waits, deadline_of, how_far
from remuda.model.job import Kind
from remuda.model.needs import KNOWN
from remuda.ports.database import DatabaseError
from remuda.ports.forge import (
    ForgeJob,
    ForgeRefused,
    ForgeState,
    ForgeUnavailable,
    Minted,
    Removal,
)
from remuda.ports.jobs import JobEnd
from remuda.ports.local_files import Way
from remuda.ports.local_jobs import LocalEnd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from remuda.dispatch.decide.local_jobs import Far
    from remuda.model.job import JobSpec
    from remuda.ports.clock import Clock
    from remuda.ports.forge import NewRunner
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.local_files import LocalFiles
    from remuda.ports.local_jobs import LocalJob, LocalJobs
    from remuda.ports.registrations import Registration

TENANT: Final = "local"
ID_PREFIX: Final = "local-"
BY: Final = "local forge"
_ID: Final = re.compile(r"local-[a-z0-9]{1,60}")


def is_local(job_id: str) -> bool:
    """Tell a job of the local forge by its id: those of other forges begin with a host and a slash."""
    return _ID.fullmatch(job_id) is not None


class LocalForge:
    """Implements ``remuda.ports.forge.Forge``."""

    def __init__(
        self,
        local: LocalJobs,
        store: JobStore,
        views: JobViews,
        clock: Clock,
        *,
        files: LocalFiles,
    ) -> None:
        self._local = local
        self._files = files
        self._store = store
        self._views = views
        self._clock = clock

    @property
    def kind(self) -> Kind:
        return Kind.LOCAL

    async def mint(self, job: JobSpec, runner: NewRunner) -> Minted:
        """Hand the script out, unless it began, was cancelled or is over. Nothing is registered anywhere."""
        del runner
        what = f"The local job {job.id} cannot be handed out"
        with _reachable(what):
            kept = await self._local.get(job.id)
            known = await self._views.job(job.id)
            if kept is None or known is None or known.claim is None:
                why = "it is not known" if kept is None else "nobody holds a claim on it"
                raise ForgeRefused(what, why=why, fix="Submit it again if it is still wanted")
            if unknown := sorted(kept.needs - KNOWN):
                why = f"it needs what this version of the server does not know of: {', '.join(unknown)}"
                raise ForgeUnavailable(what, why=why, fix="Upgrade all replicas of the server")
            far = await self.settle(kept)
            if isinstance(far, Waits) and not await self._has_files(kept):
                far = await self.conclude(kept, _without_files(self._clock.now()))
        if isinstance(far, Waits):
            deadline = deadline_of(kept, known.claim.claimed_at)
            return Minted(
                script=kept.script,
                env=kept.env,
                upload=kept.upload,
                download=kept.download,
                deadline=deadline,
            )
        why = "a runner began it" if isinstance(far, Runs) else f"it is over: {far.conclusion}"
        raise ForgeRefused(what, why=why, fix="A script runs at most once: submit it again")

    async def look_up(self, job: JobSpec) -> ForgeJob:
        with _reachable(f"The local job {job.id} cannot be looked up"):
            kept = await self._local.get(job.id)
            if kept is None:
                return ForgeJob(state=ForgeState.GONE)
            far = await self.settle(kept, complete=False)
            if isinstance(far, Waits):
                return ForgeJob(state=ForgeState.QUEUED)
            runner_name = await self._runner_name(kept)
        if isinstance(far, Runs):
            return ForgeJob(
                state=ForgeState.IN_PROGRESS, runner_name=runner_name, started_at=kept.started_at
            )
        return ForgeJob(
            state=ForgeState.COMPLETED,
            conclusion=far.conclusion,
            runner_name=runner_name,
            started_at=kept.started_at,
            ended_at=far.at,
        )

    async def remove(self, registration: Registration) -> Removal:
        """Nothing is registered, so nothing is left."""
        del registration
        return Removal.GONE

    async def settle(self, job: LocalJob, *, complete: bool = True, by: str = BY) -> Far:
        """Say how far a job is. If it turns out to be over, write that down: here, and in the store of jobs too."""
        claim = session = None
        if job.begun_by and job.end is None:
            claim = await self._views.claim_of(job.pod)
            session = await self._views.session_of(job.pod)
        far = how_far(job, claim, session, self._clock.now())
        if not isinstance(far, LocalEnd):
            return far
        if not complete:
            return await self._local.end(job.job_id, far) or far
        return await self.conclude(job, far, by=by)

    async def conclude(self, job: LocalJob, end: LocalEnd, *, by: str = BY) -> LocalEnd:
        """End a job in both places, however often this is repeated. Returns the words that count: the first."""
        said = await self._local.end(job.job_id, end) or end
        runner_name = await self._runner_name(job)
        await self._store.complete(
            JobEnd(
                job_id=job.job_id,
                tenant=TENANT,
                conclusion=said.conclusion,
                ended_at=said.at,
                by=by,
                why=_why(said),
                runner_name=runner_name,
                started_at=job.started_at,
            )
        )
        return said

    async def _has_files(self, job: LocalJob) -> bool:
        """Say whether all is there that the job needs: it never runs without its files."""
        if job.upload is None:
            return True
        file = await self._files.of_job(job.job_id, Way.IN)
        return file is not None and file.is_whole

    async def _runner_name(self, job: LocalJob) -> str:
        """Return the name of the runner that began a job; empty if none did, or nothing is known of it any more."""
        if not job.begun_by:
            return ""
        session = await self._views.session_of(job.pod)
        return session.runner_name if session and session.pod_uid == job.begun_by else ""


def _without_files(now: datetime) -> LocalEnd:
    return LocalEnd(conclusion="failure", at=now, reason="its files are not in the database")


def _why(end: LocalEnd) -> str:
    code = "" if end.exit_code is None else f", exit code {end.exit_code}"
    reason = f" ({end.reason})" if end.reason else ""
    return f"it ended: {end.conclusion}{code}{reason}"


@contextlib.contextmanager
def _reachable(what: str) -> Iterator[None]:
    """Say the database's faults as a forge's: here the one is the other."""
    try:
        yield
    except DatabaseError as error:
        raise ForgeUnavailable(what, why=error.why, fix=error.fix) from None
