"""What ``kubectl logs`` reads: a log that grows, ends, moves, and may be a lie."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.decide.recorded import State, Verdict
from remuda.agent.ledger import on_the_spot
from remuda.agent.log_reading import (
    CHUNK_BYTES,
    SHOWN_MAX_BYTES,
    LogReading,
    LogRequest,
    LogSources,
    NoLogYet,
    NoSuchLog,
    parse_request,
)
from remuda.agent.log_store import KEPT_MAX_BYTES, DiskLogStore
from remuda.agent.mailbox import HostMailbox
from remuda.model.errors import BadInput
from remuda.sim.clock import EPOCH, SimClock
from remuda.sim.loop import run
from tests.unit.agent.builders import DONE, NOON, UID, a_record, ago

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from remuda.agent.decide.recorded import VmRecord

ALL = LogRequest()
FOLLOW = LogRequest(follow=True)
BROKEN = Verdict(
    succeeded=False, exit_code=1, reason="StartFailed", message="No disk", finished_at=NOON
)


def a_clock() -> SimClock:
    return SimClock(asyncio.get_running_loop(), skew_s=(NOON - EPOCH).total_seconds() + 3600)


def read(host: Host, request: LogRequest = ALL) -> bytes:
    return run(lambda: host.read(request))


class Host:
    """One Pod's mailbox, record and kept log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mailbox"
        self.mailbox = HostMailbox(self.folder)
        self.mailbox.make()
        self.store = DiskLogStore(folder / "logs")
        self.records: list[VmRecord] = [a_record(started_at=ago(hours=2))]

    def write(self, text: bytes) -> None:
        with (self.folder / "runner.log").open("ab") as file:
            file.write(text)

    def end(self, verdict: Verdict = DONE) -> None:
        self.store.keep(UID, self.mailbox, verdict)
        self.records = [
            replace(record, state=State.EXITED, verdict=verdict) for record in self.records
        ]

    async def open(self, request: LogRequest = ALL) -> AsyncGenerator[bytes, None]:
        sources = LogSources(
            records=lambda: self.records, mailbox=lambda _: self.folder, store=self.store
        )
        reading = LogReading(sources, on_the_spot, a_clock())
        return await reading.open("ci", "mac-abcde", request)

    async def read(self, request: LogRequest = ALL) -> bytes:
        return b"".join([piece async for piece in await self.open(request)])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_running_vm_has_the_log_that_its_guest_wrote(host: Host) -> None:
    host.write(b"one\ntwo\n")
    assert read(host) == b"one\ntwo\n"


def test_a_vm_that_wrote_nothing_yet_has_an_empty_log(host: Host) -> None:
    assert read(host) == b""


def test_a_pod_of_nobody_is_refused(host: Host) -> None:
    host.records = []
    with pytest.raises(NoSuchLog, match="runs no VM for it"):
        run(host.open)


def test_a_pod_whose_vm_has_not_started_has_no_log_yet(host: Host) -> None:
    host.records = [a_record(State.CLONING)]
    with pytest.raises(NoLogYet, match="has not started"):
        run(host.open)


def test_of_two_pods_of_one_name_the_younger_is_meant(host: Host) -> None:
    old = a_record(State.EXITED, uid="older", accepted_at=ago(hours=9))
    host.records.insert(0, old)
    host.write(b"young\n")
    assert read(host) == b"young\n"


def test_the_log_is_the_same_while_it_moves_to_the_store(host: Host) -> None:
    host.write(b"one\ntwo\n")
    moments = [read(host)]
    host.store.keep(UID, host.mailbox, DONE)
    moments.append(read(host))
    host.end()
    moments.append(read(host))
    host.mailbox.remove()
    moments.append(read(host))
    assert moments == [b"one\ntwo\n"] * 4


def test_of_a_long_log_the_end_is_kept(host: Host) -> None:
    host.write(b"x" * KEPT_MAX_BYTES + b"the end\n")
    host.end()
    host.mailbox.remove()
    kept = read(host)
    assert len(kept) == KEPT_MAX_BYTES
    assert kept.endswith(b"xthe end\n")


