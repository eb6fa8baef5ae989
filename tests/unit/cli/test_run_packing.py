"""What a folder is packed as, and what is written of an archive that anybody may have made."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.cli.packing import Stopped, UploadFailed, leads_outside, pack, shown_size
from remuda.cli.unpacking import DownloadFailed, Unpacked, Wanted, unpack

if TYPE_CHECKING:
    from remuda.cli.packing import Packed

PACKED_MAX = 1024 * 1024


def packed(folder: Path, *, bytes_max: int = PACKED_MAX) -> tuple[Packed, io.BytesIO]:
    out = io.BytesIO()
    done = pack(folder, out, bytes_max=bytes_max, is_stopped=lambda: False)
    out.seek(0)
    return done, out


def a_tree(folder: Path) -> Path:
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "sub" / "a b").write_bytes(b"one\n")
    (folder / "sub" / "deep" / "ü\n").write_bytes(b"")
    script = folder / "run"
    script.write_bytes(b"#!/bin/sh\n")
    script.chmod(0o4755)
    (folder / "link").symlink_to("sub/a b")
    return folder


# --- Packing ---------------------------------------------------------------------------------------------------------


def test_a_tree_comes_out_as_it_went_in(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")
    done, out = packed(tree)
    assert (done.files, done.left_out) == (3, ())
    assert done.size_bytes == len(out.getvalue())
    assert done.sha256 == hashlib.sha256(out.getvalue()).hexdigest()

    unpacked = unpack(out, [Wanted(".", tmp_path / "back")])

    assert (unpacked.files, unpacked.refused) == (4, [])
    back = tmp_path / "back"
    assert (back / "sub" / "a b").read_bytes() == b"one\n"
    assert (back / "sub" / "deep" / "ü\n").read_bytes() == b""
    assert (back / "empty").is_dir()
    assert os.readlink(back / "link") == "sub/a b"  # noqa: PTH115 - its words
    assert stat.S_IMODE((back / "run").stat().st_mode) & 0o4111 == 0o111, "no rights of its owner's"


def test_what_no_runner_can_use_is_left_out_and_named(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")
    os.mkfifo(tree / "pipe")
    (tree / "passwd").symlink_to("/etc/passwd")
    (tree / "sub" / "up").symlink_to("../../secret")
    (tree / "gone").symlink_to("no-such-file")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(tree)  # a socket's whole path may be too long
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        done, out = packed(tree)
    assert sorted(text.split(":")[0] for text in done.left_out) == [
        "passwd",
        "pipe",
        "socket",
        "sub/up",
    ]
    with tarfile.open(fileobj=out) as tar:
        kinds = {member.name: member.type for member in tar}
    assert kinds["gone"] == tarfile.SYMTYPE
    assert not {"passwd", "pipe", "socket", "sub/up"} & set(kinds)


def test_a_folder_that_is_too_large_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(70_000))
    with pytest.raises(UploadFailed) as refused:
        packed(tmp_path, bytes_max=65_536)
    assert "0.0625 MiB" in refused.value.why
    assert "smaller folder" in refused.value.fix


def test_it_is_the_packed_size_that_counts(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(1_000_000))
    done, _ = packed(tmp_path, bytes_max=65_536)
    assert done.size_bytes < 65_536


def test_whoever_is_asked_to_end_packs_no_further(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        pack(a_tree(tmp_path), io.BytesIO(), bytes_max=PACKED_MAX, is_stopped=lambda: True)


@pytest.mark.parametrize(
    ("name", "target", "outside"),
    [
        ("a", "b", False),
        ("d/a", "../b", False),
        ("d/a", "..", False),
        ("d/a", "../..", True),
        ("a", "..", True),
        ("a", "../b", True),
        ("a", "d/../../b", True),
        ("a", "/etc/passwd", True),
        ("a", "..b", False),
    ],
)
def test_where_a_link_leads(name: str, target: str, outside: bool) -> None:  # noqa: FBT001 - a table
    assert leads_outside(name, target) is outside


@pytest.mark.parametrize(("size", "said"), [(7, "7 bytes"), (1536, "1.5 KiB"), (2**21, "2.0 MiB")])
def test_sizes_are_said_to_people(size: int, said: str) -> None:
    assert shown_size(size) == said


# --- Unpacking -------------------------------------------------------------------------------------------------------


def an_archive(*entries: tuple[str, bytes] | tarfile.TarInfo) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            tar.addfile(info, io.BytesIO(entry[1]))
    out.seek(0)
    return out


def an_entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_each_path_goes_to_its_own_place(tmp_path: Path) -> None:
    archive = an_archive(("./dist/a", b"1"), ("./dist/b/c", b"2"), ("./log", b"3"), ("./x", b"4"))
    wanted = [
        Wanted("dist", tmp_path / "one"),
        Wanted("dist/b", tmp_path / "two"),
        Wanted("log", tmp_path / "one"),
        Wanted("never", tmp_path / "one"),
    ]
    done = unpack(archive, wanted)
    assert below(tmp_path) == {"one/dist/a": b"1", "two/dist/b/c": b"2", "one/log": b"3"}
    assert done.missing(wanted) == ["never"]
    assert done.refused == ["x: nobody asked for it"]
    assert (done.files, done.size_bytes, done.into) == (3, 3, [tmp_path / "one", tmp_path / "two"])


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(("/etc/remuda-was-here", b"x"), id="an absolute name"),
        pytest.param(("../out", b"x"), id="a name that leads out"),
        pytest.param(("a/../../out", b"x"), id="one that leads out in its middle"),
        pytest.param(an_entry("pipe", tarfile.FIFOTYPE), id="a pipe"),
        pytest.param(an_entry("device", tarfile.CHRTYPE), id="a device"),
        pytest.param(an_entry("link", tarfile.SYMTYPE, "../out"), id="a link that leads out"),
        pytest.param(an_entry("link", tarfile.SYMTYPE, "/etc/passwd"), id="an absolute link"),
        pytest.param(an_entry("hard", tarfile.LNKTYPE, "/etc/passwd"), id="a hard link elsewhere"),
        pytest.param(an_entry("hard", tarfile.LNKTYPE, "hard"), id="a hard link to itself"),
        pytest.param(("/".join("d" * 200), b"x"), id="one that lies too deep"),
        pytest.param(("taken", b"x"), id="a file where a folder is"),
        pytest.param(("file/below", b"x"), id="one below a file"),
    ],
)
def test_what_is_not_written(tmp_path: Path, entry: tuple[str, bytes] | tarfile.TarInfo) -> None:
    into = tmp_path / "into"
    (into / "taken").mkdir(parents=True)
    (into / "file").write_bytes(b"mine")
    done = unpack(an_archive(entry, ("good", b"1")), [Wanted(".", into)])
    assert len(done.refused) == 1, done
    assert below(tmp_path) == {"into/file": b"mine", "into/good": b"1"}
    assert not os.path.lexists("/etc/remuda-was-here")


def test_nothing_is_written_through_a_link_that_was_there_or_came_along(tmp_path: Path) -> None:
    into, other = tmp_path / "into", tmp_path / "other"
    into.mkdir()
    other.mkdir()
    (other / "kept").write_bytes(b"mine")
    (into / "folder").symlink_to(other)
    (into / "file").symlink_to(other / "kept")
    archive = an_archive(
        ("folder/new", b"theirs"),
        ("file", b"theirs"),
        an_entry("inside", tarfile.SYMTYPE, "real"),
        ("real/a", b"1"),
        ("inside/b", b"2"),
    )
    done = unpack(archive, [Wanted(".", into)])
    assert below(other) == {"kept": b"mine"}
    assert (into / "file").read_bytes() == b"theirs"
    assert not (into / "file").is_symlink(), "the link itself was replaced"
    assert sorted(text.split(":")[0] for text in done.refused) == ["folder/new", "inside"]
    assert (into / "inside" / "b").read_bytes() == b"2", "what came as a folder stays one"


def test_no_link_leads_out_over_another_link(tmp_path: Path) -> None:
    archive = an_archive(
        an_entry("o/a/b/c", tarfile.SYMTYPE, "../.."),
        an_entry("o/out", tarfile.SYMTYPE, "a/b/c/../../../secret"),
        an_entry("o/over", tarfile.SYMTYPE, "a/b/c/a"),
        an_entry("dist/beside", tarfile.SYMTYPE, "../.env"),
        an_entry("dist/up", tarfile.SYMTYPE, "../dist/real"),
        ("dist/real", b"1"),
    )
    done = unpack(archive, [Wanted("o", tmp_path), Wanted("dist", tmp_path)])
    assert sorted(text.split(":")[0] for text in done.refused) == ["dist/beside", "o/out"]
    inside = [path.resolve().is_relative_to(tmp_path.resolve()) for path in tmp_path.rglob("*")]
    assert inside == [True] * len(inside)


def test_links_and_holes_do_not_make_more_of_an_archive_than_its_bound(tmp_path: Path) -> None:
    large = ("a", bytes(900_000))
    again = [an_entry(f"b{number}", tarfile.LNKTYPE, "a") for number in range(30)]
    with pytest.raises(DownloadFailed, match="more than 1000000 bytes"):
        unpack(an_archive(large, *again), [Wanted(".", tmp_path)], bytes_max=1_000_000)
    assert sum(len(data) for data in below(tmp_path).values()) < 2_000_000

    hole = tarfile.TarInfo("hole")
    hole.pax_headers = {"GNU.sparse.size": "300000000", "GNU.sparse.map": "0,0"}
    done = unpack(an_archive(hole), [Wanted(".", tmp_path)], bytes_max=1_000_000)
    assert [text.split(":")[0] for text in done.refused] == ["hole"]
    assert not (tmp_path / "hole").exists()


def test_names_are_not_kept_without_bound(tmp_path: Path) -> None:
    long = [an_entry(f"{number}/{'x' * 50_000}", tarfile.FIFOTYPE) for number in range(700)]
    with pytest.raises(DownloadFailed, match="names"):
        unpack(an_archive(*long), [Wanted(".", tmp_path)])
    with pytest.raises(DownloadFailed, match="makes no sense"):
        unpack(an_archive(("y" * 1_000_000, b"1")), [Wanted(".", tmp_path)])


def test_a_hard_link_to_a_file_that_came_is_that_file(tmp_path: Path) -> None:
    archive = an_archive(("./a", b"1"), an_entry("./b", tarfile.LNKTYPE, "./a"))
    assert unpack(archive, [Wanted(".", tmp_path)]).refused == []
    assert below(tmp_path) == {"a": b"1", "b": b"1"}


def test_what_is_there_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a longer text")
    unpack(an_archive(("a", b"new")), [Wanted("a", tmp_path)])
    assert below(tmp_path) == {"a": b"new"}


def test_an_archive_that_swells_is_given_up(tmp_path: Path) -> None:
    archive = an_archive(("small", b"1"), ("zeros", bytes(30_000_000)))
    with pytest.raises(DownloadFailed, match="more than 1000000 bytes"):
        unpack(archive, [Wanted(".", tmp_path)], bytes_max=1_000_000)
    assert sum(len(data) for data in below(tmp_path).values()) < 20_000_000
    assert list(tmp_path.glob(".*")) == []


class After:
    """Asks to end when it was asked so often whether somebody does."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self) -> bool:
        self.times -= 1
        return self.times < 0


