"""Settings of GitHub in a file: read as it stands, joined with the environment, refused with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.adapters.github.settings_file import read_file, with_file
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """# by hand
REMUDA_GITHUB_APP_ID = 7
REMUDA_GITHUB_PRIVATE_KEY_FILE=app-7.pem

REMUDA_GITHUB_WEBHOOK_SECRET_FILE=/etc/secret
REMUDA_GITHUB_RUNNER_GROUP="acme=Build machines"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "settings.env"
    file.write_text(TEXT)
    return file


def test_files_are_beside_the_settings_unless_they_are_elsewhere(
    file: Path, tmp_path: Path
) -> None:
    assert read_file(file) == {
        "REMUDA_GITHUB_APP_ID": "7",
        "REMUDA_GITHUB_PRIVATE_KEY_FILE": str(tmp_path / "app-7.pem"),
        "REMUDA_GITHUB_WEBHOOK_SECRET_FILE": "/etc/secret",
        "REMUDA_GITHUB_RUNNER_GROUP": "acme=Build machines",
    }


@pytest.mark.parametrize(
    ("env", "app", "group"),
    [
        pytest.param({}, "7", "acme=Build machines", id="the file alone"),
        pytest.param({"RUNNER_GROUP": "2"}, "7", "2", id="the environment goes before it"),
        pytest.param({"RUNNER_GROUP": " "}, "7", "acme=Build machines", id="not if it is empty"),
        pytest.param({"APP_ID": "8"}, "8", None, id="another App takes nothing of it"),
    ],
)
def test_the_environment_goes_before_the_file(
    file: Path, env: dict[str, str], app: str, group: str | None
) -> None:
    found = with_file({f"REMUDA_GITHUB_{name}": value for name, value in env.items()}, file)
    assert found["REMUDA_GITHUB_APP_ID"] == app
    assert found.get("REMUDA_GITHUB_RUNNER_GROUP") == group
    assert ("REMUDA_GITHUB_PRIVATE_KEY_FILE" in found) == (app == "7")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"REMUDA_GITHUB_APP_ID=1\nREMUDA_GITHUB_APPID=canary\n", "Line 2"),
        (b"PATH=canary\n", "Line 1"),
        (b"canary\n", "Line 1"),
        (b"\xff\xfecanary", "not text"),
        (None, "No such file"),
    ],
)
def test_what_cannot_be_used_is_named_by_its_line_and_not_quoted(
    tmp_path: Path, text: bytes | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "s").write_bytes(text)
    with pytest.raises(BadInput, match=says) as raised:
        read_file(tmp_path / "s")
    assert "canary" not in str(raised.value)
