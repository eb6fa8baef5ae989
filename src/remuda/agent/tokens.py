"""
The tokens with which VMs' Pods speak to dispatch: each bound to its Pod, asked for here, kept in memory only.

None is ever written to a disk or given to a guest, and none shows in a text of ours. A token is replaced long before
it ends; while that fails, the one at hand serves to its end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from remuda.kube.names import AUDIENCE
from remuda.ports.kube import BoundPod, Conflict, Invalid, KubeError, NotFound, Refused

if TYPE_CHECKING:
    from remuda.agent.parts import RunnerRef
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

LASTS_S: Final = 3600
CALL_S: Final = 15.0
"""How long the API server may take to answer."""
_SHORTEST_S: Final = 60.0
"""What a token lasts at least, whatever our clock makes of its end: it may be wrong."""
_REPLACED_AFTER: Final = 0.6
_SPREAD: Final = 0.15
"""Of a token's life: when it is replaced, and how far apart those are that were asked for together."""

REFUSALS: Final = (Refused, NotFound, Conflict, Invalid)
"""
The API server gives no token. To a node it says 403 for a Pod that is gone or not its own, and also for a while after
its own start; 404 means that there is no such ServiceAccount, 409 that the Pod is another one of that name.
"""


@dataclass(slots=True)
class _Kept:
    """One runner's."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    text: str = field(default="", repr=False)
    replace_at: float = 0.0
    ends_at: float = 0.0


class PodTokens:
    """For all runners of this host. No runner waits for another's."""

    def __init__(self, kube: Kube, *, clock: Clock, ids: Ids) -> None:
        self._kube, self._clock, self._ids = kube.within(CALL_S), clock, ids
        self._kept: dict[str, _Kept] = {}

    async def get(self, runner: RunnerRef) -> str:
        """Return a token that is good for a while. Raises KubeError; those of ``REFUSALS`` mean that there is none."""
        kept = self._kept.setdefault(runner.pod_uid, _Kept())
        async with kept.lock:
            now = self._clock.monotonic()
            if kept.text and now < kept.replace_at:
                return kept.text
            try:
                await self._renew(runner, kept)
            except KubeError as error:
                if not kept.text or now >= kept.ends_at:
                    raise
                log.warning("token not replaced yet", pod=runner.pod, error=str(error))
            return kept.text

    def refused(self, runner: RunnerRef, text: str) -> None:
        """Never give this one out again: dispatch did not take it. One that replaced it meanwhile stays."""
        kept = self._kept.get(runner.pod_uid)
        if kept is not None and kept.text == text:
            kept.text = ""

    def forget(self, pod_uid: str) -> None:
        self._kept.pop(pod_uid, None)

    async def _renew(self, runner: RunnerRef, kept: _Kept) -> None:
        token = await self._kube.request_token(
            runner.service_account,
            namespace=runner.namespace,
            audience=AUDIENCE,
            expiration_s=LASTS_S,
            pod=BoundPod(runner.pod, runner.pod_uid),
        )
        said_s = (token.expires_at - self._clock.now()).total_seconds()
        lasts_s = min(max(said_s, _SHORTEST_S), LASTS_S)
        now = self._clock.monotonic()
        share = _REPLACED_AFTER + _SPREAD * self._ids.fraction()
        kept.text, kept.replace_at, kept.ends_at = (
            token.text,
            now + lasts_s * share,
            now + lasts_s,
        )
