"""What a process says, and what becomes of it where it cannot be written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.cli.logs import BestEffort

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


@pytest.fixture
def unwritable() -> Iterator[TextIO]:
    """Return a file of which every write fails: a pipe that nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    file = os.fdopen(os.dup(writes), "w", buffering=1)
    os.close(writes)
    yield file
    with pytest.raises(BrokenPipeError):
        file.close()


def test_a_line_that_cannot_be_written_ends_nobody(unwritable: TextIO) -> None:
    with pytest.raises(BrokenPipeError):
        unwritable.write("without it\n")

    log = BestEffort(unwritable)
    for _ in range(3):
        assert log.write("with it\n") == 8
        log.flush()
