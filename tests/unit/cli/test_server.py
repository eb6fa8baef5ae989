"""``remuda server`` as a person meets it: settings that cannot be used, and where its commands find the database."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from remuda.adapters.github.settings import APP_ID, PRIVATE_KEY_FILE, WEBHOOK_SECRET
from remuda.adapters.postgres.pool import URL_VARIABLE
from remuda.adapters.status_server import CannotListen
from remuda.cli.main import faults
from remuda.cli.server import server

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.model.errors import RemudaError


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "namespace": "ci"}}],
        "clusters": [{"name": "test", "cluster": {"server": "http://127.0.0.1:1"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        pytest.param(["--listen", "here"], {}, "not host:port", id="an address that is none"),
        pytest.param(["--default-limit", "linux=64"], {}, "linux=64:128Gi", id="half a limit"),
        pytest.param(
            ["--default-limit", "linux=64:-5Gi"], {}, "less than 1 MiB", id="a limit below nothing"
        ),
        pytest.param(
            ["--default-limit", "linux=64:1k"], {}, "less than 1 MiB", id="a limit that rounds to 0"
        ),
        pytest.param(
            ["--default-limit", "linux=64:99999999Ti"], {}, "more than", id="a limit without end"
        ),
        pytest.param(
            ["--controller", "a/b/c"], {}, "NAMESPACE/NAME", id="an account with three parts"
        ),
        pytest.param(["--controller", "ci/"], {}, "NAMESPACE/NAME", id="an account without a name"),
        pytest.param(
            [], {URL_VARIABLE: "mysql://u:sekret@db/x"}, "postgresql://", id="another database"
        ),
        pytest.param(
            [], {APP_ID: "1", WEBHOOK_SECRET: "s"}, PRIVATE_KEY_FILE, id="an App without its key"
        ),
        pytest.param(
            ["--github", "/no/such/settings.env"],
            {},
            "No such file",
            id="settings that are not there",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_said_before_anything_starts(
    arguments: list[str], env: dict[str, str], said: str, kubeconfig: Path, tmp_path: Path
) -> None:
    given = ["--kubeconfig", str(kubeconfig), "--data", str(tmp_path / "postgres"), *arguments]
    ended = CliRunner().invoke(server, given, env=env)
    assert ended.exit_code == 2, ended.output
    assert said in ended.output
    assert "sekret" not in ended.output
    assert not (tmp_path / "postgres").exists()


def test_a_key_that_is_none_is_said_before_a_database_is_made(
    kubeconfig: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("not a key")
    env = {APP_ID: "1", WEBHOOK_SECRET: "s", PRIVATE_KEY_FILE: str(key)}
    given = ["--kubeconfig", str(kubeconfig), "--data", str(tmp_path / "postgres")]
    ended = CliRunner().invoke(server, given, env=env)
    assert ended.exit_code == 2, ended.output
    assert "private key cannot be used" in ended.output
    assert not (tmp_path / "postgres").exists()


@pytest.mark.parametrize("command", [["tokens", "list"], ["tokens", "revoke", "x"], ["migrate"]])
def test_a_directory_that_was_named_before_the_command_is_the_one_that_is_used(
    command: list[str], tmp_path: Path
) -> None:
    """Else a token would be made in another database, and be good for nothing."""
    file = tmp_path / "a-file"
    file.write_text("no directory")
    named = file / "postgres"
    with pytest.raises(Exception, match=str(named)):
        CliRunner().invoke(server, ["--data", str(named), *command], catch_exceptions=False)


FAULT = CannotListen("No port", why="it is in use", fix="Choose another")
BUG = ZeroDivisionError()


@pytest.mark.parametrize(
    ("raised", "found"),
    [
        pytest.param(FAULT, (FAULT,), id="by itself"),
        pytest.param(ExceptionGroup("tasks", [FAULT]), (FAULT,), id="in one of several tasks"),
        pytest.param(
            ExceptionGroup("", [ExceptionGroup("", [FAULT]), FAULT]), (FAULT, FAULT), id="deeper"
        ),
        pytest.param(ExceptionGroup("tasks", [FAULT, BUG]), (), id="next to a bug of ours"),
        pytest.param(ExceptionGroup("", [ExceptionGroup("", [BUG])]), (), id="a bug of ours"),
    ],
)
def test_a_fault_of_the_world_is_told_plainly_wherever_it_was_raised_and_a_bug_never_is(
    raised: Exception, found: tuple[RemudaError, ...]
) -> None:
    assert faults(raised) == found


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "Free disk space"),
        (errno.EROFS, "writable"),
        (errno.EIO, "faults of the disk"),
        (errno.EACCES, "you may"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "Close other programs"),
    ],
)
def test_what_the_system_refuses_anywhere_is_told_and_no_traceback(number: int, cure: str) -> None:
    (found,) = faults(ExceptionGroup("", [OSError(number, "no", "/data/x")]))

    assert found.why == "/data/x: no"
    assert cure in found.fix


def test_an_error_of_the_system_that_may_be_a_bug_is_left_as_it_is() -> None:
    assert faults(ExceptionGroup("", [OSError(errno.EBADF, "no")])) == ()
