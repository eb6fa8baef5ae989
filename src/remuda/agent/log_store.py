"""
The ends of the logs of runners whose VMs are gone, on disk: what ``kubectl logs`` shows until their Pods are gone too.

What a guest wrote is kept as bytes, bounded, and never looked into. A log that cannot be kept holds nobody up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from remuda.agent.mailbox import HostMailboxError
from remuda.control.durable import names_in, open_folder, remove, sweep, write_whole
from remuda.control.untrusted import NotAFile, read_file

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from remuda.agent.decide.recorded import Verdict
    from remuda.agent.mailbox import HostMailbox

log = structlog.get_logger(__name__)

KEPT_MAX_BYTES: Final = 1024 * 1024
"""How much of the end of a log is kept."""
_HEAD_MAX_BYTES: Final = 4096
_SUFFIX: Final = ".log"
_FORMAT: Final = "remuda.dev/kept-log/v1"
_UID: Final = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The end of a log, and where in the whole log it begins: who read the whole one can go on here."""

    start: int
    content: bytes
    at: datetime
    """When the runner ended."""

    @property
    def end(self) -> int:
        return self.start + len(self.content)


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    format: str
    start: int
    at: datetime


class DiskLogStore:
    """Fills ``parts.LogStore``: one file for each Pod UID in a folder of this user's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with open_folder(folder) as opened:
            sweep(opened)

    def sweep(self, known: Collection[str]) -> None:
        """Remove the logs of all but these Pod UIDs. For the start: an agent that died may have left some."""
        with open_folder(self._folder) as folder:
            for name in names_in(folder):
                if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX) not in known:
                    remove(folder, name)

    def keep(self, pod_uid: str, mailbox: HostMailbox, verdict: Verdict) -> None:
        """Keep the end of a runner's log. What was kept before stays, unless there is more now."""
        try:
            start, content = _end_of(mailbox) or (0, b"")
            instead = last_words(verdict)
            before = self.kept(pod_uid)
            if before is not None and (
                not content or _has_all(before, start + len(content), instead)
            ):
                return
            self._write(
                pod_uid, Kept(start=start, content=content or instead, at=verdict.finished_at)
            )
        except OSError as error:
            log.warning("log not kept", pod_uid=pod_uid, error=error.strerror)

    def kept(self, pod_uid: str) -> Kept | None:
        """Return what was kept; None: nothing was."""
        with open_folder(self._folder) as folder:
            try:
                file = read_file(folder, _file(pod_uid), KEPT_MAX_BYTES + _HEAD_MAX_BYTES)
            except NotAFile:
                return None
        if file is None:
            return None
        first, _, content = file.partition(b"\n")
        try:
            head = msgspec.json.decode(first, type=_Head)
        except (msgspec.MsgspecError, UnicodeError):
            return None
        return Kept(start=head.start, content=content, at=head.at)

    def forget(self, pod_uid: str) -> None:
        """Remove what was kept. To do it twice is no error; what stays is swept by the next start."""
        try:
            with open_folder(self._folder) as folder:
                remove(folder, _file(pod_uid))
        except OSError as error:
            log.warning("log not removed yet", pod_uid=pod_uid, error=error.strerror)

    def _write(self, pod_uid: str, kept: Kept) -> None:
        head = msgspec.json.encode(_Head(format=_FORMAT, start=kept.start, at=kept.at))
        with open_folder(self._folder) as folder:
            write_whole(folder, _file(pod_uid), head + b"\n" + kept.content)


def last_words(verdict: Verdict) -> bytes:
    """Return what stands in place of a log that was never written: of a runner that failed, why."""
    if verdict.succeeded:
        return b""
    return f"remuda: {verdict.reason}: {verdict.message}\n".encode()


def _has_all(before: Kept, end: int, instead: bytes) -> bool:
    """Say whether what was kept reaches to a log's end. What only stands in place of one does not."""
    return before.end >= end and before.content != instead


def _end_of(mailbox: HostMailbox) -> tuple[int, bytes] | None:
    """Return where the end of a mailbox's log begins, and that end; None: there is no log."""
    try:
        measured = mailbox.log_measured()
        if measured is None:
            return None
        start = max(0, measured.size_bytes - KEPT_MAX_BYTES)
        content = mailbox.log_part(start, KEPT_MAX_BYTES)
    except HostMailboxError:
        return None
    return None if content is None else (start, content)


def _file(pod_uid: str) -> str:
    assert _UID.fullmatch(pod_uid), "a UID is the name of a file here"
    return f"{pod_uid}{_SUFFIX}"
