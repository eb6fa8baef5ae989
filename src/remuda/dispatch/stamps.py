"""
The owner's stamp on a runner's Pod: put on before a job config is minted, taken off if nothing was handed over.

With it the operator leaves the runner alone; without it a job could be killed. So it is mandatory, and a stamp whose
outcome is unknown is read back, never assumed. Each stamp names its claim, and nobody takes off another claim's. The
store allows one claim for a Pod: whoever sees another claim's stamp and then hears that its own claim stands has seen a
leftover, and may replace it. No times are compared: the replicas' clocks differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.decide.drain import unfit
from remuda.kube.core import POD
from remuda.kube.names import CLAIM, OWNER
from remuda.kube.patches import JsonPatch, MergePatch
from remuda.ports.kube import Conflict, Invalid, KubeError, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.dispatch.settings import DispatchSettings
    from remuda.kube.core import Pod
    from remuda.model.job import Claim
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

CALL_S: Final = 5.0
"""How long the server may take for one call: a whole attempt has to fit into ``attempt_s``."""
GONE = "its Pod is gone"

_OWNER_PATH = f"/metadata/labels/{OWNER.replace('/', '~1')}"
_CLAIM_PATH = f"/metadata/annotations/{CLAIM.replace('/', '~1')}"


@dataclass(frozen=True, slots=True)
class NotStamped:
    """The Pod does not carry the stamp, so it must not be given the job."""

    why: str
    leave: str | None = None
    """Why the runner goes home, if it does."""
    unreachable: bool = False
    """The API server did not answer: another Pod would fare no better."""
    final: bool = False
    """Trying again would not help."""


def claim_text(claim: Claim) -> str:
    """Spell a claim as its Pod carries it. The time keeps its microseconds: it is the fencing token."""
    return f"{claim.job_id}@{_spelled(claim.claimed_at)}"


def claimed_at(text: str) -> datetime | None:
    """Return when the claim of a stamp was made, or None if that is not what stands there."""
    try:
        found = datetime.fromisoformat(text.rpartition("@")[2])
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def carries(pod: Pod, claim: Claim) -> bool:
    """Say whether a Pod carries this very claim's stamp."""
    return OWNER in pod.labels and _is_from(pod, claim)


class Stamps:
    """Writes to Pods: two keys, together, and only on what was seen."""

    def __init__(self, kube: Kube, settings: DispatchSettings) -> None:
        self._kube = kube.within(CALL_S)
        self._namespace = settings.namespace
        self._tries = settings.polls.stamp_tries

    async def stamp(
        self, pod: Pod, claim: Claim, tenant: str, *, stands: Callable[[], Awaitable[bool]]
    ) -> Pod | NotStamped:
        """
        Put the owner and the claim on a Pod, and return the Pod as it is then.

        ``stands`` is asked whether the claim still does, only where another claim's stamp would be replaced.
        """
        seen, failed = pod, NotStamped("its Pod kept changing")
        for _ in range(self._tries):
            if (answer := _standing(seen, claim, tenant)) is not None:
                return answer
            if _is_anothers(seen, claim) and not await stands():
                return NotStamped("the Pod is another claim's: this one does not stand any more")
            try:
                return await self._put(seen, claim, tenant)
            except KubeError as error:
                failed = _failure(error)
            # A try that was not answered may have been applied all the same.
            found = failed if failed.final else await self._read(claim.pod)
            if isinstance(found, NotStamped):
                return found
            seen = found
        return _standing(seen, claim, tenant) or failed

    async def unstamp(self, claim: Claim) -> bool:
        """Take a claim's stamp off. True: the Pod does not carry it (any more). False: nobody knows."""
        seen: Pod | None = None
        for _ in range(self._tries):
            try:
                await self._take(claim, seen)
            except NotFound:
                return True
            except KubeError as error:
                log.info("stamp not taken off yet", pod=claim.pod, error=str(error))
            else:
                return True
            found = await self._read(claim.pod)
            if isinstance(found, NotStamped):
                if found.leave:
                    return True
            elif not _is_from(found, claim):
                return True
            else:
                seen = found
        log.warning("stamp left behind", pod=claim.pod, job=claim.job_id)
        return False

    async def _put(self, pod: Pod, claim: Claim, tenant: str) -> Pod:
        patch = _two_keys(pod, owner=tenant, claim=claim_text(claim))
        return await self._kube.patch(POD, pod.name, patch, namespace=self._namespace)

    async def _take(self, claim: Claim, seen: Pod | None) -> None:
        """Blindly at first, which is one call; then from what was seen: half a stamp has no path for one of the two."""
        patch = _take_off(claim) if seen is None else _two_keys(seen, owner=None, claim=None)
        await self._kube.patch(POD, claim.pod, patch, namespace=self._namespace)

    async def _read(self, name: str) -> Pod | NotStamped:
        try:
            return await self._kube.get(POD, name, namespace=self._namespace)
        except NotFound:
            return NotStamped(GONE, leave=GONE)
        except KubeError as error:
            return NotStamped(str(error), unreachable=True)


def _failure(error: KubeError) -> NotStamped:
    match error:
        case NotFound():
            return NotStamped(GONE, leave=GONE, final=True)
        case Conflict():
            return NotStamped("its Pod kept changing")
        case Invalid():
            return NotStamped(str(error), final=True)  # the tenant's name, say: other jobs may do
        case Unavailable():
            return NotStamped(str(error), unreachable=True)
        case _:
            return NotStamped(str(error), unreachable=True, final=True)


def _refusal(pod: Pod, claim: Claim) -> NotStamped | None:
    """Say why a Pod, as it is now, may not be stamped for this claim."""
    if pod.uid != claim.pod_uid:
        return NotStamped(GONE, leave=GONE)
    if (reason := unfit(pod)) is not None:
        return NotStamped(reason, leave=reason)
    if OWNER not in pod.labels or _is_from(pod, claim):
        return None
    if claimed_at(pod.metadata.annotations.get(CLAIM, "")) is None:
        return NotStamped("its Pod has an owner that no claim of ours stands behind")
    return None


def _is_anothers(pod: Pod, claim: Claim) -> bool:
    """Say whether a Pod carries another claim's text, of a whole stamp or of half a one."""
    return CLAIM in pod.metadata.annotations and not _is_from(pod, claim)


def _two_keys(pod: Pod, *, owner: str | None, claim: str | None) -> MergePatch:
    return MergePatch(
        {
            "metadata": {
                "uid": pod.uid,
                "resourceVersion": pod.resource_version,
                "labels": {OWNER: owner},
                "annotations": {CLAIM: claim},
            }
        }
    )


def _take_off(claim: Claim) -> JsonPatch:
    return JsonPatch(
        (
            {"op": "test", "path": "/metadata/uid", "value": claim.pod_uid},
            {"op": "test", "path": _CLAIM_PATH, "value": claim_text(claim)},
            {"op": "remove", "path": _OWNER_PATH},
            {"op": "remove", "path": _CLAIM_PATH},
        )
    )


def _is_from(pod: Pod, claim: Claim) -> bool:
    """Say whether a Pod carries this claim's text, with or without an owner: two keys are written, one is proof."""
    return pod.uid == claim.pod_uid and pod.metadata.annotations.get(CLAIM) == claim_text(claim)


def _standing(pod: Pod, claim: Claim, tenant: str) -> Pod | NotStamped | None:
    """Return what is settled already: the Pod must not be stamped, or it is. None: it may be."""
    if (refusal := _refusal(pod, claim)) is not None:
        return refusal
    return pod if carries(pod, claim) and pod.labels[OWNER] == tenant else None


def _spelled(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
