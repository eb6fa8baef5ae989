"""
Files of one run: a folder sent before its job is posted, and what came back fetched after it ended.

The command's own exit code stays what it is, whatever becomes of its files; a success is none if they did not come.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.cli.exits import FAILED, OK
from remuda.cli.packing import Stopped, pack, shown_size
from remuda.cli.run_words import Verdict, plain
from remuda.cli.unpacking import DownloadFailed, unpack
from remuda.model.errors import RemudaError
from remuda.model.job_files import FILES_MAX_BYTES, PIECE_MAX_BYTES
from remuda.model.output import Output
from remuda.ports.api import ApiUnavailable, SentFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    from remuda.cli.packing import Packed
    from remuda.cli.run_job import Run
    from remuda.cli.unpacking import Unpacked, Wanted
    from remuda.ports.api import NewJob, Outcome

_NAMED_MAX: Final = 10
"""How many files are named, of those that something is wrong with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """What goes with a run and comes back from it."""

    upload: Path | None = None
    download: tuple[Wanted, ...] = ()

    async def run(self, run: Run, job: NewJob, *, key: str) -> Verdict:
        """Send, run, fetch. Raises what a person must know if there is no verdict."""
        try:
            return await self._run(run, job, key=key)
        finally:
            run.screen.clear()

    async def _run(self, run: Run, job: NewJob, *, key: str) -> Verdict:
        job = replace(job, download=tuple(dict.fromkeys(each.path for each in self.download)))
        if self.upload is not None:
            try:
                job = replace(job, upload=await self._sent(run, self.upload, key))
            except (Stopped, ApiUnavailable):
                if run.stop.code is None:
                    raise
                return Verdict(run.stop.code, "stopped before the job was posted")
        verdict = await run.run(job, key=key)
        outcome = run.outcome
        if not self.download or outcome is None:
            return verdict
        if outcome.files_bytes is None:
            note = plain(outcome.files_note) or _why_none(outcome)
            return _without(verdict, f"no files came back: {note}")
        try:
            done = await self._fetched(run, outcome.id, outcome.files_bytes)
        except (Stopped, RemudaError) as error:
            return _broke_off(verdict, error, run.stop.code)
        return self._said(run, verdict, done, plain(outcome.files_note))

    # --- there ---

    async def _sent(self, run: Run, folder: Path, key: str) -> SentFiles:
        with tempfile.TemporaryFile() as archive:
            run.screen.progress(f"packs {folder}", 0.0)
            packed = await asyncio.to_thread(
                pack,
                folder,
                archive,
                bytes_max=FILES_MAX_BYTES,
                is_stopped=lambda: run.stop.code is not None,
            )
            for text in _some(packed.left_out):
                run.screen.say(f"left out: {text}")
            await self._send(run, archive, packed, key)
        return SentFiles(key, packed.sha256)

    async def _send(self, run: Run, archive: BinaryIO, packed: Packed, key: str) -> None:
        offset, size = 0, packed.size_bytes
        what = f"sends {_files(packed.files)}, {shown_size(size)} packed"

        async def once() -> int:
            archive.seek(offset)
            data = archive.read(PIECE_MAX_BYTES)
            return await run.api.send_files(key, size=size, offset=offset, data=data)

        began_at = run.clock.monotonic()
        while offset < size:
            if run.stop.code is not None:
                raise Stopped
            run.screen.progress(what, run.clock.monotonic() - began_at, (offset, size))
            # One that took some is at the right address: it may be restarted meanwhile.
            patience_s = run.patience.follow_s if offset else run.patience.submit_s
            offset = await run.answered(once, patience_s, stops=True)

    # --- and back ---

    async def _fetched(self, run: Run, job_id: str, size: int) -> Unpacked:
        with tempfile.TemporaryFile() as archive:

            async def once() -> None:
                async with aclosing(run.api.files(job_id, offset=archive.tell())) as pieces:
                    async for piece in pieces:
                        if run.stop.code is not None:
                            raise Stopped
                        archive.write(piece)
                        waited_s = run.clock.monotonic() - began_at
                        run.screen.progress(what, waited_s, (archive.tell(), size))

            what = f"fetches {shown_size(size)} of files, packed"
            began_at = run.clock.monotonic()
            try:
                await run.answered(once, run.patience.follow_s, stops=True)
            except OSError as error:
                raise DownloadFailed(
                    "The files that came back cannot be kept",
                    why=error.strerror or type(error).__name__,
                    fix="Make room for temporary files (TMPDIR)",
                ) from None
            archive.seek(0)
            return await asyncio.to_thread(
                unpack, archive, self.download, is_stopped=lambda: run.stop.code is not None
            )

    def _said(self, run: Run, verdict: Verdict, done: Unpacked, note: str) -> Verdict:
        """Say what was written, and what was not."""
        if done.files:
            into = ", ".join(str(folder) for folder in done.into)
            size = shown_size(done.size_bytes)
            run.screen.say(f"wrote {_files(done.files)}, {size}, into {into}")
        wrong = [f"not written: {plain(text)}" for text in _some(done.refused)]
        wrong += [f"{path}: the job left no such file" for path in done.missing(self.download)]
        if note:
            wrong.append(f"of the files that were to come back, {note}")
        for text in wrong:
            verdict = _without(verdict, text)
        return verdict


def _without(verdict: Verdict, why: str, *, code: int = FAILED) -> Verdict:
    """Return a verdict on a run whose files did not all come back. The code is for a command that succeeded."""
    says = f"{verdict.says}\nremuda: {why}" if verdict.says else why
    return Verdict(code if verdict.code == OK else verdict.code, says)


def _broke_off(verdict: Verdict, error: Stopped | RemudaError, asked: int | None) -> Verdict:
    """Return a verdict on a run whose files were being fetched or written when something went wrong."""
    if asked is not None and isinstance(error, Stopped | ApiUnavailable):
        says = "stopped before all files were here; what was written of them is whole"
        return _without(verdict, says, code=asked)
    assert isinstance(error, RemudaError), "only who is asked to stops"
    return _without(verdict, f"{error.what}: {plain(error.why)}. {error.fix}")


def _why_none(outcome: Outcome) -> str:
    if outcome.output is Output.FINAL:
        return "the job did not end by itself"
    return "its runner did not say why"


def _some(texts: Sequence[str]) -> list[str]:
    rest = len(texts) - _NAMED_MAX
    named = [plain(text) for text in texts[:_NAMED_MAX]]
    return [*named, f"and {rest} more"] if rest > 0 else named


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
