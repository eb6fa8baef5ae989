"""``remuda controller`` as a person meets it: settings that cannot be used, and a server that is not there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from remuda.cli.controller import controller
from remuda.cli.main import remuda

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 30


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Return a kubeconfig of a server that nobody runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "namespace": "ci"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--listen", "here"], "not host:port", id="an address that is none"),
        pytest.param(["--dispatch-url", "dispatch"], "not a URL", id="a dispatch that is no URL"),
        pytest.param(
            ["--dispatch-token-file", "token"], "Give --dispatch-url too", id="a token for nobody"
        ),
        pytest.param(
            ["--renew-deadline", "15"], "another may lead", id="times that let two lead at once"
        ),
        pytest.param(["--sweep-interval", "nan"], "not a number", id="an interval that is none"),
        pytest.param(["--orphan-grace", "inf"], "range", id="a grace without an end"),
        pytest.param(["--log-format", "xml"], "Invalid value", id="a log format that is none"),
    ],
)
def test_a_setting_that_cannot_be_used_ends_it_with_2_and_what_to_do(
    kubeconfig: Path, arguments: list[str], said: str
) -> None:
    answer = CliRunner().invoke(remuda, ["controller", f"--kubeconfig={kubeconfig}", *arguments])
    assert answer.exit_code == 2
    assert said in answer.output
    assert "Traceback" not in answer.output


def test_a_kubeconfig_that_is_not_there_ends_it_with_2(tmp_path: Path) -> None:
    answer = CliRunner().invoke(remuda, ["controller", f"--kubeconfig={tmp_path / 'none'}"])
    assert answer.exit_code == 2
    assert "fix:" in answer.output


def test_every_option_can_come_from_the_environment(kubeconfig: Path) -> None:
    env = {"REMUDA_KUBECONFIG": str(kubeconfig), "REMUDA_LISTEN": "nowhere"}
    answer = CliRunner().invoke(remuda, ["controller"], env=env)
    assert answer.exit_code == 2
    assert "'nowhere' cannot be served on" in answer.output
    for option in controller.params:
        assert option.envvar == "REMUDA_" + option.opts[0].removeprefix("--").upper().replace(
            "-", "_"
        )


class Running:
    """The command in a process of its own; its log is JSON, as no terminal watches."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "remuda.cli.main", "controller", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self, event: str) -> dict[str, Any]:
        """Return the next line of its log that says this."""
        assert self.process.stderr is not None
        too_late = threading.Timer(WAIT_S, self.process.kill)
        too_late.start()
        try:
            for line in self.process.stderr:
                said: dict[str, Any] = json.loads(line)
                if said["event"] == event:
                    return said
        finally:
            too_late.cancel()
        raise AssertionError(f"it never said {event!r}")

    def ends(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, errors

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:  # noqa: S310 - our own server
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_server_that_is_not_there_is_waited_for_in_words(kubeconfig: Path) -> None:
    running = Running(f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0")
    try:
        started = running.says("started")
        assert started["namespace"] == "ci"
        waits = running.says("cannot start yet")
        assert waits["fix"] == "Check the server address and that the API server runs"
        assert get(f"{started['status']}/healthz") == (200, "ok\n")
        code, text = get(f"{started['status']}/readyz")
        assert code == 503
        assert "Check the server address" in text
        assert get(f"{started['status']}/metrics")[0] == 200
        os.kill(running.process.pid, signal.SIGTERM)
        code, errors = running.ends()
        assert code == 0
        assert "Traceback" not in errors
    finally:
        running.stop()


def test_a_port_that_is_taken_ends_it_with_1_and_what_to_do(kubeconfig: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        running = Running(f"--kubeconfig={kubeconfig}", f"--listen={address}")
        code, errors = running.ends()
    assert code == 1
    assert f"remuda: Metrics and health cannot be served on {address}" in errors
    assert "fix: Choose another address with --listen" in errors
    assert "Traceback" not in errors
