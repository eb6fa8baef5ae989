"""How ``remuda host bootstrap`` is given a builder's registration token. Nothing is reached in these tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from remuda.cli.host import host
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "canary-of-the-token"  # noqa: S105 - nobody's
BUILDER = ("--builder", "https://github.com/acme")


@pytest.mark.parametrize(
    ("options", "stdin", "says"),
    [
        (
            (*BUILDER, "--registration-token", "-", "--password-stdin"),
            TOKEN,
            "both come from stdin",
        ),
        ((*BUILDER, "--registration-token", "-"), " \n", "The registration token is empty"),
        ((*BUILDER, "--registration-token", "HERE/empty"), "", "empty is empty"),
        (("--registration-token", "-"), TOKEN, "no builder"),
        ((*BUILDER, "--registration-token", "-"), TOKEN, "private key"),
        ((*BUILDER, "--registration-token", "HERE/file"), "", "private key"),
    ],
)
def test_a_token_comes_from_a_file_or_from_stdin(
    tmp_path: Path, options: tuple[str, ...], stdin: str, says: str
) -> None:
    """The last two get as far as the key that is none: their token was taken."""
    for name, text in (("empty", "\n"), ("file", f"{TOKEN}\n"), ("some", "no key")):
        (tmp_path / name).write_text(text)
    words = ["bootstrap", "m1@127.0.0.1", "--key=HERE/some", "--fingerprint=SHA256:x"]
    words += ["--node=mini-1", "--fleet=minis", "--agent=HERE/some", "--tart=HERE/some"]
    words += ["--tart-version=2.32.1", "--dispatch-url=https://dispatch.test", *options]
    words = [word.replace("HERE", str(tmp_path)) for word in words]
    result = CliRunner().invoke(host, words, input=stdin)
    assert says in str(result.exception)
    assert TOKEN not in result.output + repr(result.exception)
    if says != "private key":
        assert isinstance(result.exception, BadInput)
