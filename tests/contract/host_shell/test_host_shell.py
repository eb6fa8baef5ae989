"""What every way to a host must do: over SSH to a real OpenSSH, and in memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import traceback
from typing import TYPE_CHECKING

import pytest

from remuda.model.secret import Secret
from remuda.ports.host_shell import (
    OUTPUT_BYTES_MAX,
    Command,
    CommandTimedOut,
    HostKeyChanged,
    HostKeyUnknown,
    LoginRefused,
    Ran,
    Unreachable,
    Upload,
    UploadUnreadable,
)
from tests.contract.host_shell.ways import InMemory, OverSsh, Way
from tests.support.scripted_mac.place import a_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from remuda.ports.host_shell import HostShell, Target

LONG_S = 120.0


@pytest.fixture(scope="module")
def over_ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverSsh]:
    with a_place(tmp_path_factory.mktemp("mac") / "root") as place:
        yield OverSsh(place)


@pytest.fixture(params=["ssh", "memory"])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "memory":
        return InMemory()
    over_ssh: OverSsh = request.getfixturevalue("over_ssh")
    over_ssh.prepare()
    return over_ssh


@contextlib.asynccontextmanager
async def opened(way: Way, target: Target | None = None) -> AsyncIterator[HostShell]:
    shells = way.shells()
    shell = await shells.open(target or way.target())
    try:
        yield shell
    finally:
        await shells.close(shell)


async def run(
    way: Way, *words: str, stdin: bytes | Secret | Upload = b"", root: bool = False
) -> Ran:
    async with opened(way) as shell:
        return await shell.run(Command(words=words, stdin=stdin, root=root, timeout_s=LONG_S))


async def test_words_arrive_as_they_are(way: Way) -> None:
    words = ["", " ", "a b", "'", "''", '"', "\\", "$HOME", "`id`", "$(id)", "!!", "~", "=ls", "*"]
    words += [
        "-n",
        "\n",
        "a\nb\n",
        "é",
        "日本",
        "\udcff",
        "#",
        ";",
        "&",
        "x=y",
        "%1",
        "{a,b}",
        "\t",
    ]
    ran = await run(way, "/contract/words", *words)
    assert ran.code == 0
    assert ran.stdout.decode(errors="surrogateescape").split("\0")[:-1] == words


async def test_a_code_and_what_was_said_on_both_streams_come_back(way: Way) -> None:
    ran = await run(way, "/contract/fails")
    assert (ran.code, ran.stdout, ran.stderr, ran.cut) == (3, b"out\n", b"err\n", False)


async def test_a_program_that_is_not_there_is_an_answer(way: Way) -> None:
    ran = await run(way, "/contract/nothing-of-this-name")
    assert ran.code == 127


@pytest.mark.parametrize("said", [b"", b"one\0two\n", bytes(range(256)) * 4096])
async def test_stdin_arrives_whole_with_its_end(way: Way, said: bytes) -> None:
    for stdin in (said, Secret(said)):
        ran = await run(way, "/contract/reads", stdin=stdin)
        assert ran.stdout == said[:OUTPUT_BYTES_MAX]


async def test_a_file_goes_through_stdin_in_pieces(way: Way, tmp_path: Path) -> None:
    held = bytes(range(251)) * 3000
    (tmp_path / "agent").write_bytes(held)
    upload = Upload(tmp_path / "agent", hashlib.sha256(held).hexdigest(), len(held))
    assert (await run(way, "/contract/reads", stdin=upload)).stdout == held


@pytest.mark.parametrize("held", [None, b"", b"not what was announced", b"x" * 300_000])
async def test_a_file_that_is_not_what_was_announced_is_not_sent_whole(
    way: Way, tmp_path: Path, held: bytes | None
) -> None:
    if held is not None:
        (tmp_path / "agent").write_bytes(held)
    upload = Upload(tmp_path / "agent", "0" * 64, 300_000)
    async with opened(way) as shell:
        with pytest.raises(UploadUnreadable, match="was not sent"):
            await shell.run(Command(words=("/contract/reads",), stdin=upload, timeout_s=LONG_S))
        assert (await shell.run(Command(words=("/contract/who",), timeout_s=LONG_S))).code == 0


async def test_a_program_that_does_not_read_its_stdin_answers_all_the_same(way: Way) -> None:
    assert (await run(way, "/contract/ignores-stdin", stdin=bytes(8_000_000))).code == 5


async def test_a_flood_is_cut_and_said_to_be(way: Way) -> None:
    ran = await run(way, "/contract/flood")
    assert ran.code == 0
    assert ran.cut
    assert len(ran.stdout) == OUTPUT_BYTES_MAX
    assert OUTPUT_BYTES_MAX - 100 <= len(ran.stderr) <= OUTPUT_BYTES_MAX


async def test_root_is_asked_for_by_sudo_that_never_asks_back(way: Way) -> None:
    assert (await run(way, "/contract/who")).stdout == b"501\n"
    assert (await run(way, "/contract/who", root=True)).stdout == b"0\n"
    assert (await run(way, "/contract/words", "a'b", "\n", root=True)).stdout == b"a'b\0\n\0"
    way.forgo_root()
    ran = await run(way, "/contract/who", root=True)
    assert (ran.code, ran.stdout) == (1, b"")
    assert b"a password is required" in ran.stderr


async def test_a_command_that_takes_too_long_is_ended_and_the_way_stays_open(way: Way) -> None:
    async with opened(way) as shell:
        with pytest.raises(CommandTimedOut, match="did not end"):
            await shell.run(Command(words=("/contract/hangs", "mine"), timeout_s=1.0))
        assert (await shell.run(Command(words=("/contract/who",), timeout_s=LONG_S))).code == 0


async def test_the_pinned_key_is_the_one_that_is_shown(way: Way) -> None:
    async with opened(way) as shell:
        assert shell.fingerprint == way.target().fingerprint
        assert shell.fingerprint.startswith("SHA256:")


async def test_an_unknown_host_is_taken_only_if_that_is_allowed(way: Way) -> None:
    shown = way.target().fingerprint
    with pytest.raises(HostKeyUnknown, match="none is pinned"):
        async with opened(way, way.target(fingerprint="")):
            pass
    async with opened(way, way.target(fingerprint="", trust_first=True)) as shell:
        assert shell.fingerprint == shown


async def test_another_host_than_the_pinned_one_is_sent_nothing(way: Way) -> None:
    pinned = "SHA256:" + "B" * 43
    password = Secret(way.password.encode())
    with pytest.raises(HostKeyChanged) as caught:
        async with opened(way, way.target(fingerprint=pinned, trust_first=True, password=password)):
            pass
    assert caught.value.seen == way.target().fingerprint
    assert pinned in str(caught.value)


async def test_a_key_that_is_not_taken_is_refused_for_good(way: Way) -> None:
    with pytest.raises(LoginRefused, match="let us in") as caught:
        async with opened(way, way.target(key=way.other_key())):
            pass
    assert caught.value.retry == "never"


async def test_the_password_opens_where_the_key_does_not(way: Way) -> None:
    password = Secret(way.password.encode())
    for key in (None, way.other_key()):
        async with opened(way, way.target(key=key, password=password)) as shell:
            assert (await shell.run(Command(words=("/contract/who",), timeout_s=LONG_S))).code == 0


async def test_a_wrong_password_is_refused_and_shown_nowhere(way: Way) -> None:
    wrong = "canary-" + os.urandom(8).hex()
    with pytest.raises(LoginRefused) as caught:
        async with opened(way, way.target(key=None, password=Secret(wrong.encode()))):
            pass
    assert wrong not in "".join(traceback.format_exception(caught.value))


async def test_neither_key_nor_password_is_refused(way: Way) -> None:
    with pytest.raises(LoginRefused):
        async with opened(way, way.target(key=None)):
            pass


async def test_where_nobody_answers_is_unreachable(way: Way) -> None:
    with pytest.raises(Unreachable) as caught:
        async with opened(way, way.target(port=1)):
            pass
    assert caught.value.retry == "soon"


async def test_nothing_runs_over_a_way_that_was_closed(way: Way) -> None:
    shells = way.shells()
    shell = await shells.open(way.target())
    await shells.close(shell)
    await shells.close(shell)
    with pytest.raises(Unreachable):
        await shell.run(Command(words=("/contract/who",)))
