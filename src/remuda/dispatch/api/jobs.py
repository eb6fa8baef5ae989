"""Jobs for people and tools: lists, one job, and why it waits. Reads only; jobs are posted elsewhere."""

from typing import Annotated

from fastapi import APIRouter, Query

from remuda.dispatch.api.auth import Reader
from remuda.dispatch.api.bodies import ExplanationBody, JobBody, JobPage
from remuda.dispatch.api.inputs import Cursor, JobId, Named, Page, cursor_of, read_cursor
from remuda.dispatch.api.problems import Problem, documented
from remuda.dispatch.api.ready import must_see
from remuda.dispatch.decide.explain import JobFacts, explain_job
from remuda.dispatch.view import DispatchView
from remuda.model.job import Job, JobState, Session
from remuda.ports.clock import Clock
from remuda.ports.job_views import JobFilter, JobViews

_HISTORY_MAX = 1000
_States = Annotated[
    list[JobState] | None,
    Query(max_length=len(JobState), description="Only jobs in one of these states"),
]


class JobRoutes:
    """``view`` is what dispatch sees of the fleet: an explanation needs the job's pool and runners."""

    def __init__(self, views: JobViews, view: DispatchView, clock: Clock) -> None:
        self._views = views
        self._view = view
        self._clock = clock

    async def list_jobs(
        self,
        _: Reader,
        state: _States = None,
        pool: Named = None,
        tenant: Named = None,
        repository: Named = None,
        *,
        limit: Page = 100,
        cursor: Cursor = None,
    ) -> JobPage:
        """Return jobs, the newest first. Without a filter: all of them, also those that are over."""
        wanted = JobFilter(
            states=frozenset(state or ()), pool=pool, tenant=tenant, repository=repository
        )
        before = None if cursor is None else read_cursor(cursor)
        jobs = await self._views.newest(wanted, before=before, limit=limit + 1)
        page, more = jobs[:limit], len(jobs) > limit
        last = page[-1].spec if more else None
        return JobPage(
            jobs=tuple(JobBody.of(job) for job in page),
            next=None if last is None else cursor_of(last.queued_at, last.id),
        )

    async def get_job(self, _: Reader, job_id: JobId) -> JobBody:
        """Return one job. Those that are over are kept for some weeks."""
        return JobBody.of(await self._found(job_id))

    async def explain(self, _: Reader, job_id: JobId) -> ExplanationBody:
        """Say why a job waits, by the same rules by which dispatch hands jobs out, and what to do about it."""
        must_see(self._view)
        job = await self._found(job_id)
        facts = await self._facts(job)
        return ExplanationBody.of(job_id, explain_job(facts, self._clock.now()))

    async def _facts(self, job: Job) -> JobFacts:
        claim = None if job.claim is None else await self._views.claim_of(job.claim.pod)
        if claim is not None and claim.claim.job_id != job.spec.id:
            claim = None
        return JobFacts(
            job=job,
            waiting=await self._views.waiting(job.spec.id),
            pool=self._view.pool(job.spec.pool),
            pods=self._view.pods_of(job.spec.pool),
            claim=claim,
            session=await self._session(job),
            history=await self._views.audit(job_id=job.spec.id, limit=_HISTORY_MAX),
        )

    async def _session(self, job: Job) -> Session | None:
        if job.claim is None or not job.state.over:
            return None
        return await self._views.session_of(job.claim.pod)

    async def _found(self, job_id: str) -> Job:
        job = await self._views.job(job_id)
        if job is None:
            raise _unknown(job_id)
        return job


def job_router(views: JobViews, view: DispatchView, clock: Clock) -> APIRouter:
    """Return the routes. The bare ``{job_id:path}`` swallows the others: ``build_app`` puts it last."""
    routes = JobRoutes(views, view, clock)
    router = APIRouter(prefix="/api/v1", tags=["jobs"])
    router.add_api_route(
        "/jobs", routes.list_jobs, summary="List jobs", responses=documented(401, 403, 422)
    )
    router.add_api_route(
        "/jobs/{job_id:path}/explain",
        routes.explain,
        name="explain_job",
        summary="Say why a job waits",
        responses=documented(401, 403, 404, 422),
    )
    router.add_api_route(
        "/jobs/{job_id:path}",
        routes.get_job,
        summary="Show a job",
        responses=documented(401, 403, 404, 422),
    )
    return router


def _unknown(job_id: str) -> Problem:
    why = "no message of a forge told of it, no pool serves its labels, or it was forgotten long after its end"
    fix = "Check the id; GET /api/v1/explain/labels tells which pool serves a job's labels"
    return Problem(404, f"There is no job {job_id}", why, fix)