def test_whoever_is_asked_to_end_unpacks_no_further_and_leaves_no_half_file(tmp_path: Path) -> None:
    contents = {"a": b"1", "b": bytes(3_000_000), "c": b"3"}
    archive = an_archive(*contents.items())
    (tmp_path / "b").write_bytes(b"as it was")
    seen = set()
    for times in range(60):
        archive.seek(0)
        with pytest.raises(Stopped):
            unpack(archive, [Wanted(".", tmp_path)], is_stopped=After(times))
        there = below(tmp_path)
        assert all(data in (contents[name], b"as it was") for name, data in there.items())
        seen.add(len(there))
    assert len(seen) > 1, "it was asked to end at several places"


def test_it_can_be_ended_while_it_passes_over_what_nobody_asked_for(tmp_path: Path) -> None:
    archive = an_archive(("a", b"1"), ("zeros", bytes(30_000_000)), ("z", b"2"))
    with pytest.raises(Stopped):
        unpack(archive, [Wanted("a", tmp_path), Wanted("z", tmp_path)], is_stopped=After(100))
    assert below(tmp_path) == {"a": b"1"}


def _broken() -> dict[str, bytes]:
    whole = an_archive(("a", os.urandom(5000))).getvalue()
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 2**33
    claims = gzip.compress(long_name.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    return {
        "nothing": b"",
        "no archive": b"hello",
        "half": whole[: len(whole) // 2],
        "no tar": gzip.compress(b"hello" * 1000),
        "a name without end": claims,
        "damaged": whole[:2000] + b"xx" + whole[2002:],
    }


@pytest.mark.parametrize("name", list(_broken()))
def test_an_archive_that_is_broken_is_said_to_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed):
        unpack(io.BytesIO(_broken()[name]), [Wanted(".", tmp_path)])


def test_of_nothing_all_is_missing() -> None:
    assert Unpacked().missing([Wanted("a", None)]) == ["a"]  # type: ignore[arg-type] # no place is needed
