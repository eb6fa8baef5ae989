"""
The files that a local job needs, fetched from dispatch before it begins: on disk, whole, and as they were sent.

A job never runs without them. What was fetched stays for a restart; what was half fetched is fetched anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.held_jobs import HeldJobFailed
from remuda.agent.parts import Denied
from remuda.control.pace import Pace
from remuda.ports.desk import FilesRefused, NotYou
from remuda.ports.dispatch import DispatchError
from remuda.ports.kube import KubeError

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.agent.held_jobs import HeldJobs
    from remuda.agent.ledger import Threads
    from remuda.agent.parts import RunnerRef
    from remuda.agent.pod_desk import PodDesk, Standing
    from remuda.ports.clock import Clock
    from remuda.ports.desk import UploadRef
    from remuda.ports.ids import Ids

log = structlog.get_logger(__name__)

_TRIES: Final = 3
"""How often files that arrive otherwise than they were sent are fetched anew."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """All is there that the job needs."""

    path: Path | None
    """Where; None: it needs nothing."""


@dataclass(frozen=True, slots=True)
class Spoilt:
    """What dispatch keeps is not what was sent: the job can never run."""

    why: str


class _All:
    """Every piece was fetched."""


@dataclass(slots=True, kw_only=True)
class Fetching:
    """One runner's. ``run`` may be cancelled at any time."""

    runner: RunnerRef
    desk: PodDesk
    held: HeldJobs
    threads: Threads
    standing: Standing
    clock: Clock
    ids: Ids
    patience_s: float
    """For how long nothing may come before dispatch is asked for the job again."""

    async def run(self, upload: UploadRef) -> Fetched | Spoilt | FilesRefused | Denied | None:
        """Fetch, unless it was fetched before; None: nobody answers, or the disk does not take it."""
        uid = self.runner.pod_uid
        for _ in range(_TRIES):
            try:
                if (path := await self.threads(lambda: self.held.files(uid, upload))) is not None:
                    return Fetched(path)
                missing = await self._all(upload)
                if not isinstance(missing, _All):
                    return missing
                await self.threads(lambda: self.held.seal_files(uid, upload))
            except HeldJobFailed as error:
                log.warning("files not kept yet", pod=self.runner.pod, error=str(error))
                await Pace(self.clock, self.ids).after_failure()
                return None
        if (path := await self.threads(lambda: self.held.files(uid, upload))) is not None:
            return Fetched(path)
        return Spoilt("its files did not arrive as they were sent")

    async def _all(self, upload: UploadRef) -> FilesRefused | Denied | _All | None:
        """Fetch every piece; anything else than that says why not."""
        pace, offset = Pace(self.clock, self.ids), 0
        give_up_at = self.clock.monotonic() + self.patience_s
        while offset < upload.size_bytes:
            piece = await self._piece(offset)
            if isinstance(piece, FilesRefused | Denied):
                return piece
            if piece is None:
                if self.clock.monotonic() >= give_up_at:
                    return None
                await pace.after_failure()
                continue
            if not piece or offset + len(piece) > upload.size_bytes:
                return _All()  # it has another size: the seal says so
            await self._keep(offset, piece)
            offset += len(piece)
            give_up_at = self.clock.monotonic() + self.patience_s
            pace.worked()
        return _All()

    async def _keep(self, offset: int, piece: bytes) -> None:
        await self.threads(lambda: self.held.add_files(self.runner.pod_uid, offset, piece))

    async def _piece(self, offset: int) -> bytes | FilesRefused | Denied | None:
        """Ask once; None: ask again."""
        try:
            answer = await self.desk.fetch_files(offset)
        except (DispatchError, KubeError) as error:
            log.warning("files not fetched yet", pod=self.runner.pod, error=str(error))
            return self.standing.failed(error)
        if isinstance(answer, NotYou):
            log.warning("files not fetched: token refused", pod=self.runner.pod, why=answer.why)
            return self.standing.not_us(answer)
        self.standing.answered()
        return answer