def test_a_runner_that_failed_without_a_log_says_why(host: Host) -> None:
    host.end(BROKEN)
    host.mailbox.remove()
    assert read(host) == b"remuda: StartFailed: No disk\n"


def test_a_pod_that_was_refused_before_anything_was_made_says_why(host: Host) -> None:
    host.mailbox.remove()
    host.records = [replace(a_record(State.REFUSED), verdict=BROKEN)]
    assert read(host) == b"remuda: StartFailed: No disk\n"


def test_a_guest_that_keeps_rewriting_its_log_holds_no_reader(host: Host) -> None:
    async def main() -> int:
        host.write(b"x" * 3 * CHUNK_BYTES)
        total = 0
        async for piece in await host.open():
            total += len(piece)
            size = CHUNK_BYTES if total % (2 * CHUNK_BYTES) else 3 * CHUNK_BYTES
            (host.folder / "runner.log").write_bytes(b"y" * size)
        return total

    assert run(main) <= 3 * CHUNK_BYTES


def test_a_log_that_was_kept_is_not_lost_to_a_second_try(host: Host) -> None:
    host.write(b"one\n")
    host.end()
    host.mailbox.remove()
    host.store.keep(UID, host.mailbox, BROKEN)
    assert read(host) == b"one\n"


def test_more_of_a_log_is_kept_in_place_of_less(host: Host) -> None:
    host.write(b"one\n")
    host.end()
    host.write(b"two\n")
    host.end()
    host.mailbox.remove()
    assert read(host) == b"one\ntwo\n"


def test_a_log_that_comes_late_is_kept_in_place_of_the_reason(host: Host) -> None:
    host.end(BROKEN)
    host.write(b"one\n")
    host.end(BROKEN)
    host.mailbox.remove()
    assert read(host) == b"one\n"


def test_forgotten_and_unknown_logs_go(host: Host) -> None:
    host.end()
    host.store.keep("other", host.mailbox, DONE)
    host.store.sweep({UID})
    assert (host.store.kept("other"), host.store.kept(UID) is not None) == (None, True)
    host.store.forget(UID)
    host.store.forget(UID)
    assert host.store.kept(UID) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_read(host: Host, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = host.folder / "runner.log"
    match kind:
        case "link":
            path.symlink_to(secret)
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    assert read(host) == b""
    host.end()
    assert read(host) == b""


def test_a_log_that_claims_to_be_endless_is_cut(host: Host) -> None:
    with (host.folder / "runner.log").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"end\n")

    async def size() -> tuple[int, bytes]:
        total, last = 0, b""
        async for piece in await host.open():
            total, last = total + len(piece), piece
        return total, last[-4:]

    assert run(size) == (SHOWN_MAX_BYTES, b"end\n")
    assert read(host, LogRequest(tail_lines=1))[-4:] == b"end\n"


async def _followed(
    host: Host, steps: list[bytes | Callable[[], None]], request: LogRequest = FOLLOW
) -> bytes:
    """Follow the log while the steps are taken, one each second."""
    clock, got = a_clock(), bytearray()

    async def follow() -> None:
        async for piece in await host.open(request):
            got.extend(piece)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(follow(), name="follower")
        for step in steps:
            await clock.sleep(1.0)
            if isinstance(step, bytes):
                host.write(step)
            else:
                step()
    return bytes(got)


def test_a_followed_log_comes_as_it_is_written_and_ends_with_the_runner(host: Host) -> None:
    host.write(b"one\n")
    assert (
        run(lambda: _followed(host, [b"two\n", b"thr", b"ee\n", host.end])) == b"one\ntwo\nthree\n"
    )


def test_a_followed_log_goes_on_in_the_store(host: Host) -> None:
    def finish() -> None:
        host.write(b"last words\n")
        host.end()
        host.mailbox.remove()

    assert run(lambda: _followed(host, [b"one\n", finish])) == b"one\nlast words\n"


