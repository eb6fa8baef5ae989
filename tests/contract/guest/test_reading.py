"""The guest reads JSON with tr and awk: every text must come out as it went in."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.adapters.process.guest import guest_script
from tests.support.guest_script import a_shell

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.guest_script import Shell

# What gives a reader trouble, often; anything else, now and then. Neither an environment nor a file of text holds NUL.
_PIECES = st.sampled_from(
    [
        *("\\", '"', "'", "\n", "\t", "\b", "\f", "\r", "/", "\\n", '\\"', "\\u0041", "{", "}"),
        *(":", ",", "%s", "%c", "&", "é", "\u2028", "😀", "\U0010ffff", "\uffff", "\x01", "\x7f"),
        *(" ", "$(id)", "`", "'\"'\"'"),
    ]
)
_ANY = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXTS = st.lists(_PIECES | _ANY, max_size=30).map("".join)
NAMES = st.from_regex(r"V_[A-Za-z0-9_]{0,8}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="session", params=["dash", "busybox", "like-macos"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell for each awk: it is awk that reads."""
    return a_shell(request.param, tmp_path_factory.mktemp("shell"))


def read(shell: Shell, document: bytes, folder: Path) -> dict[str, bytes]:
    out = folder / "out"
    out.mkdir()
    (folder / "job.json").write_bytes(document)
    subprocess.run(  # noqa: S603 - our own script
        [*shell.argv, str(guest_script()), "read", str(folder / "job.json"), str(out)],
        env={"PATH": shell.path},
        check=True,
        timeout=120,
    )
    return {path.name: path.read_bytes() for path in out.iterdir()}


def variables(commands: bytes) -> dict[str, str]:
    """Return what a shell makes of the variables that were read."""
    said = subprocess.run(  # noqa: S603 - what this test wrote
        ["/bin/sh", "-c", f"{commands.decode()}\nexec /usr/bin/env -0"],
        env={},
        check=True,
        capture_output=True,
    ).stdout.decode()
    return {
        name: value
        for name, _, value in (line.partition("=") for line in said.split("\0"))
        if name.startswith("V_")
    }


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    script=TEXTS,
    env=st.dictionaries(NAMES, TEXTS, max_size=3),
    more=st.dictionaries(TEXTS, JSON, max_size=2),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 2]),
)
def test_every_text_comes_out_as_it_went_in(  # noqa: PLR0913 - what is drawn
    *,
    shell: Shell,
    tmp_path_factory: pytest.TempPathFactory,
    script: str,
    env: dict[str, str],
    more: dict[str, object],
    ascii_only: bool,
    indent: int | None,
) -> None:
    wanted = {"job_id": "j", "kind": "local", "script": script, "env": env}
    document = json.dumps({**more, **wanted, "z": more}, ensure_ascii=ascii_only, indent=indent)
    found = read(shell, document.encode(), tmp_path_factory.mktemp("read"))
    assert found["script"].decode() == script
    assert (found["job_id"], found["kind"]) == (b"j", b"local")
    assert variables(found.get("env", b"")) == env
    assert set(found) <= {"job_id", "kind", "script", "env"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("x" * 2**20, id="one line"),
        pytest.param(
            "echo 'é' and more words, as many as a line of a script has \"$x\" \\\n" * 2**14,
            id="a script",
        ),
        pytest.param("\x01\\" * 2**14, id="nothing but escapes"),
    ],
)
def test_a_script_of_a_megabyte_is_read(shell: Shell, tmp_path: Path, script: str) -> None:
    document = json.dumps({"script": script, "kind": "local"}).encode()
    assert read(shell, document, tmp_path)["script"].decode() == script


def test_half_a_pair_is_replaced(shell: Shell, tmp_path: Path) -> None:
    document = rb'{"script":"\ud83d \ude00 \ud83d\ud83d\ude00 \ud83d\n \uD83D\uDE00 \ud83d"}'
    wanted = "\ufffd \ufffd \ufffd😀 \ufffd\n 😀 \ufffd"
    assert read(shell, document, tmp_path)["script"].decode() == wanted


def test_names_that_are_no_names_of_variables_are_left_out(shell: Shell, tmp_path: Path) -> None:
    env = {"V_A": "1", "a b": "2", "x;id": "3", "": "4", "1V": "5", "V_B": "6"}
    found = read(shell, json.dumps({"env": env}).encode(), tmp_path)
    assert variables(found["env"]) == {"V_A": "1", "V_B": "6"}


def test_the_last_of_two_counts(shell: Shell, tmp_path: Path) -> None:
    document = b'{"script":"a long one","idle_timeout_seconds": 3.5,"script":"short"}'
    found = read(shell, document, tmp_path)
    assert (found["script"], found["idle"]) == (b"short", b"3.5\n")
