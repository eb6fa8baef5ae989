"""Runners and claims for people: each Pod of the view, with the job that it holds or had. Reads only."""

from typing import Annotated

from fastapi import APIRouter, Query

from remuda.dispatch.api.auth import Reader
from remuda.dispatch.api.bodies import ClaimBody, ClaimList, ExplanationBody, SessionBody
from remuda.dispatch.api.fleet_bodies import PodBody, RunnerBody, RunnerPage, pool_name_of
from remuda.dispatch.api.inputs import Named, Page, PodName
from remuda.dispatch.api.problems import Problem, documented
from remuda.dispatch.api.ready import must_see
from remuda.dispatch.decide.explain_runner import RunnerFacts, explain_runner
from remuda.dispatch.view import DispatchView
from remuda.kube.core import Pod
from remuda.model.job import LiveClaim, Session
from remuda.ports.job_views import JobViews

_SESSIONS_MAX = 10_000
_After = Annotated[
    str | None, Query(max_length=253, description="The `next` of the page before: a runner's name")
]


class RunnerRoutes:
    """What runs where."""

    def __init__(self, views: JobViews, view: DispatchView) -> None:
        self._views = views
        self._view = view

    async def list_runners(
        self, _: Reader, pool: Named = None, limit: Page = 200, after: _After = None
    ) -> RunnerPage:
        """Return the runners whose Pods are there, by name, with the jobs that they hold."""
        must_see(self._view)
        pods = self._view.pods.all() if pool is None else self._view.pods_of(pool)
        rest = sorted((p for p in pods if after is None or p.name > after), key=lambda p: p.name)
        page = rest[:limit]
        claims = {live.claim.pod: live for live in await self._views.claims()}
        sessions = {s.pod_uid: s for s in await self._views.sessions(limit=_SESSIONS_MAX)}
        return RunnerPage(
            runners=tuple(
                self._runner(pod.name, pod, claims.get(pod.name), sessions.get(pod.uid))
                for pod in page
            ),
            next=page[-1].name if len(rest) > limit else None,
        )

    async def get_runner(self, _: Reader, pod: PodName) -> RunnerBody:
        """Return one runner, also one whose Pod is gone, if it had a job."""
        facts = await self._facts(pod)
        return self._runner(pod, facts.pod, facts.claim, facts.session)

    async def explain(self, _: Reader, pod: PodName) -> ExplanationBody:
        """Say why a runner does or does not take jobs."""
        return ExplanationBody.of(pod, explain_runner(await self._facts(pod)))

    async def list_claims(self, _: Reader) -> ClaimList:
        """Return who holds which job now, the oldest first."""
        return ClaimList(claims=tuple(ClaimBody.of(live) for live in await self._views.claims()))

    async def _facts(self, name: str) -> RunnerFacts:
        must_see(self._view)
        pod = self._view.pod(name)
        claim, session = await self._views.claim_of(name), await self._views.session_of(name)
        if pod is None and claim is None and session is None:
            why = "there is no Pod of that name, and none ever got a job"
            fix = "See the runners with GET /api/v1/runners"
            raise Problem(404, f"There is no runner {name}", why, fix)
        pool = None if pod is None else self._view.pool(pool_name_of(pod))
        return RunnerFacts(name=name, pod=pod, pool=pool, claim=claim, session=session)

    def _runner(
        self, name: str, pod: Pod | None, claim: LiveClaim | None, session: Session | None
    ) -> RunnerBody:
        """Join what belongs to one Pod. A claim or a session of an earlier Pod of the same name is not this one's."""
        if pod is not None:
            claim = claim if claim is not None and claim.claim.pod_uid == pod.uid else None
            session = session if session is not None and session.pod_uid == pod.uid else None
        known = [x.pool for x in (claim, session) if x is not None]
        pool = pool_name_of(pod) if pod is not None else (known or [""])[0]
        return RunnerBody(
            name=name,
            pool=pool,
            pod=None if pod is None else PodBody.of(pod, self._view.pool(pool)),
            claim=None if claim is None else ClaimBody.of(claim),
            session=None if session is None else SessionBody.of(session),
        )


def runner_router(views: JobViews, view: DispatchView) -> APIRouter:
    routes = RunnerRoutes(views, view)
    router = APIRouter(prefix="/api/v1", tags=["runners"])
    router.add_api_route(
        "/runners", routes.list_runners, summary="List runners", responses=documented(401, 403, 422)
    )
    router.add_api_route(
        "/runners/{pod}",
        routes.get_runner,
        summary="Show a runner",
        responses=documented(401, 403, 404, 422),
    )
    router.add_api_route(
        "/runners/{pod}/explain",
        routes.explain,
        name="explain_runner",
        summary="Say why a runner takes jobs or not",
        responses=documented(401, 403, 404, 422),
    )
    router.add_api_route(
        "/claims", routes.list_claims, summary="List claims", responses=documented(401, 403)
    )
    return router
