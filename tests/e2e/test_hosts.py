"""``remuda hosts operate`` as a process on the one-machine control plane: Hosts that cannot be reached say so."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.support.control_plane import CRD_FOLDER
from tests.support.kubectl import Kubectl, found
from tests.support.processes import free_port, pause, seconds, signal_group
from tests.support.standalone import StandaloneProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 120.0
CANARY = "canary-password-of-the-account"
NAME = "hosts"


def a_host(name: str, port: int, secret: str) -> str:
    host = {
        "apiVersion": "remuda.dev/v1alpha1",
        "kind": "Host",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "fleet": "barn",
            "provider": {"static": {"address": "127.0.0.1", "port": port}},
            "ssh": {
                "user": "m1",
                "keySecretRef": {"name": secret, "key": "key"},
                "passwordSecretRef": {"name": secret, "key": "password"},
            },
        },
    }
    return json.dumps(host)


def a_secret() -> str:
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    data = {"key": b64encode(key).decode(), "password": b64encode(CANARY.encode()).decode()}
    metadata = {"name": "minis", "namespace": "default"}
    return json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[tuple[StandaloneProcess, Kubectl]]:
    programs = found()
    if not programs:
        pytest.skip("no kubectl: run `make control-plane`, or install one")
    plane = StandaloneProcess(tmp_path)
    try:
        plane.start()
        kubectl = Kubectl(next(iter(programs.values())), plane.kubeconfig)
        kubectl("apply", f"--filename={CRD_FOLDER}")
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield plane, kubectl
    finally:
        plane.stop()


def soon(probe: Callable[[], object], wanted: object) -> None:
    deadline = seconds() + WAIT_S
    while (last := probe()) != wanted:
        assert seconds() < deadline, f"not {wanted!r} in {WAIT_S} s; the last answer was {last!r}"
        pause(0.5)


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_hosts_that_cannot_be_bootstrapped_say_why_and_can_be_deleted(
    plane: tuple[StandaloneProcess, Kubectl], tmp_path: Path
) -> None:
    process, kubectl = plane
    agent, tart, port = tmp_path / "agent", tmp_path / "tart.tar.gz", free_port()
    agent.write_bytes(b"#!/bin/sh\n")
    tart.write_bytes(b"no archive")
    command = [
        *(sys.executable, "-m", "remuda.cli.main", "hosts", "operate"),
        *(f"--kubeconfig={process.kubeconfig}", f"--listen=127.0.0.1:{port}"),
        *(f"--pki={process.data / 'pki'}", f"--agent={agent}", f"--tart={tart}"),
        *("--tart-version=2.32.1", "--dispatch-url=http://dispatch.test", "--trust-first-key"),
    ]
    operator = process.processes.start(NAME, command)
    url = f"http://127.0.0.1:{port}"
    ready = lambda: read(f"{url}/readyz") == (200, "leading\n")  # noqa: E731 - said once
    process.processes.wait_until(NAME, ready, "leadership", timeout_s=WAIT_S)

    kubectl("apply", "-f", "-", stdin=a_secret())
    kubectl("apply", "-f", "-", stdin=a_host("far-away", free_port(), "minis"))
    kubectl("apply", "-f", "-", stdin=a_host("no-key", free_port(), "nowhere"))

    def condition(host: str, kind: str) -> dict[str, Any]:
        status = json.loads(kubectl("get", "host", host, "--output=json")).get("status", {})
        return next((c for c in status.get("conditions", ()) if c["type"] == kind), {})

    soon(lambda: condition("far-away", "Converged").get("reason"), "Unreachable")
    soon(lambda: condition("no-key", "Converged").get("reason"), "NoCredential")
    assert "there is no Secret nowhere" in condition("no-key", "Converged")["message"]
    soon(lambda: "127.0.0.1" in condition("far-away", "Ready").get("message", ""), wanted=True)
    assert condition("far-away", "Ready")["status"] == "False"
    _, metrics = read(f"{url}/metrics")
    phases = [line for line in metrics.splitlines() if line.startswith("remuda_host_phase{")]
    assert len(phases) == 2, "one series per host"
    assert read(f"{url}/healthz") == (200, "ok\n")

    kubectl("delete", "host", "far-away", "no-key", "--wait=false")
    soon(lambda: kubectl("get", "hosts", "--output=name"), "")
    signal_group(operator, SIGTERM)
    assert operator.wait(WAIT_S) == 0
    log = process.processes.log(NAME).read_text()
    assert "Traceback" not in log
    assert CANARY not in log + kubectl("get", "events", "--output=json")
