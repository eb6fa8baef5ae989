"""``kubectl logs``: the control plane fetches a Pod's log from the agent of its Node, and shows who asks."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kubectl import Kubectl

LINES = [f"line {number}" for number in range(1, 6)]


class Agent(ThreadingHTTPServer):
    """Stands in for the agent of one host: serves container logs over TLS, and wants to see a certificate."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        pair = Authority(folder).server("agent")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.asked: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Answer(BaseHTTPRequestHandler):
    server: Agent

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.server.asked.append(url.path)
        tail = int(query.get("tailLines", len(LINES)))
        body = "".join(f"{line}\n" for line in LINES[len(LINES) - tail :]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    server = Agent(tmp_path)
    thread = threading.Thread(target=server.serve_forever, name="agent")
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_logs_come_from_the_agent_of_the_node(kubectl: Kubectl, agent: Agent) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mare"},
        "spec": {"nodeName": "mac", "containers": [{"name": "runner", "image": "runner:1"}]},
    }
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": agent.port}},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mac"}, "status": status}
    kubectl("create", "-f", "-", stdin=json.dumps(node))
    kubectl("create", "-f", "-", stdin=json.dumps(pod))

    assert kubectl("logs", "mare").splitlines() == LINES
    assert kubectl("logs", "mare", "-c", "runner", "--tail=2").splitlines() == LINES[-2:]
    assert agent.asked == ["/containerLogs/default/mare/runner"] * 2
    assert "not valid for pod" in kubectl("logs", "mare", "-c", "other", fails=True)
    assert 'pods "foal" not found' in kubectl("logs", "foal", fails=True)
