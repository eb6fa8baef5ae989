"""``remuda control-plane`` and ``remuda controller`` as two processes on one machine, with kubectl in hand."""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.control_plane import CRD_FOLDER
from tests.support.kubectl import Kubectl, found
from tests.support.processes import free_port, pause, seconds, signal_group
from tests.support.standalone import StandaloneProcess

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 60.0
POOL = """
apiVersion: remuda.dev/v1alpha1
kind: RunnerPool
metadata: {name: mac, namespace: default}
spec: {os: darwin, image: "registry.test/mac:1", fleet: barn, labels: [self-hosted, macos], replicas: REPLICAS}
"""
HOST = """
apiVersion: v1
kind: Node
metadata: {name: host-a, labels: {remuda.dev/fleet: barn, kubernetes.io/os: darwin}}
"""
# Healthy, so that runners are made; full, so that none is bound: nobody plays the host here, and only a host can end
# what was bound to it.
UP = json.dumps(
    {
        "status": {
            "allocatable": {"remuda.dev/vm": "0", "pods": "10", "cpu": "64", "memory": "256Gi"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "."}],
        }
    }
)


class Operated:
    """A control plane with one host, and an operator that is started and ended at will."""

    def __init__(self, plane: StandaloneProcess, kubectl: Kubectl) -> None:
        self._plane, self.kubectl = plane, kubectl
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Start the operator, and wait until it leads."""
        self._starts += 1
        name, port = f"controller-{self._starts}", free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "remuda.cli.main", "controller"]
        options = [f"--kubeconfig={self._plane.kubeconfig}", f"--listen=127.0.0.1:{port}"]
        short = ["--lease-duration=3", "--renew-deadline=2", "--lease-retry=0.5"]
        self.process = self._plane.processes.start(name, [*command, *options, *short])
        ready = lambda: self.get("/readyz") == (200, "leading\n")  # noqa: E731 - said once
        self._plane.processes.wait_until(name, ready, "leadership", timeout_s=WAIT_S)

    def end(self, how: int) -> int:
        assert self.process is not None
        signal_group(self.process, how)  # type: ignore[arg-type]
        return self.process.wait(WAIT_S)

    def log(self) -> str:
        return self._plane.processes.log(f"controller-{self._starts}").read_text()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:  # noqa: S310 - ours
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def names(self, plural: str) -> list[str]:
        listed: dict[str, Any] = json.loads(
            self.kubectl("get", plural, "--selector=remuda.dev/pool=mac", "--output=json")
        )
        return sorted(item["metadata"]["name"] for item in listed["items"])


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    programs = found()
    if not programs:
        pytest.skip("no kubectl: run `make control-plane`, or install one")
    plane = StandaloneProcess(tmp_path)
    try:
        plane.start()
        kubectl = Kubectl(next(iter(programs.values())), plane.kubeconfig)
        kubectl("apply", f"--filename={CRD_FOLDER}")
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
        kubectl("apply", "-f", "-", stdin=HOST)
        kubectl("patch", "node", "host-a", "--subresource=status", "--type=merge", "-p", UP)
        yield Operated(plane, kubectl)
    finally:
        plane.stop()


def soon(probe: Callable[[], object], wanted: object) -> None:
    deadline = seconds() + WAIT_S
    while (last := probe()) != wanted:
        assert seconds() < deadline, f"not {wanted!r} in {WAIT_S} s; the last answer was {last!r}"
        pause(0.2)


def test_a_pool_is_filled_and_the_operator_tells_about_it(operated: Operated) -> None:
    operated.start()
    operated.kubectl("apply", "-f", "-", stdin=POOL.replace("REPLICAS", "3"))
    soon(lambda: len(operated.names("pods")), 3)
    assert operated.names("serviceaccounts") == operated.names("pods")

    soon(lambda: operated.kubectl("get", "rpool", "mac", "-o=jsonpath={.status.starting}"), "3")
    assert operated.get("/healthz") == (200, "ok\n")
    code, metrics = operated.get("/metrics")
    assert code == 200
    assert 'remuda_pool_runners{pool="mac",state="starting"} 3.0' in metrics

    assert operated.end(SIGTERM) == 0
    holder = operated.kubectl(
        "get", "lease", "remuda-controller", "-o=jsonpath={.spec.holderIdentity}"
    )
    assert holder == ""
    assert "Traceback" not in operated.log()


def test_an_operator_that_is_killed_is_carried_on_by_the_next(operated: Operated) -> None:
    operated.start()
    operated.kubectl("apply", "-f", "-", stdin=POOL.replace("REPLICAS", "4"))
    soon(lambda: len(operated.names("pods")) > 0, wanted=True)
    operated.end(SIGKILL)
    kept = operated.names("pods")

    operated.start()
    soon(lambda: len(operated.names("pods")), 4)
    assert set(kept) <= set(operated.names("pods"))
    soon(lambda: operated.names("serviceaccounts") == operated.names("pods"), wanted=True)

    operated.kubectl("delete", "rpool", "mac", "--wait=false")
    soon(lambda: operated.names("pods") + operated.names("serviceaccounts"), [])
    soon(lambda: operated.kubectl("get", "rpool", "--output=name"), "")
    assert not re.search(r"Traceback|\"level\": \"error\"", operated.log())
