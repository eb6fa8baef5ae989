"""``remuda control-plane`` as a person runs it: it serves, it stops when told, and its errors help."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_S = 30


class Running:
    """The command in a process of its own."""

    def __init__(self, *arguments: str, under: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            [*under, sys.executable, "-m", "remuda.cli.main", "control-plane", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """Return the next line of its output; fail if none comes in time."""
        assert self.process.stdout is not None
        too_late = threading.Timer(START_S, self.process.kill)
        too_late.start()
        try:
            line = self.process.stdout.readline()
        finally:
            too_late.cancel()
        assert line, "it said nothing"
        return line.strip()

    def ends(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and its errors."""
        _, errors = self.process.communicate(timeout=START_S)
        return self.process.returncode, errors

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Running]:
    running = Running("--data", str(tmp_path / "data"), "--port", "0")
    yield running
    running.stop()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(
    serving: Running, tmp_path: Path, how: signal.Signals
) -> None:
    address = serving.line().removeprefix("Serving a Kubernetes API at ")
    kubeconfig = serving.line().removeprefix("export KUBECONFIG=")
    assert address.startswith("https://127.0.0.1:")
    assert kubeconfig == str(tmp_path / "data" / "kubeconfig")
    config = yaml.safe_load((tmp_path / "data" / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == address
    os.kill(serving.process.pid, how)
    assert serving.ends() == (0, "Stopped.\n")


def test_it_serves_more_clients_than_a_shell_grants_files(tmp_path: Path) -> None:
    few_files = ("sh", "-c", 'ulimit -S -n 64 && exec "$@"', "sh")
    running = Running("--data", str(tmp_path), "--port", "0", under=few_files)
    try:
        port = int(running.line().rpartition(":")[2])
        with ExitStack() as clients:
            for _ in range(100):
                clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            pem = ssl.get_server_certificate(("127.0.0.1", port), timeout=START_S)
        assert pem.startswith("-----BEGIN CERTIFICATE")
    finally:
        running.stop()


def test_a_second_one_in_the_same_directory_is_refused(serving: Running, tmp_path: Path) -> None:
    serving.line()
    code, errors = Running("--data", str(tmp_path / "data"), "--port", "0").ends()
    assert code == 1
    assert "is in use" in errors
    assert "fix: " in errors


def test_a_taken_port_is_refused(serving: Running, tmp_path: Path) -> None:
    port = serving.line().rpartition(":")[2]
    code, errors = Running("--data", str(tmp_path / "other"), "--port", port).ends()
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in errors
    assert "--port" in errors


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    code, errors = Running("--data", str(tmp_path), "--port", "0").ends()
    assert code == 1
    assert "is not the data directory of a control plane" in errors


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, errors = Running("--data", str(tmp_path / "file" / "data"), "--port", "0").ends()
    assert code == 1
    assert "cannot be" in errors
    assert "Traceback" not in errors


def test_the_kubeconfig_is_printed_when_asked_for(tmp_path: Path) -> None:
    running = Running("--data", str(tmp_path / "data"), "--port", "0", "--print-kubeconfig")
    try:
        assert running.line() == "apiVersion: v1"  # nothing else: the output can be a file
    finally:
        running.stop()
