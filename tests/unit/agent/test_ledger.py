"""The records for the loop: what a write began it ends, and what memory says the disk has."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from remuda.agent.decide.recorded import State
from remuda.agent.ledger import Ledger, OneThread, on_the_spot
from remuda.agent.record import RecordFailed, RecordFolder
from tests.unit.agent.builders import UID, a_record, an_image

if TYPE_CHECKING:
    from pathlib import Path


def test_a_write_that_began_is_seen_by_whoever_goes_on_after_its_writer_was_cancelled(
    tmp_path: Path,
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow_disk(_file: int) -> None:
        began.set()
        assert go_on.wait(60)

    async def main() -> None:
        go_on.set()
        folder = RecordFolder(tmp_path, sync=slow_disk)
        go_on.clear()
        began.clear()
        threads = OneThread("records")
        ledger = Ledger(folder, threads)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(ledger.write(a_record(State.CLONING)))
            await asyncio.to_thread(began.wait, 60)
            writing.cancel()
            await asyncio.sleep(0)
            assert not writing.done(), "it left half a step behind"
            go_on.set()
        assert writing.cancelled()
        assert ledger.get(UID) == a_record(State.CLONING)
        threads.close()
        folder.close()

    asyncio.run(main())


def test_what_could_not_be_written_is_not_believed(tmp_path: Path) -> None:
    full = False

    def disk(_file: int) -> None:
        if full:
            raise OSError(28, "No space left on device")

    async def main() -> None:
        nonlocal full
        folder = RecordFolder(tmp_path, sync=disk)
        ledger = Ledger(folder, on_the_spot)
        await ledger.write(a_record(State.CLONING))
        full = True
        with pytest.raises(RecordFailed):
            await ledger.write(a_record(State.CLONED))
        kept = ledger.get(UID)
        assert kept is not None
        assert kept.state is State.CLONING
        folder.close()

    asyncio.run(main())


def test_what_was_forgotten_is_gone_also_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        folder = RecordFolder(tmp_path)
        ledger = Ledger(folder, on_the_spot)
        await ledger.write(a_record(State.CLONING))
        await ledger.write_image(an_image())
        assert ledger.images() == (an_image(),)
        await ledger.forget(UID)
        await ledger.forget_image(an_image().image)
        assert ledger.vms() == ()
        assert ledger.image(an_image().image) is None
        folder.close()
        again = RecordFolder(tmp_path)
        assert (again.found.vms, again.found.images) == ((), ())
        again.close()

    asyncio.run(main())
