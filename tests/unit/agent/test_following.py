"""A job's output as one stream: nothing twice, nothing missing, and bounded, whatever its guest does to the file."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.agent.following import Piece, Stream
from remuda.agent.mailbox import HostMailbox
from remuda.model.mailbox import LOG
from remuda.sim.jobs.local import MemoryLocalJobs
from remuda.sim.jobs.tables import Tables
from tests.support.jobs import StillClock
from tests.support.local_jobs import a_local_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class File:
    """A file that a test writes."""

    def __init__(self, content: bytes | None = b"") -> None:
        self.content = content

    def read(self, offset: int, size: int) -> bytes | None:
        assert offset >= 0
        return None if self.content is None else self.content[offset : offset + size]


def drain(stream: Stream, file: File) -> bytes:
    """Take all that there is, as a dispatch that hears everything."""
    taken = b""
    while (piece := stream.next(file.read)).data:
        taken += piece.data
        stream.took(piece)
    return taken


def test_what_is_appended_follows() -> None:
    stream, file = Stream(piece_bytes=3), File(None)
    assert drain(stream, file) == b""
    file.content = b"one two"
    assert drain(stream, file) == b"one two"
    file.content += b" three"
    assert drain(stream, file) == b" three"
    assert stream.next(file.read) == Piece(13, b"")


def test_what_was_not_taken_is_told_again() -> None:
    stream, file = Stream(), File(b"one")
    assert stream.next(file.read) == stream.next(file.read) == Piece(0, b"one")
    file.content = b"one two"
    assert stream.next(file.read) == Piece(0, b"one two")


def test_a_new_file_with_more_of_the_same_text_goes_on() -> None:
    stream, file = Stream(), File(b"one ")
    assert drain(stream, file) == b"one "
    file.content = None
    assert drain(stream, file) == b""
    file.content = b"one two"
    assert drain(stream, file) == b"two"


@pytest.mark.parametrize(
    "other", [pytest.param(b"new", id="shorter"), pytest.param(b"NEW" * 100, id="longer")]
)
def test_another_text_follows_what_was_told(other: bytes) -> None:
    stream, file = Stream(), File(b"the old text")
    drain(stream, file)
    file.content = other
    assert stream.next(file.read) == Piece(12, other)
    assert drain(stream, file) == other


def test_a_file_that_was_emptied_goes_on_with_what_comes_then() -> None:
    stream, file = Stream(), File(b"the old text")
    drain(stream, file)
    file.content = b""
    assert drain(stream, file) == b""
    file.content = b"the old text"
    assert drain(stream, file) == b"the old text"


def test_dispatch_says_from_where_to_go_on() -> None:
    stream, file = Stream(), File(b"0123456789")
    drain(stream, file)
    assert stream.go_back(4)
    assert stream.next(file.read) == Piece(4, b"456789")
    assert drain(stream, file) == b"456789"
    for nonsense in (10, 11, -1):
        assert not stream.go_back(nonsense)
    assert stream.next(file.read) == Piece(10, b"")


def test_what_is_gone_from_the_file_cannot_be_told_again() -> None:
    stream, file = Stream(), File(b"0123456789")
    drain(stream, file)
    file.content = b"abc"
    drain(stream, file)
    assert stream.go_back(4)  # that was in the text before
    assert drain(stream, file) == b"abc"
    assert stream.go_back(6)
    file.content = b"A"  # shorter than where we are to go on
    assert drain(stream, file) == b"A"


def test_the_stream_is_bounded_whatever_the_guest_does() -> None:
    stream, file = Stream(piece_bytes=10, stream_max_bytes=100), File()
    taken = b""
    for number in range(50):
        file.content = bytes([number]) * 7  # another text each time
        taken += drain(stream, file)
    assert len(taken) == 100
    assert stream.next(file.read) == Piece(100, b"")


class Dispatch:
    """Keeps output as real dispatch does."""

    def __init__(self) -> None:
        self.local = MemoryLocalJobs(Tables(StillClock()), log_max_bytes=10_000)
        asyncio.run(self._add())

    async def _add(self) -> None:
        await self.local.add(a_local_job())

    def append(self, piece: Piece) -> int | None:
        """Return None if all is well, else from where to go on."""
        kept = asyncio.run(self.local.append_log("local-1", piece.offset, piece.data))
        assert kept is not None
        return kept if kept < piece.offset else None

    def kept(self) -> bytes:
        part = asyncio.run(self.local.read_log("local-1", 0, limit=100_000))
        assert part is not None
        return part.data


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("print"), st.binary(max_size=40)),
        st.tuples(st.just("tell"), st.sampled_from(["heard", "lost", "answer lost"])),
        st.tuples(st.just("restart"), st.just(b"")),
    ),
    max_size=40,
)


@given(steps=STEPS, piece_bytes=st.integers(1, 64))
def test_dispatch_ends_up_with_all_that_was_printed(
    steps: list[tuple[str, Any]], piece_bytes: int
) -> None:
    """Whatever is lost on the way, and however often the agent restarts."""
    dispatch, file, printed = Dispatch(), File(), b""
    stream = Stream(piece_bytes=piece_bytes)
    for step, how in [*steps, ("tell", "to the end")]:
        if step == "print":
            printed += how
            file.content = printed
        elif step == "restart":
            stream = Stream(piece_bytes=piece_bytes)
        else:
            tell(stream, dispatch, file, how)
        assert printed.startswith(dispatch.kept())
    assert dispatch.kept() == printed


def tell(stream: Stream, dispatch: Dispatch, file: File, how: str) -> None:
    while (piece := stream.next(file.read)).data:
        if how == "lost":
            return
        back = dispatch.append(piece)
        if how == "answer lost":
            return
        if back is None:
            stream.took(piece)
        else:
            assert stream.go_back(back)
        if how == "heard":
            return


@settings(max_examples=200)
@given(
    contents=st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=30),
    backs=st.lists(st.integers(0, 300), max_size=30),
    bound=st.integers(1, 300),
)
def test_no_file_makes_it_skip_repeat_or_run_on(
    contents: list[bytes | None], backs: list[int], bound: int
) -> None:
    """Pieces follow one another, within the bound, and the text that is in the file last is told to its end."""
    stream, file, heard = Stream(piece_bytes=7, stream_max_bytes=bound), File(), b""
    for index, content in enumerate([*contents, b"the last text"]):
        file.content = content
        if index < len(backs) and stream.go_back(backs[index]):
            heard = heard[: backs[index]]
        for _ in range(bound):
            piece = stream.next(file.read)
            assert piece.offset == len(heard)
            if not piece.data:
                break
            heard += piece.data
            stream.took(piece)
        assert len(heard) <= bound
        assert stream.next(file.read).data == b""
    assert len(heard) == bound or heard.endswith(b"text")


# --- the file itself ---


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    (path.parent.parent / "secret").write_bytes(b"of the host")
    path.symlink_to(path.parent.parent / "secret")


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [a_fifo, a_link, a_folder])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    mailbox = HostMailbox(tmp_path / "box")
    mailbox.make()
    assert mailbox.log_part(0, 100) is None
    make(tmp_path / "box" / LOG)
    assert mailbox.log_part(0, 100) is None
    assert Stream().next(mailbox.log_part).data == b""


def test_a_file_of_any_size_is_read_in_parts(tmp_path: Path) -> None:
    mailbox = HostMailbox(tmp_path / "box")
    mailbox.make()
    with (tmp_path / "box" / LOG).open("wb") as file:
        file.truncate(1 << 40)  # a hole: nothing is allocated
    assert mailbox.log_part(0, 10) == bytes(10)
    assert mailbox.log_part((1 << 40) - 3, 10) == bytes(3)
    assert mailbox.log_part(1 << 41, 10) == b""
