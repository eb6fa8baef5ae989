"""What ``remuda host`` says before it reaches anybody: of an address that is none, and where nobody can be asked."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from remuda.cli.host import host


@pytest.mark.parametrize("address", ["m1@", "", "a b", "m1@ "])
def test_an_address_that_is_none_is_not_tried(address: str) -> None:
    result = CliRunner().invoke(host, ["prepare", address, "--password-stdin"], input="canary\n")
    assert result.exit_code == 2
    assert "names no host: give it as m1@203.0.113.7" in result.output


def test_a_password_is_not_asked_for_where_it_would_be_seen() -> None:
    """It has no terminal at all, neither as stdin nor behind it."""
    done = subprocess.run(  # noqa: S603 - our own command
        [
            *(sys.executable, "-c", "from remuda.cli.main import main; main()"),
            *("host", "prepare", "m1@127.0.0.1", "--port=1"),
        ],
        input=b"canary-of-a-password\n",
        capture_output=True,
        start_new_session=True,
        timeout=60,
        check=False,
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode != 0
    assert "there is no terminal on which it would be hidden" in said
    assert "--password-stdin" in said
    assert "echoed" not in said
