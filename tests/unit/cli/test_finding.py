"""How commands find the fleet: what they are told first, else the ``remuda up`` of this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
import yaml
from click.testing import CliRunner

from remuda.cli.exits import FAILED, NOT_FOUND, REFUSED, code_of
from remuda.cli.finding import Addresses, Home, Where, api_options, default_home, fleet_options
from remuda.model.errors import BadInput
from remuda.ports.api import ApiNotFound, ApiRefused, ApiUnavailable
from remuda.ports.kube import NotFound, Refused

if TYPE_CHECKING:
    from remuda.model.errors import RemudaError

TOKEN = "rmd_canary"  # noqa: S105 - a test's


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return the data folder of an ``up`` that ran."""
    made = Home(tmp_path)
    made.write_addresses(Addresses(server="http://127.0.0.1:8080", namespace="ranch"))
    made.token_file.write_text(TOKEN)
    config = {
        "current-context": "up",
        "contexts": [{"name": "up", "context": {"cluster": "up", "namespace": "other"}}],
        "clusters": [{"name": "up", "cluster": {"server": "https://127.0.0.1:6443"}}],
    }
    made.kubeconfig.write_text(yaml.safe_dump(config))
    return made


def test_the_up_of_this_machine_is_meant_if_nothing_is_said(home: Home) -> None:
    where = Where(data=home.folder)
    settings = where.api_settings()
    assert (settings.base_url, settings.token_file) == ("http://127.0.0.1:8080", home.token_file)
    assert f"remuda up --data {home.folder}" in settings.if_unreachable
    assert where.connection().server == "https://127.0.0.1:6443"
    assert where.namespace() == "ranch"


def test_a_folder_is_named_as_a_shell_takes_it(tmp_path: Path) -> None:
    odd = Home(tmp_path / "my fleet; it's")
    odd.folder.mkdir()
    odd.write_addresses(Addresses(server="http://127.0.0.1:8080"))

    said = Where(data=odd.folder).api_settings().if_unreachable

    words = shlex.split(said[said.index("remuda up") :])
    assert words == ["remuda", "up", "--data", str(odd.folder)]


def test_what_is_said_wins(home: Home, tmp_path: Path) -> None:
    server, file = "https://dispatch.example", tmp_path / "token"
    told = Where(server=server, token_file=file, server_ca=tmp_path, data=home.folder)
    settings = told.api_settings()
    assert (settings.base_url, settings.token_file) == (server, file)
    assert settings.ca_file == tmp_path
    both = Where(server=server, token=TOKEN, token_file=file).api_settings()
    assert (both.token, both.token_file) == (TOKEN, None)
    assert Where(named_namespace="ci", data=home.folder).namespace() == "ci"
    mine = Where(token=TOKEN, data=home.folder).api_settings()
    assert (mine.token, mine.token_file) == (TOKEN, None)


def test_the_token_of_an_up_is_never_sent_to_another_server(home: Home) -> None:
    settings = Where(server="https://elsewhere.example", data=home.folder).api_settings()
    assert (settings.token, settings.token_file) == ("", None)
    assert TOKEN not in repr(Where(token=TOKEN))


def test_a_kubeconfig_alone_does_not_say_where_dispatch_is(home: Home) -> None:
    where = Where(kubeconfig=home.kubeconfig)
    with pytest.raises(BadInput, match="--server"):
        where.api_settings()
    assert where.namespace() == "other"


def test_where_no_fleet_ever_was_one_is_told_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="remuda up") as raised:
        Where(data=tmp_path).api_settings()
    assert str(tmp_path) in raised.value.why


def test_a_folder_without_a_fleet_is_never_another_fleet(tmp_path: Path) -> None:
    """A kubeconfig of this user may lead to one that nobody named."""
    with pytest.raises(BadInput, match="where the Kubernetes API is") as refused:
        Where(data=tmp_path / "typo").connection()
    assert "typo" in refused.value.why


@pytest.mark.parametrize("content", ["", "{", "[]", '{"server": 1}'])
def test_a_file_that_was_half_written_is_named(tmp_path: Path, content: str) -> None:
    home = Home(tmp_path)
    home.addresses_file.write_text(content)
    with pytest.raises(BadInput, match=r"addresses\.json"):
        Where(data=tmp_path).api_settings()


def test_addresses_are_read_as_they_were_written_and_more_is_passed_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    written = Addresses(server="http://x", kubernetes="https://y", metrics={"agent": "http://z"})
    home.write_addresses(written)
    assert home.addresses() == written
    assert [file.name for file in tmp_path.iterdir()] == ["addresses.json"]
    home.addresses_file.write_text('{"server": "http://x", "newer": 1}')
    assert home.addresses() == Addresses(server="http://x")


def test_the_default_folder_follows_the_variables() -> None:
    assert default_home({"REMUDA_DATA": "/d", "XDG_DATA_HOME": "/x"}).folder == Path("/d")
    assert default_home({"XDG_DATA_HOME": "/x"}).folder == Path("/x/remuda")
    assert Path("/home/ann") in default_home({"HOME": "/home/ann"}).folder.parents


def test_options_and_variables_reach_the_command() -> None:
    seen: list[Where] = []

    @click.command()
    @click.argument("name")
    @fleet_options
    def look(where: Where, name: str) -> None:
        assert name == "x"
        seen.append(where)

    @click.command()
    @api_options
    def ask(where: Where) -> None:
        seen.append(where)

    env = {"REMUDA_SERVER": "http://env", "REMUDA_API_TOKEN": TOKEN, "REMUDA_NAMESPACE": "ci"}
    runner = CliRunner()
    for command, arguments in (
        (look, ["x", "--server", "http://said", "--kubeconfig", "k"]),
        (ask, ["--token-file", "t"]),
    ):
        result = runner.invoke(command, arguments, env=env)
        assert result.exit_code == 0, result.output
    assert seen[0] == Where(
        server="http://said", token=TOKEN, kubeconfig=Path("k"), named_namespace="ci"
    )
    assert seen[1] == Where(server="http://env", token=TOKEN, token_file=Path("t"))


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([ApiNotFound], NOT_FOUND),
        ([NotFound], NOT_FOUND),
        ([ApiRefused], REFUSED),
        ([Refused, ApiRefused], REFUSED),
        ([ApiUnavailable], FAILED),
        ([BadInput], FAILED),
        ([ApiNotFound, ApiRefused], FAILED),
    ],
)
def test_an_exit_code_says_what_kind_of_error_it_was(
    errors: list[type[RemudaError]], code: int
) -> None:
    assert code_of([error("what", why="why", fix="fix") for error in errors]) == code