def test_a_followed_log_ends_when_its_pod_is_gone(host: Host) -> None:
    assert run(lambda: _followed(host, [b"one\n", host.records.clear])) == b"one\n"


def test_a_followed_log_that_is_begun_anew_is_read_anew(host: Host) -> None:
    def anew() -> None:
        (host.folder / "runner.log").write_bytes(b"b\n")

    assert run(lambda: _followed(host, [b"aaaa\n", anew, host.end])) == b"aaaa\nb\n"


def test_a_tail_is_followed_from_there(host: Host) -> None:
    host.write(b"one\ntwo\n")
    request = LogRequest(follow=True, tail_lines=1)
    assert run(lambda: _followed(host, [b"three\n", host.end], request)) == b"two\nthree\n"


@given(
    text=st.lists(st.sampled_from([b"", b"a", b"bb", b"\r"]), max_size=12).map(b"\n".join),
    lines=st.integers(0, 14),
)
def test_a_tail_has_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, lines: int
) -> None:
    host = Host(tmp_path_factory.mktemp("host"))
    host.write(text)
    parts = text.split(b"\n")
    whole = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    expected = b"".join(whole[len(whole) - min(lines, len(whole)) :])
    assert read(host, LogRequest(tail_lines=lines)) == expected


def test_a_tail_reaches_over_many_blocks(host: Host) -> None:
    line = b"x" * 1000 + b"\n"
    host.write(line * 400)
    assert 300 * len(line) > 4 * CHUNK_BYTES
    assert read(host, LogRequest(tail_lines=300)) == line * 300


def test_a_limit_is_kept(host: Host) -> None:
    host.write(b"x" * 3 * CHUNK_BYTES)
    assert len(read(host, LogRequest(limit_bytes=CHUNK_BYTES + 5))) == CHUNK_BYTES + 5


def test_lines_bear_the_time_by_which_they_were_there(host: Host) -> None:
    host.write(b"one\rtwo\nthree")
    os.utime(host.folder / "runner.log", (0, ago(hours=1).timestamp()))
    host.end()
    host.mailbox.remove()
    stamp = b"2026-11-01T12:00:00.000000Z "
    assert read(host, LogRequest(timestamps=True)) == stamp + b"one\rtwo\n" + stamp + b"three"


def test_a_line_is_stamped_once_though_it_comes_in_pieces(host: Host) -> None:
    request = LogRequest(follow=True, timestamps=True)
    got = run(lambda: _followed(host, [b"on", b"e\ntw", b"o\n", host.end], request))
    assert [line.split(b" ", 1)[1] for line in got.splitlines()] == [b"one", b"two"]


def test_a_log_that_ended_before_the_asked_time_is_empty(host: Host) -> None:
    host.write(b"one\n")
    host.end()
    host.mailbox.remove()
    assert read(host, LogRequest(since=NOON.replace(hour=13))) == b""
    assert read(host, LogRequest(since=NOON.replace(hour=11))) == b"one\n"


def test_the_parameters_of_an_api_server_are_read() -> None:
    asked = parse_request(
        {
            "follow": "true",
            "tailLines": "5",
            "limitBytes": "10",
            "sinceTime": "2026-11-01T12:00:00Z",
            "timestamps": "true",
            "stream": "All",
        }
    )
    assert asked == LogRequest(
        follow=True, timestamps=True, tail_lines=5, limit_bytes=10, since=NOON
    )
    assert parse_request({"sinceSeconds": "60"}) == LogRequest(since_s=60)


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "many"},
        {"limitBytes": "-1"},
        {"previous": "true"},
        {"sinceTime": "yesterday"},
    ],
)
def test_parameters_that_make_no_sense_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        parse_request(query)


def test_a_store_whose_folder_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    host = Host(tmp_path)
    shutil.rmtree(tmp_path / "logs")
    host.store.keep(UID, host.mailbox, DONE)
    host.store.forget(UID)
    assert not (tmp_path / "logs").exists()
