from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.adapters.qemu.channel import (
    CHUNK_MAX_BYTES,
    FILE_CHUNKS_MAX,
    LINE_MAX_BYTES,
    SIZES_MAX,
    TIMES_MAX,
    Asked,
    DiskUsed,
    FilesBegin,
    Garbled,
    Hearing,
    Identity,
    Message,
    MoreFiles,
    MoreLog,
    Put,
    begin,
    done,
    more,
    put,
    remove,
    you_are,
)

SUM = "0f" * 32
SAID = (
    b"who\nput ready 0\ndisk 7\nlog 6\nhello\nput ended 2\n{}begin 2 %s\nfiles 2\n\x00\n"
    b'put exit.json 10\n{"code":0}log 0\n'
) % SUM.encode()
MEANT: list[Message] = [
    Asked(),
    Put("ready", b""),
    DiskUsed(7),
    MoreLog(b"hello\n"),
    Put("ended", b"{}"),
    FilesBegin(2, SUM),
    MoreFiles(b"\x00\n"),
    Put("exit.json", b'{"code":0}'),
    MoreLog(b""),
]


@given(st.lists(st.integers(0, len(SAID)), max_size=20))
def test_what_a_guest_says_is_the_same_however_it_is_cut_up(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(SAID)]
    hearing = Hearing()
    heard: list[Message] = []
    for first, last in pairwise(edges):
        heard += hearing.feed(SAID[first:last])
    assert heard == MEANT


@pytest.mark.parametrize(
    "said",
    [
        b"put job.json 2\n{}",
        b"put stop 0\n",
        b"put runner.log 3\nabc",
        b"put ../../etc/passwd 1\nx",
        b"put /etc/passwd 1\nx",
        b"put exit.json/../ready 0\n",
        b"put ready -1\n",
        b"put ready 0x10\n",
        b"put ready 99999999\n",
        b"put ready\n",
        b"put  ready 0\n",
        b"put ready 0 \n",
        b"put ready 0\r\n",
        "put ready \u0663\n".encode(),
        b"id a b c d e\n",
        b"off\n",
        b"disk 101\n",
        b"disk 99999\n",
        b"\n",
        b"\0\n",
        b"x" * (LINE_MAX_BYTES + 1),
        f"put exit.json {SIZES_MAX['exit.json'] + 1}\n".encode(),
        f"log {CHUNK_MAX_BYTES + 1}\n".encode(),
        f"files {CHUNK_MAX_BYTES + 1}\n".encode(),
        b"put files-out.tgz 1\nx",
        b"more files-in.tgz 1\nx",
        b"files\n",
        b"begin 1\n",
        b"begin 1 \n",
        b"begin 1 %s\n" % (b"0F" * 32),
        b"begin 1 %s0\n" % (b"0f" * 32),
        b"begin 1234567890 %s\n" % (b"0f" * 32),
        b"begin files-out.tgz 1 %s\n" % (b"0f" * 32),
        b"begin 1 %s\n" % (b"0f" * 32) * (TIMES_MAX + 1),
        b"files 0\n" * (FILE_CHUNKS_MAX + 1),
        b"put ready 0\n" * (TIMES_MAX + 1),
        b"who\n" * (TIMES_MAX + 1),
    ],
)
def test_what_no_guest_of_ours_says_is_not_understood(said: bytes) -> None:
    with pytest.raises(Garbled) as refused:
        list(Hearing().feed(said))
    assert "etc" not in str(refused.value), "the guest's words are not repeated"


@given(st.binary(max_size=4096))
def test_whatever_bytes_come_only_known_files_of_bounded_size_come_out(said: bytes) -> None:
    try:
        heard = list(Hearing().feed(b"log 3\nabc" + said))
    except Garbled:
        return
    for message in heard:
        if isinstance(message, Put):
            assert len(message.content) <= SIZES_MAX[message.name]


def test_what_came_before_a_wrong_word_was_said() -> None:
    heard = Hearing().feed(b"put ready 0\nnonsense\nput started 0\n")
    assert next(heard) == Put("ready", b"")
    with pytest.raises(Garbled):
        next(heard)


def test_a_file_at_its_bound_is_heard_and_waited_for() -> None:
    hearing = Hearing()
    size = SIZES_MAX["exit.json"]
    assert not list(hearing.feed(f"put exit.json {size}\n".encode() + b"x" * (size - 1)))
    assert list(hearing.feed(b"x")) == [Put("exit.json", b"x" * size)]


def test_a_job_that_prints_day_and_night_is_heard_to_its_end() -> None:
    hearing = Hearing()
    for _ in range(2 * 24 * 60):
        for _ in hearing.feed(b"log 2\n.\n" * 5 * 30):  # the guest looks five times a second
            pass
    assert list(hearing.feed(b'put exit.json 10\n{"code":0}')) == [Put("exit.json", b'{"code":0}')]


def test_a_guest_of_an_older_image_is_understood() -> None:
    said = b'who\nput ready 0\nput started 0\nlog 3\nhi\ndisk 7\nput exit.json 10\n{"code":3}'
    heard = list(Hearing().feed(said))
    assert heard[-1] == Put("exit.json", b'{"code":3}')


def test_the_host_says_who_and_what_in_words_of_one_line() -> None:
    identity = Identity(
        host_name="remuda-a", machine_id="0f" * 16, mac="02:00:00:00:00:01", seed="ab" * 64
    )
    said = you_are(identity, 12)
    assert said == f"id remuda-a {'0f' * 16} 02:00:00:00:00:01 12 {'ab' * 64}\n".encode()
    assert put("job.json", b"{\n}") == b"put job.json 3\n{\n}"
    assert remove("job.json") == b"rm job.json\n"
    assert begin("files-in.tgz", 1, SUM) == f"begin files-in.tgz 1 {SUM}\n".encode()
    assert more("files-in.tgz", b"\n") == b"more files-in.tgz 1\n\n"
    assert done("files-in.tgz") == b"done files-in.tgz\n"


@pytest.mark.parametrize("name", ["ready", "../job.json", "x y"])
def test_the_host_gives_a_guest_nothing_else(name: str) -> None:
    with pytest.raises(AssertionError):
        put(name, b"")
