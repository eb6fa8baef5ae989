"""What the API server itself says about Pods. What it does not say is unknown, and unknown is never gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.decide.pods_gone import PodSeen
from remuda.dispatch.decide.recovery import PodState
from remuda.kube.core import POD
from remuda.kube.names import RUNNER
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase
from remuda.ports.kube import KubeError, NotFound, Query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.kube.core import Pod

log = structlog.get_logger(__name__)

CALL_S: Final = 10.0
"""How long the server may take for a call about one Pod: a turn makes many of them."""


async def all_pods(parts: RecoveryParts) -> Mapping[str, PodSeen] | None:
    """List every runner's Pod. None: the list failed or is empty, and says nothing."""
    query = Query(namespace=parts.settings.namespace, labels=f"{RUNNER}=true")
    try:
        listing = await parts.kube.list(POD, query)
    except KubeError as error:
        log.warning("Pods not listed", error=str(error))
        return None
    if not listing.items:
        log.warning("the list of Pods is empty: it proves nothing")
        return None
    return {pod.name: seen(pod) for pod in listing.items}


def seen(pod: Pod) -> PodSeen:
    runner = runner_of(pod)
    if runner.phase is not Phase.ENDED:
        return PodSeen(pod.uid)
    end = runner.end
    return PodSeen(
        pod.uid,
        ended=True,
        ended_at=end.at if end else None,
        exit_code=end.exit_code if end else None,
        reason=end.reason if end else "",
    )


async def state_now(parts: RecoveryParts, name: str, uid: str) -> PodState:
    """Ask the server for one Pod. One of the same name with another UID is another Pod."""
    try:
        pod = await parts.kube.within(CALL_S).get(POD, name, namespace=parts.settings.namespace)
    except NotFound:
        return PodState.ENDED
    except KubeError as error:
        log.info("Pod not read", pod=name, error=str(error))
        return PodState.UNKNOWN
    ended = pod.uid != uid or runner_of(pod).phase is Phase.ENDED
    return PodState.ENDED if ended else PodState.ALIVE
