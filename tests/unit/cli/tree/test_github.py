"""What ``remuda up`` and ``remuda status`` say of GitHub, and what the server is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.cli.tree.decide.driver import Size
from remuda.cli.tree.folder import Folder, Kept
from remuda.cli.tree.github import github_words
from remuda.cli.tree.parts import SERVER, Layout
from remuda.cli.tree.ports import NAMES

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "REMUDA_GITHUB_"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.github.mkdir()
    (folder.github / "app.pem").write_text("a key that nobody reads here")
    return folder


def _write(folder: Folder, **variables: str) -> None:
    given = {"APP_ID": "7", "PRIVATE_KEY_FILE": "app.pem", **variables}
    lines = (f"{PREFIX}{name}={value}\n" for name, value in given.items())
    folder.github_settings.write_text("".join(lines))


def test_without_settings_there_is_nothing_to_say(folder: Folder) -> None:
    assert github_words(folder, {"PATH": "/bin"}) == ""


def test_settings_that_cannot_be_looked_at_end_nothing(folder: Folder) -> None:
    """Such as those that root left in a folder of its own: a fleet goes on that only wants to tell."""
    said = github_words(folder, {"REMUDA_GITHUB_FILE": f"/{'x' * 300}"})
    assert said.startswith("not connected: its settings cannot be read")


@pytest.mark.parametrize(
    ("variables", "env", "words"),
    [
        (
            {"INTAKE": "polling", "ACCOUNTS": "acme"},
            {},
            "github.com, App 7 for acme: asked for jobs every few seconds",
        ),
        ({"WEBHOOK_SECRET": "s"}, {}, "github.com, App 7: sends messages to /webhooks/github"),
        (
            {"WEBHOOK_SECRET": "s"},
            {"INTAKE": "polling", "API_URL": "https://ghes.example/api/v3"},
            "ghes.example, App 7: asked for jobs every few seconds and sends messages to /webhooks/github",
        ),
        ({}, {}, "not connected: The GitHub webhook secret is missing"),
    ],
)
def test_it_is_said_how_jobs_are_heard_of(
    folder: Folder, variables: dict[str, str], env: dict[str, str], words: str
) -> None:
    _write(folder, **variables)
    said = github_words(folder, {f"{PREFIX}{name}": value for name, value in env.items()})
    assert said.startswith(words)


def test_a_file_that_the_environment_names_is_read_where_the_folder_has_none(
    folder: Folder, tmp_path: Path
) -> None:
    _write(folder, INTAKE="polling")
    other = Folder(tmp_path / "other")
    assert "App 7" in github_words(other, {"REMUDA_GITHUB_FILE": str(folder.github_settings)})


def test_the_server_is_told_of_the_settings_once_they_are_there(folder: Folder) -> None:
    ports = {name: 9000 + number for number, name in enumerate(NAMES)}
    kept = Kept(node="n", driver="process", image="process", vms=1, pool="default", ports=ports)
    layout = Layout(folder, kept)
    option = f"--github={folder.github_settings}"
    assert option not in layout.command(SERVER, Size(1, 1024))
    _write(folder, INTAKE="polling")
    assert option in layout.command(SERVER, Size(1, 1024))
